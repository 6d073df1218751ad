"""An answer says the same, whatever it comes as and whatever it leaves as."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given, settings

from moonshim import mend_response
from moonshim.engine.dialects.openai_chat.usage import ChatUsageReader
from moonshim.engine.response.reply import Form, form_of, read_reply
from moonshim.engine.values.conversation import Message, Reasoning, Text, ToolCall, Usage
from moonshim.engine.values.events import Failed, Finished
from moonshim.errors import InvalidInput
from tests.engine.response.reply.asking import (
    CLIENTS,
    NAME,
    UPSTREAMS,
    answer_of,
    as_form,
    payloads,
    plan_for_pair,
    read,
)
from tests.laws.scripts import Cut, Script, Setting
from tests.laws.strategies import cuts
from tests.laws.test_renaming import plan_of
from tests.laws.test_whole_and_stream import body_of, responses
from tests.support.profiles import examples
from tests.support.streams import parse_payloads, read_body, read_chunks, read_sse

COMES: Final[dict[str, tuple[Form, ...]]] = {"openai_chat": ("sse", "ndjson", "json"), "anthropic": ("sse", "json")}
WAYS: Final = [
    (client, upstream, input_format) for client in CLIENTS for upstream in UPSTREAMS for input_format in COMES[upstream]
]


@pytest.mark.parametrize(
    ("content_type", "form"),
    [
        ("text/event-stream", "sse"),
        ("Text/Event-Stream; charset=utf-8", "sse"),
        ("application/x-ndjson", "ndjson"),
        ("application/json", "json"),
        ("text/html", "json"),
        ("", "json"),
        (None, "json"),
    ],
)
def test_the_content_type_tells_what_an_answer_comes_as(content_type: str | None, form: Form) -> None:
    assert form_of(content_type) == form


def said(message: Message) -> tuple[str, str, list[tuple[str, Any]]]:
    return (
        "".join(part.text for part in message.parts if isinstance(part, Reasoning)),
        "".join(part.text for part in message.parts if isinstance(part, Text)),
        [(part.name, json.loads(part.arguments)) for part in message.parts if isinstance(part, ToolCall)],
    )


@pytest.mark.parametrize("output_format", ["sse", "json"])
@pytest.mark.parametrize(("client", "upstream", "input_format"), WAYS)
def test_every_form_says_the_same_in_every_other(
    client: str, upstream: str, input_format: Form, output_format: Form
) -> None:
    data = as_form(answer_of(upstream), input_format)
    out, reading = read(plan_for_pair(client, upstream), data, input_format, output_format, size=37)
    assert said(reading.message) == ("Let me see.", "Look.", [("ls", {"n": 0})])
    assert isinstance(reading.ending, Finished)
    assert reading.ending.reason == "tool_calls"
    assert reading.usage is not None
    assert (reading.usage.input_tokens, reading.usage.output_tokens) == (3, 4)
    assert (reading.problem, reading.wants_retry) == (None, False)
    bodies = [json.loads(out)] if output_format == "json" else payloads(out)
    named = [one for body in bodies for one in (body, body.get("message"), body.get("response")) if one]
    assert {one["model"] for one in named if "model" in one} == {NAME}


@pytest.mark.parametrize(("client", "upstream", "input_format"), WAYS)
def test_a_whole_answer_is_what_a_client_puts_together_from_the_stream(
    client: str, upstream: str, input_format: Form
) -> None:
    plan, data = plan_for_pair(client, upstream), as_form(answer_of(upstream, calls=2), input_format)
    (whole, _), (stream, _) = (read(plan, data, input_format, output_format) for output_format in ("json", "sse"))
    body = json.loads(whole)
    match client:
        case "openai_chat":
            heard, one = read_chunks(parse_payloads(read_sse(stream))), read_body(body)
            assert heard.done
            assert (heard[0].content, heard[0].calls, heard[0].finish) == (one[0].content, one[0].calls, one[0].finish)
            assert heard[0].reasoning == one[0].reasoning
            assert [ChatUsageReader().read({"usage": usage}) for usage in heard.usages] == [
                ChatUsageReader().read(body)
            ]
        case "anthropic":
            events = payloads(stream)
            started = [event["content_block"] for event in events if event["type"] == "content_block_start"]
            assert [block["type"] for block in started] == [block["type"] for block in body["content"]]
            assert events[-2]["delta"]["stop_reason"] == body["stop_reason"] == "tool_use"
            assert events[-2]["usage"]["output_tokens"] == body["usage"]["output_tokens"] == 4
        case _:
            last = payloads(stream)[-1]
            assert last["type"] == "response.completed"
            assert last["response"] == body


@settings(max_examples=examples(50))
@given(responses, cuts)
def test_a_gathered_stream_is_what_mend_response_makes_of_the_same_answer(script: Script, cut: Cut) -> None:
    setting = replace(script.setting, options=None)
    plan = plan_of(setting, setting.model)
    out, reading = read(plan, b"".join(script.frames(cut)), "sse", "json")
    whole = mend_response(body_of(script), plan=plan)
    if isinstance(whole.ending, Failed):
        assert isinstance(reading.ending, Failed)
        assert (out, reading.problem is None) == (b"", False)
        return
    assert in_words(reading.message, setting) == in_words(whole.message, setting)
    assert isinstance(reading.ending, Finished)
    assert whole.ending is not None
    assert reading.ending.reason == whole.ending.reason
    heard, one = (read_body(body, strict=setting.mends_deltas)[0] for body in (json.loads(out), whole.body))
    assert (heard.content, heard.finish) == (one.content, one.finish)
    assert "".join(heard.fields.values()) == "".join(one.fields.values())
    if setting.mends_deltas:
        assert heard.calls == one.calls


@settings(max_examples=examples(50))
@given(responses, cuts)
def test_a_whole_answer_that_is_streamed_says_what_the_stream_says(script: Script, cut: Cut) -> None:
    setting = replace(script.setting, options=None)
    plan = plan_of(setting, setting.model)
    out, reading = read(plan, json.dumps(body_of(script)).encode(), "json", "sse")
    streamed, other = read(plan, b"".join(script.frames(cut)), "sse", "sse")
    assert type(reading.ending) is type(other.ending)
    if isinstance(reading.ending, Finished):
        assert in_words(reading.message, setting) == in_words(other.message, setting)
    heard, one = (
        read_chunks(parse_payloads(read_sse(data)), strict=setting.mends_deltas)[0] for data in (out, streamed)
    )
    assert (heard.content, heard.finish, heard.error is None) == (one.content, one.finish, one.error is None)


def in_words(message: Message, setting: Setting) -> tuple[str, str, list[tuple[str, str]]]:
    """What was thought, said and called. Half a marker at the end of a thought may stand behind what follows it.

    A call that nobody closed waits for its duplicate, so others may come before it. Where native
    deltas are not mended they stay as they came, which only a host's own frames can.
    """
    calls = [part for part in message.parts if isinstance(part, ToolCall)]
    thought, text, _ = said(
        Message("assistant", tuple(part for part in message.parts if not isinstance(part, ToolCall)))
    )
    return thought, text, sorted((call.name, call.arguments) for call in calls if setting.mends_deltas)


class TestChat:
    def test_a_whole_answer_that_needs_nothing_leaves_byte_for_byte(self) -> None:
        body = b'{ "id": "x", "model": "my-alias", "choices": [{"index": 0, "finish_reason": "stop",'
        body += b' "message": {"role": "assistant", "content": "Hi", "novelty": 1}}] }'
        assert read(plan_for_pair("openai_chat"), body, "json", "json", size=5)[0] == body

    def test_a_whole_answer_that_is_patched_keeps_all_its_other_fields(self) -> None:
        body = {"novelty": [1], **answer_of("openai_chat").whole}
        out, _ = read(plan_for_pair("openai_chat"), json.dumps(body).encode(), "json", "json")
        assert json.loads(out) == body | {"model": NAME}

    def test_lines_of_json_stay_lines_for_a_client_that_reads_them(self) -> None:
        data = as_form(answer_of("openai_chat"), "ndjson")
        out, reading = read(plan_for_pair("openai_chat"), data, "ndjson", "ndjson")
        assert read_chunks([json.loads(line) for line in out.splitlines()])[0].finish == "tool_calls"
        assert reading.repair_counts == {}

    @pytest.mark.parametrize("input_format", ["sse", "json"])
    def test_any_answer_can_leave_as_lines(self, input_format: Form) -> None:
        data = as_form(answer_of("openai_chat"), input_format)
        out, _ = read(
            plan_for_pair("openai_chat"),
            b": hello\n\n" + data if input_format == "sse" else data,
            input_format,
            "ndjson",
        )
        heard = read_chunks([json.loads(line) for line in out.splitlines()])
        assert (heard[0].content, heard[0].finish) == ("Look.", "tool_calls")

    def test_lines_become_events_and_end_as_clients_expect(self) -> None:
        data = as_form(answer_of("openai_chat"), "ndjson") + b"\n\n"
        out, reading = read(plan_for_pair("openai_chat"), data, "ndjson", "sse", size=11)
        assert out.endswith(b"data: [DONE]\n\n")
        assert read_chunks(parse_payloads(read_sse(out))).done
        assert "missing_done" not in reading.repair_counts

    def test_usage_of_a_host_that_does_not_stream_is_told_in_the_stream(self) -> None:
        out, _ = read(plan_for_pair("openai_chat"), as_form(answer_of("openai_chat"), "json"), "json", "sse")
        assert read_chunks(parse_payloads(read_sse(out))).usages == [
            {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
        ]


def test_no_other_dialect_is_read_as_lines() -> None:
    with pytest.raises(InvalidInput) as caught:
        read_reply(plan_for_pair("anthropic"), input_format="sse", output_format="ndjson")
    assert caught.value.field == "goes"


@pytest.mark.parametrize("output_format", ["sse", "json"])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_stream_under_a_wrong_content_type_is_read_all_the_same(client: str, output_format: Form) -> None:
    data = as_form(answer_of("openai_chat"), "sse")
    plan = plan_for_pair(client)
    assert read(plan, data, "json", output_format)[0] == read(plan, data, "sse", output_format)[0]
    assert said(read(plan, data, "json", output_format)[1].message) == ("Let me see.", "Look.", [("ls", {"n": 0})])


@pytest.mark.parametrize("input_format", ["sse", "json"])
def test_usage_means_the_same_for_every_host(input_format: Form) -> None:
    usage = {"input_tokens": 1, "cache_read_input_tokens": 2, "output_tokens": 4}
    answer = answer_of("anthropic")
    data = as_form(answer, input_format).replace(
        b'"input_tokens": 3, "output_tokens": 4', json.dumps(usage)[1:-1].encode()
    )
    counted = read(plan_for_pair("anthropic", "anthropic"), data, input_format, "sse")[1].usage
    assert counted is not None
    assert counted == Usage(3, 4, 2, raw=counted.raw)


def test_nothing_is_said_before_anything_came() -> None:
    for input_format, output_format in (("sse", "sse"), ("sse", "json"), ("json", "json"), ("json", "sse")):
        reading = read_reply(plan_for_pair("openai_chat"), input_format=input_format, output_format=output_format)  # type: ignore[arg-type]
        assert (reading.message, reading.ending, reading.usage, reading.problem) == (
            Message("assistant"),
            None,
            None,
            None,
        )
        assert (reading.repair_counts, reading.wants_retry) == ({}, False)
