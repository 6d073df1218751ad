"""bash: what it prints comes back, and nothing that it starts outlives it: not after an end, a timeout, a cancel."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from moonshim.agent.toolbox.folder import WorkingFolder
from moonshim.agent.toolbox.shell import Shell
from moonshim.agent.tools import ToolFailed
from tests.agent.asking import run


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(WorkingFolder(tmp_path), output_limit=1000)


def is_alive(pid: int) -> bool:
    """A process that has ended and that nobody has looked at is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


async def gone(*pids: int) -> None:
    while any(map(is_alive, pids)):
        await asyncio.sleep(0.005)


async def pids_in(path: Path, count: int) -> list[int]:
    while not path.exists() or len(path.read_text().split()) < count:
        await asyncio.sleep(0.005)
    return [int(pid) for pid in path.read_text().split()]


def test_output_and_errors_come_back_in_their_order(shell: Shell, tmp_path: Path) -> None:
    assert run(shell.bash("echo one; echo two >&2; echo three")) == "one\ntwo\nthree"
    assert run(shell.bash("pwd")) == str(tmp_path)
    assert run(shell.bash("true")) == "(no output)"
    assert run(shell.bash("printf 'Größe 👀'")) == "Größe 👀"
    assert run(shell.bash(r"printf '\xff'")) == "\ufffd"


def test_it_is_bash(shell: Shell) -> None:
    assert run(shell.bash("a=(1 2 3); echo ${#a[@]} {x,y}")) == "3 x y"


def test_a_failure_is_an_error_with_its_output(shell: Shell) -> None:
    with pytest.raises(ToolFailed) as caught:
        run(shell.bash("echo before; exit 3"))
    assert str(caught.value) == "before\n\n(Failed with exit code 3.)"
    with pytest.raises(ToolFailed, match=r"command not found[\s\S]*exit code 127"):
        run(shell.bash("no_such_command"))
    with pytest.raises(ToolFailed, match="signal SIGKILL"):
        run(shell.bash("kill -9 $$"))


def test_there_is_no_input_and_no_terminal(shell: Shell) -> None:
    assert run(shell.bash("cat; read x || echo nothing to read; [ -t 0 ] || echo no terminal")) == (
        "nothing to read\nno terminal"
    )
    assert "cannot" in run(shell.bash("(exec < /dev/tty) 2>/dev/null || echo cannot ask"))


def test_much_output_keeps_its_beginning_and_its_end(shell: Shell) -> None:
    text = run(shell.bash("seq 1 100000"))
    assert text.startswith("1\n2\n3\n")
    assert text.endswith("\n99999\n100000")
    assert "bytes omitted" in text
    assert len(text) < 1100


def test_output_without_an_end_takes_no_memory(shell: Shell) -> None:
    with pytest.raises(ToolFailed, match=r"bytes omitted[\s\S]*Timed out after 0\.3 seconds"):
        run(shell.bash("yes", timeout=0.3))


def test_colours_and_progress_are_left_out(shell: Shell) -> None:
    assert run(shell.bash(r"printf '1%%\r50%%\r100%%\n\033[31mred\033[0m\n'")) == "100%\nred"


def test_keys_can_be_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "abc")
    monkeypatch.setenv("OPEN", "def")
    shell = Shell(WorkingFolder(tmp_path), hidden=("SECRET_KEY",))
    assert run(shell.bash("echo [$SECRET_KEY] [$OPEN]")) == "[] [def]"


def test_a_timeout_ends_the_command_and_everything_that_it_started(shell: Shell, tmp_path: Path) -> None:
    async def test() -> None:
        command = "echo begun; sleep 1000 & echo $! >> pids; (sleep 1000 & echo $! >> pids; wait) & sleep 1000"
        with pytest.raises(ToolFailed, match=r"begun[\s\S]*Timed out after 0\.5 seconds"):
            await shell.bash(command, timeout=0.5)
        await gone(*await pids_in(tmp_path / "pids", 2))

    run(test())


