"""Streams that an attacker, or a bad day, would send: what the client reads keeps its protocol all the same."""

from __future__ import annotations

import json
from typing import Any, Final, TypeAlias

import pytest

from moonshim import Mender, mend_response, prepare_request
from moonshim.engine.dialects.registry import CLIENT_DIALECTS
from tests.engine.dialects.anthropic.reading import MessagesReader
from tests.support.streams import chunk

Json: TypeAlias = dict[str, Any]

SCHEMA: Final = {"type": "object", "properties": {}}
BODIES: Final[dict[str, Json]] = {
    "openai_chat": {
        "model": "c",
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"type": "function", "function": {"name": "ls", "parameters": SCHEMA}}],
    },
    "anthropic": {
        "model": "c",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"name": "ls", "input_schema": SCHEMA}],
    },
    "openai_responses": {
        "model": "c",
        "input": "hi",
        "tools": [{"type": "function", "name": "ls", "parameters": SCHEMA}],
    },
}
LEAK: Final = "<|tool_call_begin|>functions.ls:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
START: Final = {"type": "message_start", "message": {"id": "msg_1", "usage": {"input_tokens": 1, "output_tokens": 1}}}
LATE_CALL: Final = {
    "index": 0,
    "id": "functions.ls:0",
    "type": "function",
    "function": {"name": "ls", "arguments": "{}"},
}


def out_of(client: str, upstream: str, payloads: list[Json], *, done: bool = False) -> bytes:
    plan = prepare_request(BODIES[client], dialect=client, upstream=upstream, host="generic", model="kimi-k2.5").plan
    mender = Mender(plan=plan)
    out = b"".join(mender.feed(b"data: %b\n\n" % json.dumps(payload).encode()) for payload in payloads)
    return out + (mender.feed(b"data: [DONE]\n\n") if done else b"") + mender.flush()


def payloads_of(out: bytes) -> list[Json]:
    lines = [line[6:] for line in out.decode().split("\n") if line.startswith("data: {")]
    return [json.loads(line) for line in lines]


def block(index: int, start: Json, *deltas: Json) -> list[Json]:
    pieces = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    started = {"type": "content_block_start", "index": index, "content_block": start}
    return [started, *pieces, {"type": "content_block_stop", "index": index}]


def text(index: int, *said: str) -> list[Json]:
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": one} for one in said))


def use(index: int, *pieces: str) -> list[Json]:
    start = {"type": "tool_use", "id": f"toolu_{index}", "name": "ls", "input": {}}
    return block(index, start, *({"type": "input_json_delta", "partial_json": piece} for piece in pieces))


def end(reason: str) -> list[Json]:
    return [
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]


SERVER: Final = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
THOUGHT: Final = {"type": "thinking", "thinking": "", "signature": ""}
SHIFTED: Final[dict[str, list[Json]]] = {
    "a leaked call, text, and a call without input": [*text(0, LEAK, "Done."), *use(1, ""), *end("tool_use")],
    "a leaked call, text, and a block of the host's own": [
        *text(0, LEAK, "Done."),
        *block(1, SERVER, {"type": "novelty_delta", "x": 1}),
        *end("end_turn"),
    ],
    "an empty block of text before a long one": [
        *text(0),
        *text(1, *["abc"] * 6),
        *block(2, {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}),
        *end("end_turn"),
    ],
    "a second stop of a block that only its host knows": [
        *block(0, SERVER),
        {"type": "content_block_stop", "index": 0},
        *end("end_turn"),
    ],
    "an empty thought, a call without input, a hidden thought": [
        *block(0, THOUGHT),
        *use(1, ""),
        *block(2, {"type": "redacted_thinking", "data": "b"}),
        *end("tool_use"),
    ],
    "a call behind the end": [*text(0, "hi"), end("end_turn")[0], *use(1, "{}"), end("")[1]],
}


@pytest.mark.parametrize("payloads", SHIFTED.values(), ids=SHIFTED.keys())
def test_blocks_stay_in_order_when_their_numbers_shift(payloads: list[Json]) -> None:
    """Strict: one block open at a time, numbers without gaps, deltas of the open block's own kind."""
    MessagesReader(out_of("anthropic", "anthropic", [START, *payloads]))


@pytest.mark.parametrize("client", CLIENT_DIALECTS)
def test_a_call_behind_the_finish_is_a_call(client: str) -> None:
    late = [chunk({}, finish="stop"), chunk({"tool_calls": [LATE_CALL]})]
    if client == "openai_chat":
        out = out_of(client, "anthropic", [START, end("end_turn")[0], *use(0, "{}"), end("")[1]])
        assert [one["choices"][0]["finish_reason"] for one in payloads_of(out)][-1] == "tool_calls"
    elif client == "anthropic":
        out = out_of(client, "openai_chat", late, done=True)
        assert payloads_of(out)[-2]["delta"]["stop_reason"] == "tool_use"
        MessagesReader(out)
    else:
        kinds = [one["type"] for one in payloads_of(out_of(client, "openai_chat", late, done=True))]
        assert "response.output_item.done" in kinds
        assert kinds[-1] == "response.completed"


