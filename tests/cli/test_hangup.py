"""SIGHUP and `moonshim serve`: closing its terminal stops it, everywhere else the configuration is loaded again."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from tests.support.command import MOONSHIM, environment
from tests.support.gateway.serving import wait_until

pty = pytest.importorskip("pty")

DEADLINE: Final = 120.0
# What a terminal does for its shell: a session, whose controlling terminal is standard input. The tests themselves may
# run under nohup.
ON_TERMINAL: Final = (
    sys.executable,
    "-c",
    (
        "import fcntl, os, signal, sys, termios; signal.signal(signal.SIGHUP, signal.SIG_DFL); "
        "fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
    ),
)
IGNORING_HANGUPS: Final = (
    sys.executable,
    "-c",
    "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); os.execvp(sys.argv[1], sys.argv[1:])",
)
"""As nohup does."""


class Terminal:
    """A pseudo-terminal, and the gateway that was started in it."""

    def __init__(self, ours: int, process: subprocess.Popen[bytes], errors: Path) -> None:
        self._ours, self.process, self._errors = ours, process, errors

    @property
    def told(self) -> str:
        return self._errors.read_text()

    def show_until(self, word: bytes) -> bytes:
        shown = b""
        while word not in shown:
            assert select.select([self._ours], [], [], DEADLINE)[0], shown
            shown += os.read(self._ours, 4096)
        return shown

    def close(self) -> None:
        os.close(self._ours)


@contextmanager
def gateway(folder: Path, *arguments: str, before: tuple[str, ...] = (), shown: bool = False) -> Iterator[Terminal]:
    """A gateway that serves, in a terminal of its own. `shown`: its log goes to the terminal too."""
    ours, theirs = pty.openpty()
    with (folder / "stderr").open("wb") as errors:
        process = subprocess.Popen(
            [*ON_TERMINAL, *before, *MOONSHIM, "serve", "--demo", "--port", "0", *arguments],
            cwd=folder,
            env=environment(MOONSHIM_STORE=f"sqlite:{folder}/state.db"),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs if shown else errors,
            start_new_session=True,
        )
    os.close(theirs)
    terminal = Terminal(ours, process, folder / "stderr")
    try:
        terminal.show_until(b"/v1/models")
        yield terminal
        assert "Traceback" not in terminal.told
    finally:
        with suppress(OSError):
            terminal.close()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(DEADLINE)


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("shown", [False, True], ids=["log in a file", "log on the terminal"])
def test_closing_the_terminal_stops_it(workers: str, shown: bool, tmp_path: Path) -> None:
    with gateway(tmp_path, "--workers", workers, shown=shown) as terminal:
        terminal.close()
        assert terminal.process.wait(DEADLINE) == 0
        assert "configuration_loaded" not in terminal.told


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_hangup_signal_while_the_terminal_is_there_loads_the_configuration(workers: str, tmp_path: Path) -> None:
    with gateway(tmp_path, "--workers", workers) as terminal:
        terminal.process.send_signal(signal.SIGHUP)
        wait_until(lambda: terminal.told.count("configuration_loaded") == int(workers), "it is loaded again")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.process.wait(DEADLINE) == 0


@pytest.mark.parametrize("workers", ["1", "2"])
def test_one_that_was_started_to_ignore_hangups_survives_its_terminal(workers: str, tmp_path: Path) -> None:
    with gateway(tmp_path, "--workers", workers, before=IGNORING_HANGUPS) as terminal:
        terminal.close()
        terminal.process.send_signal(signal.SIGHUP)
        wait_until(lambda: terminal.told.count("configuration_loaded") >= int(workers), "it is loaded again")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.process.wait(DEADLINE) == 0
