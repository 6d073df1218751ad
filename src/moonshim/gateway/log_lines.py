"""A finished request -> the fields of its log line; and fields -> one line for a person, or one of JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from moonshim.gateway.record import Record
from moonshim.hosts.problem_body import masked

__all__ = ["REQUEST", "WORDS", "fields_of", "human_line", "json_line", "without_secrets"]

REQUEST: Final = "request"
"""The name of the event that a finished request is."""

WORDS: Final = {
    "marker_call": "markers",
    "stray_marker": "markers",
    "unreadable_call": "markers",
    "bare_call": "markers",
    "id_missing": "ids",
    "id_invalid": "ids",
    "id_repeated": "ids",
    "id_normalized": "ids",
    "tool_name": "names",
    "tool_name_inferred": "names",
    "undeclared_tool": "undeclared",
    "tool_delta": "deltas",
    "tool_index": "deltas",
    "duplicate_call": "twins",
    "call_field": "arguments",
    "value_as_string": "arguments",
    "unreadable_argument": "arguments",
    "python_value_missing": "arguments",
    "python_key_without_value": "arguments",
    "k3_untagged_json": "arguments",
    "k3_argument_without_key": "arguments",
    "k3_value_as_string": "arguments",
    "arguments_empty": "arguments",
    "arguments_leading_empty": "arguments",
    "arguments_leading_null": "arguments",
    "arguments_leading_junk": "arguments",
    "arguments_doubled": "arguments",
    "arguments_trailing": "arguments",
    "arguments_stringified": "arguments",
    "arguments_control_character": "arguments",
    "arguments_invalid_escape": "arguments",
    "arguments_lone_surrogate": "arguments",
    "arguments_schema": "arguments",
    "arguments_unfinished": "cut arguments",
    "arguments_truncated": "cut arguments",
    "finish_reason": "finish",
    "failed": "failed",
    "empty_answer": "empty",
    "channel_by_tags": "thoughts",
    "reasoning_conflict": "thoughts",
    "signature_dropped": "thoughts",
    "usage_moved": "usage",
    "usage_repeated": "usage",
    "lone_surrogate": "characters",
    "buffer_limit": "limit",
    "framing": "framing",
    "cut_off_frame": "framing",
    "missing_done": "framing",
    "after_done": "framing",
    "not_json": "unread",
    "not_a_chunk": "unread",
    "not_said": "unsaid",
}
"""What a person calls the repairs of `docs/repairs.md`: several rules share a word, so that the line stays short."""

_COLOURS: Final = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
_LEVEL_COLOURS: Final = {"debug": "dim", "info": "green", "warning": "yellow", "error": "red", "critical": "red"}
_ALWAYS: Final = frozenset({"request_id", "client", "path", "dialect", "status", "outcome", "seconds"})
_UNSEEN: Final = re.compile(r"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What JSON leaves as it is, and terminals and viewers obey: C1 controls, ends of lines, turns of direction."""
_encode: Final = msgspec.json.Encoder().encode


def fields_of(record: Record) -> dict[str, Any]:
    """What the log says of a request; what is not known is not there.

    >>> record = Record(request_id="r1", path="/v1/messages", dialect="anthropic", status=200, seconds=3.21875)
    >>> fields_of(record)["seconds"], "model" in fields_of(record)
    (3.219, False)
    """
    said = {
        "request_id": record.request_id,
        "client": record.client,
        "key": record.key,
        "path": record.path,
        "dialect": record.dialect,
        "asked_model": record.asked_model,
        "provider": record.provider,
        "model": record.model,
        "streamed": record.streamed,
        "status": record.status,
        "outcome": record.outcome,
        "error": record.error,
        "attempts": record.attempts,
        "first_token_seconds": None if record.first_byte_seconds is None else round(record.first_byte_seconds, 4),
        "seconds": round(record.seconds, 4) if record.seconds < 1 else round(record.seconds, 3),
        "input_tokens": record.input_tokens,
        "output_tokens": record.output_tokens,
        "cached_tokens": record.cached_tokens,
        "repairs": record.repairs,
        "changes": record.changes,
        "lost": record.lost,
    }
    # A number, and a `False`, says something; an empty text, list or table does not.
    return {name: value for name, value in said.items() if value or name in _ALWAYS or isinstance(value, (int, float))}


def without_secrets(value: Any) -> Any:
    """The same value, and no text in it holds a key.

    >>> without_secrets({"error": "401: bad key sk-abcdefgh12345", "status": 401})
    {'error': '401: bad key sk-…', 'status': 401}
    """
    match value:
        case str():
            return masked(value) if len(value) >= 8 else value
        case dict():
            return {name: without_secrets(one) for name, one in value.items()}
        case list() | tuple():
            return [without_secrets(one) for one in value]
        case _:
            return value


