"""What the tests of commands share: a machine on which nothing is configured."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def nothing_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty home folder, and no variable that Moonshim reads."""
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_BASE_URL")) or name.startswith(("MOONSHIM_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
