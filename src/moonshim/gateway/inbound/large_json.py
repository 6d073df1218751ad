"""A large request body -> its JSON value, and back, in steps that let other threads run.

A C parser holds Python's global lock until it is done, and every other request waits: half a second for 60 MiB of small
messages. It also builds all of them before they can be counted. Here the body is decoded window by window, and the C
parser of the standard library reads the values that fit into a window. Containers that do not fit are opened, and their
content is read the same way; strings that do not fit are read in parts.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator
from io import BytesIO
from json import JSONDecoder
from json.decoder import scanstring  # type: ignore[attr-defined]  # typeshed leaves it out
from math import isfinite
from typing import Any, Final, NoReturn

from moonshim.engine.wire.json_codec import encode

__all__ = ["TooManyValues", "encode_large_json", "parse_large_json"]

MAX_DEPTH: Final = 500
WINDOW: Final = 32 * 1024
"""Bytes that are decoded, and characters that the C parser reads, at a time: a fraction of a millisecond."""
_STEP: Final = 256 * 1024
_MANY: Final = 16
"""Number of values in a list or object that are encoded at a time."""
_LONGEST_NUMBER: Final = 100_000
_LONGEST_ESCAPE: Final = 12
"""Characters: two surrogates."""
_SPACE: Final = r"[ \t\n\r]*"
_TOKEN: Final = re.compile(
    r"(?P<mark>[{\[\"])|(?P<number>-?(?:0|[1-9][0-9]*)(?P<real>(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?))"
    r"|(?P<word>true|false|null)"
)
_SKIP: Final = re.compile(_SPACE)
_NEXT: Final = re.compile(_SPACE + r"([,}\]])")
_STRING: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_PART: Final = re.compile(
    r'(?:[^"\\]++|\\(?:[^u]|u(?:(?![dD][89abAB])[0-9a-fA-F]{4}'
    r"|[dD][89abAB][0-9a-fA-F]{2}(?:\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?=.{6})))))*+",
    re.DOTALL,
)
"""The readable part of a string whose end has not arrived: no partial escape, and of two surrogates both or none."""
_WORDS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}
_BAD_STRING: Final = "invalid character in a string"
_NO_END: Final = "expected `,` or the end of a list or object"


class TooManyValues(Exception):
    """The document has more values than the limit."""


def parse_large_json(pieces: list[bytes], max_values: int) -> Any:
    """Parse JSON that came in pieces; takes them out of the list, so that each can be freed once it is read.

    Raises `ValueError` with the position of an error, `RecursionError`, or `TooManyValues`. Every value is counted; an
    empty list or object may count as two.

    >>> parse_large_json([b' {"a": [1, 2.5, "x\\\\n", {}], ', b'"b": null} '], 100)
    {'a': [1, 2.5, 'x\\n', {}], 'b': None}
    >>> parse_large_json([b"[1, 2, 3]"], 3)
    Traceback (most recent call last):
    moonshim.gateway.inbound.large_json.TooManyValues
    """
    # Every value but the first follows one of these. Most documents have so few that nothing needs to be counted.
    marks = 1
    for piece in pieces:
        steps = range(0, len(piece), _STEP)
        marks += sum(piece.count(mark, at, at + _STEP) for at in steps for mark in (b",", b"[", b"{"))
    return _Parser(pieces, None if marks <= max_values else max_values).parse()


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError("out of range")
    return value


_scan_once: Final = JSONDecoder(  # type: ignore[attr-defined]
    parse_constant=_reject_constant, parse_float=_finite
).scan_once


def _windows(pieces: list[bytes]) -> Iterator[memoryview]:
    pieces.reverse()
    while pieces:
        piece = memoryview(pieces.pop())
        for at in range(0, len(piece), WINDOW):
            yield piece[at : at + WINDOW]


class _Parser:
    """Parses one document with a stack of open lists and objects."""

    def __init__(self, pieces: list[bytes], max_values: int | None) -> None:
        self._windows = _windows(pieces)
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._left = max_values
        self._text = ""
        """Decoded characters that have not been dropped yet."""
        self._at = 0
        self._base = 0
        """Position of the buffer in the whole document."""
        self._bytes = 0
        self._ended = False

    def parse(self) -> Any:
        match_next = _NEXT.match
        around: list[tuple[Any, str | None]] = []
        """The containers around the current one, each with the key under which the next one is stored."""
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
            while True:  # the value is complete: add it to the open container
                if current is None:
                    if self._peek():
                        self._fail("trailing characters")
                    return value
                if key is None:
                    current.append(value)
                else:
                    current[key] = value
                found = match_next(self._text, self._at)
                if found is None:
                    self._peek()
                    found = match_next(self._text, self._at)
                if found is None:
                    self._fail(_NO_END)
                if found[1] == ",":
                    self._at = found.end()
                    key = self._key() if key is not None else None
                    break
                if found[1] != ("]" if key is None else "}"):
                    self._fail(_NO_END)
                self._at = found.end()
                value = current
                current, key = around.pop()

    def _more(self) -> bool:
        """Decode the next window, and drop what was read. False at the end."""
        if self._ended:
            return False
        window = next(self._windows, None)
        try:
            added = self._decoder.decode(b"" if window is None else window, final=window is None)
        except UnicodeDecodeError as error:
            held = len(self._decoder.getstate()[0])
            raise ValueError(f"invalid UTF-8 at byte {self._bytes - held + error.start}") from None
        self._ended = window is None
        self._bytes += 0 if window is None else len(window)
        self._base += self._at
        self._text = self._text[self._at :] + added
        self._at = 0
        return not self._ended

    def _peek(self) -> str:
        """The next character that is not white space; empty at the end."""
        while True:
            self._at = _SKIP.match(self._text, self._at).end()  # type: ignore[union-attr]  # it matches everywhere
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _value(self) -> tuple[Any, bool]:
        """The next value; True when it is a list or an object whose content follows."""
        self._peek()
        while True:
            if self._scan():
                return self._scanned, False
            if len(self._text) - self._at >= WINDOW or not self._more():
                return self._open()

    def _scan(self) -> bool:
        """Read a value that ends within the window. A number at its end may continue after it: `1` of `1e+5`."""
        text, start = self._text, self._at
        try:
            value, end = _scan_once(text, start)
        except (ValueError, StopIteration):
            return False
        if end + 2 >= len(text) and not self._ended:
            return False
        if self._left is not None:
            marks = _STRING.sub("", text[start:end])
            self._count(1 + sum(map(marks.count, ",[{")))
        self._scanned, self._at = value, end
        return True

    def _open(self) -> tuple[Any, bool]:
        """Read the start of a value that is larger than the window, or fail if there is none."""
        self._count(1)
        while len(self._text) - self._at < _LONGEST_NUMBER:
            found = _TOKEN.match(self._text, self._at)
            if (found is not None and (found["mark"] or found.end() + 2 < len(self._text))) or not self._more():
                break
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            self._fail("expected a value")
        mark, self._at = found["mark"], found.end()
        if mark == '"':
            return self._string(), False
        if mark is not None:
            return ({} if mark == "{" else []), True
        if (number := found["number"]) is not None:
            try:
                return (_finite(number) if found["real"] else int(number)), False
            except ValueError:
                self._fail("the number is too large")
        return _WORDS[found["word"]], False

    def _count(self, values: int) -> None:
        if self._left is not None:
            self._left -= values
            if self._left < 0:
                raise TooManyValues

    def _closes(self, container: Any) -> bool:
        """Whether a container that was just opened is empty."""
        if self._peek() != ("}" if isinstance(container, dict) else "]"):
            return False
        self._at += 1
        return True

    def _key(self) -> str:
        if self._peek() != '"':
            self._fail("expected a key in double quotes")
        self._at += 1
        key = self._string()
        if self._peek() != ":":
            self._fail("expected `:`")
        self._at += 1
        return key

    def _string(self) -> str:
        """The string whose opening quote was just read."""
        parts: list[str] = []
        while True:
            text, start = self._text, self._at
            try:
                part, self._at = scanstring(text, start, True)
                return "".join((*parts, part))
            except ValueError:
                self._at = _PART.match(text, start).end()  # type: ignore[union-attr]  # it matches everywhere
            if len(text) - self._at > _LONGEST_ESCAPE:
                self._fail(_BAD_STRING)
            try:
                parts.append(scanstring(text[start : self._at] + '"', 0, True)[0])
            except ValueError:
                self._fail(_BAD_STRING)
            if not self._more():
                self._fail("unexpected end of data")

    def _fail(self, reason: str) -> NoReturn:
        raise ValueError(f"{reason} at character {self._base + self._at}")


def encode_large_json(value: Any, encode: Callable[[Any], bytes] = encode) -> bytes:
    """Compact JSON, encoded a few values at a time.

    >>> encode_large_json({"a": [{"b": 1}] * 20, "c": {}}) == encode({"a": [{"b": 1}] * 20, "c": {}})
    True
    """
    out = BytesIO()  # returns its buffer without a copy
    for part in _encode_pieces(value, encode):
        out.write(part)
    return out.getvalue()


def _encode_pieces(value: Any, encode: Callable[[Any], bytes]) -> Iterator[bytes]:
    if isinstance(value, dict) and _is_wide(value):
        comma = b"{"
        for key, inner in value.items():
            yield comma + encode(key) + b":"
            yield from _encode_pieces(inner, encode)
            comma = b","
        yield b"}"
    elif isinstance(value, list) and _is_wide(value):
        comma, few = b"[", list[Any]()
        for inner in value:
            wide = _is_wide(inner)
            if few and (wide or len(few) == _MANY):
                yield comma + encode(few)[1:-1]
                comma = b","
                few.clear()
            if wide:
                yield comma
                yield from _encode_pieces(inner, encode)
                comma = b","
            else:
                few.append(inner)
        if few:
            yield comma + encode(few)[1:-1]
        yield b"]"
    else:
        yield encode(value)


def _is_wide(value: Any) -> bool:
    """Whether the value, or one of its members, has many values."""
    if not isinstance(value, dict | list):
        return False
    if len(value) > _MANY:
        return True
    return any(map(_is_wide, value.values() if isinstance(value, dict) else value))
