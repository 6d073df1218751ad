"""A string schema -> strings that it allows, by format, pattern and length; best effort."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from moonshim.simulator.model.patterns import finds, pieces_of
from moonshim.simulator.request import Json

__all__ = ["texts_for"]

LONGEST: Final = 10_000
_FORMATS: Final = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1M",
    "email": "someone@example.com",
    "idn-email": "someone@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "url": "https://example.com/",
    "iri": "https://example.com/",
    "uri-reference": "/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "regex": ".*",
    "json-pointer": "/a",
}
# Where the name of a parameter says more than its schema.
_BY_NAME: Final = {
    "path": ".",
    "dir": ".",
    "directory": ".",
    "folder": ".",
    "cwd": ".",
    "file": "README.md",
    "filename": "README.md",
    "file_path": "README.md",
    "filepath": "README.md",
    "url": "https://example.com/",
    "uri": "https://example.com/",
    "email": "someone@example.com",
    "date": "2026-01-31",
    "language": "en",
    "timezone": "UTC",
    "currency": "EUR",
}
_TRIED: Final = ("a", "A", "1", "a1", "A1", "abc", "ABC", "123", "en", "EUR", "#ffffff", "1.0.0", "12:00", "UTC")


def texts_for(schema: Json, *, word: str, key: str = "") -> Iterator[str]:
    """Strings that a schema may allow, the best first; the caller validates them.

    >>> next(texts_for({"pattern": "^[A-Z]{3}-\\\\d+$"}, word="moonshim"))
    'AAA-0'
    """
    if made := _FORMATS.get(str(schema.get("format"))):
        yield made
    least, most = schema.get("minLength"), schema.get("maxLength")
    least = min(least, LONGEST) if isinstance(least, int) else 0
    pattern = schema.get("pattern")
    if isinstance(pattern, str):
        yield from _matching_texts(pattern, word)
        yield from _matching_texts(pattern, word, at_least=least)
        return
    text = _BY_NAME.get(key.lower(), word)
    if len(text) < least:
        text = ((text + " ") * (least // (len(text) + 1) + 1))[:least]
        text = text[:-1] + "." if text.endswith(" ") else text
    if isinstance(most, int) and len(text) > most:
        text = text[: max(most, 0)]
    yield text


def _matching_texts(pattern: str, word: str, at_least: int = 0) -> Iterator[str]:
    """Strings that match the pattern."""
    try:
        written = [text for text in _texts_of_pattern(pattern, at_least) if finds(pattern, text) is not False]
    except (re.error, RecursionError, OverflowError, ValueError):
        yield word
        return
    words = [word] if finds(pattern, word) else []
    for text in (*words, *written, *(one for one in (*_TRIED, *_FORMATS.values()) if finds(pattern, one))):
        if len(text) >= at_least:
            yield text


def _texts_of_pattern(pattern: str, at_least: int) -> Iterator[str]:
    """A string generated from the pattern itself, as short as it allows or with more iterations of its loops."""
    tree = pieces_of(pattern)
    for rounds in (0, 1, at_least):
        yield "".join(_PatternWriter().pieces(tree, rounds))


class _PatternWriter:
    """Generates one string. Nested loops stop when it becomes too long."""

    def __init__(self) -> None:
        self._groups: dict[int, str] = {}
        self._left = LONGEST

    def pieces(self, tree: Iterable[Any], rounds: int) -> Iterator[str]:
        for operation, argument in tree:
            match str(operation):
                case "LITERAL":
                    yield chr(argument)
                case "NOT_LITERAL":
                    yield "a" if argument != ord("a") else "b"
                case "ANY":
                    yield "a"
                case "IN":
                    yield _one_of(argument)
                case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                    least, most, inside = argument
                    times = min(max(int(least), rounds), int(most), LONGEST)
                    for _ in range(times):
                        if self._left <= 0:
                            break
                        self._left -= 1
                        yield from self.pieces(inside, 0)
                case "SUBPATTERN":
                    number, _, _, inside = argument
                    text = "".join(self.pieces(inside, rounds))
                    self._groups[number] = text
                    yield text
                case "ATOMIC_GROUP":
                    yield from self.pieces(argument, rounds)
                case "BRANCH":
                    yield from self.pieces(argument[1][0], rounds)
                case "GROUPREF":
                    text = self._groups.get(argument, "")[: max(self._left, 0)]
                    self._left -= len(text)
                    yield text
                # The rest, such as anchors and lookarounds, takes no characters.


_CATEGORIES: Final = {"CATEGORY_DIGIT": "0", "CATEGORY_WORD": "a", "CATEGORY_SPACE": " ", "CATEGORY_NOT_SPACE": "a"}
_LIKELY: Final = "aA0_-. /:@,;#+*=!?()[]{}<>|&%$~^'\"\\\n\té中"


def _one_of(inside: list[Any]) -> str:
    """A character of a class."""
    (first, argument), *more = inside
    match str(first):
        case "NEGATE":
            excluded = _class(more)
            return next((char for char in _LIKELY if not excluded.fullmatch(char)), "a")
        case "RANGE":
            return chr(argument[0])
        case "CATEGORY":
            return _CATEGORIES.get(str(argument), "-")
    return chr(argument)


def _class(inside: list[Any]) -> re.Pattern[str]:
    written = {"CATEGORY_DIGIT": r"\d", "CATEGORY_WORD": r"\w", "CATEGORY_SPACE": r"\s"}
    written |= {"CATEGORY_NOT_DIGIT": r"\D", "CATEGORY_NOT_WORD": r"\W", "CATEGORY_NOT_SPACE": r"\S"}
    parts = []
    for kind, argument in inside:
        match str(kind):
            case "RANGE":
                parts.append(f"{re.escape(chr(argument[0]))}-{re.escape(chr(argument[1]))}")
            case "CATEGORY":
                parts.append(written.get(str(argument), ""))
            case _:
                parts.append(re.escape(chr(argument)))
    return re.compile(f"[{''.join(parts)}]")
