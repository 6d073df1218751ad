"""Recognizes `functions.declared_name:3` at the end of ordinary text, while it can still become a call."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

__all__ = ["WORD", "BareNames", "bare_names", "ends_in_word"]

WORD: Final = string.ascii_letters + string.digits + "_.-$"
"""Characters of a header. Other letters end a word: Chinese text has no space before a name."""

_IN_WORD: Final = frozenset(WORD + ":")

# Index and white space are bounded, and therefore what is held back is too.
_WITH_INDEX: Final = re.compile(r"[A-Za-z0-9_.$\-]+:[0-9]{0,9}(?:(?<=[0-9])\s{1,8})?\Z")


class BareNames:
    """Finds a header that lost its begin markers; only names of declared tools count."""

    __slots__ = ("_heads", "_reach", "beginnings")

    def __init__(self, names: Iterable[str]) -> None:
        heads = [head for name in names if name for head in (name, f"functions.{name}")]
        self._heads = frozenset(heads)
        self.beginnings = frozenset(head[:size] for head in heads for size in range(1, len(head) + 1))
        """Every string that can still become a header, before its index."""
        self._reach = max(map(len, heads), default=0) + 18

    def start(self, text: str, begin: int, end: int, *, in_word: bool) -> int:
        """Start of a header that reaches `end` and may still grow; `end` when there is none.

        `in_word`: the character before `begin` belongs to a word; a header cannot start in the middle of one.
        """
        piece = text[max(begin, end - self._reach - 1) : end]
        stem = len(piece.rstrip(WORD))
        if stem == len(piece) or piece[stem - 1 : stem] == ":":
            found = _WITH_INDEX.search(piece) if ":" in piece else None
            if found is None or found.group().partition(":")[0] not in self._heads:
                return end
            stem = found.start()
        elif piece[stem:] not in self.beginnings:
            return end
        at = end - len(piece) + stem
        if at == begin:
            return end if in_word else at
        return end if ends_in_word(text[at - 1]) else at

    @staticmethod
    def is_complete(header: str) -> bool:
        """Whether a header has its index: only then does an arguments marker make it a call."""
        return header.rstrip()[-1:].isdigit() and ":" in header


def ends_in_word(text: str) -> bool:
    """Whether text appended to this would continue its last word."""
    return text[-1:] in _IN_WORD


@lru_cache(maxsize=64)
def bare_names(names: frozenset[str]) -> BareNames | None:
    """The finder for these names; cached, since it has no state."""
    return BareNames(names) if any(names) else None
