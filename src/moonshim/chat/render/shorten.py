"""A long text and a number of rows -> as much of its beginning or end as fits, and how much was left out."""

from __future__ import annotations

from rich.cells import cell_len

__all__ = ["first_rows", "last_rows", "rows_of"]


def rows_of(line: str, width: int) -> int:
    """How many rows of a terminal a line takes.

    >>> rows_of("", 10), rows_of("a" * 21, 10), rows_of("今天天气", 4)
    (1, 3, 2)
    """
    return max(1, -(-cell_len(line) // max(width, 1)))


def first_rows(text: str, most: int, width: int) -> tuple[str, int]:
    """The lines at the beginning that fit, and how many lines were left out; a line that is too long is cut.

    >>> first_rows("a\\nb\\nc", 2, 80)
    ('a\\nb', 1)
    """
    return _cut(text.rstrip("\n").split("\n"), most, width)


def last_rows(text: str, most: int, width: int) -> tuple[str, int]:
    """The same of the end.

    >>> last_rows("a\\nb\\nc", 2, 80)
    ('b\\nc', 1)
    """
    lines = text.rstrip("\n").split("\n")
    kept: list[str] = []
    left = most
    for line in reversed(lines):
        left -= rows_of(line[-most * width :], width)
        if left < 0 and kept:
            break
        kept.insert(0, line[-most * width :])
    return "\n".join(kept), len(lines) - len(kept)


def _cut(lines: list[str], most: int, width: int) -> tuple[str, int]:
    kept: list[str] = []
    left = most
    for line in lines:
        short = line[: most * width]
        left -= rows_of(short, width)
        if left < 0 and kept:
            break
        kept.append(short + "…" if len(short) < len(line) else short)
    return "\n".join(kept), len(lines) - len(kept)
