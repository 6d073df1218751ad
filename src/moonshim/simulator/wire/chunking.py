"""A string -> the pieces in which it is streamed; joined again they are the string."""

from __future__ import annotations

import re
from typing import Final

from moonshim.simulator.response import Cut

__all__ = ["LUMP", "pieces"]

LUMP: Final = 8
"""Tokens in a lump: hosts that decode several at once, or buffer, send them together."""
_TOKEN: Final = re.compile(
    # A marker is one token, and so arrives in one piece, unless a fault splits it.
    r"<\|[a-z_]{1,40}\|>|</?think>"
    r"| ?[^\W\d_]{1,8}|\d{1,3}|\n+| {2,8}|.",
    re.DOTALL,
)


def pieces(text: str, cut: Cut) -> list[str]:
    """
    >>> pieces("It is 2026: <|tool_call_begin|>ls", "tokens")
    ['It', ' is', ' ', '202', '6', ':', ' ', '<|tool_call_begin|>', 'ls']
    >>> pieces("ls", "characters"), pieces("a b c d e f g h i j", "lumps"), pieces("", "whole")
    (['l', 's'], ['a b c d e f g h', ' i j'], [])
    """
    match cut:
        case "tokens":
            return _TOKEN.findall(text)
        case "characters":
            return list(text)
        case "lumps":
            tokens = _TOKEN.findall(text)
            return ["".join(tokens[at : at + LUMP]) for at in range(0, len(tokens), LUMP)]
        case "whole":
            return [text] if text else []
