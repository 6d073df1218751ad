"""Finds fixed markers in text that arrives in pieces."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

__all__ = ["MarkerSet", "marker_set"]


class MarkerSet:
    """Finds the next marker, and how much of the end of a text may still become one."""

    __slots__ = ("_longest", "_prefixes", "find", "match", "starts")

    def __init__(self, markers: Iterable[str]) -> None:
        ordered = sorted(set(markers), key=len, reverse=True)
        pattern = re.compile("|".join(map(re.escape, ordered)))
        self.find = pattern.search
        self.match = pattern.match
        self.starts = "".join(sorted({marker[0] for marker in ordered}))
        """The characters that can start a marker: text without them has none."""
        self._prefixes = frozenset(marker[:size] for marker in ordered for size in range(1, len(marker)))
        self._longest = len(ordered[0]) - 1

    def partial_length(self, text: str, start: int = 0) -> int:
        """Number of characters at the end of the text that could still grow into a marker."""
        longest = min(self._longest, len(text) - start)
        tail = text[len(text) - longest :] if longest else ""
        if not any(first in tail for first in self.starts):
            return 0
        for size in range(longest, 0, -1):
            if tail[longest - size :] in self._prefixes:
                return size
        return 0

    def until_next(self, text: str, start: int) -> tuple[int, re.Match[str] | None]:
        """How far the text is certainly not a marker, and the marker that follows; None if more text is needed."""
        marker = self.find(text, start)
        return (marker.start(), marker) if marker else (len(text) - self.partial_length(text, start), None)

    def may_grow(self, text: str, start: int) -> bool:
        """Whether all of the rest can still grow into a marker."""
        return self.partial_length(text, start) == len(text) - start


@lru_cache(maxsize=64)
def marker_set(*markers: str) -> MarkerSet:
    """The set for these markers; cached, since it has no state."""
    return MarkerSet(markers)
