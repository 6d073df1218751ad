"""The fields of an event -> one line for people, or one of JSON, without secrets."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from moonshim.engine.hosts.errors.body import mask_secrets

__all__ = ["format_seconds", "human_line", "json_for_terminal", "json_line", "painter", "safe", "without_secrets"]

_COLOURS: Final = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
_LEVEL_COLOURS: Final = {"debug": "dim", "info": "green", "warning": "yellow", "error": "red", "critical": "red"}
_UNSEEN: Final = re.compile(r"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that JSON allows unescaped, and terminals and viewers interpret: C1 controls, line separators, direction
marks."""
_encode: Final = msgspec.json.Encoder().encode
_SCALARS: Final = frozenset({bool, int, float, type(None)})


def without_secrets(value: Any) -> Any:
    """The same value with all keys masked.

    >>> without_secrets({"error": "401: bad key sk-abcdefgh12345", "status": 401})
    {'error': '401: bad key sk-…', 'status': 401}
    """
    match value:
        case str():
            return mask_secrets(value) if len(value) >= 8 else value
        case dict():
            return {name: one if type(one) in _SCALARS else without_secrets(one) for name, one in value.items()}
        case list() | tuple():
            return [without_secrets(one) for one in value]
        case _:
            return value


def json_line(fields: Mapping[str, Any]) -> str:
    """One line of JSON.

    >>> json_line({"event": "request", "status": 200})
    '{"event":"request","status":200}'
    """
    try:
        line = _encode(fields).decode()
    except (TypeError, ValueError, UnicodeError):  # a value that is not JSON was logged, or a lone surrogate
        texts = {name: _text(value).encode("utf-8", "replace").decode() for name, value in fields.items()}
        line = _encode(texts).decode()
    return json_for_terminal(line)


def json_for_terminal(text: str) -> str:
    """The same JSON, with escapes for the characters that JSON allows unescaped and terminals interpret.

    >>> json_for_terminal('["a\u202eb\x9b31m"]')
    '["a\\\\u202eb\\\\u009b31m"]'
    """
    # Such a character occurs only inside strings, where it may be escaped; DEL is the only one in ASCII.
    return text if text.isascii() and "\x7f" not in text else _UNSEEN.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def human_line(fields: Mapping[str, Any], *, colour: bool) -> str:
    """One line for people, as `event name=value`.

    >>> human_line({"event": "draining", "requests": 2, "seconds": 600.0}, colour=False)
    'waiting for 2 responses to finish; press Ctrl-C again to stop now'
    >>> human_line({"event": "draining", "requests": 0, "seconds": 600.0}, colour=False)
    'stopping; no requests are running'
    """
    paint = painter(colour)
    if fields.get("event") == "draining" and (count := fields.get("requests")) is not None:
        if not count:
            return "stopping; no requests are running"
        responses = "1 response" if count == 1 else f"{count} responses"
        return f"waiting for {responses} to finish; press Ctrl-C again to stop now"
    level = str(fields.get("level", "info"))
    shown = [paint(_LEVEL_COLOURS.get(level, "dim"), level), safe(str(fields.get("event", "")))]
    block = fields.get("exception")
    for name, value in fields.items():
        if name not in {"event", "level", "time", "exception"}:
            shown.append(paint("dim", f"{name}=") + safe(_text(value)))
    line = " ".join(shown)
    return "\n".join([line, *map(safe, str(block).splitlines())]) if block else line


def format_seconds(seconds: float) -> str:
    """
    >>> [format_seconds(value) for value in (0.0123, 0.9996, 3.21, 75.0, 605.0)]
    ['12ms', '1.0s', '3.2s', '75.0s', '10m05s']
    """
    if seconds < 0.9995:
        return f"{round(seconds * 1000)}ms"
    if seconds < 99.95:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest:02}s"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


def safe(text: str) -> str:
    """Escape everything that could move the cursor or change colours."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def painter(colour: bool) -> Callable[[str, str], str]:
    """A function that paints text in the colour of this name; without `colour` it returns the text unchanged."""
    return _paint if colour else _plain


def _paint(colour: str, text: str) -> str:
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def _plain(colour: str, text: str) -> str:
    return text
