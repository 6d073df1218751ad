"""`moonshim mend` on a terminal: colours, the hint for those who named nothing, and the width."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.command import EXAMPLE, MOONSHIM, environment

pty = pytest.importorskip("pty")


def on_a_terminal(*arguments: str, stream: str, **changes: str) -> tuple[int, str]:
    """Run it with one of its three streams on a terminal; the exit code, and what came to that terminal or stderr."""
    ours, theirs = pty.openpty()
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    if stream == "stdin":
        streams["stderr"] = subprocess.PIPE
    streams[stream] = theirs
    process: subprocess.Popen[bytes] = subprocess.Popen(
        [*MOONSHIM, *arguments],
        env=environment(**changes),
        stdin=streams["stdin"],
        stdout=streams["stdout"],
        stderr=streams["stderr"],
    )
    os.close(theirs)
    if process.stderr is not None:
        told = process.stderr.read()
        process.stderr.close()
    else:
        told = read_terminal(ours)
    code = process.wait(20)
    os.close(ours)
    return code, told.decode().replace("\r\n", "\n")


def read_terminal(descriptor: int) -> bytes:
    told = b""
    while True:
        try:
            data = os.read(descriptor, 1 << 16)
        except OSError:  # EIO: how Linux says that the other side is closed
            return told
        if not data:
            return told
        told += data


def test_the_report_has_colours() -> None:
    code, told = on_a_terminal("mend", str(EXAMPLE), stream="stderr")
    assert code == 0
    assert "\x1b[33m3 repairs\x1b[0m" in told


@pytest.mark.parametrize("changes", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colours_for_those_who_do_not_want_them(changes: dict[str, str]) -> None:
    _, told = on_a_terminal("mend", str(EXAMPLE), stream="stderr", **changes)
    assert "3 repairs" in told
    assert "\x1b" not in told


def test_the_json_report_has_no_colours() -> None:
    _, told = on_a_terminal("mend", str(EXAMPLE), "--report", "json", stream="stderr")
    assert told.startswith("{")
    assert "\x1b" not in told


def test_errors_have_colours_too() -> None:
    code, told = on_a_terminal("mend", "/nowhere", stream="stderr")
    assert code == 1
    assert "\x1b[31mNo such file or directory\x1b[0m" in told


@pytest.mark.parametrize("arguments", [["--help"], ["mend", "--help"]])
def test_help_has_bold_headings(arguments: list[str]) -> None:
    code, told = on_a_terminal(*arguments, stream="stdout")
    assert code == 0
    assert told.startswith("\x1b[1musage\x1b[0m: moonshim")
    assert "\x1b" not in on_a_terminal(*arguments, stream="stdout", NO_COLOR="1")[1]


def test_nobody_is_left_waiting_at_a_terminal() -> None:
    code, told = on_a_terminal("mend", stream="stdin")
    assert code == 2
    assert "moonshim mend leaked.sse" in told


def test_a_file_is_read_with_a_terminal_as_standard_input(tmp_path: Path) -> None:
    code, told = on_a_terminal("mend", str(EXAMPLE), stream="stdin")
    assert (code, told.splitlines()[0]) == (0, f"{EXAMPLE}: 3 repairs")
