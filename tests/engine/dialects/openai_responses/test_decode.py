"""Streams of Responses hosts, in the ways they differ: everything is heard once, and nothing raises."""

from __future__ import annotations

from typing import Any

import pytest

from moonshim.engine.dialects.openai_responses.decode import ResponsesDecoder, decode_response, read_usage
from moonshim.engine.upstream_events import (
    FinishReported,
    ResponseStarted,
    SignatureReported,
    StreamEnded,
    TextDelta,
    ToolCallEnded,
    UnknownPayload,
    UpstreamFailed,
    UsageReported,
)
from moonshim.engine.values.conversation import Usage
from moonshim.engine.values.events import CallPiece, Failed
from tests.engine.dialects.openai_responses.hearing import Told, heard

Json = dict[str, Any]


def event(type: str, **fields: Any) -> Json:
    return {"type": f"response.{type}", **fields}


def added(item: Json, place: int = 0) -> Json:
    return event("output_item.added", output_index=place, item=item)


def done(item: Json, place: int = 0) -> Json:
    return event("output_item.done", output_index=place, item=item)


def ended(*output: Json, **fields: Any) -> Json:
    return event("completed", response={"id": "resp_1", "status": "completed", "output": list(output), **fields})


def message(*texts: str, **more: Any) -> Json:
    content = [{"type": "output_text", "text": text} for text in texts]
    return {"type": "message", "role": "assistant", "id": "m", "content": content, **more}


CALL: Json = {"type": "function_call", "id": "fc", "call_id": "c", "name": "ls", "arguments": '{"a":1}'}
FREE: Json = {"type": "custom_tool_call", "id": "ct", "call_id": "c", "name": "edit", "input": 'a "b"\n'}
DELTA = event("function_call_arguments.delta", output_index=0, delta='{"a":')
THOUGHT: Json = {"type": "reasoning", "id": "rs", "summary": [{"text": "A"}, {"text": "B"}], "encrypted_content": "gA"}

