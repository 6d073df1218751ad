"""Answers as Responses tells them: complete, numbered, and heard again as they were said."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.engine.assemble import assemble, replay
from moonshim.engine.dialects.openai_responses.decode import decode_response
from moonshim.engine.dialects.openai_responses.encode import ResponsesEncoder, encode_response
from moonshim.engine.dialects.openai_responses.request import parse_request
from moonshim.engine.dialects.protocol import ResponseContext
from moonshim.engine.signing import SignedPayload, Signer
from moonshim.engine.upstream_events import FinishReported, UpstreamEvent, UpstreamFailed, UsageReported
from moonshim.engine.values.conversation import Message, Part, Reasoning, Request, Text, ToolCall, Usage
from moonshim.engine.values.events import (
    BlockClosed,
    BlockDelta,
    BlockOpened,
    BlockSigned,
    Event,
    Failed,
    Finished,
    Opaque,
    Repaired,
    Started,
)
from tests.engine.dialects.openai_responses.hearing import Told, blocks_of, heard

Json = dict[str, Any]

SEALER = Signer(b"k")
TOOLS: list[Json] = [
    {"type": "function", "name": "ls"},
    {"type": "namespace", "name": "github", "tools": [{"type": "function", "name": "search"}]},
    {"type": "custom", "name": "apply_patch"},
    {"type": "tool_search", "execution": "client", "parameters": {}},
]


def reply(**fields: Any) -> ResponseContext:
    body = {"model": "kimi", "input": "hi", "tools": TOOLS, **fields}
    request, _ = parse_request(body, SEALER)
    names = {tool.name: tool for tool in request.tools or ()}
    return ResponseContext(model="kimi", id="x.1", created=7, request=request, tools=names, signer=SEALER)


def told(events: list[Event], to: ResponseContext | None = None) -> list[Json]:
    encoder = ResponsesEncoder(to or reply())
    return [payload for event in events for payload in encoder.feed(event)]


def call(index: int, name: str, *pieces: str) -> list[Event]:
    opened = BlockOpened(index, "call", f"functions.{name}:{index}", name)
    return [opened, *(BlockDelta(index, piece) for piece in pieces), BlockClosed(index)]


def types(payloads: list[Json]) -> list[str]:
    return [payload["type"].removeprefix("response.") for payload in payloads]


def items(payloads: list[Json]) -> list[Json]:
    return [payload["item"] for payload in payloads if payload["type"] == "response.output_item.done"]


STOP = Finished("stop", "stop", usage=Usage(10, 5, 8, 3))


def test_a_text_is_told_with_all_its_events() -> None:
    payloads = told(
        [Started("chatcmpl-1", "host", 9), BlockOpened(0, "text"), BlockDelta(0, "Hi"), BlockClosed(0), STOP]
    )
    assert types(payloads) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [payload["sequence_number"] for payload in payloads] == list(range(9))
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": "Hi"}
    item = {
        "id": "msg_chatcmpl-1_0",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [part],
    }
    assert items(payloads) == [item]
    assert payloads[2]["item"] == item | {"status": "in_progress", "content": []}
    response = payloads[-1]["response"]
    assert (response["id"], response["model"], response["created_at"]) == ("resp_chatcmpl-1", "kimi", 9)
    assert (response["status"], response["output"]) == ("completed", [item])
    assert response["usage"] == {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 15,
    }


def test_reasoning_is_shown_and_sealed() -> None:
    events: list[Event] = [
        BlockOpened(0, "reasoning"),
        BlockDelta(0, "Hm"),
        BlockDelta(0, "."),
        BlockSigned(0, "sig", ({"type": "x"},), "reasoning"),
        BlockClosed(0),
        STOP,
    ]
    payloads = told(events)
    assert types(payloads)[2:-1] == [
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
    ]
    (item,) = items(payloads)
    assert item["summary"] == [{"type": "summary_text", "text": "Hm."}]
    assert SEALER.open(item["encrypted_content"]) == SignedPayload("Hm.", "sig", ({"type": "x"},), "reasoning")


def test_reasoning_without_a_word_is_still_reasoning() -> None:
    payloads = told([BlockOpened(0, "reasoning"), BlockDelta(0, ""), BlockClosed(0), STOP])
    (item,) = items(payloads)
    assert item["summary"] == []
    assert SEALER.open(item["encrypted_content"]).text == ""


CALLS: dict[str, tuple[str, list[str], Json, list[str]]] = {
    "a function": (
        "ls",
        ['{"a"', ": 1}"],
        {"id": "fc_x_1_0", "type": "function_call", "name": "ls", "arguments": '{"a": 1}'},
        ['{"a"', ": 1}"],
    ),
    "a function of a namespace": (
        "github__search",
        ["{}"],
        {
            "id": "fc_x_1_0",
            "type": "function_call",
            "name": "search",
            "namespace": "github",
            "arguments": "{}",
        },
        ["{}"],
    ),
    "a function that nobody declared": (
        "rm",
        ["{}"],
        {"id": "fc_x_1_0", "type": "function_call", "name": "rm", "arguments": "{}"},
        ["{}"],
    ),
    "free text": (
        "apply_patch",
        ['{"inp', 'ut": "a\\', 'nb"', "}"],
        {"id": "ctc_x_1_0", "type": "custom_tool_call", "name": "apply_patch", "input": "a\nb"},
        ["a", "\nb"],
    ),
    "free text in another form": (
        "apply_patch",
        ["*** Begin", " Patch"],
        {"id": "ctc_x_1_0", "type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin Patch"},
        ["*** Begin Patch"],
    ),
    "a search for tools": (
        "tool_search",
        ['{"query":', ' "x"}'],
        {"id": "tsc_x_1_0", "type": "tool_search_call", "execution": "client", "arguments": {"query": "x"}},
        [],
    ),
}


@pytest.mark.parametrize(("name", "pieces", "item", "deltas"), CALLS.values(), ids=CALLS.keys())
def test_a_call_is_told_as_its_tool_was_declared(name: str, pieces: list[str], item: Json, deltas: list[str]) -> None:
    payloads = told([*call(0, name, *pieces), STOP])
    assert items(payloads) == [{**item, "call_id": f"functions.{name}:0", "status": "completed"}]
    assert [payload["delta"] for payload in payloads if "delta" in payload] == deltas
    added = next(payload["item"] for payload in payloads if payload["type"] == "response.output_item.added")
    assert (added["id"], added["call_id"], added["status"]) == (item["id"], f"functions.{name}:0", "in_progress")
    assert not added.get("arguments", added.get("input"))
    assert payloads[-1]["response"]["output"] == items(payloads)


def test_a_tool_under_the_name_that_its_host_knows_gets_the_clients_own() -> None:
    to = reply()
    renamed = ResponseContext(model="kimi", request=to.request, tools={"gh": to.tools["github__search"]})
    (item,) = items(told([*call(0, "gh", "{}"), STOP], renamed))
    assert (item["namespace"], item["name"]) == ("github", "search")


def test_parallel_calls_may_interleave() -> None:
    one, two = call(0, "ls", "{", "}"), call(1, "ls", '{"a":', "1}")
    mixed = [event for pair in zip(one, two, strict=True) for event in pair]
    payloads = told([*mixed, STOP])
    places = [payload["output_index"] for payload in payloads if "output_index" in payload]
    assert set(places) == {0, 1}
    assert [item["arguments"] for item in payloads[-1]["response"]["output"]] == ["{}", '{"a":1}']


# --- endings ----------------------------------------------------------------------------------------------------

ENDINGS: dict[str, tuple[Finished | Failed, str, Json]] = {
    "a stop": (Finished("stop"), "completed", {}),
    "calls": (Finished("tool_calls"), "completed", {}),
    "a reason of the host's own": (Finished("eos"), "completed", {}),
    "the limit": (Finished("length"), "incomplete", {"incomplete_details": {"reason": "max_output_tokens"}}),
    "a filter": (Finished("content_filter"), "incomplete", {"incomplete_details": {"reason": "content_filter"}}),
    "a failure": (
        Failed("stream_ended", "It broke."),
        "failed",
        {"error": {"code": "server_error", "message": "It broke.", "type": "stream_ended", "param": None}},
    ),
    "a failure that asking again does not cure": (
        Failed("nonsense", "No.", False),
        "failed",
        {"error": {"code": "invalid_prompt", "message": "No.", "type": "nonsense", "param": None}},
    ),
    "an overflow": (
        Failed("context_overflow", "Too long.", False),
        "failed",
        {
            "error": {
                "code": "context_length_exceeded",
                "message": "Too long.",
                "type": "context_overflow",
                "param": None,
            }
        },
    ),
}


@pytest.mark.parametrize(("ending", "status", "fields"), ENDINGS.values(), ids=ENDINGS.keys())
def test_an_ending_is_told(ending: Finished | Failed, status: str, fields: Json) -> None:
    payloads = told([BlockOpened(0, "text"), BlockDelta(0, "Hi"), BlockClosed(0), ending])
    assert types(payloads)[-1] == status
    response = payloads[-1]["response"]
    assert response["status"] == status
    assert {key: response[key] for key in ("error", "incomplete_details")} == {
        "error": None,
        "incomplete_details": None,
        **fields,
    }
    assert encode_response([BlockOpened(0, "text"), BlockDelta(0, "Hi"), BlockClosed(0), ending], reply()) == response


def test_what_is_open_when_an_answer_breaks_off_is_closed_but_half_a_call_is_never_done() -> None:
    opened: list[Event] = [
        BlockOpened(0, "text"),
        BlockDelta(0, "Hi"),
        BlockOpened(1, "call", "c", "ls"),
        BlockDelta(1, '{"path": "/'),
    ]
    payloads = told([*opened, Failed("stream_ended", "It broke.")])
    assert [(item["type"], item["status"]) for item in items(payloads)] == [("message", "incomplete")]
    output = payloads[-1]["response"]["output"]
    assert [(item["type"], item["status"]) for item in output] == [
        ("message", "incomplete"),
        ("function_call", "incomplete"),
    ]
    closed = told([*opened, BlockClosed(0), BlockClosed(1, complete=False), Finished("length")])
    assert [item["type"] for item in items(closed)] == ["message"]


def test_an_answer_without_a_word_is_told() -> None:
    assert types(told([Repaired("x"), Opaque({"a": 1}), STOP])) == ["created", "in_progress", "completed"]


def test_the_request_is_repeated() -> None:
    fields: Json = {
        "instructions": "Be brief.",
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 100,
        "text": {"verbosity": "low"},
        "reasoning": {"effort": "high", "summary": "auto"},
        "metadata": {"a": "b"},
        "store": False,
        "previous_response_id": "resp_0",
        "truncation": "auto",
    }
    response = told([Started()], reply(**fields))[0]["response"]
    tools = [{"description": None, "parameters": None, "strict": None, **TOOLS[0]}, *TOOLS[1:]]
    wanted = fields | {"text": {"format": {"type": "text"}, "verbosity": "low"}, "tools": tools}
    assert {key: response[key] for key in wanted} == wanted
    plain = told([Started()], ResponseContext(model="m", request=Request(model="m")))[0]["response"]
    assert (plain["tools"], plain["tool_choice"], plain["parallel_tool_calls"]) == ([], "auto", True)
    assert (plain["usage"], plain["error"], plain["incomplete_details"], plain["output"]) == (None, None, None, [])


# --- heard again ------------------------------------------------------------------------------------------------

WORDS = st.text(max_size=8)


@st.composite
def answers(draw: st.DrawFn) -> Message:
    parts: list[Part] = []
    for number in range(draw(st.integers(0, 5))):
        match draw(st.sampled_from(["text", "reasoning", "call", "free"])):
            case "text":
                parts.append(Text(draw(WORDS)))
            case "reasoning":
                parts.append(Reasoning(draw(WORDS)))
            case "call":
                name = draw(st.sampled_from(["ls", "github__search", "rm"]))
                parts.append(ToolCall("", name, draw(WORDS), f"c{number}"))
            case _:
                text = draw(WORDS)
                encoded = Told(heard([{"type": "response.output_item.done", "output_index": 0, "item": free(text)}]))
                parts.append(ToolCall("", "apply_patch", encoded.blocks[0][3], f"c{number}"))
    return Message("assistant", tuple(parts))


def free(text: str) -> Json:
    return {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": text}


def chunked(events: list[Event], size: int) -> list[Event]:
    out: list[Event] = []
    for event in events:
        if isinstance(event, BlockDelta):
            out += [BlockDelta(event.index, event.text[at : at + size]) for at in range(0, len(event.text), size)]
        else:
            out.append(event)
    return out


@given(answers(), st.integers(1, 5), st.sampled_from([STOP, Finished("length", "length")]))
def test_what_is_told_is_heard_again(message: Message, size: int, ending: Finished) -> None:
    events = [*chunked(replay(message), size), ending]
    wanted = blocks_of(assemble(events))
    payloads = told(events)
    streamed, whole = heard(payloads), decode_response(encode_response(events, reply()))
    for one in (streamed, whole):
        assert Told(one).blocks == wanted
        assert len(Told(one).closed) == sum(isinstance(part, ToolCall) for part in message.parts)
        assert _ending(one) == _wanted_ending(message, ending)
    # Also where the host tells items only when they are done, or only at the end.
    done = [one for one in payloads if one["type"] == "response.output_item.done" or "response" in one]
    assert Told(heard(done)).blocks == wanted
    assert Told(heard([payloads[-1]])).blocks == wanted
    assert Told(heard(payloads[:-1])).blocks == wanted


def _ending(all_heard: list[UpstreamEvent]) -> list[UpstreamEvent]:
    return [
        one
        for one in all_heard
        if isinstance(one, (FinishReported, UsageReported, UpstreamFailed)) and not isinstance(one, UsageReported)
    ]


def _wanted_ending(message: Message, ending: Finished) -> list[UpstreamEvent]:
    if ending.reason == "length":
        return [FinishReported("length", "max_output_tokens")]
    has_calls = any(isinstance(part, ToolCall) for part in message.parts)
    return [FinishReported("tool_calls" if has_calls else "stop", "completed")]
