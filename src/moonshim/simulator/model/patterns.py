"""A schema's pattern and a string -> whether it matches, unless that could take too long.

Python backtracks where a pattern can match in several ways, and for some patterns their number explodes: `^(a+)+$`
doubles it with every letter. Schemas and strings come from clients.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

__all__ = ["finds", "pieces_of"]

MOST_WAYS: Final = 1_000_000
MOST_STEPS: Final = 100_000_000
LONGEST_PATTERN: Final = 2000
LONGEST_TEXT: Final = 10_000
_REPEATS: Final = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")


def finds(pattern: str, text: str) -> bool | None:
    """None: the pattern is invalid, or matching it against a string of this length might take too long.

    >>> finds("^[a-z]+$", "moonshim"), finds("^[a-z]+$", "8"), finds("^(a+)+$", "a" * 40 + "b"), finds("(", "")
    (True, False, None, None)
    """
    longest = _longest_text(pattern)
    if longest is None or len(text) > longest:
        return None
    return re.search(pattern, text) is not None


def pieces_of(pattern: str) -> Iterable[Any]:
    """The parsed pattern, as Python's own parser returns it; empty if that is unavailable. Raises `re.error` and
    others."""
    try:
        return import_module("re._parser").parse(pattern)  # type: ignore[no-any-return]
    except ImportError:  # it is not public, and may disappear one day
        return ()


@lru_cache(maxsize=1024)
def _longest_text(pattern: str) -> int | None:
    """Length of the longest string that is safe to match; None: the pattern is invalid."""
    if len(pattern) > LONGEST_PATTERN:
        return None
    try:
        re.compile(pattern)
        tree = pieces_of(pattern)
        if _rounds(tree) > LONGEST_TEXT:
            return None
        free, ways = _freedom(tree)
    except (re.error, RecursionError, OverflowError, ValueError):
        return None
    if ways > 1:
        return int(math.log(MOST_WAYS, ways))
    # Each may end anywhere, and a match may start anywhere.
    return min(int(MOST_STEPS ** (1 / (free + 1))), LONGEST_TEXT)


def _rounds(tree: Iterable[Any]) -> int:
    """Minimum number of iterations of the innermost nested loop, whatever the string: it may match nothing."""
    most = 1
    for operation, argument in tree:
        kind = str(operation)
        inside = max(map(_rounds, _parts(kind, argument)), default=1)
        most = max(most, inside * int(argument[0]) if kind in _REPEATS else inside)
    return most


def _freedom(tree: Iterable[Any]) -> tuple[int, int]:
    """How many parts of a pattern can match in several ways, and in how many ways one iteration of its loops can.

    Adjacent parts multiply, so the first is a number of factors; loops make a power, and the second is its base.
    """
    free, ways = 0, 1
    for operation, argument in tree:
        kind = str(operation)
        inside = [_freedom(part) for part in _parts(kind, argument)]
        inner, deeper = sum(one for one, _ in inside), max((two for _, two in inside), default=1)
        if kind in _REPEATS and int(argument[1]) > 1:
            deeper *= inner + 1
        free += inner + (kind in _REPEATS and int(argument[0]) != int(argument[1])) + max(len(inside) - 1, 0)
        ways = max(ways, deeper)
    return free, ways


def _parts(kind: str, argument: Any) -> list[Iterable[Any]]:
    """The parts nested in a part of a pattern."""
    match kind:
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            return [argument[2]]
        case "BRANCH":
            return list(argument[1])
        case "SUBPATTERN":
            return [argument[3]]
        case "ATOMIC_GROUP":
            return [argument]
        case "ASSERT" | "ASSERT_NOT":
            return [argument[1]]
        case "GROUPREF_EXISTS":
            return [part for part in argument[1:] if part is not None]
    return []