def test_a_command_that_does_not_want_to_end_is_killed(shell: Shell, tmp_path: Path) -> None:
    async def test() -> None:
        with pytest.raises(ToolFailed, match="Timed out"):
            await shell.bash("trap '' TERM; echo $$ > pids; while true; do sleep 1000; done", timeout=0.2)
        await gone(*await pids_in(tmp_path / "pids", 1))

    run(test())


def test_a_command_may_clean_up_when_it_is_stopped(shell: Shell, tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="Timed out"):
        run(shell.bash("trap 'rm lock; exit' TERM; touch lock; sleep 1000 & wait", timeout=0.3))
    assert not (tmp_path / "lock").exists()


def test_on_a_timeout_those_that_left_the_group_are_ended_too(shell: Shell, tmp_path: Path) -> None:
    async def test() -> None:
        command = "setsid bash -c 'echo $$ > pids; exec sleep 1000' & sleep 1000"
        task = asyncio.create_task(shell.bash(command, timeout=1))
        pids = await pids_in(tmp_path / "pids", 1)
        with pytest.raises(ToolFailed, match="Timed out"):
            await task
        await gone(*pids)

    run(test())


def test_cancelling_ends_everything_too(shell: Shell, tmp_path: Path) -> None:
    async def test() -> None:
        task = asyncio.create_task(shell.bash("sleep 1000 & echo $! >> pids; echo $$ >> pids; sleep 1000"))
        pids = await pids_in(tmp_path / "pids", 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await gone(*pids)

    run(test())


def test_cancelling_twice_ends_everything_all_the_same(shell: Shell, tmp_path: Path) -> None:
    async def test() -> None:
        task = asyncio.create_task(shell.bash("trap '' TERM; echo $$ >> pids; while true; do sleep 1000; done"))
        pids = await pids_in(tmp_path / "pids", 1)
        task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids), "it was ended, but not waited for"

    run(test())


@pytest.mark.parametrize("steps", range(6))
def test_cancelling_while_it_starts_leaves_nothing(shell: Shell, tmp_path: Path, steps: int) -> None:
    async def test() -> None:
        task = asyncio.create_task(shell.bash("sleep 1000 & echo $! >> pids; wait"))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        pids = tmp_path / "pids"
        await gone(*map(int, pids.read_text().split() if pids.exists() else ()))

    run(test())


def test_what_is_left_in_the_background_is_ended_and_does_not_hold_up_the_result(shell: Shell, tmp_path: Path) -> None:
    async def test() -> None:
        assert await shell.bash("sleep 1000 & echo $! > pids; echo started") == "started"
        await gone(*await pids_in(tmp_path / "pids", 1))

    run(test())


def test_who_leaves_the_group_and_keeps_the_output_open_does_not_hold_up_the_result(
    shell: Shell, tmp_path: Path
) -> None:
    async def test() -> None:
        assert await shell.bash("setsid sleep 1000 & echo $! > pids; echo started") == "started"
        await gone(*await pids_in(tmp_path / "pids", 1))

    run(test())


def test_the_time_that_a_model_asks_for_is_bounded(tmp_path: Path) -> None:
    bounded = Shell(WorkingFolder(tmp_path), seconds=0.2, most_seconds=0.3)
    with pytest.raises(ToolFailed, match=r"Timed out after 0\.3 seconds"):
        run(bounded.bash("sleep 1000", timeout=100000))
    with pytest.raises(ToolFailed, match=r"Timed out after 0\.2 seconds"):
        run(bounded.bash("sleep 1000", timeout=-1))


def test_a_folder_that_is_gone_says_so(tmp_path: Path) -> None:
    shell = Shell(WorkingFolder(tmp_path / "gone"))
    with pytest.raises(ToolFailed, match="cannot start the shell"):
        run(shell.bash("true"))


def test_a_command_cannot_have_a_nul(shell: Shell) -> None:
    with pytest.raises(ToolFailed, match="NUL"):
        run(shell.bash("echo \0"))


def test_nothing_is_left_open(shell: Shell) -> None:
    async def test() -> None:
        await shell.bash("true")
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        for _ in range(5):
            await shell.bash("echo x")
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208

    run(test())
