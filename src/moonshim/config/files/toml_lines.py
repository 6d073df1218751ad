"""TOML text that was parsed already -> the line of every key and element, which `tomllib` does not report."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final

from moonshim.config.problems import Path

__all__ = ["toml_lines"]

_GAP: Final = re.compile(r"(?:\s+|\#[^\n]*)*")
_BLANK: Final = re.compile(r"[ \t]*")
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_STRINGS: Final = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r'"""(?:\\.|[^\\])*?"{3,5}',
        r"'''.*?'{3,5}",
        r'"(?:\\.|[^"\\\n])*"',
        r"'[^'\n]*'",
    )
)
# A date and a time may be separated by a space.
_PLAIN: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:[^\s,\]}#]*|[^\s,\]}#]+")


class _UnexpectedText(Exception):
    """The text is not as expected: the lines found so far are valid, and no more are added."""


def toml_lines(text: str) -> dict[Path, int]:
    """The line of everything. What cannot be found is left out: no line is better than a wrong one.

    >>> toml_lines("[[p]]\\nname = 'a'\\n[[p]]\\nuse = ['x',\\n  'y']")
    {('p',): 1, ('p', 0): 1, ('p', 0, 'name'): 2, ('p', 1): 3, ('p', 1, 'use'): 4, ('p', 1, 'use', 0): 4,
     ('p', 1, 'use', 1): 5}
    """
    scanner = _Scanner(text)
    with suppress(_UnexpectedText, RecursionError):
        scanner.run()
    return scanner.lines


class _Scanner:
    """Scans one text from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line = 1
        self._counted = 0
        self._tables: dict[Path, int] = {}
        """The number of elements of an array of tables so far."""
        self.lines: dict[Path, int] = {}

    def run(self) -> None:
        inside: Path = ()
        self._skip(_GAP)
        while self._at < len(self._text):
            line = self._line_now()
            if self._take("[["):
                inside = self._element(self._key(), line)
                self._need("]]")
            elif self._take("["):
                inside = self._table(self._key(), line)
                self._need("]")
            else:
                self._pair(inside)
            self._skip(_GAP)

    def _table(self, keys: list[str], line: int) -> Path:
        path: Path = ()
        for key in keys:
            path = (*path, key)
            self.lines.setdefault(path, line)
            if path in self._tables:
                path = (*path, self._tables[path] - 1)
        return path

    def _element(self, keys: list[str], line: int) -> Path:
        array = (*self._table(keys[:-1], line), keys[-1])
        self.lines.setdefault(array, line)
        number = self._tables.get(array, 0)
        self._tables[array] = number + 1
        self.lines[(*array, number)] = line
        return (*array, number)

    def _pair(self, inside: Path) -> None:
        line, path = self._line_now(), inside
        for key in self._key():
            path = (*path, key)
            self.lines.setdefault(path, line)
        self._need("=")
        self._skip(_BLANK)
        self._value(path)

    def _key(self) -> list[str]:
        keys: list[str] = []
        while not keys or self._take("."):
            self._skip(_BLANK)
            quoted = self._string()
            if quoted is None:
                found = _BARE_KEY.match(self._text, self._at)
                if found is None:
                    raise _UnexpectedText
                self._at = found.end()
                keys.append(found[0])
            else:
                keys.append(_unquote(quoted))
            self._skip(_BLANK)
        return keys

    def _value(self, path: Path) -> None:
        if self._take("["):
            self._array(path)
        elif self._take("{"):
            self._inline_table(path)
        elif self._string() is None:
            found = _PLAIN.match(self._text, self._at)
            if found is None:
                raise _UnexpectedText
            self._at = found.end()

    def _array(self, path: Path) -> None:
        number = 0
        self._skip(_GAP)
        while not self._take("]"):
            self.lines[(*path, number)] = self._line_now()
            self._value((*path, number))
            number += 1
            self._comma("]")

    def _inline_table(self, path: Path) -> None:
        self._skip(_GAP)
        while not self._take("}"):
            self._pair(path)
            self._comma("}")

    def _comma(self, closing: str) -> None:
        self._skip(_GAP)
        if not self._take(",") and not self._text.startswith(closing, self._at):
            raise _UnexpectedText
        self._skip(_GAP)

    def _string(self) -> str | None:
        """The next string, with its quotes."""
        for pattern in _STRINGS:
            if found := pattern.match(self._text, self._at):
                self._at = found.end()
                return found[0]
        return None

    def _need(self, mark: str) -> None:
        if not self._take(mark):
            raise _UnexpectedText

    def _take(self, mark: str) -> bool:
        if not self._text.startswith(mark, self._at):
            return False
        self._at += len(mark)
        return True

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self._text, self._at)
        self._at = found.end() if found else self._at

    def _line_now(self) -> int:
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line


def _unquote(string: str) -> str:
    if "\\" not in string:
        return string[1:-1]
    import tomllib

    value: str = tomllib.loads(f"key = {string}")["key"]
    return value
