"""`[DONE]` says that a response is complete: it never follows an error, however the host's bytes are split."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import pytest

from moonshim import Mender
from moonshim.engine.exchange import Exchange, RequestTarget
from moonshim.engine.prepare import read_request

PARAMETERS: Final = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
BODY: Final[dict[str, Any]] = {
    "model": "kimi-k2.5",
    "messages": [{"role": "user", "content": "hi"}],
    "stream": True,
    "tools": [{"type": "function", "function": {"name": "read", "parameters": PARAMETERS}}],
}
ALLOWED: Final = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"function": {"name": "none"}}]}}
SCHEMA: Final = {"type": "json_schema", "json_schema": {"name": "answer", "schema": PARAMETERS}}
BODIES: Final = {
    "tools": BODY,
    "no tools": {key: value for key, value in BODY.items() if key != "tools"},
    "allowed_tools": {**BODY, "tool_choice": ALLOWED},
    "a schema": {**BODY, "response_format": SCHEMA},
}


def chunk(delta: dict[str, Any], reason: str | None = None, index: int = 0, **more: Any) -> dict[str, Any]:
    choice = {"index": index, "delta": delta, "finish_reason": reason}
    return {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "kimi-k2.5",
        "choices": [choice],
        **more,
    }


def call(arguments: str) -> dict[str, Any]:
    function = {"name": "read", "arguments": arguments}
    return chunk({"tool_calls": [{"index": 0, "id": "read:0", "type": "function", "function": function}]})


HELLO: Final = chunk({"role": "assistant", "content": "Hello"})
ERROR: Final = {"error": {"message": "boom", "type": "server_error", "code": "x"}}
USAGE: Final = {"prompt_tokens": 1, "completion_tokens": 4000, "total_tokens": 4001}
BROKEN: Final[dict[str, list[Any]]] = {
    "the host's error": [HELLO, ERROR],
    "nothing but an error": [ERROR],
    "an error after the finish reason": [HELLO, chunk({}, "stop"), ERROR],
    "an error and usage": [HELLO, ERROR, {**chunk({}), "choices": [], "usage": USAGE}],
    "an error in a chunk": [HELLO, chunk({"content": ""}, "error", error={"message": "no", "code": 502})],
    "an error that is a string": [HELLO, {"error": "boom"}],
    "no finish reason": [HELLO],
    "half a call": [call('{"pa'), chunk({}, "tool_calls")],
    "no call": [HELLO, chunk({}, "tool_calls")],
    "half a call in markers": [
        chunk({"content": "<|tool_calls_section_begin|><|tool_call_begin|>functions.read:0"}),
        chunk({}, "stop"),
    ],
    "nothing but reasoning": [chunk({"reasoning_content": "hm"}), chunk({}, "stop")],
    "tokens that did not arrive": [HELLO, chunk({}, "stop", usage=USAGE)],
    "a call that is not allowed": [call('{"path": "a"}'), chunk({}, "tool_calls")],
    "one choice of two": [HELLO, chunk({"content": "x"}, None, 1), chunk({}, "stop"), chunk({}, "error", 1, **ERROR)],
}


def _mended(body: dict[str, Any], pieces: list[bytes]) -> bytes:
    mender = Mender(plan=read_request(body).prepare(host="generic").plan)
    return b"".join(map(mender.feed, pieces)) + mender.flush()


def _exchanged(body: dict[str, Any], pieces: list[bytes]) -> bytes:
    exchange = Exchange(read_request(body))
    exchange.prepare(RequestTarget(key="k", host="generic", model="kimi-k2.5", retry_empty_answer=False))
    exchange.start_response("text/event-stream")
    return b"".join(map(exchange.feed, pieces)) + exchange.end()


@pytest.mark.parametrize("read", [_mended, _exchanged])
@pytest.mark.parametrize("name", BROKEN)
def test_done_never_follows_an_error(name: str, read: Callable[[dict[str, Any], list[bytes]], bytes]) -> None:
    frames = [b"data: %b\n\n" % json.dumps(payload).encode() for payload in BROKEN[name]]
    data = b"".join([*frames, b"data: [DONE]\n\n"])
    for kind, body in BODIES.items():
        seen = set()
        for size in (1, 2, 3, 7, 40, 100, len(data)):
            out = read(body, [data[at : at + size] for at in range(0, len(data), size)])
            error = out.find(b'"error":')
            seen.add((error >= 0, b"[DONE]" in out))
            assert error < 0 or b"[DONE]" not in out[error:], (kind, size)
        assert len(seen) == 1, kind


def test_a_response_that_ends_well_has_it() -> None:
    data = b"".join(b"data: %b\n\n" % json.dumps(payload).encode() for payload in (HELLO, chunk({}, "stop")))
    for read in (_mended, _exchanged):
        assert read(BODIES["tools"], [data, b"data: [DONE]\n\n"]).endswith(b"data: [DONE]\n\n")
