"""The page on security names tests and files that exist: a promise whose test is gone is noticed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent.parent
PAGE: Final = (ROOT / "docs" / "security.md").read_text("utf-8")


def test_every_test_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    written = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)\(", path.read_text())
    }
    assert len(named) > 30
    assert named - written == set()


def test_every_file_that_the_page_names_is_there() -> None:
    for name in re.findall(r"`((?:tests|gateway)/[\w/]+\.py)`", PAGE):
        assert (ROOT / name).is_file() or (ROOT / "src" / "moonshim" / name).is_file(), name
