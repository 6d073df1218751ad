"""What Tab makes of what was typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from moonshim.chat.terminal.completion import file_names


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").touch()
    (tmp_path / "setup.py").touch()
    (tmp_path / ".hidden").touch()
    (tmp_path / "e\x1b[2Jvil").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("s", ["setup.py", "src/"]),
        ("src/", ["src/main.py"]),
        ("src/m", ["src/main.py"]),
        ("./se", ["./setup.py"]),
        (".h", [".hidden"]),
        ("", []),
        ("e", []),
        ("nowhere/x", []),
    ],
)
def test_names_of_files_go_on_as_the_word_does(folder: Path, word: str, names: list[str]) -> None:
    assert file_names(word, folder) == names


def test_absolute_paths_too(folder: Path) -> None:
    assert file_names(f"{folder}/se", Path("/")) == [f"{folder}/setup.py"]
