"""Follows JSON text piece by piece and knows, without parsing it, where a value ends."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["ValueScanner"]

_OUTSIDE: Final = re.compile(r'["{}\[\]<]')
_INSIDE: Final = re.compile(r'["\\]')


class ValueScanner:
    """Tells where a JSON value ends, whatever the chunking, in one look at each character.

    Containers and strings are values; bare words (`null`, `12`) are not, as nothing
    marks their end. Brackets are counted, not matched: the text may be wrong, and
    where it ends must be known all the same.

    >>> scanner = ValueScanner()
    >>> scanner.scan('{"a": "}', 0), scanner.inside
    (8, True)
    >>> scanner.scan('"} rest', 0), scanner.inside
    (2, False)
    """

    __slots__ = ("depth", "escaped", "in_string")

    def __init__(self) -> None:
        self.depth = 0
        self.in_string = False
        self.escaped = False

    @property
    def inside(self) -> bool:
        """Whether a value has begun and not ended."""
        return self.in_string or self.depth > 0

    def scan(self, text: str, start: int) -> int:
        """Read on from `start`; return where reading stopped.

        That is just after the value that ended, or at a `<` outside of strings (which
        JSON never has there, so it may begin a marker), or the end of the text.
        """
        pos, end = start, len(text)
        while pos < end:
            if self.escaped:
                self.escaped = False
                pos += 1
                continue
            if self.in_string:
                found = _INSIDE.search(text, pos)
                if found is None:
                    return end
                pos = found.end()
                if text[pos - 1] == "\\":
                    self.escaped = True
                    continue
                self.in_string = False
                if not self.depth:
                    return pos
                continue
            found = _OUTSIDE.search(text, pos)
            if found is None:
                return end
            pos = found.end()
            match text[pos - 1]:
                case '"':
                    self.in_string = True
                case "{" | "[":
                    self.depth += 1
                case "<":
                    return pos - 1
                case _:
                    if self.depth:
                        self.depth -= 1
                        if not self.depth:
                            return pos
        return pos
