"""Recognises `functions.declared_name:3` at the end of ordinary text, while it can still become a call."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

__all__ = ["BareNames", "bare_names"]

# A call's index and the space behind it are bounded, so that what is held back is.
_DIGITS: Final = 9
_SPACES: Final = 8


class BareNames:
    """Finds a header that lost its begin tokens; only the names of declared tools count."""

    __slots__ = ("_full", "_heads", "_reach", "_tail")

    def __init__(self, names: Iterable[str]) -> None:
        heads = [head for name in names if name for head in (name, f"functions.{name}")]
        self._heads = frozenset(heads)
        self._full = frozenset(head[:size] for head in heads for size in range(1, len(head) + 1))
        self._reach = max(map(len, heads), default=0) + 1 + _DIGITS + _SPACES
        first = "".join(sorted({re.escape(head[0]) for head in heads}))
        self._tail = re.compile(rf"(?<![\w.:\-])[{first}][\w.\-]*(?::[0-9]{{0,{_DIGITS}}}(?<=[0-9])?\s{{0,{_SPACES}}})?\Z")

    def candidate(self, text: str, start: int, end: int) -> int:
        """Where a header begins that reaches up to `end` and may still grow; `end` when there is none."""
        begin = max(start, end - self._reach)
        found = self._tail.search(text, begin, end)
        if found is None or (begin == found.start() > start and _is_word(text[begin - 1])):
            return end
        head, colon, _ = found.group().partition(":")
        known = head in self._heads if colon else head in self._full
        return found.start() if known else end

    def header(self, text: str, start: int, end: int) -> int:
        """Where a whole header (`name:12`) begins that ends at `end`; `end` when there is none."""
        at = self.candidate(text, start, end)
        return at if at < end and text[at:end].rstrip()[-1:].isdigit() and ":" in text[at:end] else end


def _is_word(char: str) -> bool:
    return char.isalnum() or char in "_.:-"


@lru_cache(maxsize=64)
def bare_names(names: frozenset[str]) -> BareNames | None:
    """The finder for these names, made once: it holds no state of any stream."""
    return BareNames(names) if any(names) else None
