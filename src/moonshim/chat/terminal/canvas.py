"""A terminal, or a substitute -> lines that stay, and lines below them that change."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from textwrap import wrap
from typing import IO, Final

from rich.console import Console, ConsoleDimensions, RenderableType
from rich.text import Text

from moonshim.chat.render.items import lines_of
from moonshim.chat.render.sanitize import clean
from moonshim.chat.render.screen import ScreenItem
from moonshim.chat.terminal.painter import Painter

__all__ = ["Canvas"]

_FEWEST_COLUMNS: Final = 20
_FEWEST_ROWS: Final = 6
_UNKNOWN: Final = (80, 24)


class Canvas:
    """What is shown. Where the cursor cannot be moved (a dumb terminal), only lines that stay are written."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self.moves = file.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
        self.console = Console(file=file, highlight=False, markup=False, emoji=False, legacy_windows=False)
        encoding = (getattr(file, "encoding", None) or "utf-8").lower().replace("-", "")
        self._encoding = None if encoding == "utf8" else encoding
        self.rows = _UNKNOWN[1]
        self._painter = Painter()
        self.fit()

    @property
    def screenful(self) -> int:
        """Rows in a screenful, with room for the status line and a little context."""
        return self.rows - 4

    def fit(self) -> None:
        """Measure the terminal again. One column stays free: terminals differ in where the cursor is after the last
        one."""
        try:
            columns, rows = os.get_terminal_size(self._file.fileno())
        except (OSError, ValueError):
            columns, rows = _UNKNOWN
        self.rows = max(rows or _UNKNOWN[1], _FEWEST_ROWS)
        # Both, or rich assumes 80 columns where TERM is dumb.
        self.console.size = ConsoleDimensions(max((columns or _UNKNOWN[0]) - 1, _FEWEST_COLUMNS), self.rows)

    def lines(self, shown: RenderableType) -> list[str]:
        """The rendered lines of something."""
        with self.console.capture() as captured:
            self.console.print(shown)
        return captured.get().removesuffix("\n").split("\n")

    def items(self, items: Sequence[ScreenItem], *, growing: bool = False) -> list[str]:
        return lines_of(self.console, items, height=self.screenful, growing=growing)

    def paint(self, above: Sequence[str], below: Sequence[str] = ()) -> None:
        """Write the lines that stay, and show the changing ones below."""
        if self.moves:
            self._write(self._painter.paint(above, list(below)[-(self.rows - 2) :]))
        else:
            self._write("".join(f"{line}\n" for line in above))

    @contextmanager
    def marking_pastes(self) -> Iterator[None]:
        """Let the terminal mark pasted text: line breaks in it are not Enter."""
        self._write("\x1b[?2004h" if self.moves else "")
        try:
            yield
        finally:
            self._write("\x1b[?2004l" if self.moves else "")

    def say(self, text: str, style: str = "", *, column: int = 0) -> None:
        """Print a few lines for the user; `column`: where the second column of a table begins."""
        self.fit()
        self.paint(self.lines(Text(_in_columns(clean(text), column, self.console.width), style=style)))

    def _write(self, text: str) -> None:
        if text:
            # An escape for a character that the encoding lacks would be wider than the character, and move the cursor.
            encoding = self._encoding
            self._file.write(text if encoding is None else text.encode(encoding, "replace").decode(encoding))
            self._file.flush()


_INDENT: Final = 4


def _in_columns(text: str, column: int, width: int) -> str:
    """Wrap the lines that have two columns. If the second would be narrow, it goes below the first.

    >>> print(_in_columns("/undo  take the last turn back", 7, 22))
    /undo  take the last
           turn back
    >>> print(_in_columns("/undo  take the last turn back", 7, 13))
    /undo
        take the
        last turn
        back
    """
    return "\n".join(_wrap(line, column, width) for line in text.split("\n")) if column else text


def _wrap(line: str, column: int, width: int) -> str:
    left, right = line[:column].rstrip(), line[column:].strip()
    if line[column - 2 : column] != "  " or not right:
        return line
    below = 2 * column > width
    room = " " * (_INDENT if below else column)
    first = f"{left}\n{room}" if below and left else f"{left:<{len(room)}}"
    lines = wrap(right, max(width - len(room), 1), break_long_words=False, break_on_hyphens=False)
    return first + f"\n{room}".join(lines)
