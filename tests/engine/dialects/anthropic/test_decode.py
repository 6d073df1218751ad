"""What Messages hosts send, and what they have been seen to bend, becomes what they say."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.engine.assemble import assemble
from moonshim.engine.dialects.anthropic.decode import MessagesDecoder, decode_response
from moonshim.engine.upstream_events import (
    FinishReported,
    ResponseStarted,
    StreamEnded,
    ToolCallEnded,
    UnknownPayload,
    UpstreamEvent,
    UpstreamFailed,
    UsageReported,
)
from moonshim.engine.values.conversation import Reasoning, Text, ToolCall, Usage
from moonshim.engine.values.events import Failed, Finished
from tests.engine.dialects.anthropic import strategies
from tests.engine.dialects.anthropic.told import ending, told

Json = dict[str, Any]


def start(**fields: Any) -> Json:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "kimi-k3", "content": [], **fields}
    return {"type": "message_start", "message": message}


def opens(index: int, kind: str, **fields: Any) -> Json:
    return {"type": "content_block_start", "index": index, "content_block": {"type": kind, **fields}}


def grows(index: int, kind: str, **fields: Any) -> Json:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def stops(index: int, **fields: Any) -> Json:
    return {"type": "content_block_stop", "index": index, **fields}


def ends(reason: str | None = "end_turn", **fields: Any) -> Json:
    return {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, **fields}


STOP: Final[Json] = {"type": "message_stop"}
CALL: Final = opens(0, "tool_use", id="toolu_1", name="ls", input={})
JSON: Final = grows(0, "input_json_delta", partial_json='{"a": 1}')
A1: Final = ToolCall("hist_tool_1", "ls", '{"a": 1}', "toolu_1")


def heard(*payloads: Json) -> list[UpstreamEvent]:
    decoder = MessagesDecoder()
    return [one for payload in payloads for one in decoder.feed(payload)] + decoder.flush()


STREAMS: Final[dict[str, tuple[list[Json], list[Any]]]] = {
    "text": (
        [opens(0, "text", text=""), grows(0, "text_delta", text="Hi"), grows(0, "text_delta", text="!"), stops(0)],
        [Text("Hi!")],
    ),
    "text in the start of its block": (
        [opens(0, "text", text="Hi"), grows(0, "text_delta", text="!"), stops(0)],
        [Text("Hi!")],
    ),
    "thinking and its signature": (
        [
            opens(0, "thinking", thinking="", signature=""),
            grows(0, "thinking_delta", thinking="Hm."),
            grows(0, "signature_delta", signature="EqoB"),
            stops(0),
            opens(1, "text", text=""),
            grows(1, "text_delta", text="Hi"),
            stops(1),
        ],
        [Reasoning("Hm.", "EqoB"), Text("Hi")],
    ),
    "a signature in the start": (
        [opens(0, "thinking", thinking="Hm.", signature="EqoB"), stops(0)],
        [Reasoning("Hm.", "EqoB")],
    ),
    "two stops, the first with the signature": (
        [opens(0, "thinking", thinking="Hm."), stops(0, signature="EqoB"), stops(0)],
        [Reasoning("Hm.", "EqoB")],
    ),
    "a thought without words": ([opens(0, "thinking", thinking=""), stops(0)], [Reasoning("")]),
    "a thought that is not shown": (
        [opens(0, "redacted_thinking", data="x"), stops(0), opens(1, "text", text="Hi"), stops(1)],
        [Reasoning("", None, ({"type": "redacted_thinking", "data": "x"},)), Text("Hi")],
    ),
    "a thought that is not shown behind one that is": (
        [
            opens(0, "thinking", thinking="Hm.", signature="EqoB"),
            stops(0),
            opens(1, "redacted_thinking", data="x"),
            stops(1),
        ],
        [Reasoning("Hm.", "EqoB"), Reasoning("", None, ({"type": "redacted_thinking", "data": "x"},))],
    ),
    "a call": ([CALL, JSON, stops(0)], [A1]),
    "a call that is closed twice": ([CALL, JSON, stops(0), stops(0)], [A1]),
    "a call that begins twice": ([CALL, CALL, JSON, stops(0)], [A1]),
    "a call that is never closed": ([CALL, JSON], [A1]),
    "an object where a piece of text belongs": (
        [CALL, grows(0, "input_json_delta", partial_json={"a": 1}), stops(0)],
        [ToolCall("hist_tool_1", "ls", '{"a":1}', "toolu_1")],
    ),
    "text in the block of a call": (
        [CALL, grows(0, "text_delta", text="Hm."), JSON, stops(0)],
        [A1, Text("Hm.")],
    ),
    "two calls at a time": (
        [CALL, opens(1, "tool_use", id="toolu_2", name="ls"), JSON, stops(1), stops(0)],
        [A1, ToolCall("hist_tool_2", "ls", "{}", "toolu_2")],
    ),
    "deltas of a block that never began": ([grows(3, "text_delta", text="Hi"), stops(3)], [Text("Hi")]),
    "input of a block that never began": ([JSON, stops(0)], [ToolCall("hist_tool_", "", '{"a": 1}', "")]),
    "deltas without an index and a type": (
        [opens(0, "text", text=""), {"type": "content_block_delta", "delta": {"text": "Hi"}}],
        [Text("Hi")],
    ),
    "a sign of life that looks like a beginning": (
        [start(id="msg_2"), opens(0, "text", text="Hi"), start(id="msg_3"), stops(0)],
        [Text("Hi")],
    ),
    "all of it in the first event": ([start(content=[{"type": "text", "text": "Hi"}])], [Text("Hi")]),
}


@pytest.mark.parametrize(("payloads", "expected"), STREAMS.values(), ids=STREAMS.keys())
@pytest.mark.parametrize("named", [True, False], ids=["with types", "without types"])
def test_a_stream_says(payloads: list[Json], expected: list[Any], named: bool) -> None:
    whole = [start(), *payloads, ends(), STOP] if payloads[0]["type"] != "message_start" else [*payloads, ends(), STOP]
    if not named:
        whole = [{key: value for key, value in payload.items() if key != "type"} for payload in whole]
    said = heard(*whole)
    assert assemble(told(said)).parts == tuple(expected)
    assert [one for one in said if isinstance(one, (FinishReported, StreamEnded))] == [
        FinishReported("stop", "end_turn"),
        StreamEnded(),
    ]
    assert [one.id for one in said if isinstance(one, ResponseStarted)] == [whole[0]["message"]["id"]]


def test_a_call_is_closed_where_its_block_is_and_keeps_its_number() -> None:
    said = heard(
        opens(0, "text", text="Hi"), stops(0), opens(1, "tool_use", id="a", name="ls", input={"x": 1}), stops(1)
    )
    assert [type(one).__name__ for one in said] == [
        "TextDelta",
        "BlockEnded",
        "CallPiece",
        "CallPiece",
        "ToolCallEnded",
    ]
    assert said[-1] == ToolCallEnded(0)


def test_a_stream_that_just_ends_says_no_end_and_closes_no_call() -> None:
    said = heard(start(stop_reason="end_turn"), opens(0, "tool_use", id="a", name="ls", input={"x": 1}))
    assert [type(one).__name__ for one in said] == ["ResponseStarted", "CallPiece", "CallPiece"]


ENDINGS: Final[dict[str, tuple[list[Json], FinishReported]]] = {
    "in the delta": ([ends("tool_use")], FinishReported("tool_calls", "tool_use")),
    "beside the delta": (
        [{"type": "message_delta", "stop_reason": "max_tokens"}],
        FinishReported("length", "max_tokens"),
    ),
    "in the last event": (
        [{"type": "message_stop", "stop_reason": "refusal"}],
        FinishReported("content_filter", "refusal"),
    ),
    "in the first event, when the last one came": (
        [start(stop_reason="end_turn"), STOP],
        FinishReported("stop", "end_turn"),
    ),
    "said twice": ([ends("pause_turn"), ends("end_turn")], FinishReported("stop", "pause_turn")),
    "with the sequence": (
        [{"type": "message_delta", "delta": {"stop_reason": "stop_sequence", "stop_sequence": "END"}}],
        FinishReported("stop", "stop_sequence", "END"),
    ),
    "in words of its own": ([ends("engine_overloaded")], FinishReported("engine_overloaded", "engine_overloaded")),
}


@pytest.mark.parametrize(("payloads", "expected"), ENDINGS.values(), ids=ENDINGS.keys())
def test_the_reason_is_read_wherever_it_stands(payloads: list[Json], expected: FinishReported) -> None:
    assert [one for one in heard(*payloads) if isinstance(one, FinishReported)] == [expected]


def test_usage_is_joined_and_counts_the_cache_into_the_prompt() -> None:
    first = {"input_tokens": 10, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 2, "output_tokens": 1}
    said = heard(start(usage=first), ends(usage={"input_tokens": 0, "output_tokens": 7}), STOP)
    began, counted = said[0], said[1]
    assert isinstance(began, ResponseStarted)
    assert isinstance(counted, UsageReported)
    assert began.usage == Usage(17, 1, 5, raw=first, cache_write_tokens=2)
    assert counted.usage == Usage(17, 7, 5, raw=first | {"output_tokens": 7}, cache_write_tokens=2)


ERRORS: Final[dict[str, tuple[Json, Failed]]] = {
    "one that will pass": (
        {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}},
        Failed("overloaded_error", "busy", True),
    ),
    "one that will not": (
        {"type": "error", "error": {"type": "invalid_request_error", "message": "no"}},
        Failed("invalid_request_error", "no", False),
    ),
    "one in a word": ({"error": "no"}, Failed("api_error", "no", True)),
}


@pytest.mark.parametrize(("payload", "failed"), ERRORS.values(), ids=ERRORS.keys())
def test_an_error_breaks_the_answer_off(payload: Json, failed: Failed) -> None:
    assert heard(payload) == [UpstreamFailed(failed)]
    assert decode_response(payload) == [UpstreamFailed(failed)]


UNREAD: Final[dict[str, tuple[list[Json], list[bool]]]] = {
    "a sign of life": ([{"type": "ping"}], [True]),
    "an event of tomorrow": ([{"type": "novelty"}], [False]),
    "a search by the host: told once": (
        [
            opens(0, "server_tool_use", id="srvtoolu_1", name="web_search", input={}),
            grows(0, "input_json_delta", partial_json="{}"),
            stops(0),
        ],
        [False, True, True],
    ),
    "citations: told once": (
        [opens(0, "text", text=""), *[grows(0, "citations_delta", citation={"a": 1})] * 2, stops(0)],
        [False, True],
    ),
}


@pytest.mark.parametrize(("payloads", "known"), UNREAD.values(), ids=UNREAD.keys())
def test_what_others_have_no_word_for_is_unread(payloads: list[Json], known: list[bool]) -> None:
    assert [isinstance(one, UnknownPayload) and one.known for one in heard(*payloads)] == known


def test_a_whole_message_says_what_its_stream_would() -> None:
    usage = {"input_tokens": 3, "output_tokens": 4}
    body: Json = {
        "id": "msg_1",
        "type": "message",
        "model": "kimi-k3",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "EqoB"},
            {"type": "text", "text": "Hi"},
            {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": '{"a": 1}'},
        ],
        "stop_reason": "tool_use",
        "usage": usage,
    }
    events = told(decode_response(body))
    assert assemble(events).parts == (Reasoning("Hm.", "EqoB"), Text("Hi"), A1)
    assert ending(events) == Finished("tool_calls", "tool_use", None, Usage(3, 4, raw=usage))
    assert told(decode_response(body)) == told(heard(body))


def _noise(data: st.DataObject, payload: Json) -> Json:
    """A payload with any JSON in one of its places."""
    out = dict(payload)
    key = data.draw(st.sampled_from(sorted(out)))
    inner = out[key]
    if isinstance(inner, dict) and inner and data.draw(st.booleans()):
        out[key] = _noise(data, inner)
    else:
        out[key] = data.draw(strategies.any_json)
    return out


@given(st.data())
def test_nothing_that_a_host_sends_raises(data: st.DataObject) -> None:
    known = [one for payloads, _ in (*STREAMS.values(), *UNREAD.values()) for one in (*payloads, start(), ends(), STOP)]
    decoder = MessagesDecoder()
    for payload in data.draw(st.lists(st.sampled_from(known), max_size=8)):
        decoder.feed(_noise(data, payload))
    decoder.feed(data.draw(st.dictionaries(st.sampled_from(("type", "delta", "index")), strategies.any_json)))
    decoder.flush()


@pytest.mark.parametrize("odd", [None, 1, "x", [], {}, [{}]], ids=repr)
def test_an_odd_value_in_any_place_of_an_event_raises_nothing(odd: Any) -> None:
    for payload in (start(usage={}), CALL, JSON, stops(0), ends(usage={}), STOP, opens(1, "thinking", signature="x")):
        places = [(key,) for key in payload] + [
            (key, inner) for key, value in payload.items() if isinstance(value, dict) for inner in value
        ]
        for outer, *inner in places:
            changed = {**payload[outer], inner[0]: odd} if inner else odd
            heard(start(), CALL, {**payload, outer: changed}, JSON, ends(), STOP)


@given(
    st.dictionaries(
        st.sampled_from(("type", "content", "usage", "stop_reason", "error", "id")),
        strategies.any_json | st.lists(strategies.texts | strategies.calls | strategies.any_json),
    )
)
def test_no_whole_answer_raises(body: Json) -> None:
    decode_response(body)
