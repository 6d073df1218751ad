"""Processes that die while they write, and disks that are full: what was said before is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from moonshim.agent.history import HistoryFile, read_history
from moonshim.engine.values.conversation import Message, Text
from tests.agent.writing_process import message


def human(text: str) -> Message:
    return Message("user", (Text(text),))


@pytest.mark.parametrize("after", [0, 1, 7, 30])
def test_a_process_that_is_killed_loses_nothing_that_it_had_written(tmp_path: Path, after: int) -> None:
    path = tmp_path / "one.jsonl"
    command = [sys.executable, "-m", "tests.agent.writing_process", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= after:
                process.kill()  # in the middle of whatever it does
                break
        told = [after, *map(int, process.stdout.read().split())]
    with HistoryFile.open(path) as history:
        count = len(history.messages)
        assert count > told[-1]
        assert history.messages == tuple(message(number) for number in range(count))
        history.add(human("Go on"))
    assert read_history(path).messages[-2:] == (message(count - 1), human("Go on"))


def test_wherever_the_file_ends_it_is_gone_on_from(tmp_path: Path) -> None:
    """What a kill leaves is a beginning of the file: all of them are tried."""
    path, cut = tmp_path / "one.jsonl", tmp_path / "cut.jsonl"
    texts = ["One", "Zwei 👀", "Three\n"]
    with HistoryFile.create(path) as history:
        for text in texts:
            history.add(human(text))
        history.undo()
        history.add(human("Four"))
    data = path.read_bytes()
    whole = [end for end in range(len(data) + 1) if end == len(data) or data[end : end + 1] == b"\n"]
    for end in range(len(data) + 1):
        cut.write_bytes(data[:end])
        lines = sum(end >= place for place in whole[:-1])
        said = [human(text) for text in texts[: max(lines - 1, 0)]]
        if lines >= 5:
            said.pop()
        if lines >= 6:
            said.append(human("Four"))
        with HistoryFile.open(cut) as history:
            assert list(history.messages) == said
            history.add(human("Go on"))
        again = read_history(cut)
        assert list(again.messages) == [*said, human("Go on")]
        assert again.troubles == ()


def test_a_line_that_was_never_finished_is_told(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    with HistoryFile.create(path) as history:
        history.add(human("One"))
        history.add(human("Two"))
    path.write_bytes(path.read_bytes()[:-10])
    with HistoryFile.open(path) as history:
        assert history.messages == (human("One"),)
        assert history.troubles == (f"the last line of {path} is incomplete and was skipped",)


def test_a_full_disk_is_told_once_and_everything_is_written_when_there_is_room(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    command = [sys.executable, "-m", "tests.agent.writing_process", str(path), "10000"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    full, room = ran.stdout.splitlines()
    # While it was full, the file had whole lines only.
    count, size, kept = full.split()
    assert int(size) < 10_000
    assert kept == "False"
    number, kept, told = room.split(" ", 2)
    assert kept == "True"
    assert "continues in memory" in told
    assert int(number) == int(count) + 1
    found = read_history(path)
    assert found.troubles == ()
    assert found.messages == tuple(message(one) for one in range(int(number)))


def test_a_disk_that_is_full_from_the_start_is_told(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.agent.writing_process", str(tmp_path / "one.jsonl"), "10"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode != 0
    assert "HistoryError" in ran.stderr
    assert "cannot write" in ran.stderr
    assert not (tmp_path / "one.jsonl").exists()


def test_a_long_conversation_loads_at_once(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    with HistoryFile.create(path) as history:
        history.add(human("x" * 500))
    opening, line = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(opening + line * 50_000)
    assert len(read_history(path).messages) == 50_000
