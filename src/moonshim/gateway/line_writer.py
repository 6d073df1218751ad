"""Lines -> a terminal, pipe or file, written by a thread, so that whoever logs never waits for its reader."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

__all__ = ["LineWriter"]

HELD_LINES: Final = 10_000
LAST_WORDS_SECONDS: Final = 2.0


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
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        self._untold = 0
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="moonshim-log", daemon=True)
        self._thread.start()

    def write(self, line: str) -> None:
        if self._lines.qsize() >= self._limit:
            self.dropped += 1
            self._untold += 1
            return
        self._lines.put(line)

    def close(self, seconds: float = LAST_WORDS_SECONDS) -> None:
        """Write what is left, but do not hang for a reader that has stopped."""
        self._lines.put(None)
        self._thread.join(seconds)

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            if not self._put(line):
                self._discard()
                return
            if self._untold and self._lines.qsize() < self._limit // 2:
                untold, self._untold = self._untold, 0
                if not self._put(self._tell_dropped(untold)):
                    self._discard()
                    return

    def _put(self, line: str) -> bool:
        """One write for each line: below 4 KiB a pipe that several workers share takes it whole."""
        rest = memoryview(f"{line}\n".encode(self._encoding, "backslashreplace"))
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # somebody who shares this terminal made it so
                select.select([], [self._descriptor], [], 1.0)
            except OSError:
                return False
        return True

    def _discard(self) -> None:
        """Nobody reads any longer: take what comes, so that memory stays bounded and `close` returns."""
        while self._lines.get() is not None:
            self.dropped += 1
