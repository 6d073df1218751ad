"""Streams to measure: one Kimi K2 call with long arguments, a native call, and plain text, four characters a chunk."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

__all__ = ["CHUNK", "NAMES", "TOOLS", "arguments", "as_native", "as_speech", "marked_call", "plain_text"]

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
