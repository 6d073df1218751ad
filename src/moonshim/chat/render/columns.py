"""A table with two columns -> the same where it is too wide for a screen: what does not fit goes on in its column."""

from __future__ import annotations

from textwrap import wrap
from typing import Final

__all__ = ["in_columns"]

_INDENT: Final = 4


def in_columns(text: str, column: int, width: int) -> str:
    """Break the lines that have two columns. Where the second would be narrow, it goes below the first.

    >>> print(in_columns("/undo  take the last turn back", 7, 22))
    /undo  take the last
           turn back
    >>> print(in_columns("/undo  take the last turn back", 7, 13))
    /undo
        take the
        last turn
        back
    """
    return "\n".join(_broken(line, column, width) for line in text.split("\n")) if column else text


def _broken(line: str, column: int, width: int) -> str:
    left, right = line[:column].rstrip(), line[column:].strip()
    if line[column - 2 : column] != "  " or not right:
        return line
    below = 2 * column > width
    room = " " * (_INDENT if below else column)
    first = f"{left}\n{room}" if below and left else f"{left:<{len(room)}}"
    lines = wrap(right, max(width - len(room), 1), break_long_words=False, break_on_hyphens=False)
    return first + f"\n{room}".join(lines)
