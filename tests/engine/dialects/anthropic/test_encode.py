"""Answers for strict clients of Messages: one block at a time, signatures, deltas, one ending."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from moonshim.engine.assemble import assemble, replay
from moonshim.engine.dialects.anthropic.decode import MessagesDecoder, decode_response
from moonshim.engine.dialects.anthropic.encode import MessagesEncoder, encode_response
from moonshim.engine.dialects.protocol import ResponseContext
from moonshim.engine.signing import SignedPayload, Signer, is_signed
from moonshim.engine.values.conversation import Message, Part, Reasoning, Text, Tool, ToolCall, Usage
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
from tests.engine.dialects.anthropic import strategies
from tests.engine.dialects.anthropic.told import told

Json = dict[str, Any]
SEALER: Final = Signer(b"secret")
REPLY: Final = ResponseContext(model="my-kimi", signer=SEALER)
STARTED: Final = Started("chatcmpl-1", "kimi-k3", 1, None)
CALL: Final = BlockOpened(0, "call", "toolu_1", "ls")


def encoded(*events: Event, reply: ResponseContext = REPLY) -> list[Json]:
    encoder = MessagesEncoder(reply)
    return [payload for event in events for payload in encoder.feed(event)]


def blocks(*events: Event, reply: ResponseContext = REPLY) -> list[Json]:
    """The payloads without the frame of the message."""
    inside = ("content_block_start", "content_block_delta", "content_block_stop")
    return [payload for payload in encoded(*events, reply=reply) if payload["type"] in inside]


@pytest.mark.parametrize(
    ("given", "named"),
    [("chatcmpl-1", "msg_mine"), ("", "msg_mine"), (None, "msg_mine"), ("msg_theirs", "msg_theirs")],
)
def test_answers_of_a_host_that_repeats_its_names_are_told_apart(given: str | None, named: str) -> None:
    reply = replace(REPLY, id="mine", is_named=True)
    (start,) = encoded(Started(given, "kimi-k3", 1, None), reply=reply)
    assert start["message"]["id"] == named


def test_a_whole_answer() -> None:
    answer = (Text("Hi"), ToolCall("", "ls", '{"a": 1}', "toolu_1"))
    ended = Finished("tool_calls", "tool_calls", None, Usage(10, 5, 4))
    usage = {"input_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 0}
    assert encoded(STARTED, *replay(Message("assistant", answer)), ended) == [
        {
            "type": "message_start",
            "message": {
                "id": "msg_chatcmpl-1",
                "type": "message",
                "role": "assistant",
                "model": "my-kimi",
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": usage,
            },
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {}},
        },
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": '{"a": 1}'},
        },
        {"type": "content_block_stop", "index": 1},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": usage | {"input_tokens": 6, "cache_read_input_tokens": 4, "output_tokens": 5},
        },
        {"type": "message_stop"},
    ]


def test_an_answer_of_nothing_is_legal_and_starts_by_itself() -> None:
    payloads = encoded(Finished("stop"), Finished("stop"))
    assert [payload["type"] for payload in payloads] == ["message_start", "message_delta", "message_stop"]
    assert encode_response([Finished("stop")], REPLY)["content"] == []


def test_an_empty_text_is_no_block() -> None:
    assert blocks(*replay(Message("assistant", (Text(""), Text("Hi")))))[0]["index"] == 0
    assert blocks(*replay(Message("assistant", (Text(""),)))) == []


def test_a_call_without_arguments_has_a_delta_all_the_same() -> None:
    _, delta, _ = blocks(CALL, BlockDelta(0, " \n"), BlockClosed(0))
    assert delta["delta"] == {"type": "input_json_delta", "partial_json": "{}"}


SIGNATURES: Final[dict[str, tuple[BlockSigned | None, SignedPayload | str]]] = {
    "the host's own": (BlockSigned(0, "EqoB"), "EqoB"),
    "none": (None, SignedPayload()),
    "a name of a field": (BlockSigned(0, field="reasoning"), SignedPayload(field="reasoning")),
    "more than a signature": (
        BlockSigned(0, "EqoB", ({"a": 1},)),
        SignedPayload(signature="EqoB", details=({"a": 1},)),
    ),
    "one of ours": (BlockSigned(0, SEALER.sign(SignedPayload())), SignedPayload()),
}


@pytest.mark.parametrize(("signed", "expected"), SIGNATURES.values(), ids=SIGNATURES.keys())
def test_thinking_is_signed_before_its_block_stops(signed: BlockSigned | None, expected: SignedPayload | str) -> None:
    events: list[Event] = [BlockOpened(0, "reasoning"), BlockDelta(0, "Hm."), *([signed] if signed else [])]
    *_, delta, stop = blocks(*events, BlockClosed(0))
    assert (delta["delta"]["type"], stop["type"]) == ("signature_delta", "content_block_stop")
    signature = delta["delta"]["signature"]
    assert (SEALER.open(signature) if is_signed(signature) else signature) == expected


def test_the_hosts_signature_leaves_at_once() -> None:
    assert blocks(BlockOpened(0, "reasoning"), BlockSigned(0, "EqoB"))[-1]["delta"]["signature"] == "EqoB"


def test_a_thought_that_is_not_shown_stays_one() -> None:
    detail = {"type": "redacted_thinking", "data": "x"}
    start, _ = blocks(BlockOpened(0, "reasoning"), BlockSigned(0, details=(detail,)), BlockClosed(0))
    assert start["content_block"] == detail


def test_of_calls_that_are_open_together_the_later_one_waits() -> None:
    other = BlockOpened(1, "call", "toolu_2", "cat")
    events: list[Event] = [CALL, other, BlockDelta(1, '{"b"'), BlockDelta(0, "{}"), BlockClosed(0)]
    events += [BlockDelta(1, ": 1}"), BlockClosed(1)]
    written = blocks(*events)
    assert [payload["index"] for payload in written] == [0, 0, 0, 1, 1, 1, 1]
    assert [p["delta"]["partial_json"] for p in written if "delta" in p] == ["{}", '{"b"', ": 1}"]


IDS: Final[dict[str, tuple[list[str | None], list[str]]]] = {
    "legal ones stay": (["toolu_1", "Bash_0", "call-x"], ["toolu_1", "Bash_0", "call-x"]),
    "others are spelled anew": (["functions.ls:0"], ["toolu_functions-ls-0"]),
    "equal ones are told apart": (["a", "a", "functions.a:0", "functions-a:0"],
                                  ["a", "a__2", "toolu_functions-a-0", "toolu_functions-a-0__2"]),
    "none": ([None, ""], ["toolu_moonshim_0", "toolu_moonshim_1"]),
}  # fmt: skip


@pytest.mark.parametrize(("given_ids", "expected"), IDS.values(), ids=IDS.keys())
def test_identifiers_are_legal_and_distinct(given_ids: list[str | None], expected: list[str]) -> None:
    events: list[Event] = []
    for index, one in enumerate(given_ids):
        events += [BlockOpened(index, "call", one, "ls"), BlockClosed(index)]
    starts = [payload["content_block"] for payload in blocks(*events) if "content_block" in payload]
    assert [start["id"] for start in starts] == expected


def test_a_tool_has_the_clients_own_name() -> None:
    reply = replace(REPLY, tools={"ls": Tool("my.ls")})
    assert blocks(CALL, reply=reply)[0]["content_block"]["name"] == "my.ls"


REASONS: Final[dict[str, tuple[Finished, str, str | None]]] = {
    "stop": (Finished("stop", "stop"), "end_turn", None),
    "calls": (Finished("tool_calls", "end_turn"), "tool_use", None),
    "the limit": (Finished("length", "length"), "max_tokens", None),
    "the full window, in the host's own word": (
        Finished("length", "model_context_window_exceeded"), "model_context_window_exceeded", None,
    ),
    "a pause": (Finished("stop", "pause_turn"), "pause_turn", None),
    "a stop sequence": (Finished("stop", "stop_sequence", "END"), "stop_sequence", "END"),
    "a stop sequence of another host": (Finished("stop", "stop", "END"), "stop_sequence", "END"),
    "a filter": (Finished("content_filter"), "refusal", None),
    "something new": (Finished("novelty", "novelty"), "end_turn", None),
}  # fmt: skip


@pytest.mark.parametrize(("finished", "reason", "sequence"), REASONS.values(), ids=REASONS.keys())
def test_the_reason_is_one_that_clients_know(finished: Finished, reason: str, sequence: str | None) -> None:
    *_, delta, _ = encoded(finished)
    assert delta["delta"] == {"stop_reason": reason, "stop_sequence": sequence}
    assert encode_response([finished], REPLY)["stop_reason"] == reason


def test_a_failure_closes_the_open_block_and_comes_last() -> None:
    failed = Failed("engine_overloaded", "busy")
    payloads = encoded(BlockOpened(0, "text"), BlockDelta(0, "Hi"), failed, Finished("stop"), BlockDelta(0, "more"))
    assert [payload["type"] for payload in payloads[-2:]] == ["content_block_stop", "error"]
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
    assert payloads[-1] == error
    assert encode_response([BlockOpened(0, "text"), failed], REPLY) == error
    assert encoded(failed) == [error]


HALF: Final = (CALL, BlockDelta(0, '{"path": "s'), BlockClosed(0, complete=False))
BEHIND: Final = (BlockOpened(1, "text"), BlockDelta(1, "Hm."), BlockClosed(1))


def test_half_a_call_before_an_error_is_not_told_to_have_ended() -> None:
    kinds = [payload["type"] for payload in encoded(*HALF, *BEHIND, Failed("arguments_cut_off", "half"))]
    assert kinds == ["message_start", "content_block_start", "content_block_delta", "error"]


def test_half_a_call_of_an_answer_over_its_limit_ends_with_it_and_what_came_behind_it_follows() -> None:
    told = [(one["type"], one["index"]) for one in blocks(*HALF, *BEHIND, Finished("length"))]
    block = ("content_block_start", "content_block_delta", "content_block_stop")
    assert told == [(kind, index) for index in (0, 1) for kind in block]


def test_repairs_are_not_told() -> None:
    assert encoded(Repaired("x")) == []


# --- what only Messages hosts say -------------------------------------------------------------------------------


def test_blocks_of_the_hosts_own_pass_under_our_numbers_and_text_goes_on_behind_them() -> None:
    search = {"type": "content_block_start", "index": 7, "content_block": {"type": "server_tool_use", "id": "s"}}
    stop = {"type": "content_block_stop", "index": 7}
    events: list[Event] = [BlockOpened(0, "text"), BlockDelta(0, "a"), Opaque(search), Opaque(stop)]
    written = blocks(*events, BlockDelta(0, "b"), BlockClosed(0))
    assert [(payload["type"].removeprefix("content_block_"), payload["index"]) for payload in written] == [
        ("start", 0), ("delta", 0), ("stop", 0), ("start", 1), ("stop", 1), ("start", 2), ("delta", 2), ("stop", 2),
    ]  # fmt: skip


def test_a_citation_belongs_to_the_text_that_is_being_told() -> None:
    cited = {"type": "content_block_delta", "index": 5, "delta": {"type": "citations_delta", "citation": {"a": 1}}}
    events: list[Event] = [BlockOpened(0, "text"), BlockDelta(0, "a"), Opaque(cited), BlockClosed(0), Finished("stop")]
    assert blocks(*events)[2]["index"] == 0
    assert encode_response(events, REPLY)["content"] == [{"type": "text", "text": "a", "citations": [{"a": 1}]}]


def test_a_ping_passes_and_what_other_hosts_say_does_not() -> None:
    assert encoded(Opaque({"type": "ping"}), Opaque({"choices": []}), Opaque({"type": "error"})) == [{"type": "ping"}]


# --- laws -------------------------------------------------------------------------------------------------------


def opened(part: Part) -> Part:
    """Reasoning as the next request will have it: with what our token stands for."""
    if not isinstance(part, Reasoning) or not is_signed(part.signature):
        return part
    sealed = SEALER.open(part.signature or "")
    return Reasoning(part.text, sealed.signature, sealed.details, sealed.field)


def legal(message: Message) -> Message:
    """The message with the identifiers that a client of Messages gets."""
    starts = [block for block in encode_response(replay(message), REPLY).get("content", ()) if "id" in block]
    wire = iter([block["id"] for block in starts])
    parts = [replace(part, wire_id=next(wire)) if isinstance(part, ToolCall) else part for part in message.parts]
    return assemble(replay(Message("assistant", tuple(parts))))


@given(strategies.answers, st.integers(1, 9))
def test_what_is_encoded_and_decoded_is_the_same_message(message: Message, size: int) -> None:
    events: list[Event] = []
    for event in replay(message):
        if isinstance(event, BlockDelta):
            cut = [event.text[at : at + size] for at in range(0, len(event.text), size)]
            events += [BlockDelta(event.index, piece) for piece in cut]
        else:
            events.append(event)
    decoder = MessagesDecoder()
    heard = [one for payload in encoded(*events, Finished("stop")) for one in decoder.feed(payload)]
    said = assemble(told(heard))
    assert tuple(map(opened, said.parts)) == legal(message).parts


@given(strategies.answers)
def test_a_whole_response_says_what_the_stream_says(message: Message) -> None:
    events = [STARTED, *replay(message), Finished("stop", "stop", None, Usage(3, 4))]
    decoder = MessagesDecoder()
    streamed = told([one for payload in encoded(*events) for one in decoder.feed(payload)])
    whole = told(decode_response(encode_response(events, REPLY)))

    def said(told_events: list[Event]) -> list[Part]:
        parts = assemble(told_events).parts
        # White space in JSON is lost where it becomes a value.
        return [
            replace(one, arguments=str(json.loads(one.arguments))) if isinstance(one, ToolCall) else one
            for one in parts
        ]

    assert said(whole) == said(streamed)
    assert whole[-1] == streamed[-1]


@given(strategies.answers, st.randoms(use_true_random=False))
def test_blocks_are_balanced_and_one_is_open_at_a_time(message: Message, random: Any) -> None:
    whole = replay(message)
    queues = [[event for event in whole if getattr(event, "index", -1) == n] for n in range(len(message.parts))]
    shuffled: list[Event] = []
    while any(queues):
        shuffled.append(random.choice([queue for queue in queues if queue]).pop(0))
    is_open, count = None, 0
    for payload in encoded(*shuffled, Finished("stop")):
        match payload["type"]:
            case "content_block_start":
                assert (is_open, payload["index"]) == (None, count)
                is_open, count = count, count + 1
            case "content_block_delta":
                assert payload["index"] == is_open
            case "content_block_stop":
                assert payload["index"] == is_open
                is_open = None
    assert (is_open, count) == (None, sum(part != Text("") for part in message.parts))


def test_a_block_that_only_its_host_knows_ends_where_something_else_begins() -> None:
    encoder = MessagesEncoder(ResponseContext(model="m"))
    strange = {"type": "content_block_start", "index": 0, "content_block": {"type": "novelty"}}
    events: list[Event] = [Started("msg_1"), Opaque(strange), BlockOpened(0, "call", "toolu_1", "ls")]
    stray = {"type": "content_block_delta", "index": 7, "delta": {"type": "novelty_delta"}}
    events += [Opaque(stray), BlockDelta(0, "{}"), BlockClosed(0), Finished("tool_calls")]
    told = [(one["type"], one.get("index")) for event in events for one in encoder.feed(event)]
    assert told == [
        ("message_start", None),
        ("content_block_start", 0),
        ("content_block_stop", 0),
        ("content_block_start", 1),
        ("content_block_delta", 1),
        ("content_block_stop", 1),
        ("message_delta", None),
        ("message_stop", None),
    ]
