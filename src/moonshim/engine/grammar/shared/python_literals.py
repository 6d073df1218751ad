"""One bare Python value -> JSON, if it has an equivalent."""

from __future__ import annotations

import json
import re
from typing import Final

__all__ = ["UNFINISHED_ESCAPE", "escape", "json_of_escape", "json_of_word"]

_WORDS: Final = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_NUMBER: Final = re.compile(r"([+-]?)([0-9]*)(\.[0-9]*)?([eE][+-]?[0-9]+)?")
_BASED: Final = re.compile(r"[+-]?0(?:[xX][0-9a-fA-F]{1,64}|[oO][0-7]{1,64}|[bB][01]{1,64})")
_UNDERSCORE: Final = re.compile(r"(?<=[0-9a-fA-F])_(?=[0-9a-fA-F])")

_ESCAPE: Final = re.compile(
    r"\\(?:(\r?\n)|([\\'\"abfnrtv])|([0-7]{1,3})|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))"
)
UNFINISHED_ESCAPE: Final = re.compile(r"\\(?:\r|[0-7]{1,2}|x[0-9a-fA-F]?|u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7})?\Z")
"""At the end of a text: more text decides its meaning."""
_NAMED: Final = {"\\": "\\\\", "'": "'", '"': '\\"', "a": "\\u0007", "b": "\\b", "f": "\\f", "n": "\\n"}
_NAMED_TOO: Final = {"r": "\\r", "t": "\\t", "v": "\\u000b"}

_encode: Final = json.JSONEncoder(ensure_ascii=False).encode


def escape(text: str) -> str:
    """The inside of a JSON string; each character separately, so that pieces can be concatenated."""
    return _encode(text)[1:-1]


def json_of_word(word: str) -> str | None:
    """A number or a constant in JSON; None if it is neither.

    >>> json_of_word("True"), json_of_word("1_000"), json_of_word(".5"), json_of_word("0x1F"), json_of_word("x + 1")
    ('true', '1000', '0.5', '31', None)
    """
    if word in _WORDS:
        return _WORDS[word]
    plain = _UNDERSCORE.sub("", word)
    if _BASED.fullmatch(plain):
        return str(int(plain, 0))
    found = _NUMBER.fullmatch(plain)
    if found is None:
        return None
    sign, whole, fraction, exponent = found.groups("")
    if not (whole or len(fraction) > 1) or (len(whole) > 1 and whole[0] == "0"):
        return None
    if fraction == ".":
        fraction = ".0"
    return ("-" if sign == "-" else "") + (whole or "0") + fraction + exponent


def json_of_escape(text: str, pos: int) -> tuple[int, str]:
    """The escape at this backslash: its end, and its equivalent in a JSON string.

    An escape that Python does not know is a backslash.
    """
    found = _ESCAPE.match(text, pos)
    if found is None:
        return pos + 1, "\\\\"
    newline, named, octal, two, four, eight = found.groups()
    if newline:
        return found.end(), ""
    if named:
        return found.end(), _NAMED.get(named) or _NAMED_TOO[named]
    if four:
        # Unchanged: two surrogates form one character in JSON, which is what the author meant.
        return found.end(), f"\\u{four}"
    code = int(octal, 8) if octal else int(two or eight, 16)
    if code > 0x10FFFF:
        return pos + 1, "\\\\"
    return found.end(), f"\\u{code:04x}" if code < 0x80 or 0xD800 <= code < 0xE000 else chr(code)
