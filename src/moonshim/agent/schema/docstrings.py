"""A docstring -> a tool's description, and those of its parameters: in Google, numpy or Sphinx style."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

__all__ = ["Described", "describe"]

_GOOGLE: Final = re.compile(r"(args|arguments|parameters|params|keyword args|keyword arguments):\s*", re.IGNORECASE)
_GOOGLE_ENTRY: Final = re.compile(r"\*{0,2}(?P<name>\w+)\s*(?:\([^)]*\))?\s*:\s*(?P<text>.*)")
_NUMPY: Final = re.compile(r"(parameters|other parameters)\s*", re.IGNORECASE)
_NUMPY_ENTRY: Final = re.compile(r"(?P<names>\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")
_UNDERLINE: Final = re.compile(r"-{3,}\s*")
_SPHINX: Final = re.compile(r":(?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?\*{0,2}(?P<name>\w+)\s*:\s*")
_SPHINX_TYPE: Final = re.compile(r":(?:type|rtype|vartype)\b")


class Described(Struct, frozen=True):
    """A parsed docstring. The description is everything but the parameters."""

    description: str = ""
    parameters: dict[str, str] = {}


def describe(docstring: str | None) -> Described:
    """
    >>> found = describe('''Read a file.
    ...
    ...     Args:
    ...         path: Where it is,
    ...             from the working directory.
    ...         limit (int): How many lines.
    ...     ''')
    >>> found.description, found.parameters
    ('Read a file.', {'path': 'Where it is, from the working directory.', 'limit': 'How many lines.'})
    """
    lines = inspect.cleandoc(docstring or "").splitlines()
    remaining: list[str] = []
    parameters: dict[str, str] = {}
    at = 0
    while at < len(lines):
        line = lines[at]
        if _GOOGLE.fullmatch(line) and _is_indented(lines, at + 1):
            end = _end_of_block(lines, at + 1)
            parameters |= _google(lines[at + 1 : end])
        elif _NUMPY.fullmatch(line) and at + 1 < len(lines) and _UNDERLINE.fullmatch(lines[at + 1]):
            end = _end_of_numpy(lines, at + 2)
            parameters |= _numpy(lines[at + 2 : end])
        elif found := _SPHINX.match(line):
            end = _end_of_block(lines, at + 1)
            parameters[found["name"]] = _join_lines([line[found.end() :], *lines[at + 1 : end]])
        elif _SPHINX_TYPE.match(line):
            end = _end_of_block(lines, at + 1)
        else:
            end = at + 1
            remaining.append(line)
        at = end
    description = re.sub(r"\n{3,}", "\n\n", "\n".join(remaining)).strip()
    return Described(description, {name: text for name, text in parameters.items() if text})


def _is_indented(lines: list[str], at: int) -> bool:
    following = next((line for line in lines[at:] if line.strip()), "")
    return following[:1].isspace()


def _end_of_block(lines: list[str], at: int) -> int:
    """The index after the last indented line, without trailing blank lines."""
    end = at
    for number in range(at, len(lines)):
        if lines[number][:1].isspace():
            end = number + 1
        elif lines[number].strip():
            break
    return end


def _end_of_numpy(lines: list[str], at: int) -> int:
    """The next section starts with a line that is underlined."""
    return next((number for number in range(at, len(lines) - 1) if _UNDERLINE.fullmatch(lines[number + 1])), len(lines))


def _google(lines: list[str]) -> dict[str, str]:
    depth = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    texts: dict[str, list[str]] = {}
    last: list[str] = []
    for line in lines:
        entry = _GOOGLE_ENTRY.fullmatch(line[depth:])
        if entry:
            last = texts[entry["name"]] = [entry["text"]]
        else:
            last.append(line)
    return {name: _join_lines(text) for name, text in texts.items()}


def _numpy(lines: list[str]) -> dict[str, str]:
    texts: dict[str, list[str]] = {}
    last: list[str] = []
    for line in lines:
        if not line[:1].isspace() and (entry := _NUMPY_ENTRY.fullmatch(line)):
            last = []
            for name in entry["names"].split(","):
                texts[name.strip().lstrip("*")] = last
        else:
            last.append(line)
    return {name: _join_lines(text) for name, text in texts.items()}


def _join_lines(lines: Iterable[str]) -> str:
    return " ".join(" ".join(lines).split())
