"""Lines -> a terminal, pipe or file, written by a thread, so that whoever logs never waits for its reader."""

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
"""How long lines are gathered before they are written: to wake a thread for each costs more than all else about it."""
WHOLE_BYTES: Final = 4096
"""What a pipe takes whole, whoever else writes to it (PIPE_BUF of Linux; POSIX promises 512)."""


class LineWriter:
    """Lines leave in their order, each whole, and `write` never blocks.

    A reader that stops reading makes lines pile up; over `limit` they are dropped, and when it reads again a line
    says how many. A reader that is gone ends the writing, and nothing else.
    """

    def __init__(
        self,
        descriptor: int,
        *,
        encoding: str = "utf-8",
        limit: int = HELD_LINES,
        tell_dropped: Callable[[int], str] = "{} lines of the log were dropped".format,
    ) -> None:
        self._descriptor, self._encoding, self._limit = descriptor, encoding, limit
        self._tell_dropped = tell_dropped
        self._lines: deque[str] = deque()
        self._wanted = threading.Event()
        """There are lines that the thread has not seen."""
        self._closing = threading.Event()
        self._gone = False
        """Nobody reads any longer."""
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
        """Write what is left, but do not hang for a reader that has stopped."""
        self._closing.set()
        self._wanted.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        while not self._gone and not (self._closing.is_set() and not self._lines):
            self._wanted.wait()
            self._closing.wait(GATHER_SECONDS)
            # Before they are taken: a line that comes meanwhile asks again.
            self._wanted.clear()
            self._gone = not self._put_all()
        self.dropped += len(self._lines)
        self._lines.clear()

    def _put_all(self) -> bool:
        """What is there now; whether anybody reads it."""
        while self._lines:
            if not self._put(self._next()):
                return False
            if self._untold and len(self._lines) < self._limit // 2:
                untold, self._untold = self._untold, 0
                if not self._put(self._bytes(self._tell_dropped(untold))):
                    return False
        return True

    def _next(self) -> bytes:
        """As many lines as a pipe that several workers share takes whole; a longer one alone."""
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
            except BlockingIOError:  # somebody who shares this terminal made it so
                select.select([], [self._descriptor], [], 1.0)
            except OSError:
                return False
        return True
