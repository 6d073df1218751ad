"""Lines -> a terminal, pipe or file, written by a thread, so that logging never waits for a reader."""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

__all__ = ["LineWriter"]

HELD_LINES: Final = 10_000
LAST_WORDS_SECONDS: Final = 1.0
GATHER_SECONDS: Final = 0.05
"""How long lines are collected before they are written: waking a thread for each would cost more than everything
else."""
WHOLE_BYTES: Final = 4096
"""The size up to which writes to a pipe are atomic (PIPE_BUF of Linux; POSIX promises 512)."""


class LineWriter:
    """Lines are written in order, each in one piece, and `write` never blocks.

    If a reader stops, lines accumulate; over `limit` they are dropped, and when it reads again a line reports how many.
    If a reader is gone, only the writing ends.
    """

    def __init__(
        self,
        descriptor: int,
        *,
        encoding: str = "utf-8",
        limit: int = HELD_LINES,
        report_dropped: Callable[[int], str] = "{} log lines were dropped".format,
    ) -> None:
        self._descriptor, self._encoding, self._limit = descriptor, encoding, limit
        self._report_dropped = report_dropped
        self._lines: deque[str] = deque()
        self._wanted = threading.Event()
        """There are lines that the thread has not seen."""
        self._closing = threading.Event()
        self._gone = False
        """The reader is gone."""
        self._untold = 0
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="moonshim-log", daemon=True)
        self._thread.start()

    def write(self, line: str) -> None:
        if self._gone or len(self._lines) >= self._limit:
            self.dropped += 1
            self._untold += 1
            return
        self._lines.append(line)
        if not self._wanted.is_set():
            self._wanted.set()

    def close(self, seconds: float = LAST_WORDS_SECONDS) -> None:
        """Write what is left, but do not hang on a reader that has stopped."""
        self._closing.set()
        self._wanted.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        while not self._gone and not (self._closing.is_set() and not self._lines):
            self._wanted.wait()
            self._closing.wait(GATHER_SECONDS)
            # Before they are taken: a line that arrives meanwhile sets it again.
            self._wanted.clear()
            self._gone = not self._put_all()
        self.dropped += len(self._lines)
        self._lines.clear()

    def _put_all(self) -> bool:
        """Write everything that is queued; return whether the reader is still there."""
        while self._lines:
            if not self._put(self._next()):
                return False
            if self._untold and len(self._lines) < self._limit // 2:
                unreported, self._untold = self._untold, 0
                if not self._put(self._bytes(self._report_dropped(unreported))):
                    return False
        return True

    def _next(self) -> bytes:
        """As many lines as a pipe shared by several workers accepts atomically; a longer one alone."""
        piece = self._bytes(self._lines.popleft())
        while self._lines and len(piece) + len(self._lines[0]) < WHOLE_BYTES:
            line = self._bytes(self._lines[0])
            if len(piece) + len(line) > WHOLE_BYTES:
                break
            self._lines.popleft()
            piece += line
        return piece

    def _bytes(self, line: str) -> bytes:
        return f"{line}\n".encode(self._encoding, "backslashreplace")

    def _put(self, piece: bytes) -> bool:
        rest = memoryview(piece)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # another program that shares this terminal made it non-blocking
                select.select([], [self._descriptor], [], 1.0)
            except OSError:
                return False
        return True
