"""The table of the slow tests names existing tests, and what it selects is spread over what it leaves out."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.tiers import KEPT, ROOT, WITHOUT_SLOW, is_wholly_slow, mark_slow


@pytest.mark.parametrize("entry", KEPT)
def test_every_entry_is_a_folder_a_file_or_a_test(entry: str) -> None:
    path, _, name = entry.partition("::")
    assert (ROOT / path).exists()
    assert f"def {name}(" in (ROOT / path).read_text("utf-8") if name else True


def slow_of(*nodeids: str) -> list[str]:
    marked: list[str] = []
    items: list[Any] = [
        SimpleNamespace(nodeid=nodeid, add_marker=lambda mark, nodeid=nodeid: marked.append(nodeid))
        for nodeid in nodeids
    ]
    mark_slow(items)
    return marked


def test_the_longest_entry_counts_and_what_is_kept_is_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tests.support.tiers.KEPT", {"tests/a": 0, "tests/a/test_b.py": 2, "tests/a/test_b.py::test_c": 1}
    )
    cases = [f"tests/a/test_b.py::test_{number}" for number in range(4)]
    assert slow_of(*cases) == [cases[1], cases[3]]
    assert slow_of("tests/a/test_b.py::test_c[x/y::z]", "tests/a/test_b.py::test_c[2]") == [
        "tests/a/test_b.py::test_c[2]"
    ]
    assert slow_of("tests/a/b/test_d.py::test_e", "tests/d/test_f.py::test_g") == ["tests/a/b/test_d.py::test_e"]


def test_a_file_of_which_nothing_is_kept_is_not_imported_for_the_quick_tier() -> None:
    assert is_wholly_slow(ROOT / "tests/cli/test_hangup.py")
    assert not is_wholly_slow(ROOT / "tests/cli/mend/test_command.py")
    assert not is_wholly_slow(Path("/elsewhere/test_x.py"))
    assert WITHOUT_SLOW in (ROOT / "scripts/run_tests.py").read_text("utf-8")