STREAMS: dict[str, tuple[list[Json], list[list[Any]]]] = {
    "only deltas": (
        [event("output_text.delta", output_index=0, content_index=0, delta=piece) for piece in ("H", "i")],
        [["text", "Hi"]],
    ),
    "deltas, then the whole text": (
        [
            event("output_text.delta", output_index=0, content_index=0, delta="H"),
            event("output_text.done", output_index=0, content_index=0, text="Hi"),
            done(message("Hi")),
            ended(message("Hi")),
        ],
        [["text", "Hi"]],
    ),
    "the last piece only in the item": (
        [event("output_text.delta", output_index=0, content_index=0, delta="H"), done(message("Hi"))],
        [["text", "Hi"]],
    ),
    "only in the item": ([done(message("Hi"))], [["text", "Hi"]]),
    "only at the end": ([ended(message("Hi"), CALL)], [["text", "Hi"], ["call", "c", "ls", '{"a":1}']]),
    "two parts of one message": (
        [
            event("output_text.delta", output_index=0, content_index=0, delta="a"),
            event("output_text.delta", output_index=0, content_index=1, delta="b"),
            done(message("a", "b")),
        ],
        [["text", "ab"]],
    ),
    "another identifier at the end, as vLLM has it": (
        [done({**message("Hi"), "id": "m1"}), ended({**message("Hi"), "id": "m2"})],
        [["text", "Hi"]],
    ),
    "another order at the end": (
        [done(CALL, 0), done(message("Hi"), 1), ended(message("Hi"), CALL)],
        [["call", "c", "ls", '{"a":1}'], ["text", "Hi"]],
    ),
    "no places, only identifiers": (
        [
            event("output_text.delta", item_id="m", delta="H"),
            event("output_text.delta", item_id="n", delta="!"),
            event("output_text.done", item_id="m", text="Hi"),
            ended(message("Hi"), {**message("!"), "id": "n"}),
        ],
        [["text", "H!i"]],
    ),
    "a refusal": (
        [event("refusal.delta", output_index=0, delta="N"), event("refusal.done", output_index=0, refusal="No")],
        [["text", "No"]],
    ),
    "a summary in paragraphs": (
        [
            event("reasoning_summary_text.delta", output_index=0, summary_index=0, delta="A"),
            event("reasoning_summary_text.delta", output_index=0, summary_index=1, delta="B"),
            done(THOUGHT),
        ],
        [["reasoning", "A\n\nB"]],
    ),
    "thoughts and their summary": (
        [
            event("reasoning_text.delta", output_index=0, content_index=0, delta="long"),
            event("reasoning_summary_text.delta", output_index=0, summary_index=0, delta="short"),
            done({**THOUGHT, "content": [{"type": "reasoning_text", "text": "longer"}]}),
        ],
        [["reasoning", "longer"]],
    ),
    "a call in pieces": (
        [
            added({**CALL, "arguments": ""}),
            DELTA,
            event("function_call_arguments.done", output_index=0, arguments='{"a":1}'),
            done(CALL),
            ended(CALL),
        ],
        [["call", "c", "ls", '{"a":1}']],
    ),
    "a call whose beginning was not told": ([DELTA, done(CALL)], [["call", "c", "ls", '{"a":1}']]),
    "a call that begins whole": ([added(CALL), done(CALL)], [["call", "c", "ls", '{"a":1}']]),
    "a call of a namespace": ([done({**CALL, "namespace": "fs"})], [["call", "c", "fs__ls", '{"a":1}']]),
    "free text in pieces": (
        [
            added({**FREE, "input": ""}),
            event("custom_tool_call_input.delta", output_index=0, delta='a "'),
            event("custom_tool_call_input.done", output_index=0, input='a "b"\n'),
            done(FREE),
        ],
        [["call", "c", "edit", '{"input":"a \\"b\\"\\n"}']],
    ),
    "no free text": ([done({**FREE, "input": ""})], [["call", "c", "edit", '{"input":""}']]),
    "a shell": (
        [done({"type": "local_shell_call", "call_id": "c", "action": {"command": ["ls"]}})],
        [["call", "c", "local_shell", '{"command":["ls"]}']],
    ),
    "calls that interleave": (
        [
            added({**CALL, "arguments": ""}, 0),
            added({**CALL, "arguments": "", "call_id": "d", "id": "fd"}, 1),
            event("function_call_arguments.delta", output_index=1, delta="{"),
            event("function_call_arguments.delta", output_index=0, delta="{}"),
            event("function_call_arguments.delta", output_index=1, delta="}"),
        ],
        [["call", "c", "ls", "{}"], ["call", "d", "ls", "{}"]],
    ),
    "a piece behind the end of its item": (
        [done(message("Hi")), event("output_text.delta", output_index=0, content_index=0, delta="Hi")],
        [["text", "Hi"]],
    ),
    "what the host ran itself": (
        [
            added({"type": "web_search_call", "id": "w"}),
            done(message("Hi"), 1),
            ended({"type": "web_search_call"}, message("Hi")),
        ],
        [["text", "Hi"]],
    ),
}


@pytest.mark.parametrize(("payloads", "blocks"), STREAMS.values(), ids=STREAMS.keys())
def test_everything_is_heard_once(payloads: list[Json], blocks: list[list[Any]]) -> None:
    assert Told(heard(payloads)).blocks == blocks


def test_a_stream_is_heard_in_its_order() -> None:
    usage = {"input_tokens": 3, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 1}}
    created = event("created", response={"id": "resp_1", "model": "m", "created_at": 7.0})
    stream = [created, event("in_progress", response={}), done(THOUGHT), done(CALL, 1), ended(usage=usage)]
    assert heard(stream) == [
        ResponseStarted("resp_1", "m", 7),
        TextDelta("reasoning", "A"),
        TextDelta("reasoning", "\n\nB"),
        SignatureReported("gA"),
        CallPiece(0, "c", "ls"),
        CallPiece(0, arguments='{"a":1}'),
        ToolCallEnded(0),
        UsageReported(Usage(3, 2, 1, None, usage)),
        FinishReported("tool_calls", "completed"),
        StreamEnded(),
    ]


