"""Lines to print permanently, and lines that still change -> minimal writes to a terminal.

The changing lines are at the bottom. Only those that differ are rewritten, and everything is sent in one write between
two marks that tell newer terminals to show it at once: nothing flickers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["Painter"]

_BEGIN: Final = "\x1b[?2026h"
_END: Final = "\x1b[?2026l"
_HIDE: Final = "\x1b[?25l"
_SHOW: Final = "\x1b[?25h"
_TO_LINE_END: Final = "\x1b[K"
_TO_SCREEN_END: Final = "\x1b[J"


class Painter:
    """Tracks what is at the bottom of the screen. Lines must be narrower than the terminal, and fewer than its rows.
    While something is painted, the cursor stays in the last line, and is hidden.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []

    def paint(self, above: Sequence[str], lines: Sequence[str]) -> str:
        """Print `above` permanently, and show `lines` below it."""
        old, new = self._lines, list(lines)
        if not above and old == new:
            return ""
        same = 0 if above else _same(old, new)
        out = [_BEGIN, "" if old else _HIDE, self._to_line(same)]
        if above:
            out += [f"{line}{_TO_LINE_END}\r\n" for line in above]
        out.append("\r\n".join(f"{line}{_TO_LINE_END}" for line in new[same:]))
        if same == len(new) and new:  # the remaining lines are right; the cursor is below them
            out.append(f"{_TO_SCREEN_END}\x1b[A\r")
        elif old:
            out.append(_TO_SCREEN_END)
        if not new:
            out.append(_SHOW)
        self._lines = new
        return "".join([*out, _END])

    def clear(self) -> str:
        """Erase the changing lines; the cursor is where it was."""
        if not self._lines:
            return ""
        out = f"{_BEGIN}{self._to_line(0)}{_TO_SCREEN_END}{_SHOW}{_END}"
        self._lines = []
        return out

    def _to_line(self, number: int) -> str:
        """From the last line to the start of another one; the line below them all is created if it does not exist."""
        down = number - max(len(self._lines) - 1, 0)
        if down > 0:
            return "\r\n" * down
        return f"\r\x1b[{-down}A" if down else "\r"


def _same(old: Sequence[str], new: Sequence[str]) -> int:
    """How many lines at the beginning are equal."""
    for place, (before, after) in enumerate(zip(old, new, strict=False)):
        if before != after:
            return place
    return min(len(old), len(new))
