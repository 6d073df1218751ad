"""A response -> Anthropic's Messages: the events of a stream and their frames, or one object."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from moonshim.engine.wire.json_codec import encode
from moonshim.simulator.request import Json
from moonshim.simulator.response import HostResponse, NativeCall
from moonshim.simulator.wire.chunking import pieces

__all__ = ["messages_events", "messages_frames", "messages_whole"]

_REASONS: Final = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}


def messages_events(answer: HostResponse) -> list[Json]:
    """The start and a ping, each block between its own start and stop, then the reason and the usage."""
    start = _message(answer, []) | {"stop_reason": None, "usage": _usage(answer, 0)}
    events: list[Json] = [{"type": "message_start", "message": start}, {"type": "ping"}]
    for index, (block, deltas) in enumerate(_blocks(answer)):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    ending = {"stop_reason": _reason(answer), "stop_sequence": answer.stopped_by}
    events.append({"type": "message_delta", "delta": ending, "usage": _usage(answer, answer.tally.completion)})
    events.append({"type": "message_stop"})
    return events


def messages_frames(events: Iterable[Json]) -> list[bytes]:
    r"""
    >>> messages_frames([{"type": "ping"}])
    [b'event: ping\ndata: {"type":"ping"}\n\n']
    """
    return [
        b"event: " + str(event.get("type", "message")).encode() + b"\ndata: " + encode(event) + b"\n\n"
        for event in events
    ]


def messages_whole(answer: HostResponse) -> Json:
    """The same as one object."""
    content: list[Json] = []
    if answer.reasoning:
        content.append({"type": "thinking", "thinking": answer.reasoning, "signature": answer.signature})
    if answer.text:
        content.append({"type": "text", "text": answer.text})
    content += [_tool_use(call) | {"input": _input(call.arguments)} for call in answer.calls]
    return _message(answer, content)


def _message(answer: HostResponse, content: list[Json]) -> Json:
    return {
        "id": answer.id,
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": content,
        "stop_reason": _reason(answer),
        "stop_sequence": answer.stopped_by,
        "usage": _usage(answer, answer.tally.completion),
    }


def _blocks(answer: HostResponse) -> Iterator[tuple[Json, list[Json]]]:
    if answer.reasoning:
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(answer.reasoning, answer.cut)]
        if answer.signature:
            deltas.append({"type": "signature_delta", "signature": answer.signature})
        yield {"type": "thinking", "thinking": "", "signature": ""}, deltas
    if answer.text:
        yield (
            {"type": "text", "text": ""},
            [{"type": "text_delta", "text": piece} for piece in pieces(answer.text, answer.cut)],
        )
    for call in answer.calls:
        yield (
            _tool_use(call) | {"input": {}},
            [{"type": "input_json_delta", "partial_json": piece} for piece in pieces(call.arguments, answer.cut)],
        )


def _tool_use(call: NativeCall) -> Json:
    return {"type": "tool_use", "id": call.id, "name": call.name}


def _input(arguments: str) -> Any:
    """The object; anything else stays the string that it is, as hosts have been seen to send it."""
    try:
        return json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return arguments


def _reason(answer: HostResponse) -> str:
    return "stop_sequence" if answer.stopped_by is not None else _REASONS.get(answer.finish, answer.finish)


def _usage(answer: HostResponse, completion: int) -> Json:
    """No token is counted twice."""
    tally, written = answer.tally, answer.tally.written or 0
    usage: Json = {
        "input_tokens": tally.prompt - tally.cached - written,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": tally.cached,
        "output_tokens": completion,
    }
    if tally.written is not None:
        classes = {"ephemeral_5m_input_tokens": written - tally.hourly, "ephemeral_1h_input_tokens": tally.hourly}
        usage["cache_creation"] = classes
    return usage
