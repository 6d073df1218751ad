"""A command in a pseudo-terminal, and a person who types and reads the screen."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

import pexpect
import pyte

__all__ = ["COLUMNS", "ROWS", "Terminal"]

COLUMNS, ROWS = 120, 50
DEADLINE: Final = 90.0


class _Screen(pyte.HistoryScreen):
    """A screen with its past, which answers questions about the cursor and itself, as terminals do."""

    def __init__(self, rows: int, answer: Callable[[str], None]) -> None:
        super().__init__(COLUMNS, rows, history=10_000)
        self._answer = answer

    def write_process_input(self, data: str) -> None:
        self._answer(data)

    def report_device_attributes(self, mode: int = 0, **kwargs: bool) -> None:
        if not kwargs.get("private"):
            super().report_device_attributes(mode, **kwargs)

    def report_device_status(self, mode: int = 0, **kwargs: bool) -> None:
        if not kwargs.get("private"):  # which pyte does not know
            super().report_device_status(mode)


class Terminal:
    """One process. `until` reads what it prints until something is so."""

    def __init__(self, command: Sequence[str], cwd: Path, env: Mapping[str, str], rows: int = ROWS) -> None:
        self.raw = ""
        with warnings.catch_warnings():
            # Python warns of a fork beside threads, as the simulator has one; here nothing but an exec follows it.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.child = pexpect.spawn(
                command[0],
                list(command[1:]),
                cwd=str(cwd),
                env={**env, "TERM": "xterm-256color"},
                encoding="utf-8",
                codec_errors="replace",
                dimensions=(rows, COLUMNS),
            )
        self.child.delaybeforesend = None
        self.screen = _Screen(rows, self.type)
        self._stream = pyte.Stream(self.screen)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.close(force=True)

    @property
    def pid(self) -> int:
        return int(self.child.pid or 0)

    @property
    def shown(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display)

    @property
    def text(self) -> str:
        """Everything that was shown, the past first, without colours. What was drawn over is missing."""
        width = self.screen.columns
        past = ["".join(row[at].data for at in range(width)).rstrip() for row in self.screen.history.top]
        return "\n".join([*past, self.shown])

    def type(self, keys: str) -> None:
        self.child.send(keys)

    def read(self, seconds: float) -> bool:
        """Read what comes within this time; whether more can come."""
        try:
            data = self.child.read_nonblocking(65536, timeout=seconds)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        self.raw += data
        self._stream.feed(data)
        return True

    def until(self, is_so: Callable[[], bool], what: str, seconds: float = DEADLINE) -> None:
        """Raises `TimeoutError` with the screen, if it does not come to that."""
        end = time.monotonic() + seconds
        while not is_so():
            if not self.read(0.2) and not is_so():
                raise TimeoutError(f"it ended without {what}: {self.text.strip()[-800:]}")
            if time.monotonic() > end:
                raise TimeoutError(f"no {what} after {seconds:.0f} s: {self.text.strip()[-1500:]}")

    def ends(self, seconds: float = DEADLINE) -> int:
        """Wait for the end; the exit code, negative for a signal."""
        end = time.monotonic() + seconds
        while self.read(0.2) or self.child.isalive():
            if time.monotonic() > end:
                raise TimeoutError(f"it did not end within {seconds:.0f} s: {self.text.strip()[-1500:]}")
        self.child.close()
        status, signal = self.child.exitstatus, self.child.signalstatus
        return int(status) if status is not None else -int(signal or 0)
