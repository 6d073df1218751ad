"""The toolbox where files, patterns and commands are unlike what one expects of them."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from moonshim.agent.history import HistoryError, HistoryFile, read_history
from moonshim.agent.toolbox.files import Files
from moonshim.agent.toolbox.folder import WorkingFolder
from moonshim.agent.toolbox.search import Search
from moonshim.agent.toolbox.shell import Shell
from moonshim.agent.tools import ToolFailed, tool
from moonshim.engine.values.conversation import Message, Text
from tests.agent.asking import run


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\n", "b", "x\ny", b"a\r\nx\r\ny\r\n"),
        (b"\xef\xbb\xbfa\r\nb\r\n", "a\nb", "x\ny", b"\xef\xbb\xbfx\r\ny\r\n"),
        (b"a\r\nb\nc\n", "c", "x\ny", b"a\r\nb\nx\ny\n"),
        (b"a\r\nb\r\n", "b", "x\r\ny", b"a\r\nx\r\ny\r\n"),
    ],
    ids=["new lines", "mark", "both kinds", "written so"],
)
def test_an_edit_keeps_the_line_ends_of_the_file(
    tmp_path: Path, before: bytes, old: str, new: str, after: bytes
) -> None:
    (tmp_path / "a.txt").write_bytes(before)
    Files(WorkingFolder(tmp_path), 1000).edit_file("a.txt", old, new)
    assert (tmp_path / "a.txt").read_bytes() == after


def test_a_name_as_long_as_names_can_be(tmp_path: Path) -> None:
    files, name = Files(WorkingFolder(tmp_path), 1000), "字" * 85
    files.write_file(name, "a")
    files.edit_file(name, "a", "b")
    assert (tmp_path / name).read_text() == "b"
    assert os.listdir(tmp_path) == [name]  # noqa: PTH208 - names are all that is needed


@pytest.mark.parametrize("pattern", ["{" + "," * 30_000, "[" * 50_000, "**/" * 3000 + "x", "{a,b}" * 500])
def test_a_pattern_for_names_that_would_take_for_ever_is_refused(tmp_path: Path, pattern: str) -> None:
    search = Search(WorkingFolder(tmp_path), 1000)
    with pytest.raises(ToolFailed, match="longer than 1000 characters"):
        search.glob(pattern)
    with pytest.raises(ToolFailed, match="longer than 1000 characters"):
        run(search.grep("x", glob=pattern))


def test_an_expression_that_is_wrong_and_very_long_is_told_in_short(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="invalid regular expression") as told:
        run(Search(WorkingFolder(tmp_path), 1000).grep("(" * 100_000))
    assert len(str(told.value)) < 1000


@pytest.mark.parametrize("where", [">/dev/null 2>&1", ""], ids=["quiet", "with the pipe open"])
def test_what_leaves_the_group_of_a_command_that_ends_well_is_ended_with_it(tmp_path: Path, where: str) -> None:
    async def test() -> int:
        said = await Shell(WorkingFolder(tmp_path)).bash(f"setsid sleep 60 {where} & echo $!")
        pid = int(said)
        for _ in range(400):
            if not _is_alive(pid):
                return 0
            await asyncio.sleep(0.005)
        os.kill(pid, signal.SIGKILL)
        return pid

    assert run(test()) == 0


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_a_time_that_is_no_number_is_the_usual_one(tmp_path: Path) -> None:
    shell = Shell(WorkingFolder(tmp_path), seconds=0.05)
    _, named = tool(shell.bash).read('{"command": "sleep 60", "timeout": "nan"}')
    with pytest.raises(ToolFailed, match=r"Timed out after 0\.05 seconds"):
        run(shell.bash(**named))


def test_a_conversation_is_an_ordinary_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), Path("/dev/null")):
        with pytest.raises(HistoryError, match="is not a regular file"):
            HistoryFile.open(path)
        with pytest.raises(HistoryError, match="is not a regular file"):
            read_history(path)
        assert path.exists()


def test_a_closed_conversation_is_not_copied_without_what_was_said(tmp_path: Path) -> None:
    history = HistoryFile.create(tmp_path / "a.jsonl", {"version": 9, "moonshim": "else"})
    history.add(Message("user", (Text("Hi"),)))
    history.close()
    with pytest.raises(HistoryError, match="is closed"):
        history.copy_to(tmp_path / "b.jsonl")
    assert not (tmp_path / "b.jsonl").exists()
    assert len(read_history(tmp_path / "a.jsonl").messages) == 1
