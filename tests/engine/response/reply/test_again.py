"""An answer of only reasoning, and a second one behind it: the client sees one answer."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from moonshim.engine.response.reply import Form, ResponseStream, read_reply
from moonshim.engine.values.conversation import Message, Reasoning, Text
from moonshim.engine.values.events import Failed, Finished
from moonshim.errors import InvalidInput, Problem
from tests.engine.response.reply.asking import CLIENTS, UPSTREAMS, answer_of, as_form, payloads, plan_for_pair, read
from tests.support.streams import chunk, parse_payloads, read_chunks, read_sse, sse

COMES: Final[dict[str, tuple[Form, ...]]] = {"openai_chat": ("sse", "ndjson", "json"), "anthropic": ("sse", "json")}
WAYS: Final = [
    (client, upstream, input_format) for client in CLIENTS for upstream in UPSTREAMS for input_format in COMES[upstream]
]
STALLED: Final = Problem(status=504, kind="timeout", message="stalled", code="upstream_stalled")


def empty(upstream: str, input_format: Form, thought: str = "Let me see.") -> bytes:
    return as_form(answer_of(upstream, "", calls=0, thought=thought), input_format)


def second(upstream: str, input_format: Form, **more: Any) -> bytes:
    """Another answer of the same host, under another name and at another time."""
    data = as_form(answer_of(upstream, "Look.", thought="Once more.", **more), input_format)
    data = data.replace(b"chatcmpl-7", b"chatcmpl-8").replace(b"msg_1", b"msg_2")
    return data.replace(b'"created": 1700000000', b'"created": 1800000000').replace(b'"created": 7', b'"created": 8')


def asked_again(
    client: str, upstream: str, input_format: Form, output_format: Form, size: int = 41
) -> tuple[bytes, ResponseStream]:
    reading = read_reply(
        plan_for_pair(client, upstream), input_format=input_format, output_format=output_format, may_retry=True
    )
    out = b""
    for data in (empty(upstream, input_format), second(upstream, input_format)):
        if out or reading.ending is not None or reading.wants_retry:
            assert reading.wants_retry
            reading.start_retry(input_format)
            assert not reading.wants_retry
        out += b"".join([reading.feed(data[at : at + size]) for at in range(0, len(data), size)])
    return out + reading.flush(), reading


def in_order(message: Message) -> list[tuple[str, str]]:
    """What the message says; thoughts that follow each other are one."""
    out: list[tuple[str, str]] = []
    for part in message.parts:
        kind, text = type(part).__name__, part.text if isinstance(part, (Reasoning, Text)) else ""
        if out and out[-1][0] == kind:
            text = out.pop()[1] + text
        out.append((kind, text))
    return out


@pytest.mark.parametrize("output_format", ["sse", "json"])
@pytest.mark.parametrize(("client", "upstream", "input_format"), WAYS)
def test_a_second_answer_goes_on_where_the_first_one_stopped(
    client: str, upstream: str, input_format: Form, output_format: Form
) -> None:
    out, reading = asked_again(client, upstream, input_format, output_format)
    assert in_order(reading.message) == [("Reasoning", "Let me see.Once more."), ("Text", "Look."), ("ToolCall", "")]
    assert isinstance(reading.ending, Finished)
    assert reading.ending.reason == "tool_calls"
    assert reading.usage is not None
    assert (reading.usage.input_tokens, reading.usage.output_tokens) == (3, 8)
    assert reading.problem is None
    assert reading.repair_counts["empty_answer"] == 1
    assert b"chatcmpl-8" not in out
    assert b"msg_2" not in out
    assert b"Let me" in out


@pytest.mark.parametrize(("client", "upstream", "input_format"), WAYS)
def test_the_stream_is_one_answer_to_its_client(client: str, upstream: str, input_format: Form) -> None:
    out, _ = asked_again(client, upstream, input_format, "sse")
    match client:
        case "openai_chat":
            values = parse_payloads(read_sse(out))
            heard = read_chunks(values)
            assert (heard[0].reasoning, heard[0].content) == ("Let me see.Once more.", "Look.")
            assert (heard[0].finish, heard.done) == ("tool_calls", True)
            chunks = [one for one in values if isinstance(one, dict)]
            assert len({(one["id"], one.get("created"), one["model"]) for one in chunks if "created" in one}) == 1
            roles = [choice["delta"].get("role") for one in chunks for choice in one["choices"]]
            assert [role for role in roles if role] == ["assistant"]
            assert [usage["completion_tokens"] for usage in heard.usages] == [8]
        case "anthropic":
            events = payloads(out)
            kinds = [event["type"] for event in events]
            assert (kinds.count("message_start"), kinds.count("message_stop")) == (1, 1)
            starts = [event["index"] for event in events if event["type"] == "content_block_start"]
            stops = [event["index"] for event in events if event["type"] == "content_block_stop"]
            assert starts == stops == list(range(len(starts)))
            assert events[-2]["usage"]["output_tokens"] == 8
        case _:
            events = payloads(out)
            assert [event["sequence_number"] for event in events] == list(range(len(events)))
            assert sum(event["type"] == "response.created" for event in events) == 1
            response = events[-1]["response"]
            assert [item["type"] for item in response["output"]] == [
                "reasoning",
                "reasoning",
                "message",
                "function_call",
            ]
            assert response["usage"]["output_tokens"] == 8


@pytest.mark.parametrize("output_format", ["sse", "json"])
@pytest.mark.parametrize(("client", "upstream", "input_format"), WAYS)
def test_what_is_held_is_released_when_nobody_asks_again(
    client: str, upstream: str, input_format: Form, output_format: Form
) -> None:
    plan, data = plan_for_pair(client, upstream), empty(upstream, input_format)
    held, reading = read(plan, data, input_format, output_format, may_retry=True, size=23)
    told, other = read(plan, data, input_format, output_format, size=23)
    done = b"data: [DONE]\n\n"
    assert held in (told, told.replace(done, b""))  # it does not follow an error that was held
    assert (reading.message, reading.ending, reading.usage) == (other.message, other.ending, other.usage)
    assert reading.wants_retry


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_nothing_of_the_ending_has_left_while_it_is_held(client: str, upstream: str) -> None:
    reading = read_reply(plan_for_pair(client, upstream), input_format="sse", output_format="sse", may_retry=True)
    out = reading.feed(empty(upstream, "sse"))
    assert b"see." in out
    for word in (b"[DONE]", b'"stop"', b"message_delta", b"message_stop", b"response.completed"):
        assert word not in out
    assert b"empty_answer" not in out
    assert reading.wants_retry
    assert isinstance(reading.ending, Failed)
    assert (reading.ending.code, reading.ending.retryable) == ("empty_answer", True)


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_an_answer_that_says_something_is_not_held(client: str, upstream: str) -> None:
    plan, data = plan_for_pair(client, upstream), answer_of(upstream, calls=0).stream
    reading = read_reply(plan, input_format="sse", output_format="sse", may_retry=True)
    assert reading.feed(data) == read(plan, data, "sse", "sse")[0]
    assert not reading.wants_retry
    with pytest.raises(InvalidInput):
        reading.start_retry("sse")


@pytest.mark.parametrize("client", CLIENTS)
def test_an_answer_that_was_cut_short_is_not_asked_again(client: str) -> None:
    data = empty("openai_chat", "sse").replace(b'"finish_reason": "stop"', b'"finish_reason": "length"')
    reading = read_reply(plan_for_pair(client), input_format="sse", output_format="sse", may_retry=True)
    reading.feed(data)
    assert not reading.wants_retry
    assert reading.flush() == b""


@pytest.mark.parametrize("input_format", ["sse", "json"])
def test_without_may_retry_there_is_no_second_answer(input_format: Form) -> None:
    reading = read_reply(plan_for_pair("openai_chat"), input_format=input_format, output_format="sse")
    reading.feed(empty("openai_chat", input_format))
    assert not reading.wants_retry
    with pytest.raises(InvalidInput) as caught:
        reading.start_retry(input_format)
    assert caught.value.field == "may_retry"


@pytest.mark.parametrize("client", CLIENTS)
def test_a_host_that_never_says_that_it_is_done_is_asked_again_too(client: str) -> None:
    silent = empty("openai_chat", "sse").replace(b"data: [DONE]\n\n", b"")
    reading = read_reply(plan_for_pair(client), input_format="sse", output_format="sse", may_retry=True)
    out = reading.feed(silent)
    assert reading.wants_retry
    reading.start_retry("sse")
    out += reading.feed(second("openai_chat", "sse")) + reading.flush()
    assert in_order(reading.message)[0] == ("Reasoning", "Let me see.Once more.")
    assert isinstance(reading.ending, Finished)
    assert (b"Let me" in out, b"Look" in out or b"Loo" in out) == (True, True)


@pytest.mark.parametrize("client", CLIENTS)
def test_reasoning_that_came_with_the_finish_is_not_lost(client: str) -> None:
    first = sse([chunk({"role": "assistant"}), chunk({"reasoning_content": "Hm"}, "stop")])
    reading = read_reply(plan_for_pair(client), input_format="sse", output_format="sse", may_retry=True)
    out = reading.feed(first)
    reading.start_retry("sse")
    out += reading.feed(second("openai_chat", "sse")) + reading.flush()
    assert b"Hm" in out
    assert out.index(b"Hm") < out.index(b"Once")
    assert in_order(reading.message)[0] == ("Reasoning", "HmOnce more.")


@pytest.mark.parametrize("client", CLIENTS)
def test_a_second_answer_that_is_empty_too_is_an_error(client: str) -> None:
    reading = read_reply(plan_for_pair(client), input_format="sse", output_format="sse", may_retry=True)
    out = reading.feed(empty("openai_chat", "sse"))
    reading.start_retry("sse")
    out += reading.feed(empty("openai_chat", "sse", "Still nothing."))
    assert reading.wants_retry
    out += reading.flush()
    assert isinstance(reading.ending, Failed)
    assert (reading.ending.code, reading.ending.retryable) == ("empty_answer", True)
    assert reading.problem is not None
    assert reading.problem.code == "empty_answer"
    errors = [one for one in payloads(out) if "error" in one or one.get("type") == "response.failed"]
    assert len(errors) == 1
    assert "neither text nor a tool call" in json.dumps(errors)
    assert not any(word in out for word in (b'"stop"', b"message_stop\ndata", b"event: response.completed"))


@pytest.mark.parametrize("client", CLIENTS)
def test_a_second_answer_may_fail(client: str) -> None:
    reading = read_reply(plan_for_pair(client), input_format="sse", output_format="sse", may_retry=True)
    out = reading.feed(empty("openai_chat", "sse"))
    reading.start_retry("sse")
    out += reading.feed(second("openai_chat", "sse")[:600]) + reading.fail(STALLED)
    assert reading.problem == STALLED
    last = payloads(out)[-1]
    assert "stalled" in json.dumps(last.get("error") or last["response"]["error"])


def test_a_held_error_is_the_ending_when_its_host_goes_away() -> None:
    for client in CLIENTS:
        reading = read_reply(plan_for_pair(client), input_format="sse", output_format="sse", may_retry=True)
        out = reading.feed(empty("openai_chat", "sse")) + reading.fail(STALLED)
        assert isinstance(reading.ending, Failed)
        assert reading.problem is not None
        assert (reading.problem.code, reading.ending.code) == ("empty_answer", "empty_answer")
        ended = read(plan_for_pair(client), empty("openai_chat", "sse"), "sse", "sse")[0]
        assert out == ended.replace(b"data: [DONE]\n\n", b"")  # it does not follow an error that was held