def test_half_a_call_is_not_closed() -> None:
    assert Told(heard([done({**CALL, "status": "incomplete"})])).closed == []


ENDINGS: dict[str, tuple[Json, list[Any]]] = {
    "completed": (ended(), [FinishReported("stop", "completed"), StreamEnded()]),
    "the limit": (
        event("incomplete", response={"incomplete_details": {"reason": "max_output_tokens"}}),
        [FinishReported("length", "max_output_tokens"), StreamEnded()],
    ),
    "a filter": (
        event("incomplete", response={"incomplete_details": {"reason": "content_filter"}}),
        [FinishReported("content_filter", "content_filter"), StreamEnded()],
    ),
    "incomplete, and nobody says why": (
        event("incomplete", response={}),
        [FinishReported("length", "incomplete"), StreamEnded()],
    ),
    "failed": (
        event("failed", response={"error": {"code": "rate_limit_exceeded", "message": "Slow down."}}),
        [UpstreamFailed(Failed("rate_limit_exceeded", "Slow down."))],
    ),
    "failed for good": (
        event("failed", response={"error": {"code": "context_length_exceeded", "message": "Long."}}),
        [UpstreamFailed(Failed("context_length_exceeded", "Long.", False))],
    ),
    "failed, and nobody says why": (event("failed"), [UpstreamFailed(Failed("server_error", "server_error"))]),
    "cancelled": (
        event("cancelled", response={"status": "cancelled"}),
        [UpstreamFailed(Failed("cancelled", "cancelled"))],
    ),
    "an error": ({"type": "error", "code": "x", "message": "No."}, [UpstreamFailed(Failed("x", "No."))]),
    "an error in an object": (
        {"type": "error", "error": {"type": "invalid_request_error", "message": "No."}},
        [UpstreamFailed(Failed("invalid_request_error", "No.", False))],
    ),
    "an error without a type": ({"error": {"message": "No."}}, [UpstreamFailed(Failed("server_error", "No."))]),
    "an error that is text": ({"error": "No."}, [UpstreamFailed(Failed("server_error", "No."))]),
}


@pytest.mark.parametrize(("payload", "wanted"), ENDINGS.values(), ids=ENDINGS.keys())
def test_an_ending_is_heard(payload: Json, wanted: list[Any]) -> None:
    assert [one for one in heard([payload]) if not isinstance(one, ResponseStarted)] == wanted


def test_an_answer_ends_once() -> None:
    failed = event("failed", response={"error": {"message": "No."}})
    broke = [
        one
        for one in heard([{"type": "error", "message": "No."}, failed, ended()])
        if isinstance(one, (UpstreamFailed, FinishReported))
    ]
    assert broke == [UpstreamFailed(Failed("server_error", "No."))]


UNREAD: dict[str, tuple[Json, bool]] = {
    "an event that nobody knows": (event("hologram"), False),
    "no type at all": ({"x": 1}, False),
    "an invalid item": (added({}), False),
    "what a hosted tool does": (event("web_search_call.searching", output_index=0), True),
    "a hosted tool": (done({"type": "web_search_call"}), True),
    "a delta that is no text": (event("output_text.delta", output_index=0, delta=7), False),
}


@pytest.mark.parametrize(("payload", "known"), UNREAD.values(), ids=UNREAD.keys())
def test_what_cannot_be_read_is_handed_on(payload: Json, known: bool) -> None:
    assert ResponsesDecoder().feed(payload) == [UnknownPayload(payload, known)]


def test_a_whole_response_is_heard_as_a_stream_would_be() -> None:
    body = ended(THOUGHT, message("Hi"), CALL, usage={"input_tokens": 1})["response"]
    assert decode_response(body) == heard([event("completed", response=body)])
    assert decode_response({"error": {"message": "No."}}) == [UpstreamFailed(Failed("server_error", "No."))]
    assert decode_response({"id": 7}) == [UnknownPayload({"id": 7})]


def test_usage_that_tells_nothing_is_none() -> None:
    assert read_usage({"usage": None}) is None
    assert read_usage({"usage": {"input_tokens": "many"}}) == Usage(raw={"input_tokens": "many"})
