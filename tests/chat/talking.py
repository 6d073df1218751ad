"""`moonshim chat` in a pseudo-terminal, and somebody who types and looks at the screen; no sleeping, only looking."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

import pexpect
import pyte

from tests.support.command import MOONSHIM, environment

DEADLINE: Final = 120.0
COLUMNS, ROWS = 100, 30
CTRL_C, CTRL_D, CTRL_J, CTRL_R, CTRL_T, ALT_ENTER, UP = "\x03", "\x04", "\n", "\x12", "\x14", "\x1b\r", "\x1b[A"


class _Emulated(pyte.HistoryScreen):
    """A screen with its past. It answers where the cursor is, as terminals do."""

    def __init__(self, columns: int, rows: int, answer: Callable[[str], None]) -> None:
        super().__init__(columns, rows, history=10_000)
        self._answer = answer

    def write_process_input(self, data: str) -> None:
        self._answer(data)


class Talk:
    """One process. `sees` waits until something is on the screen, or was and has scrolled away."""

    def __init__(self, *arguments: str | Path, cwd: Path, **changes: str) -> None:
        given = environment(**{"XDG_DATA_HOME": str(cwd / "data"), "TERM": "xterm-256color"} | changes)
        given = {name: value for name, value in given.items() if not name.endswith("_API_KEY")}
        self.cwd = cwd
        self.raw = ""
        with warnings.catch_warnings():
            # Python warns of a fork beside threads, as the simulator has one; here nothing but an exec follows it.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.child = pexpect.spawn(
                MOONSHIM[0],
                [*MOONSHIM[1:], "chat", *map(str, arguments)],
                cwd=str(cwd),
                env=given,
                encoding="utf-8",
                codec_errors="replace",
                dimensions=(ROWS, COLUMNS),
            )
        self.child.delaybeforesend = None
        self.screen = _Emulated(COLUMNS, ROWS, self.types)
        self._stream = pyte.Stream(self.screen)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.close(force=True)

    # -- looking -----------------------------------------------------------------------------------------------------

    @property
    def display(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    @property
    def lines(self) -> list[str]:
        """Everything that was shown, the past first."""
        width = self.screen.columns
        past = ["".join(row[at].data for at in range(width)).rstrip() for row in self.screen.history.top]
        return [*past, *self.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + DEADLINE
        while not is_so():
            try:
                data = self.child.read_nonblocking(65536, timeout=1)
            except pexpect.TIMEOUT:
                data = ""
            except pexpect.EOF:
                assert is_so(), f"it ended without {what}:\n{self.text}"
                return
            self.raw += data
            self._stream.feed(data)
            assert time.monotonic() < end, f"there is no {what}:\n{self.text}"

    def sees(self, *words: str, times: int = 1) -> None:
        for word in words:
            self.until(lambda word=word: self.text.count(word) >= times, f"{word!r}")  # type: ignore[misc]

    def is_ready(self) -> bool:
        """Whether somebody can type: the cursor is in an empty line of input."""
        cursor, shown = self.screen.cursor, self.display
        is_drawn = cursor.y < len(shown) - 1 and bool(shown[-1])  # with the status below it
        return is_drawn and not cursor.hidden and cursor.x == len("> ") and shown[cursor.y] == ">"

    # -- doing -------------------------------------------------------------------------------------------------------

    def hides_the_cursor(self) -> bool:
        return bool(self.screen.cursor.hidden)

    def types(self, keys: str) -> None:
        self.child.send(keys)

    def says(self, line: str) -> None:
        """Type a line, when the chat is ready for one."""
        self.until(self.is_ready, "place to type")
        self.types(f"{line}\r")
        # The line itself has to be gone from the input: else the next one could be typed into it.
        self.until(lambda: not self.is_ready() or self.display[self.screen.cursor.y] == ">", "end of the line")

    def asks(self, line: str) -> list[str]:
        """Type a line and wait until the chat is ready again; what was shown between."""
        self.until(self.is_ready, "place to type")
        before = len(self.screen.history.top) + self.screen.cursor.y
        self.types(line)
        self.until(lambda: line[-20:] in self.display[self.screen.cursor.y], "echo")
        self.types("\r")
        self.until(lambda: self._now() > before and self.is_ready(), "end of it")
        return self.lines[before + 1 : self._now()]

    def _now(self) -> int:
        return len(self.screen.history.top) + self.screen.cursor.y

    def resizes(self, columns: int, rows: int) -> None:
        gone = max(self.screen.lines - rows, 0)
        self.screen.resize(rows, columns)
        # The emulator takes lines away at the top, and leaves its cursor where no line is any more.
        self.screen.cursor.y = max(self.screen.cursor.y - gone, 0)
        self.screen.cursor.x = min(self.screen.cursor.x, columns - 1)
        self.child.setwinsize(rows, columns)

    def ends(self) -> int:
        """Wait for its end; the exit code."""
        self.until(lambda: not self.child.isalive(), "end")
        while True:
            try:
                data = self.child.read_nonblocking(65536, timeout=1)
            except (pexpect.EOF, pexpect.TIMEOUT):
                break
            self.raw += data
            self._stream.feed(data)
        self.child.close()
        assert "Traceback" not in self.text, self.text
        assert self.child.exitstatus is not None, self.child.signalstatus
        return int(self.child.exitstatus)


def in_folder(folder: Path) -> Path:
    """A folder to work in, with a few files."""
    (folder / "notes.md").write_text("# Notes\n\nBuy milk.\n")
    (folder / "src").mkdir()
    (folder / "src" / "main.py").write_text("print('hello')\n")
    return folder
