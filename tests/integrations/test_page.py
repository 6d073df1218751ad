"""The page about the integrations: its code runs, its options are those that there are, its examples exist."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any, Final

import pytest

from moonshim import integrations

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "guides" / "sdks.md").read_text("utf-8")
FUNCTIONS: Final = sorted(name for name in integrations.__all__ if name.endswith("_http_client"))


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
def test_its_code_runs(code: str) -> None:
    names: dict[str, Any] = {}
    exec(compile(code, "docs/guides/sdks.md", "exec"), names)
    for name in ("client", "http_client"):
        if name in names:
            names[name].close()


def test_its_tables_name_every_function_and_every_option() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    for name in FUNCTIONS:
        taken = inspect.signature(getattr(integrations, name)).parameters
        assert [one for one in taken if one != "client"] == [row for row in rows if row not in FUNCTIONS]
    assert sorted(row for row in rows if row in FUNCTIONS) == FUNCTIONS


def test_its_examples_are_there_and_it_names_them_all() -> None:
    linked = {
        ROOT / "docs" / "guides" / path for path in re.findall(r"\]\((\.\./\.\./examples/integrations/\S+)\)", PAGE)
    }
    assert all(path.resolve().is_file() for path in linked)
    folders = {path.resolve().parent.name if path.parent.name != "integrations" else path.name for path in linked}
    there = {path.name for path in (ROOT / "examples" / "integrations").iterdir() if not path.name.startswith("__")}
    assert folders == there
