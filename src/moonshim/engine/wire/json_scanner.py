"""Tracks JSON text piece by piece to find where a value ends, without parsing it."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["ValueScanner"]

_OUTSIDE: Final = re.compile(r"""[{\[,:][ \t\r\n]*+'|["{}\[\]<]""")
_INSIDE: Final = re.compile(r'["\\]')
_INSIDE_SINGLE: Final = re.compile(r"['\\]")
_SINGLE_OPENS: Final = re.compile(r"[ \t\r\n]*+'")
_SPACE: Final = " \t\r\n"


class ValueScanner:
    """Finds the end of a JSON value under any chunking, visiting each character once.

    Containers and strings are values; bare words (`null`, `12`) are not, as nothing marks their end. Brackets are
    counted, not matched, because the end must be found even in malformed text. For the same reason a single quote
    opens a string wherever JSON allows one, and is ignored elsewhere.

    >>> scanner = ValueScanner()
    >>> scanner.scan('{"a": "}', 0), scanner.inside
    (8, True)
    >>> scanner.scan('"} rest', 0), scanner.inside
    (2, False)
    """

    __slots__ = ("_opens", "_single", "depth", "escaped", "in_string")

    def __init__(self) -> None:
        self.depth = 0
        self.in_string = False
        self.escaped = False
        self._single = False
        """Whether a single-quoted string is open."""
        self._opens = False
        """Whether a string may start here: the last significant character was a bracket, a comma or a colon."""

    @property
    def inside(self) -> bool:
        """Whether a value has started and not ended."""
        return self.in_string or self.depth > 0

    def scan(self, text: str, start: int) -> int:
        """Continue at `start`; return the position where scanning stopped.

        That is just after a complete value, at a `<` outside of strings (which JSON never has there, so it may start
        a marker), or at the end of the text.
        """
        if self._opens and (found := _SINGLE_OPENS.match(text, start)):
            self._single = True
            stop = self._scan(text, found.end())
        else:
            stop = self._scan(text, start)
        if self.in_string or self._single or not self.depth:
            self._opens = False
        elif last := text[start:stop].rstrip(_SPACE)[-1:]:
            self._opens = last in "{[,:"
        return stop

    def _scan(self, text: str, start: int) -> int:
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
            if self._single:
                found = _INSIDE_SINGLE.search(text, pos)
                if found is None:
                    return end
                pos = found.end()
                self.escaped = text[pos - 1] == "\\"
                self._single = self.escaped
                continue
            found = _OUTSIDE.search(text, pos)
            if found is None:
                return end
            pos = found.end()
            match text[pos - 1]:
                case '"':
                    self.in_string = True
                case "'":
                    self.depth += text[found.start()] in "{["
                    self._single = self.depth > 0
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
