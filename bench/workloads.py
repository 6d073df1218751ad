"""Streams to measure: a Kimi K2 call with long arguments, a native call, and plain text, in chunks of 4 characters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

__all__ = [
    "CHUNK",
    "NAMES",
    "TOOLS",
    "arguments",
    "as_messages",
    "as_native",
    "as_speech",
    "marked_call",
    "no_two_alike",
    "plain_text",
]

CHUNK = 4
NAMES = frozenset({"write_file", "read_file", "search", "run_shell_command", "list_directory"})
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in sorted(NAMES)
]

# Source code as a model writes it into a file: quotes and newlines are escaped, as JSON demands.
_LINE = 'def greet(name: str) -> str:\\n    return f\\"Hello, {name}!\\"  # says hello to whoever is there\\n'
_PROSE = "The quick brown fox jumps over the lazy dog, and then it rests for a while in the shade. "


def arguments(size: int) -> str:
    return '{"path": "greet.py", "content": "' + _LINE * (size // len(_LINE) + 1) + '"}'


def marked_call(size: int) -> str:
    """A call as K2 writes it when the host does not parse it."""
    return (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.write_file:0<|tool_call_argument_begin|>"
        + arguments(size)
        + "<|tool_call_end|><|tool_calls_section_end|>"
    )


def plain_text(size: int) -> str:
    return _PROSE * (size // len(_PROSE) + 1)


def as_speech(text: str) -> Iterator[bytes]:
    """The text as content deltas of a stream, ended properly."""
    for start in range(0, len(text), CHUNK):
        yield _frame({"content": text[start : start + CHUNK]})
    yield from _end("stop")


def as_native(text: str) -> Iterator[bytes]:
    """The text as the arguments of a native call."""
    header = {"index": 0, "id": "functions.write_file:0", "type": "function"}
    yield _frame({"tool_calls": [{**header, "function": {"name": "write_file", "arguments": ""}}]})
    for start in range(0, len(text), CHUNK):
        yield _frame({"tool_calls": [{"index": 0, "function": {"arguments": text[start : start + CHUNK]}}]})
    yield from _end("tool_calls")


def as_messages(text: str) -> Iterator[bytes]:
    """The text as a Messages host tells it."""
    message = {"id": "msg_6891d7a2f0b3", "type": "message", "role": "assistant", "model": "kimi-k2.5", "content": []}
    yield _event({"type": "message_start", "message": message})
    yield _event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
    for start in range(0, len(text), CHUNK):
        delta = {"type": "text_delta", "text": text[start : start + CHUNK]}
        yield _event({"type": "content_block_delta", "index": 0, "delta": delta})
    yield _event({"type": "content_block_stop", "index": 0})
    yield _event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}})
    yield _event({"type": "message_stop"})


def no_two_alike(frames: Iterable[bytes]) -> Iterator[bytes]:
    """The same stream of a host that counts its chunks in each of them."""
    for number, frame in enumerate(frames):
        yield frame.replace(b'"created":', b'"number":%d,"created":' % number)


def _event(payload: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (payload["type"].encode(), msgspec.json.encode(payload))


def _end(reason: str) -> Iterator[bytes]:
    yield _frame({}, reason)
    yield b"data: [DONE]\n\n"


def _frame(delta: dict[str, object], reason: str | None = None) -> bytes:
    chunk = {
        "id": "chatcmpl-6891d7a2f0b3",
        "object": "chat.completion.chunk",
        "created": 1763190000,
        "model": "kimi-k2.5",
        "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
    }
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"
