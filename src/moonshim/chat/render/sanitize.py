"""Text from models and tools -> the same text, unable to move the cursor, change colours, or reorder letters."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

__all__ = ["clean", "clean_line", "one_line"]

_JOINERS: Final = "\u200c\u200d"
"""Of the invisible characters, these two belong to words and to emoji, and do not affect their surroundings."""
_TAB: Final = "    "
# Everything that could matter; most text has none of it.
_SUSPECT: Final = re.compile(
    r"[^\x20-\x7e\n\xa0-\xac\xae-\u05ff\u0606-\u061b\u061d-\u06dc\u3000-\ud7ff\U0001f300-\U0001faff]"
)


def clean(text: str) -> str:
    """The text with its line breaks; anything that a terminal would interpret is escaped.

    >>> print(clean("a\\x1b[2Jb\\r\\nc\\u202ed"))
    a\\x1b[2Jb
    c\\u202ed
    """
    return _SUSPECT.sub(_escape, text.replace("\r\n", "\n"))


def clean_line(text: str) -> str:
    """The same on one line.

    >>> clean_line("one\\ntwo")
    'one\\\\ntwo'
    """
    return clean(text).replace("\n", "\\n")


def one_line(text: str) -> str:
    """The same with every run of spaces and line breaks as one space, for titles and lists.

    >>> one_line("one\\n\\n  two ")
    'one two'
    """
    return " ".join(clean(text).split())


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    if char == "\t":
        return _TAB
    if char in _JOINERS:
        return char
    # Cc: ESC, BEL, the C1 set. Cf: directions, tags, zero-width marks. Zl, Zp: line separators that terminals do not
    # know. Cs: lone surrogates, which cannot be encoded.
    if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return char.encode("unicode_escape").decode()
    return char
