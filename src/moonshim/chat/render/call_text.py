"""A tool call -> the lines that a person reads: the main argument first, then the rest."""

from __future__ import annotations

from json import dumps, loads
from typing import Any, Final

from msgspec import Struct

from moonshim.chat.render.sanitize import clean, clean_line

__all__ = ["CallText", "call_text"]

_FIRST: Final = ("command", "path", "file_path", "pattern", "query", "url", "name")
"""The main argument of a call, in the order in which it is looked for."""
_LONGEST: Final = 4_000
"""Characters to show of arguments that are not an object, or incomplete."""


class CallText(Struct, frozen=True):
    """A call for display. Nothing in it can move the cursor."""

    about: str
    rest: tuple[tuple[str, str], ...] = ()
    """The other arguments by name; a value may have several lines."""


def call_text(arguments: str, *, whole: bool = True) -> CallText:
    """The arguments for display; verbatim if they are not an object, or incomplete.

    >>> call_text('{"timeout": 5, "command": "ls -l"}')
    CallText(about='ls -l', rest=(('timeout', '5'),))
    >>> call_text('{"command": "ls', whole=False)
    CallText(about='{"command": "ls', rest=())
    """
    value = _object(arguments) if whole else None
    if value is None:
        return CallText(clean_line(arguments[-_LONGEST:] if not whole else arguments[:_LONGEST]))
    first = next((key for key in _FIRST if isinstance(value.get(key), str) and value[key].strip()), None)
    rest = tuple((clean_line(key), _format_value(value[key])) for key in value if key != first)
    if first is None:
        return CallText("", rest)
    text = clean(value[first])
    if "\n" not in text:
        return CallText(text, rest)
    return CallText("", ((first, text), *rest))


def _object(arguments: str) -> dict[str, Any] | None:
    try:
        value = loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _format_value(value: Any) -> str:
    return clean(value if isinstance(value, str) else dumps(value, ensure_ascii=False))
