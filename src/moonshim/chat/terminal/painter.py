"""Lines to print for good, and lines that still change -> what to write to a terminal, as little of it as possible.

The lines that change stand at the bottom. Of these only those are written again that differ, and everything goes out in
one write between two marks that tell newer terminals to show it at once: nothing flickers.
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
    """Knows what stands at the bottom of the screen. Lines must fit: none may be as wide as the terminal, and all of
    them must be fewer than its rows. While something is painted the cursor stays in the last line, and is hidden.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []

    def paint(self, above: Sequence[str], lines: Sequence[str]) -> str:
        """Print `above` for good, and have `lines` below it."""
        old, new = self._lines, list(lines)
        if not above and old == new:
            return ""
        same = 0 if above else _same(old, new)
        out = [_BEGIN, "" if old else _HIDE, self._to_line(same)]
        if above:
            out += [f"{line}{_TO_LINE_END}\r\n" for line in above]
        out.append("\r\n".join(f"{line}{_TO_LINE_END}" for line in new[same:]))
        if same == len(new) and new:  # the lines that are left are right; the cursor stands below them
            out.append(f"{_TO_SCREEN_END}\x1b[A\r")
        elif old:
            out.append(_TO_SCREEN_END)
        if not new:
            out.append(_SHOW)
        self._lines = new
        return "".join([*out, _END])

    def clear(self) -> str:
        """Take away what changes; the cursor stands where it stood."""
        if not self._lines:
            return ""
        out = f"{_BEGIN}{self._to_line(0)}{_TO_SCREEN_END}{_SHOW}{_END}"
        self._lines = []
        return out

    def _to_line(self, number: int) -> str:
        """From the last line to the beginning of another one; the one below them all is made when it is not there."""
        down = number - max(len(self._lines) - 1, 0)
        if down > 0:
            return "\r\n" * down
        return f"\r\x1b[{-down}A" if down else "\r"


def _same(old: Sequence[str], new: Sequence[str]) -> int:
    """How many lines at the beginning are the same."""
    for place, (before, after) in enumerate(zip(old, new, strict=False)):
        if before != after:
            return place
    return min(len(old), len(new))
