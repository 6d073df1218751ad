"""The lines of a conversation file <-> their content: first the version, then one line per event.

    {"moonshim": "conversation", "version": 2, "id": "…", "created": 1763200000.0}
    {"switched": {"model": "kimi-k2.5", "provider": "moonshot"}, "at": 1763200000.0}
    {"message": {"role": "user", "parts": [{"type": "text", "text": "Hi"}]}, "at": 1763200000.1}
    {"undo": 1}          removes the last message
    {"clear": true}      removes all messages

Unknown fields stay in the file, since lines are never rewritten.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
from msgspec import Struct

from moonshim.compat import FORMER_ROLES
from moonshim.engine.dialects.registry import with_typed_extras
from moonshim.engine.values.conversation import Message
from moonshim.engine.wire.json_codec import decode_object
from moonshim.errors import InvalidInput, MoonshimError

__all__ = [
    "VERSION",
    "Conversation",
    "HistoryError",
    "HistoryLine",
    "Switched",
    "encode_line",
    "encode_opening",
    "read_lines",
]

VERSION: Final = 2
_KIND: Final = "conversation"
_OPENING: Final = b'{"moonshim":'


class HistoryError(MoonshimError):
    """A conversation file cannot be opened, read or written. The message says why and what to do."""

    code = "history_unusable"


class Switched(Struct, frozen=True, omit_defaults=True):
    """Records that another model answers from here on."""

    model: str = ""
    provider: str = ""
    tool_format: str = ""
    """The tool format that was set; empty if it is detected from the model name."""


class HistoryLine(Struct, frozen=True, omit_defaults=True):
    """One event. Exactly one of the first four fields is set."""

    message: Message | None = None
    undo: int | None = None
    clear: bool = False
    switched: Switched | None = None
    at: float | None = None


class Conversation(Struct, frozen=True, kw_only=True):
    """The content of a conversation file."""

    about: dict[str, Any] = {}
    """The fields of the first line, including unknown ones."""
    messages: tuple[Message, ...] = ()
    """All messages, the oldest first."""
    switched: Switched = Switched()
    """The current model."""
    troubles: tuple[str, ...] = ()
    """Messages about lines that could not be read and were skipped."""
    size: int = 0
    """The number of bytes in complete lines. The rest was being written when the process ended."""
    ended: bool = True
    """Whether the last of these lines has its line ending."""


_DECODER: Final = msgspec.json.Decoder(HistoryLine)


def encode_opening(about: dict[str, Any]) -> bytes:
    # The type of the file comes first, and cannot be overridden.
    own = {"moonshim": _KIND, "version": VERSION}
    return _encode(own | about | own)


def encode_line(line: HistoryLine) -> bytes:
    return _encode(line)


def _encode(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value) + b"\n"
    except (UnicodeEncodeError, OverflowError):
        # Lone surrogates have no encoding and stay escaped; integers of any size are valid JSON, too.
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"the message cannot be saved as JSON: {error}", field="message") from error


def read_lines(data: bytes, source: str) -> Conversation | None:
    """Parse a file's content; None if there is nothing yet, not even a complete first line."""
    first, _, _ = data.partition(b"\n")
    about = decode_object(first)
    if about is None and b"\n" not in data and _OPENING.startswith(data[: len(_OPENING)]):
        return None
    _check(about, source)
    assert about is not None
    lines = data.split(b"\n")
    tail = lines.pop()
    """After the last line ending: nothing, or an incomplete line."""
    reader, troubles = _Reader(), list[str]()
    for number, line in enumerate(lines[1:], start=2):
        if line.strip() and not reader.take(line):
            troubles.append(f"line {number} of {source} cannot be read and was skipped")
    whole, torn = len(data), False
    if tail and lines:
        torn = not reader.take(tail)
        if torn:
            whole -= len(tail)
            troubles.append(f"the last line of {source} is incomplete and was skipped")
    return Conversation(
        about=about,
        messages=tuple(reader.messages),
        switched=reader.switched,
        troubles=tuple(troubles),
        size=whole,
        ended=torn or not tail,
    )


def _check(about: dict[str, Any] | None, source: str) -> None:
    version = None if about is None else about.get("version")
    if about is None or about.get("moonshim") != _KIND or type(version) is not int or version < 1:
        raise HistoryError(f"{source} is not a Moonshim conversation")
    if version > VERSION:
        raise HistoryError(
            f"{source} was written by a newer Moonshim (format {version}, this version reads up to {VERSION}); "
            "update Moonshim to open it"
        )


class _Reader:
    """Replays the lines."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.switched = Switched()

    def take(self, data: bytes) -> bool:
        line = _decode(data)
        if line is None:
            return False
        if line.message is not None:
            self.messages.append(with_typed_extras(line.message))
        if line.undo is not None and line.undo > 0:
            del self.messages[-line.undo :]
        if line.clear:
            self.messages.clear()
        if line.switched is not None:
            self.switched = line.switched
        return True


def _decode(data: bytes) -> HistoryLine | None:
    try:
        return _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        value = decode_object(data)
    try:
        return None if value is None else msgspec.convert(_with_role(value), HistoryLine)
    except (msgspec.ValidationError, RecursionError):
        return None


def _with_role(line: dict[str, Any]) -> dict[str, Any]:
    """Convert a line of version 1, which has `speaker` instead of `role`."""
    message = line.get("message")
    if not isinstance(message, dict) or "speaker" not in message:
        return line
    speaker = message["speaker"]
    role = FORMER_ROLES.get(speaker, speaker) if isinstance(speaker, str) else speaker
    return line | {"message": {"role": role} | {key: value for key, value in message.items() if key != "speaker"}}