ODD: Final[dict[str, Json]] = {
    "an error whose type is an object": {"error": {"message": "x", "type": {"a": 1}}},
    "an error whose code is a list": {"error": {"code": [1]}},
    "a type that is half a character": {"type": "\ud800"},
    "a type with line ends": {"type": "ping\n\ndata: {}"},
    "a type that is a number": {"type": 5},
    "details with half a character": chunk({"reasoning_details": [{"type": "x", "data": "\ud800"}]}),
    "a signature with half a character": {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "signature_delta", "signature": "\ud800"},
    },
}


@pytest.mark.parametrize("upstream", ["openai_chat", "anthropic"])
@pytest.mark.parametrize("client", CLIENT_DIALECTS)
@pytest.mark.parametrize("payload", ODD.values(), ids=ODD.keys())
def test_nothing_breaks_and_no_line_is_smuggled_in(payload: Json, client: str, upstream: str) -> None:
    streams: list[list[Json]] = [
        [payload],
        [chunk({"content": "a"}), payload],
        [START, *text(0, "a"), payload, *text(1, "b")],
    ]
    for payloads in streams:
        out = out_of(client, upstream, payloads, done=True)
        for line in out.split(b"\n"):
            assert line.partition(b":")[0] in (b"", b"event", b"data"), line
        mend_response(payload, plan=prepare_request(BODIES[client], dialect=client, upstream=upstream).plan)


@pytest.mark.parametrize("content", [[1], ["x", None], [[]], {}, [{"type": {}}]], ids=repr)
def test_a_whole_message_of_odd_blocks_breaks_nothing(content: Any) -> None:
    body = {"type": "message", "role": "assistant", "content": content, "stop_reason": "end_turn"}
    for client in CLIENT_DIALECTS:
        plan = prepare_request(BODIES[client], dialect=client, upstream="anthropic", host="generic").plan
        mend_response(body, plan=plan)


def test_what_only_a_chat_host_says_is_no_event_of_messages() -> None:
    odd: list[Json] = [
        {"type": "keepalive"},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}},
    ]
    out = out_of(
        "anthropic", "openai_chat", [*odd, chunk({"content": "hi"}), *odd, chunk({}, finish="stop")], done=True
    )
    assert b"keepalive" not in out
    assert MessagesReader(out).said["content"] == [{"type": "text", "text": "hi"}]


def test_signatures_of_several_thoughts_are_told_apart_in_chat() -> None:
    signed: list[Json] = [{"type": "thinking_delta", "thinking": "hm"}, {"type": "signature_delta", "signature": "s"}]
    payloads = [START, *block(0, THOUGHT, *signed), *text(1, "hi"), *block(2, THOUGHT, *signed), *end("end_turn")]
    deltas = [one["choices"][0]["delta"] for one in payloads_of(out_of("openai_chat", "anthropic", payloads))]
    assert [entry["index"] for delta in deltas for entry in delta.get("reasoning_details", ())] == [0, 1]


def test_an_error_behind_the_finish_is_the_end() -> None:
    broke = {"type": "error", "error": {"type": "overloaded_error", "message": "b"}}
    out = out_of("openai_chat", "anthropic", [START, *text(0, "hi"), end("end_turn")[0], broke])
    assert b'"error"' in out
    assert b"[DONE]" not in out


def test_a_call_is_told_whole_when_the_next_one_begins() -> None:
    calls = [
        chunk({"tool_calls": [LATE_CALL]}),
        chunk({"tool_calls": [{**LATE_CALL, "index": 1, "id": "functions.ls:1"}]}),
    ]
    plan = prepare_request(BODIES["anthropic"], dialect="anthropic", host="vllm", model="kimi-k2.5").plan
    mender = Mender(plan=plan)
    early = b"".join(mender.feed(b"data: %b\n\n" % json.dumps(one).encode()) for one in calls)
    assert early.count(b"event: content_block_stop") == 1
    assert early.count(b"event: content_block_start") == 2


SHAPES: Final[dict[str, Json]] = {
    "OpenAI": {"error": {"message": "says no", "code": 400}},
    "older vLLM": {"object": "error", "message": "says no", "type": "BadRequestError", "code": 400},
    "SiliconFlow": {"code": 20015, "message": "says no", "data": None},
}


@pytest.mark.parametrize("client", ["anthropic", "openai_responses"])
@pytest.mark.parametrize("payload", SHAPES.values(), ids=SHAPES.keys())
def test_what_a_host_says_of_its_error_reaches_the_client(payload: Json, client: str) -> None:
    for before in ([], [chunk({"content": "a"})]):
        assert b"says no" in out_of(client, "openai_chat", [*before, payload])
