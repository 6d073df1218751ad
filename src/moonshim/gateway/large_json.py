"""The text of a large request body -> its JSON value, in steps that let other threads run.

A C parser holds Python's global lock until it is done, and every other request waits: half a second for 60 MiB of small
messages. It also builds all of them before anybody can count them. Here the C parser of the standard library reads
values that fit into a window of text; containers that do not fit are opened, and their content is read the same way.
"""

from __future__ import annotations

import re
from json import JSONDecodeError, JSONDecoder
from typing import Any, Final, NoReturn

__all__ = ["TooManyValues", "parse_large_json"]

MAX_DEPTH: Final = 500
WINDOW: Final = 128 * 1024
"""Characters that the C parser reads at a time: below a millisecond."""
_STEP: Final = 1024 * 1024
_SPACE: Final = r"[ \t\n\r]*"
_TOKEN: Final = re.compile(
    _SPACE + r"(?:(?P<mark>[{\[\"])|(?P<number>-?(?:0|[1-9][0-9]*)(?P<real>(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?))"
    r"|(?P<word>true|false|null))"
)
_SKIP: Final = re.compile(_SPACE)
_KEY: Final = re.compile(_SPACE + '"')
_COLON: Final = re.compile(_SPACE + ":")
_NEXT: Final = re.compile(_SPACE + r"([,}\]]|$)")
_STRING: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_WORDS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}


class TooManyValues(Exception):
    """The text has more values than the limit."""


def parse_large_json(text: str, max_values: int) -> Any:
    """Parse JSON text. Raises `ValueError` with the position of a mistake, `RecursionError`, or `TooManyValues`.

    No value goes uncounted; an empty list or object may count as two.

    >>> parse_large_json(' {"a": [1, 2.5, "x\\\\n", {}], "b": null} ', 100)
    {'a': [1, 2.5, 'x\\n', {}], 'b': None}
    >>> parse_large_json("[1, 2, 3]", 3)
    Traceback (most recent call last):
    moonshim.gateway.large_json.TooManyValues
    """
    # Every value but the first follows one of these. Most texts have so few that nothing needs to be counted.
    marks = 1 + sum(text.count(mark, at, at + _STEP) for at in range(0, len(text), _STEP) for mark in ",[{")
    return _Parser(text, None if marks <= max_values else max_values).parse()


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_decode: Final = JSONDecoder(parse_constant=_reject_constant).raw_decode


class _Parser:
    """Parses one text with a stack of open lists and objects."""

    def __init__(self, text: str, max_values: int | None) -> None:
        self._text = text
        self._left = max_values
        self._at = 0
        self._window = ""
        self._base = 0
        """Where the window begins in the text."""

    def parse(self) -> Any:
        text, match_next = self._text, _NEXT.match
        around: list[tuple[Any, str | None]] = []
        """The containers around the current one, each with the key under which the next one stands in it."""
        current: Any = None
        key: str | None = None
        while True:
            value, opened = self._value()
            if opened and not self._closes(value):
                around.append((current, key))
                if len(around) > MAX_DEPTH:
                    raise RecursionError
                current, key = value, self._key() if isinstance(value, dict) else None
                continue
            while True:  # the value is complete and goes into the container that is open
                if current is None:
                    self._end()
                    return value
                if key is None:
                    current.append(value)
                else:
                    current[key] = value
                found = match_next(text, self._at)
                if found is None:
                    self._fail("expected `,` or the end of a list or object")
                if found[1] == ",":
                    self._at = found.end()
                    key = self._key() if key is not None else None
                    break
                if found[1] != ("]" if key is None else "}"):
                    self._fail("expected `,` or the end of a list or object")
                self._at = found.end()
                value = current
                current, key = around.pop()

    def _value(self) -> tuple[Any, bool]:
        """The next value; True when it is a list or an object whose content follows."""
        self._at = _SKIP.match(self._text, self._at).end()  # type: ignore[union-attr]  # it matches everywhere
        at = self._at
        if at - self._base < len(self._window) and self._scan():
            return self._scanned, False
        if at != self._base or not self._window:
            self._base, self._window = at, self._text[at : at + WINDOW]
            if self._scan():
                return self._scanned, False
        return self._open()

    def _scan(self) -> bool:
        """Read a value that ends within the window. A number at its end may continue after it: `1` of `1e+5`."""
        start = self._at - self._base
        try:
            value, end = _decode(self._window, start)
        except ValueError:
            return False
        if end + 2 >= len(self._window) and self._base + len(self._window) < len(self._text):
            return False
        if self._left is not None:
            marks = _STRING.sub("", self._window[start:end])
            self._count(1 + sum(map(marks.count, ",[{")))
        self._scanned, self._at = value, self._base + end
        return True

    def _open(self) -> tuple[Any, bool]:
        """Read the beginning of a value that is larger than the window, or find out that there is none."""
        self._count(1)
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            self._fail("expected a value")
        mark = found["mark"]
        if mark == '"':
            return self._string(), False
        self._at = found.end()
        if mark is not None:
            return ({} if mark == "{" else []), True
        if (number := found["number"]) is not None:
            return (float(number) if found["real"] else int(number)), False
        return _WORDS[found["word"]], False

    def _count(self, values: int) -> None:
        if self._left is not None:
            self._left -= values
            if self._left < 0:
                raise TooManyValues

    def _closes(self, container: Any) -> bool:
        """Whether a container that was just opened ends at once."""
        found = _NEXT.match(self._text, self._at)
        if found is None or found[1] != ("}" if isinstance(container, dict) else "]"):
            return False
        self._at = found.end()
        return True

    def _key(self) -> str:
        found = _KEY.match(self._text, self._at)
        if found is None:
            self._fail("expected a key in double quotes")
        self._at = found.end() - 1
        key = self._string()
        found = _COLON.match(self._text, self._at)
        if found is None:
            self._fail("expected `:`")
        self._at = found.end()
        return key

    def _string(self) -> str:
        """The string that begins here."""
        value, self._at = _decode(self._text, self._at)
        assert isinstance(value, str)
        return value

    def _end(self) -> None:
        found = _NEXT.match(self._text, self._at)
        if found is None or found[1]:
            self._fail("trailing characters")

    def _fail(self, reason: str) -> NoReturn:
        raise JSONDecodeError(reason, self._text, self._at)
