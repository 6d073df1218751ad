"""JSON or JSON5 text -> its values, and the line of every key and element.

claude-code-router's files are JSON5: comments, trailing commas, keys without quotes, single quotes, hexadecimal
numbers. This small parser records the line of every key, which no JSON5 package does. It also reads several objects in
a row, which is how documentation often shows providers.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from json import JSONDecodeError, JSONDecoder
from typing import Any, Final

from moonshim.config.problems import Path

__all__ = ["NotJson", "read_json"]

DEEPEST: Final = 64

_GAP: Final = re.compile(r"(?:[\s\ufeff]+|//[^\r\n\u2028\u2029]*|/\*.*?\*/)*", re.DOTALL)
_LINE_END: Final = re.compile("\n")
_SCALAR: Final = JSONDecoder()
_NAME: Final = re.compile(r"(?:[^\W\d]|\$)[\w$\u200c\u200d]*")
_NUMBER: Final = re.compile(
    r"[+-]?(?:0[xX][0-9a-fA-F]+|Infinity|NaN|(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
)
_STRING: Final = re.compile(r"""(["'])((?:(?!\1)[^\\\r\n]|\\(?:\r\n|.))*)\1""", re.DOTALL)
_ESCAPE: Final = re.compile(r"""\\(\r\n|.)|(")""", re.DOTALL)
_LINE_CONTINUES: Final = ("\n", "\r", "\r\n", "\u2028", "\u2029")
_ALSO_IN_JSON: Final = "\\/bfnrtu"
_ONLY_IN_JSON5: Final = {"v": "\\u000b", "0": "\\u0000", "x": "\\u00"}


class NotJson(ValueError):
    """The text is not JSON: where, and why."""

    def __init__(self, why: str, line: int, column: int) -> None:
        super().__init__(why)
        self.line = line
        self.column = column


def read_json(text: str) -> tuple[Any, dict[Path, int]]:
    """The value, or the list of values if there are several.

    >>> read_json('{"a": [1, 2,], // so\\n "b": {}}')
    ({'a': [1, 2], 'b': {}}, {('a',): 1, ('a', 0): 1, ('a', 1): 1, ('b',): 2})
    """
    return _Reader(text).run()


class _Reader:
    """Reads one text from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._ends = [found.start() for found in _LINE_END.finditer(text)]
        self.lines: dict[Path, int] = {}

    def run(self) -> tuple[Any, dict[Path, int]]:
        self._skip()
        if self._at == len(self._text):
            raise self._error("the file is empty")
        values = [self._value((), 0)]
        self._skip()
        if self._at < len(self._text) and self._text[self._at] in "{,":
            return self._several()
        if self._at < len(self._text):
            raise self._error("unexpected data after the end of the value")
        return values[0], self.lines

    def _several(self) -> tuple[Any, dict[Path, int]]:
        self._at, self.lines = 0, {}
        values: list[Any] = []
        self._skip()
        while self._at < len(self._text):
            values.append(self._value((len(values),), 0))
            self._skip()
            self._take(",")
        return values, self.lines

    def _value(self, path: Path, depth: int) -> Any:
        if depth > DEEPEST:
            raise self._error(f"nested more than {DEEPEST} levels deep")
        if path and isinstance(path[-1], int):
            self.lines[path] = self._line()
        if self._take("{"):
            return self._object(path, depth)
        if self._take("["):
            return self._array(path, depth)
        return self._scalar()

    def _object(self, path: Path, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while not self._take("}"):
            started = self._at
            key = self._key()
            if key in values:
                self._at = started
                raise self._error(f"duplicate key '{key}'")
            self.lines[(*path, key)] = self._line(started)
            self._skip()
            if not self._take(":"):
                raise self._error(f"expected ':' after the key '{key}'")
            values[key] = self._value((*path, key), depth + 1)
            self._between("}")
        return values

    def _array(self, path: Path, depth: int) -> list[Any]:
        values: list[Any] = []
        while not self._take("]"):
            values.append(self._value((*path, len(values)), depth + 1))
            self._between("]")
        return values

    def _between(self, closing: str) -> None:
        self._skip()
        if not self._take(",") and not self._text.startswith(closing, self._at):
            raise self._error(f"expected ',' or '{closing}'")

    def _key(self) -> str:
        if self._text.startswith(('"', "'"), self._at):
            key: str = self._scalar()
            return key
        found = _NAME.match(self._text, self._at)
        if found is None:
            raise self._error("expected a key")
        self._at = found.end()
        return found[0]

    def _scalar(self) -> Any:
        text, number, string = self._text, _NUMBER.match(self._text, self._at), _STRING.match(self._text, self._at)
        try:
            if number is not None:
                self._at = number.end()
                return _number(number[0])
            if string is not None and (string[1] == "'" or "\\" in string[2]):
                value, _ = _SCALAR.raw_decode(f'"{_ESCAPE.sub(_json_escape, string[2])}"')
                self._at = string.end()
                return value
            value, self._at = _SCALAR.raw_decode(text, self._at)
        except JSONDecodeError as error:
            self._at = error.pos if string is None else self._at
            raise self._error("expected a value" if error.msg == "Expecting value" else error.msg) from None
        except ValueError:  # a number with more digits than Python reads
            raise self._error("number has too many digits") from None
        return value

    def _take(self, mark: str) -> bool:
        """Skip this mark and the white space after it; return whether it was there."""
        if not self._text.startswith(mark, self._at):
            return False
        self._at += len(mark)
        self._skip()
        return True

    def _skip(self) -> None:
        found = _GAP.match(self._text, self._at)
        self._at = found.end() if found else self._at

    def _line(self, at: int | None = None) -> int:
        return bisect_right(self._ends, (self._at if at is None else at) - 1) + 1

    def _error(self, why: str) -> NotJson:
        line = self._line()
        start = self._ends[line - 2] + 1 if line > 1 else 0
        return NotJson(why, line, self._at - start + 1)


def _number(text: str) -> float:
    digits = text.lstrip("+-").lower()
    if digits.startswith("0x"):
        return int(text, 16)
    return float(text) if any(mark in digits for mark in ".ein") else int(text)


def _json_escape(found: re.Match[str]) -> str:
    """An escape of JSON5, or a quote that needs none there, as JSON writes it."""
    escaped, quote = found[1], found[2]
    if quote or escaped == '"':
        return '\\"'
    if escaped in _LINE_CONTINUES:
        return ""
    if escaped in _ONLY_IN_JSON5:
        return _ONLY_IN_JSON5[escaped]
    return found[0] if escaped in _ALSO_IN_JSON or escaped.isdecimal() else escaped
