"""A host that dies or falls silent: what it said leaves, what is open is closed, and its client is told."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from moonshim.engine.response.stream import Mender
from moonshim.engine.values.conversation import Message, Text
from moonshim.engine.values.events import Failed, Finished, Repaired
from moonshim.errors import Problem
from tests.engine.response.reply.asking import CLIENTS, UPSTREAMS, answer_of, payloads, plan_for_pair
from tests.support.streams import chunk, parse_payloads, read_chunks, read_sse, sse

STALLED: Final = Problem(status=504, kind="timeout", message="nothing came for 120 s", code="upstream_stalled")
HALF_CALL: Final = sse(
    [
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Look <|tool"}),
        chunk({"tool_calls": [{"index": 0, "id": "functions.ls:0", "type": "function", "function": {"name": "ls"}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"n": '}}]}),
    ],
    done=False,
)


def told(client: str, payload: dict[str, Any]) -> dict[str, Any]:
    error: dict[str, Any] = payload["response"]["error"] if client == "openai_responses" else payload["error"]
    return error


@pytest.mark.parametrize("client", CLIENTS)
def test_the_last_thing_a_client_hears_is_the_error_with_its_status_message_and_code(client: str) -> None:
    mender = Mender(plan=plan_for_pair(client))
    events = payloads(mender.feed(HALF_CALL) + mender.fail(STALLED))
    error = told(client, events[-1])
    assert (error["message"], error["status"]) == (STALLED.message, 504)
    assert "upstream_stalled" in error.values()
    assert mender.ending == Failed("upstream_stalled", STALLED.message)
    assert mender.problem == STALLED
    assert mender.repair_counts["failed"] == 1


@pytest.mark.parametrize("client", CLIENTS)
def test_nothing_comes_after_it(client: str) -> None:
    mender = Mender(plan=plan_for_pair(client))
    mender.feed(HALF_CALL)
    assert mender.fail(STALLED)
    assert (mender.feed(HALF_CALL), mender.fail(STALLED), mender.flush()) == (b"", b"", b"")
    assert mender.problem == STALLED


class TestChat:
    def test_half_a_call_is_in_the_report_and_nothing_looks_like_success(self) -> None:
        mender = Mender(plan=plan_for_pair("openai_chat"))
        out = mender.feed(HALF_CALL) + mender.fail(STALLED)
        heard = read_chunks(parse_payloads(read_sse(out)))
        assert heard[0].content == "Look "
        assert Repaired("stray_marker", "<|tool") in mender.repairs
        assert (heard[0].finish, heard.done) == (None, False)
        assert heard[0].error is not None
        assert heard[0].error["type"] == "timeout_error"

    def test_a_frame_that_waits_leaves_before_the_error(self) -> None:
        mender = Mender(plan=plan_for_pair("openai_chat"))
        first, last = sse([chunk({"content": "a"})], done=False), sse([chunk({"content": "b <"})], done=False)
        assert mender.feed(first)
        assert mender.feed(last) == b""
        out = mender.fail(STALLED)
        assert read_chunks(parse_payloads(read_sse(out)))[0].content == "b <"

    def test_half_a_frame_is_left_out_and_a_whole_one_without_its_end_is_not(self) -> None:
        whole = sse([chunk({"content": "Hi"})], done=False)
        for data, said in ((whole[:-2], "Hi"), (whole[:-9], "")):
            mender = Mender(plan=plan_for_pair("openai_chat"))
            out = mender.feed(data) + mender.fail(STALLED)
            heard = read_chunks(parse_payloads(read_sse(out)))[0]
            assert (heard.content, heard.error is None) == (said, False)

    def test_without_a_plan_it_is_an_error_in_chat_too(self) -> None:
        mender = Mender(model="kimi-k2.5")
        (error,) = payloads(mender.fail(STALLED))
        assert error["error"]["code"] == "upstream_stalled"

    def test_lines_of_json_end_in_a_line(self) -> None:
        mender = Mender(plan=plan_for_pair("openai_chat"), framing="ndjson")
        assert json.loads(mender.fail(STALLED))["error"]["status"] == 504

    def test_of_two_choices_the_one_that_has_ended_stays_ended(self) -> None:
        def of(index: int, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
            return {**chunk({}), "choices": [{"index": index, "delta": delta, "finish_reason": finish}]}

        mender = Mender(plan=plan_for_pair("openai_chat"))
        out = mender.feed(sse([of(0, {"content": "a"}, "stop"), of(1, {"content": "b"})], done=False))
        values = parse_payloads(read_sse(out + mender.fail(STALLED)))
        assert "error" in values[-1]
        assert mender.ending == Finished("stop", "stop")
        assert mender.message_of(1) == Message("assistant", (Text("b"),))


@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_open_blocks_are_closed_before_the_error_but_half_a_call_is_not(upstream: str) -> None:
    data = answer_of(upstream, calls=2).stream
    cut = data.index(b"functions.ls:1")
    mender = Mender(plan=plan_for_pair("anthropic", upstream))
    events = payloads(mender.feed(data[: data.index(b"\n\n", cut) + 2]) + mender.fail(STALLED))
    starts = [event["index"] for event in events if event["type"] == "content_block_start"]
    stops = [event["index"] for event in events if event["type"] == "content_block_stop"]
    assert starts[:-1] == stops != []
    assert [event["type"] for event in events].count("error") == 1
    assert events[-1]["error"] == {
        "type": "timeout_error",
        "message": STALLED.message,
        "status": 504,
        "code": "upstream_stalled",
    }


def test_a_call_that_broke_off_is_not_told_as_done_in_responses() -> None:
    mender = Mender(plan=plan_for_pair("openai_responses"))
    events = payloads(mender.feed(HALF_CALL) + mender.fail(STALLED))
    assert not any(event["type"] == "response.function_call_arguments.done" for event in events)
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["error"]["code"] == "server_error"


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (
            Problem(status=429, kind="rate_limit", message="slow", code="their_word", retry_after=3),
            "rate_limit_exceeded",
        ),
        (
            Problem(status=402, kind="quota", message="recharge", code="exceeded_current_quota_error"),
            "insufficient_quota",
        ),
        (Problem(status=400, kind="context_overflow", message="too long"), "context_length_exceeded"),
        (Problem(status=400, kind="invalid_request", message="no"), "invalid_prompt"),
        (Problem(status=503, kind="overloaded", message="busy"), "server_error"),
    ],
)
def test_codex_hears_the_codes_that_it_acts_on(problem: Problem, code: str) -> None:
    (*_, failed) = payloads(Mender(plan=plan_for_pair("openai_responses")).fail(problem))
    assert failed["response"]["error"]["code"] == code
    assert problem.message in failed["response"]["error"]["message"]


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_an_answer_that_has_said_how_it_ends_needs_no_error(client: str, upstream: str) -> None:
    data = answer_of(upstream).stream
    last = b"data: [DONE]" if upstream == "openai_chat" else b"event: message_stop"
    whole, cut = Mender(plan=plan_for_pair(client, upstream)), Mender(plan=plan_for_pair(client, upstream))
    out = cut.feed(data[: data.index(last)]) + cut.fail(STALLED)
    assert payloads(out) == payloads(whole.feed(data) + whole.flush())
    assert (cut.problem, cut.flush()) == (None, b"")
    assert isinstance(cut.ending, Finished)


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_host_may_die_at_every_byte(client: str, upstream: str) -> None:
    plan, data = plan_for_pair(client, upstream), answer_of(upstream).stream
    for at in range(len(data)):
        mender = Mender(plan=plan)
        events = payloads(mender.feed(data[:at]) + mender.fail(STALLED))
        failed = isinstance(mender.ending, Failed)
        assert failed == (mender.problem is not None)
        errors = [one for one in events if one.get("error") or one.get("type") == "response.failed"]
        assert len(errors) == failed
        assert not failed or events[-1] is errors[0]
        if client == "anthropic":
            starts = [one for one in events if one["type"] == "content_block_start"]
            half = len(starts) - sum(one["type"] == "content_block_stop" for one in events)
            # Nobody is told that half a call has ended.
            assert half == 0 or (half == 1 and failed and starts[-1]["content_block"]["type"] == "tool_use")


def test_a_mender_that_was_flushed_has_nothing_to_fail() -> None:
    for client in CLIENTS:
        mender = Mender(plan=plan_for_pair(client))
        out = mender.feed(HALF_CALL) + mender.flush()
        assert mender.fail(STALLED) == b""
        assert Repaired("failed", "stream_ended") in mender.repairs
        assert out