def json_line(fields: Mapping[str, Any]) -> str:
    """One line, whoever reads it.

    >>> json_line({"event": "request", "status": 200})
    '{"event":"request","status":200}'
    """
    try:
        line = _encode(fields).decode()
    except (TypeError, ValueError, UnicodeError):  # somebody logged what is no JSON, or half a character
        said = {name: _text(value).encode("utf-8", "replace").decode() for name, value in fields.items()}
        line = _encode(said).decode()
    # Such a character stands only inside of strings, where it may be written so; DEL is the only one in ASCII.
    return line if line.isascii() and "\x7f" not in line else _UNSEEN.sub(_escaped, line)


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def human_line(fields: Mapping[str, Any], *, colour: bool) -> str:
    """One line for a person: a request in the form that the README shows, everything else as `event name=value`.

    >>> human_line({"event": "draining", "requests": 2, "seconds": 600.0}, colour=False)
    'waiting for 2 answers to end; Ctrl-C again ends at once'
    """
    paint = _painted if colour else _plain
    if fields.get("event") == REQUEST:
        return _request_line(fields, paint)
    if fields.get("event") == "draining" and (count := fields.get("requests")):
        answers = "1 answer" if count == 1 else f"{count} answers"
        return f"waiting for {answers} to end; Ctrl-C again ends at once"
    level = str(fields.get("level", "info"))
    shown = [paint(_LEVEL_COLOURS.get(level, "dim"), level), _safe(str(fields.get("event", "")))]
    block = fields.get("exception")
    for name, value in fields.items():
        if name not in {"event", "level", "time", "exception"}:
            shown.append(paint("dim", f"{name}=") + _safe(_text(value)))
    line = " ".join(shown)
    return "\n".join([line, *map(_safe, str(block).splitlines())]) if block else line


def _request_line(fields: Mapping[str, Any], paint: Any) -> str:
    status, provider = fields.get("status", 0), fields.get("provider")
    model = fields.get("model") or fields.get("asked_model") or fields.get("path", "")
    where = f"{provider}/{model}" if provider else str(model)
    shade = "green" if 200 <= status < 400 else "yellow" if 400 <= status < 500 else "red"
    parts = [_safe(f"{fields.get('client')} → {where}"), paint(shade, str(status)), _seconds(fields.get("seconds", 0))]
    tokens, output = fields.get("input_tokens"), fields.get("output_tokens")
    if tokens is not None or output is not None:
        parts.append(f"{_short(tokens)}/{_short(output)} tok")
    if tokens and (cached := fields.get("cached_tokens")) is not None:
        parts.append(f"cache {round(100 * cached / tokens)}%")
    line = " ".join(parts)
    for shade, note in _notes(fields):
        line += f" · {paint(shade, _safe(note))}"
    return line


def _notes(fields: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What was out of the ordinary, each with its colour."""
    notes: list[tuple[str, str]] = []
    if fields.get("attempts", 0) > 1:
        notes.append(("yellow", f"{fields['attempts']} attempts"))
    if fields.get("outcome") == "client_gone":
        notes.append(("dim", "client gone"))
    if repairs := fields.get("repairs"):
        words: Counter[str] = Counter()
        for rule, count in repairs.items():
            words[WORDS.get(rule, rule)] += count
        notes.append(("yellow", "mended: " + " ".join(f"{word}×{count}" for word, count in words.items())))
    if lost := fields.get("lost"):
        notes.append(("red", "store down: " + " ".join(lost)))
    if error := fields.get("error"):
        notes.append(("red", str(error)))
    return notes


def _seconds(seconds: float) -> str:
    """
    >>> [_seconds(value) for value in (0.0123, 0.9996, 3.21, 75.0, 605.0)]
    ['12ms', '1.0s', '3.2s', '75.0s', '10m05s']
    """
    if seconds < 0.9995:
        return f"{round(seconds * 1000)}ms"
    if seconds < 99.95:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest:02}s"


def _short(number: int | None) -> str:
    """
    >>> [_short(value) for value in (None, 830, 1234, 12_345, 999_999, 1_234_567)]
    ['?', '830', '1.2k', '12k', '1.0M', '1.2M']
    """
    if number is None:
        return "?"
    for unit, name in ((1_000_000, "M"), (1000, "k")):
        if number >= unit * 0.9995:
            value = number / unit
            return f"{value:.1f}{name}" if value < 9.95 else f"{value:.0f}{name}"
    return str(number)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


def _safe(text: str) -> str:
    """Nothing that a client sends moves the cursor or changes colours."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _painted(colour: str, text: str) -> str:
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def _plain(colour: str, text: str) -> str:
    return text
