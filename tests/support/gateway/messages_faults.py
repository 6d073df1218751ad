"""What hosts of Kimi get wrong in Messages -> answers that do it, and what a client should see instead."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.support.gateway.host_faults import ARGUMENTS, PARIS, Fault, Json, marked, one

__all__ = ["MESSAGES_FAULTS"]


def _events(*payloads: Json) -> bytes:
    return "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in payloads).encode()


_START: Final[Json] = {
    "type": "message_start",
    "message": {
        "id": "msg_7",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 0},
    },
}
_END: Final[tuple[Json, ...]] = (
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"output_tokens": 4},
    },
    {"type": "message_stop"},
)
_THINKS: Final[tuple[Json, ...]] = (
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm."}},
)
_THOUGHT: Final[tuple[Json, ...]] = (*_THINKS, {"type": "content_block_stop", "index": 0})


def _use(given: Any, *pieces: str, index: int = 1) -> tuple[Json, ...]:
    block = {"type": "tool_use", "id": "tool_9i7LsgzqvgW136", "name": "get_weather", "input": given}
    return (
        {"type": "content_block_start", "index": index, "content_block": block},
        *(
            {
                "type": "content_block_delta",
                "index": index,
                "delta": {"type": "input_json_delta", "partial_json": piece},
            }
            for piece in pieces
        ),
        {"type": "content_block_stop", "index": index},
    )


def messages_fault(
    name: str, *payloads: Json, stream: bytes | None = None, section: str = "4", **expected: Any
) -> Fault:
    right: Json = {"reasoning": "Hm.", "calls": PARIS, "row": "moonshot-anthropic"}
    given = stream if stream is not None else _events(*payloads)
    return Fault(name=name, section=section, stream=given, **{**right, **expected})


_WHOLE_USE: Final = _events(_START, *_THOUGHT, *_use({}, ARGUMENTS), *_END)
_MESSAGES: Final = (
    messages_fault(
        "a block that stops twice, signed at its first stop",
        _START,
        *_THINKS,
        {"type": "content_block_stop", "index": 0, "signature": "sig_1"},
        {"type": "content_block_stop", "index": 0},
        *_use({}, ARGUMENTS),
        *_END,
    ),
    messages_fault(
        "a message that starts thirty times", *[_START] * 30, *_THOUGHT, *_use({}, ARGUMENTS), *[_START] * 29, *_END
    ),
    messages_fault("input at the start, and no deltas", _START, *_THOUGHT, *_use({"city": "Paris"}), *_END),
    messages_fault(
        "input at the start, and again as deltas",
        _START,
        *_THOUGHT,
        *_use({"city": "Paris"}, ARGUMENTS[:8], ARGUMENTS[8:]),
        *_END,
    ),
    messages_fault("junk behind the input", _START, *_THOUGHT, *_use({}, ARGUMENTS, '"}'), *_END),
    messages_fault("input that is a text", _START, *_THOUGHT, *_use(ARGUMENTS), *_END),
    messages_fault(
        "data without a space, and no event lines",
        stream=_WHOLE_USE.replace(b"data: ", b"data:").replace(b"event: ", b": "),
    ),
    messages_fault(
        "markers in the text",
        _START,
        *_THOUGHT,
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "text_delta", "text": "Look." + marked(one("functions.get_weather:0"))},
        },
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}},
        {"type": "message_stop"},
        section="7.1",
        text="Look.",
    ),
    messages_fault(
        "it ends its turn where it calls",
        _START,
        *_THOUGHT,
        *_use({}, ARGUMENTS),
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}},
        {"type": "message_stop"},
        section="7.7",
    ),
    messages_fault("no message_delta", _START, *_THOUGHT, *_use({}, ARGUMENTS), {"type": "message_stop"}),
    messages_fault("a stream that drops", _START, *_THOUGHT, section="7.13", error=True),
    messages_fault(
        "an error in the middle",
        _START,
        *_THOUGHT,
        {"type": "error", "error": {"type": "overloaded_error", "message": "The engine is currently overloaded"}},
        section="7.13",
        error=True,
    ),
)
MESSAGES_FAULTS: Final = {fault.name: fault for fault in _MESSAGES}
