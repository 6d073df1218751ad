"""Answers that are none: errors under 200, web pages, cut streams, too many bytes. Each is a problem, told once."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from typing import Any, Final

import pytest

from moonshim.engine.response.reply import Form, ResponseStream, read_reply
from moonshim.engine.values.events import Failed, Finished
from moonshim.errors import Problem
from tests.engine.response.reply.asking import CLIENTS, UPSTREAMS, answer_of, as_form, payloads, plan_for_pair, read
from tests.support.streams import chunk, sse

STALLED: Final = Problem(status=504, kind="timeout", message="nothing came for 120 s", code="upstream_stalled")
OVERLOADED: Final = {"error": {"message": "The engine is overloaded", "type": "engine_overloaded_error"}}
ERRORS: Final[dict[str, tuple[bytes, int, str, str]]] = {
    "openai": (json.dumps(OVERLOADED).encode(), 503, "overloaded", "The engine is overloaded"),
    "anthropic": (
        b'{"type": "error", "error": {"type": "rate_limit_error", "message": "Slow down"}}',
        429,
        "rate_limit",
        "Slow down",
    ),
    "old vllm": (b'{"object": "error", "message": "no such model", "code": 404}', 404, "not_found", "no such model"),
    "openrouter": (b'{"error": {"code": 502, "message": "bad gateway"}}', 502, "server", "bad gateway"),
    "quota": (
        b'{"error": {"type": "exceeded_current_quota_error", "message": "recharge"}}',
        429,
        "quota",
        "recharge",
    ),
    "web page": (b"<html><title>502 Bad Gateway</title></html>", 502, "server", "HTML page: 502 Bad Gateway"),
    "words": (b"upstream connect error", 502, "server", "upstream connect error"),
    "nothing": (b"", 502, "server", "without a message"),
    "something else": (b'{"hello": "world"}', 502, "server", "without a message"),
}


@pytest.mark.parametrize("output_format", ["json", "sse"])
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("name", ERRORS)
def test_a_200_that_is_no_answer_is_a_problem(name: str, client: str, output_format: Form) -> None:
    data, status, kind, words = ERRORS[name]
    out, reading = read(plan_for_pair(client), data, "json", output_format)
    problem = reading.problem
    assert problem is not None
    assert (problem.status, problem.kind) == (status, kind)
    assert words in problem.message
    assert (problem.retry_after is not None) == (status in (429, 503))
    assert isinstance(reading.ending, Failed)
    assert (out == b"") == (output_format == "json")
    assert reading.fail(STALLED) == reading.feed(b"x") == b""


def test_an_answer_that_was_cut_off_does_not_repeat_half_of_itself() -> None:
    whole = as_form(answer_of("openai_chat", "a secret"), "json")
    _, reading = read(plan_for_pair("openai_chat"), whole[:-20], "json", "json")
    assert reading.problem is not None
    assert (reading.problem.status, reading.problem.code) == (502, "not_json")
    assert "secret" not in reading.problem.message


@pytest.mark.parametrize("client", CLIENTS)
def test_an_answer_that_ends_in_an_error_is_a_problem_though_it_said_something(client: str) -> None:
    body = answer_of("openai_chat", calls=0).whole
    body["choices"][0]["finish_reason"] = "engine_overloaded"
    out, reading = read(plan_for_pair(client), json.dumps(body).encode(), "json", "json")
    assert reading.problem is not None
    assert (out, reading.problem.status, reading.problem.code) == (b"", 503, "engine_overloaded")


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_stream_that_is_cut_anywhere_is_a_problem_and_never_a_whole_answer(client: str, upstream: str) -> None:
    plan, data = plan_for_pair(client, upstream), answer_of(upstream).stream
    ends = data.index(b'"finish_reason": "tool_calls"' if upstream == "openai_chat" else b"event: message_delta")
    for at in range(0, ends, 29):
        out, reading = read(plan, data[:at], "sse", "json")
        assert (out, type(reading.ending)) == (b"", Failed), at
        assert reading.problem is not None
        assert reading.problem.status == 502
        told, streamed = read(plan, data[:at], "sse", "sse")
        assert streamed.problem == reading.problem
        assert json.dumps(reading.problem.message)[1:-1].encode() in told


def test_a_stream_of_nothing_is_a_problem() -> None:
    for data in (b"", b"data: [DONE]\n\n", b": hello\n\n", b"data: {}\n\n", b"<html></html>"):
        assert read(plan_for_pair("openai_chat"), data, "sse", "json")[1].problem is not None, data
        assert read(plan_for_pair("openai_chat"), data, "sse", "sse")[1].problem is not None, data


def test_an_error_as_the_first_event_is_known_before_anything_is_sent() -> None:
    for client in CLIENTS:
        reading = read_reply(plan_for_pair(client), input_format="sse", output_format="sse")
        assert reading.feed(b"data: " + json.dumps(OVERLOADED).encode() + b"\n\n")
        assert reading.problem is not None
        assert (reading.problem.status, reading.problem.kind) == (503, "overloaded")


@pytest.mark.parametrize("client", CLIENTS)
def test_the_errors_of_older_servers_are_errors_to_every_client(client: str) -> None:
    for told in (
        {"object": "error", "message": "no", "type": "BadRequestError", "code": 400},
        {"code": 20015, "message": "no"},
    ):
        reading = read_reply(plan_for_pair(client), input_format="sse", output_format="sse")
        (*_, last) = payloads(reading.feed(b"data: " + json.dumps(told).encode() + b"\n\n"))
        error = last["response"]["error"] if client == "openai_responses" else last["error"]
        assert error["message"] == "no"
        assert isinstance(reading.ending, Failed)


# --- the host is gone -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("input_format", ["sse", "json"])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_host_that_is_gone_leaves_no_half_of_a_whole_answer(client: str, input_format: Form) -> None:
    data = as_form(answer_of("openai_chat"), input_format)
    reading = read_reply(plan_for_pair(client), input_format=input_format, output_format="json")
    reading.feed(data[:400])
    assert reading.fail(STALLED) == b""
    assert reading.problem == STALLED
    assert isinstance(reading.ending, Failed)
    assert reading.flush() == b""
    assert reading.problem == STALLED


@pytest.mark.parametrize("client", CLIENTS)
def test_a_host_that_is_gone_before_its_first_byte_is_told_in_the_stream(client: str) -> None:
    for input_format in ("sse", "json"):
        reading: ResponseStream = read_reply(plan_for_pair(client), input_format=input_format, output_format="sse")
        last = payloads(reading.fail(STALLED))[-1]
        error = last["response"]["error"] if client == "openai_responses" else last["error"]
        assert (error["message"], error["status"]) == (STALLED.message, 504)
        assert "upstream_stalled" in error.values()
        assert (reading.flush(), reading.fail(STALLED), reading.feed(b"data: {}\n\n")) == (b"", b"", b"")
        assert reading.problem == STALLED


# --- too much ---------------------------------------------------------------------------------------------------

LIMIT: Final = 256 * 1024


def endless(piece: bytes, first: bytes = b"", count: int = 64) -> Iterator[bytes]:
    yield first
    for _ in range(count):
        yield piece


HUGE: Final[dict[str, tuple[Form, Form, bytes]]] = {
    "one event": ("sse", "sse", b'data: {"choices": [{"index": 0, "delta": {"content": "'),
    "one event, gathered": ("sse", "json", b'data: {"choices": [{"index": 0, "delta": {"content": "'),
    "one line": ("ndjson", "sse", b'{"choices": [{"index": 0, "delta": {"content": "'),
    "a body": ("json", "json", b'{"choices": [{"index": 0, "message": {"content": "'),
    "a body, streamed": ("json", "sse", b'{"choices": [{"index": 0, "message": {"content": "'),
    "a comment": ("sse", "sse", b": "),
}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("name", HUGE)
def test_what_is_too_large_ends_in_an_error_and_is_not_kept(name: str, client: str) -> None:
    input_format, output_format, first = HUGE[name]
    piece = b"x" * (64 * 1024)
    reading = read_reply(plan_for_pair(client), input_format=input_format, output_format=output_format, limit=LIMIT)
    out = bytearray()
    tracemalloc.start()
    try:
        for data in endless(piece, first):
            out += reading.feed(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert reading.problem is not None
    assert reading.problem.code in ("event_too_large", "answer_too_large")
    assert f"{LIMIT:,}" in reading.problem.message
    out += reading.flush()
    assert peak < 4 * LIMIT, "16 times the limit came"
    assert len(out) < 8 * 1024
    assert (reading.problem.code.encode() in out) == (output_format == "sse")


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("output_format", ["sse", "json"])
def test_many_small_events_are_too_much_together(client: str, output_format: Form) -> None:
    words = sse([chunk({"content": "word "})], done=False) * 2000
    data = words + sse([chunk({}, "stop")])
    plan = plan_for_pair(client)
    assert read(plan, data, "sse", output_format, limit=len(data))[1].ending == Finished("stop", "stop")
    out, reading = read(plan, data, "sse", output_format, limit=LIMIT)
    assert reading.problem is not None
    assert reading.problem.code == "answer_too_large"
    assert (b"answer_too_large" in out) == (output_format == "sse")


def test_junk_behind_an_answer_does_not_make_it_an_error() -> None:
    for client in CLIENTS:
        data = answer_of("openai_chat").stream
        _, reading = read(plan_for_pair(client), data + b"data: " + b"x" * LIMIT, "sse", "sse", limit=LIMIT // 2)
        assert (reading.problem, type(reading.ending)) == (None, Finished)


def test_an_event_as_large_as_the_limit_is_read() -> None:
    event = sse([chunk({"content": "x" * 1000})], done=False)
    for limit, fine in ((len(event), True), (len(event) - 1, False)):
        reading: Any = read_reply(plan_for_pair("openai_chat"), input_format="sse", output_format="sse", limit=limit)
        for at in range(0, len(event), 7):
            reading.feed(event[at : at + 7])
        assert (reading.problem is None) == fine
