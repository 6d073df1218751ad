"""Custom tools (one free-form string) for models that only know functions: their schema, and the string in the
arguments."""

from __future__ import annotations

import json
import re
from typing import Any, Final

__all__ = ["FREE_TEXT_SCHEMA", "InputReader", "extract_input"]

FREE_TEXT_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}
"""The function schema of a custom tool."""

_START: Final = re.compile(r'\s*\{\s*"input"\s*:\s*"')
_PARTS: Final = ("{", '"', "i", "n", "p", "u", "t", '"', ":", '"')
_PLAIN: Final = re.compile(r'[^"\\]+')
_ESCAPES: Final = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_CODE: Final = re.compile(r"[0-9a-fA-F]{4}")


def extract_input(arguments: str) -> str:
    """The free-form string in such arguments; the arguments themselves if they have another form.

    >>> extract_input('{"input": "*** Begin"}'), extract_input("*** Begin")
    ('*** Begin', '*** Begin')
    """
    try:
        value = json.loads(arguments, strict=False)
    except (ValueError, RecursionError):
        return arguments
    text = value.get("input") if isinstance(value, dict) else None
    return text if isinstance(text, str) else arguments


class InputReader:
    """Extracts the string from a custom tool's arguments under any chunking, visiting each character once.

    The string is emitted as it arrives. Arguments that start differently are held until complete: of another object
    with an `input` that value is used, anything else is the string itself. Members after `input` are ignored; invalid
    escapes and raw line breaks are taken literally.

    >>> reader = InputReader()
    >>> [reader.feed(piece) for piece in ('{"inp', 'ut": "a\\\\', 'nb', '"}')], reader.close()
    (['', 'a', '\\nb', ''], '')
    """

    __slots__ = ("_held", "_high", "_state")

    def __init__(self) -> None:
        self._state = "start"
        self._held: list[str] = []
        self._high = ""
        """A high surrogate that waits for its low surrogate."""

    def feed(self, piece: str) -> str:
        """Feed a piece; return what it adds to the string."""
        match self._state:
            case "start":
                self._held.append(piece)
                if piece.isspace():
                    return ""  # white space decides nothing, however much arrives
                text = "".join(self._held)
                found = _START.match(text)
                if found is not None:
                    self._state, self._held = "text", []
                    return self._read_text(text[found.end() :])
                self._held = [text]
                if not _could_start(text):
                    self._state = "other"
                return ""
            case "text":
                return self._read_text("".join([*self._held, piece]))
            case "other":
                self._held.append(piece)
        return ""

    def close(self) -> str:
        """End of the arguments: return what was held back."""
        held, self._held = "".join(self._held), []
        state, self._state = self._state, "done"
        if state == "text":
            # Cut off inside an escape: it is kept as it is.
            return self._flush_surrogate() + held
        return "" if state == "done" else extract_input(held)

    def _read_text(self, text: str) -> str:
        out, pos, end = list[str](), 0, len(text)
        self._held = []
        while pos < end:
            plain = _PLAIN.match(text, pos)
            if plain is not None:
                out += [self._flush_surrogate(), plain[0]]
                pos = plain.end()
                continue
            if text[pos] == '"':
                self._state = "done"
                out.append(self._flush_surrogate())
                break
            length = 6 if text[pos + 1 : pos + 2] == "u" else 2
            if pos + length > end:
                self._held = [text[pos:]]
                break
            out.append(self._read_escape(text[pos : pos + length]))
            pos += length
        return "".join(out)

    def _read_escape(self, escape: str) -> str:
        if escape[1] != "u":
            return self._flush_surrogate() + _ESCAPES.get(escape[1], escape)
        digits = escape[2:]
        if _CODE.fullmatch(digits) is None:
            return self._flush_surrogate() + escape
        code = int(digits, 16)
        if self._high and 0xDC00 <= code < 0xE000:
            high, self._high = ord(self._high), ""
            return chr(0x10000 + ((high - 0xD800) << 10) + (code - 0xDC00))
        lone = self._flush_surrogate()
        if 0xD800 <= code < 0xDC00:
            self._high = chr(code)
            return lone
        return lone + chr(code)

    def _flush_surrogate(self) -> str:
        """A surrogate without its other half."""
        high, self._high = self._high, ""
        return high


def _could_start(text: str) -> bool:
    """Whether more text can still make this the start of such arguments."""
    tokens = iter(_PARTS)
    wanted, inside = next(tokens), False
    for char in text:
        if char.isspace() and not inside:
            continue
        if char != wanted:
            return False
        if char == '"':
            inside = not inside
        wanted = next(tokens, "")
    return True
