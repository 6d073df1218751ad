"""One request and its response, driven with bytes alone: what every shell relies on."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from moonshim.engine.exchange import EventCollector, Exchange, RequestTarget
from moonshim.engine.hosts.learned import LearnedFields
from moonshim.engine.prepare import read_request
from moonshim.engine.reasoning_cache import ReasoningLookup, store_key
from moonshim.engine.values.conversation import Reasoning, Text
from moonshim.engine.values.events import Failed, Finished
from moonshim.errors import Problem
from tests.engine.response.reply.asking import answer_of, as_form
from tests.support.streams import chunk, sse

SECRET: Final = "hunter2-hunter2"
SSE: Final = "text/event-stream"
TARGET: Final = RequestTarget(key="moonshot", host="moonshot", base_url="https://api.moonshot.ai/v1")
SGLANG: Final = RequestTarget(key="sglang", host="sglang")
MISSING: Final = "thinking is enabled but reasoning_content is missing in assistant tool call message"
REFUSAL: Final = Problem(status=400, kind="invalid_request", message=MISSING)
BODIES: Final[dict[str, dict[str, Any]]] = {
    "openai_chat": {"messages": [{"role": "user", "content": "hi"}]},
    "anthropic": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 99},
    "openai_responses": {"input": "hi"},
}
CALL: Final = {"id": "functions.ls:0", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
LOST: Final = {
    "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "functions.ls:0", "content": "a.txt"},
    ],
    "tools": [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}],
}
"""A conversation whose reasoning is gone."""


def exchange_of(
    client: str = "openai_chat", target: RequestTarget | None = TARGET, stream: bool = True, **more: Any
) -> Exchange:
    body = {"model": "kimi-k2.5", "stream": stream, **more.pop("body", BODIES[client])}
    exchange = Exchange(read_request(body, dialect=client), secrets=(SECRET,), reply_id="r1", **more)
    if target is not None:
        exchange.prepare(target)
    return exchange


def fed(exchange: Exchange, data: bytes, size: int = 10_000) -> bytes:
    return b"".join([exchange.feed(data[at : at + size]) for at in range(0, len(data), size)])


# --- the request ------------------------------------------------------------------------------------------------


def test_the_body_is_prepared_for_its_target() -> None:
    exchange = exchange_of(body={**BODIES["openai_chat"], "temperature": 0.2})
    assert "temperature" not in exchange.prepared.body
    assert exchange.change_counts["fixed_sampling"] == 1


def test_a_refusal_is_corrected_once_for_each_target_and_learned_for_the_next_request() -> None:
    learned = LearnedFields()
    exchange = exchange_of(target=SGLANG, body=LOST, learned=learned)
    refused = exchange.prepared.body
    assert exchange.correct(REFUSAL)
    assert exchange.prepare(SGLANG).body != refused
    assert "reasoning_content" in exchange.prepared.body["messages"][1]
    assert not exchange.correct(REFUSAL)
    other = RequestTarget(key="other", host="sglang")
    exchange.prepare(other)
    assert exchange.correct(REFUSAL)
    later = exchange_of(target=SGLANG, body=LOST, learned=learned)
    assert "reasoning_content" in later.prepared.body["messages"][1]


def test_what_is_refused_for_another_reason_is_not_corrected() -> None:
    exchange = exchange_of(target=SGLANG, body=LOST)
    assert not exchange.correct(Problem(status=400, kind="invalid_request", message="bad"))
    assert not exchange_of().correct(REFUSAL)  # nothing is missing there


def test_overrides_that_somebody_set_win_over_what_was_learned() -> None:
    learned = LearnedFields()
    assert exchange_of(target=SGLANG, body=LOST, learned=learned).correct(REFUSAL)
    fixed = RequestTarget(key="sglang", host="sglang", overrides={"lost_reasoning": " "})
    body = exchange_of(target=fixed, body=LOST, learned=learned).prepared.body
    assert body["messages"][1]["reasoning_content"] == " "


# --- what went wrong --------------------------------------------------------------------------------------------


def test_an_error_is_read_and_its_secrets_are_masked() -> None:
    body = json.dumps({"error": {"message": f"who is {SECRET}?"}}).encode()
    problem = exchange_of().error_from(401, {}, body)
    assert (problem.kind, problem.message) == ("authentication", "who is …?")


@pytest.mark.parametrize("client", BODIES)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_an_error_in_a_stream_is_masked_at_any_chunking(client: str, size: int) -> None:
    exchange = exchange_of(client)
    exchange.start_response(SSE)
    data = sse([chunk({"content": "Hi"}), {"error": {"message": f"no {SECRET}", "code": "x"}}], done=False)
    out = fed(exchange, data, size) + exchange.end()
    assert SECRET.encode() not in out
    assert "no …".encode() in out.replace(b"\\u2026", "…".encode())
    assert isinstance(exchange.ending, Failed)
    assert exchange.problem is not None
    assert SECRET not in exchange.problem.message
    assert exchange.is_useless
    assert exchange.take_entry() is None


def test_an_error_that_comes_first_can_still_be_corrected() -> None:
    exchange = exchange_of(target=SGLANG, body=LOST)
    exchange.start_response(SSE)
    exchange.feed(sse([{"error": {"message": MISSING}}], done=False))
    assert exchange.problem is not None
    assert exchange.correct(exchange.problem)
    exchange.prepare(SGLANG)
    assert (exchange.ending, exchange.is_useless, exchange.repair_counts) == (None, False, {})


@pytest.mark.parametrize("client", BODIES)
def test_a_connection_that_breaks_is_told_in_the_stream_without_secrets(client: str) -> None:
    exchange = exchange_of(client)
    exchange.start_response(SSE)
    exchange.feed(sse([chunk({"content": "Hi"})], done=False))
    out = exchange.fail(Problem(status=502, kind="server", message=f"lost {SECRET}"))
    assert SECRET.encode() not in out
    assert b"lost" in out
    assert isinstance(exchange.ending, Failed)


@pytest.mark.parametrize("client", BODIES)
def test_a_stream_that_has_only_heartbeats_gets_the_error_in_its_own_dialect(client: str) -> None:
    out = exchange_of(client).render_stream_error(Problem(status=503, kind="overloaded", message="busy"))
    assert b"busy" in out


# --- the response -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", BODIES)
@pytest.mark.parametrize("stream", [True, False])
def test_chunking_is_invisible(client: str, stream: bool) -> None:
    outs = set()
    for size in (1, 3, 41, 10_000):
        exchange = exchange_of(client, stream=stream)
        exchange.start_response(SSE)
        outs.add(fed(exchange, answer_of("openai_chat").stream, size) + exchange.end())
        assert isinstance(exchange.ending, Finished)
        assert exchange.problem is None
    assert len(outs) == 1


@pytest.mark.parametrize(
    ("client", "accepts", "content_type", "expected"),
    [
        ("openai_chat", True, "application/x-ndjson", "ndjson"),
        ("openai_chat", False, "application/x-ndjson", "sse"),
        ("openai_chat", True, SSE, "sse"),
        ("anthropic", True, "application/x-ndjson", "sse"),
    ],
)
def test_lines_of_json_stay_lines_for_clients_that_read_them(
    client: str, accepts: bool, content_type: str, expected: str
) -> None:
    exchange = exchange_of(client)
    exchange.start_response(content_type, accepts_ndjson=accepts)
    assert exchange.output_format == expected


def test_events_instead_of_bytes() -> None:
    exchange, collector = exchange_of(), EventCollector()
    exchange.start_response(SSE, encoder=collector)
    fed(exchange, answer_of("openai_chat").stream)
    exchange.end()
    assert isinstance(collector.events[-1], Finished)


def test_after_the_finish_reason_the_response_only_drains_unless_there_are_several() -> None:
    for n, draining in ((None, True), (1, True), (2, False)):
        exchange = exchange_of(body={**BODIES["openai_chat"], **({} if n is None else {"n": n})}, target=SGLANG)
        exchange.start_response(SSE)
        exchange.feed(sse([chunk({"content": "Hi"})], done=False))
        assert not exchange.is_draining
        exchange.feed(sse([chunk({}, finish="stop")], done=False))
        assert exchange.is_draining is draining


@pytest.mark.parametrize("client", BODIES)
def test_the_end_after_which_clients_hang_up_is_noticed(client: str) -> None:
    exchange = exchange_of(client)
    exchange.start_response(SSE)
    data = answer_of("openai_chat").stream + b"data: [DONE]\n\n"
    exchange.feed(data[:100])
    assert not exchange.sent_end
    exchange.feed(data[100:])
    exchange.end()
    assert exchange.sent_end


# --- what is remembered -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", BODIES)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("form", ["sse", "json"])
def test_reasoning_is_there_once_and_before_the_end_is_visible(client: str, stream: bool, form: Any) -> None:
    exchange = exchange_of(client, stream=stream)
    exchange.start_response(SSE if form == "sse" else "application/json")
    data, entries, seen = as_form(answer_of("openai_chat", calls=0), form), [], b""
    steps = [lambda at=at: exchange.feed(data[at : at + 9]) for at in range(0, len(data), 9)]
    for step in [*steps, exchange.end]:
        out = step()
        entry = exchange.take_entry()  # what a shell does before it passes these bytes on
        if entry is not None:
            entries.append(entry)
        seen += out
        if any(mark in seen for mark in (b'"finish_reason": "stop"', b"message_stop", b"response.completed")):
            assert entries
    (entry,) = entries
    spoken = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Look."}]
    later = read_request({"model": "kimi-k2.5", "messages": spoken})
    wanted = ReasoningLookup(later.lost_turns(), "alice")
    assert wanted.keys == [store_key("alice", entry.key)]
    assert wanted.resolve({wanted.keys[0]: {entry.field: entry.value}})[1].text == "Let me see."
    assert wanted.resolve({}) == {}


def test_nothing_is_remembered_of_a_response_that_broke_off() -> None:
    exchange = exchange_of()
    exchange.start_response(SSE)
    exchange.feed(sse([chunk({"reasoning_content": "Hm."}), chunk({"content": "Hi"})], done=False))
    exchange.end()
    assert exchange.take_entry() is None


def test_what_is_not_collected_is_collected_where_its_reasoning_is_stored() -> None:
    for model, collected in (("kimi-k2.5", True), ("llama-4", False)):
        exchange = exchange_of(body={**BODIES["openai_chat"], "model": model})
        assert (exchange.prepared.profile.reasoning_in is not None) is collected
        exchange.start_response(SSE, collect=False)
        fed(exchange, answer_of("openai_chat").stream)
        exchange.end()
        assert bool(exchange.stream.message.parts) is collected


@pytest.mark.parametrize("stream", [True, False])
def test_a_completed_response_is_there_once(stream: bool) -> None:
    for keeps in (True, False):
        exchange = exchange_of("openai_responses", stream=stream, keeps_response=keeps)
        exchange.start_response(SSE)
        fed(exchange, answer_of("openai_chat").stream, 17)
        exchange.end()
        completed = exchange.take_completed()
        assert (completed is not None) is keeps
        assert exchange.take_completed() is None
        if completed is not None:
            assert completed["status"] == "completed"


def test_the_field_of_the_reasoning_is_learned() -> None:
    learned = LearnedFields()
    exchange = exchange_of(target=SGLANG, learned=learned)
    wrong = {"reasoning", "reasoning_content"} - {exchange.prepared.profile.reasoning_in}
    exchange.start_response(SSE)
    field = next(iter(wrong))
    exchange.feed(sse([chunk({field: "Hm."}), chunk({"content": "Hi"}), chunk({}, finish="stop")]))
    exchange.end()
    assert learned.overrides_for("sglang") == {"reasoning_in": field}


# --- a second request after an empty answer ---------------------------------------------------------------------

RETRYING: Final = RequestTarget(key="moonshot", host="moonshot")
PATIENT: Final = RequestTarget(key="moonshot", host="moonshot", retry_empty_answer=False)


def empty() -> bytes:
    return answer_of("openai_chat", "", calls=0).stream


@pytest.mark.parametrize("client", BODIES)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("size", [1, 50, 10_000])
def test_after_an_empty_answer_a_second_one_follows_in_the_same_response(client: str, stream: bool, size: int) -> None:
    exchange = exchange_of(client, RETRYING, stream)
    exchange.start_response(SSE)
    out, wanted = fed(exchange, empty(), size), [exchange.wants_retry]
    exchange.take_entry()
    exchange.start_retry(SSE)
    wanted.append(exchange.wants_retry)
    assert wanted == [True, False]
    out += fed(exchange, answer_of("openai_chat", thought="Once more.", calls=0).stream, size) + exchange.end()
    assert out
    *thoughts, last = exchange.stream.message.parts
    assert "".join(part.text for part in thoughts if isinstance(part, Reasoning)) == "Let me see.Once more."
    assert last == Text("Look.")
    assert exchange.usage is not None
    assert exchange.usage.output_tokens == 8
    assert exchange.repair_counts["empty_answer"] == 1
    entry = exchange.take_entry()
    assert entry is not None
    assert b"Let me see." in entry.value
    assert b"Once more." in entry.value


@pytest.mark.parametrize("client", BODIES)
def test_where_the_second_request_fails_the_empty_answer_has_to_do(client: str) -> None:
    plain, held = exchange_of(client), exchange_of(client, RETRYING)
    for exchange in (plain, held):
        exchange.start_response(SSE)
    assert fed(plain, empty()) + plain.end() == fed(held, empty()) + held.end()
    assert isinstance(held.ending, Finished)


def test_a_second_empty_answer_is_not_followed_by_a_third() -> None:
    exchange = exchange_of(target=RETRYING)
    exchange.start_response(SSE)
    fed(exchange, empty())
    exchange.start_retry(SSE)
    fed(exchange, empty())
    assert not exchange.wants_retry
    exchange.end()
    assert isinstance(exchange.ending, Finished)


@pytest.mark.parametrize("target", [PATIENT, RETRYING])
def test_an_answer_that_says_something_is_enough(target: RequestTarget) -> None:
    exchange = exchange_of(target=target)
    exchange.start_response(SSE)
    fed(exchange, answer_of("openai_chat").stream if target is RETRYING else empty())
    assert not exchange.wants_retry


# --- what a host repeats ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "payloads",
    {
        "an error before the first chunk": [
            {"error": {"message": f"Incorrect API key {SECRET}"}},
            chunk({"content": "a"}),
        ],
        "an error of one choice": [
            chunk({"content": "a"}),
            {"error": {"message": SECRET, "choice": 1}},
            chunk({}, "stop"),
        ],
        "an error after the finish": [chunk({"content": "a"}, "stop"), {"error": {"message": SECRET}}],
        "an error that is no error of OpenAI's": [{"detail": f"bad key {SECRET}"}, chunk({"content": "a"}, "stop")],
    }.items(),
    ids=lambda case: case[0],
)
def test_no_error_in_a_stream_has_a_secret_in_it(payloads: tuple[str, list[dict[str, Any]]]) -> None:
    for client in BODIES:
        exchange = exchange_of(client)
        exchange.start_response(SSE)
        out = fed(exchange, sse(payloads[1])) + exchange.end()
        assert SECRET.encode() not in out, client


def test_a_comment_has_no_secret_in_it() -> None:
    exchange = exchange_of()
    exchange.start_response(SSE)
    assert SECRET.encode() not in fed(exchange, b": error " + SECRET.encode() + b"\n\n" + sse([chunk({}, "stop")]))


@pytest.mark.parametrize("content_type", [SSE, "application/json"])
def test_an_error_with_status_200_has_no_part_of_a_key_in_it(content_type: str) -> None:
    key = "sk-SECRETSECRET/abc+1234567890"
    body = json.dumps({"error": {"message": f"Incorrect API key {key}", "code": 401}}).encode()
    exchange = exchange_of()
    exchange.secrets = (key,)
    exchange.start_response(content_type)
    out = fed(exchange, b"data: " + body + b"\n\n" if content_type == SSE else body) + exchange.end()
    assert exchange.problem is not None
    assert "1234567890" not in exchange.problem.message
    assert b"1234567890" not in out


def test_what_a_model_writes_is_left_alone() -> None:
    exchange = exchange_of()
    exchange.start_response(SSE)
    data = sse([chunk({"role": "assistant", "content": f'The "error" is {SECRET}'}), chunk({}, "stop")])
    assert fed(exchange, data) + exchange.end() == data


# --- what a host's size limit teaches ---------------------------------------------------------------------------

TOO_LARGE: Final = Problem(
    status=400,
    kind="invalid_request",
    message="tools.function.parameters is not a valid moonshot flavored json schema, details: <At path 'root': schema"
    " exceeds maximum allowed size>",
)


def large_tool(text: str) -> dict[str, Any]:
    step = {"type": "object", "properties": {"agent": {"type": "string", "description": text}}, "required": ["agent"]}
    schema = {"type": "object", "properties": {f"step_{number}": step for number in range(100)}}
    return {"type": "function", "function": {"name": "run", "parameters": schema}}


def test_a_schema_that_a_host_refuses_for_its_size_is_sent_shorter_and_so_is_the_next() -> None:
    learned = LearnedFields()
    body = {**BODIES["openai_chat"], "tools": [large_tool("The agent that does it. " * 10)]}
    exchange = exchange_of(body=body, learned=learned)
    assert len(json.dumps(exchange.prepared.body["tools"])) > 24_000
    assert exchange.correct(TOO_LARGE)
    sent = exchange.prepare(TARGET).body["tools"]
    assert len(json.dumps(sent)) < 15_000
    assert exchange_of(body=body, learned=learned).prepared.body["tools"] == sent
    assert not exchange.correct(TOO_LARGE)


def test_a_schema_that_cannot_be_shorter_gets_the_hosts_own_error() -> None:
    tool = large_tool("x")
    tool["function"]["parameters"]["properties"]["word"] = {"type": "string", "pattern": "x" * 20_000}
    assert not exchange_of(body={**BODIES["openai_chat"], "tools": [tool]}).correct(TOO_LARGE)


def test_what_was_learned_first_stays_known() -> None:
    learned = LearnedFields()
    lost = {**LOST, "tools": [large_tool("The agent that does it. " * 10)]}
    assert exchange_of(target=SGLANG, body=lost, learned=learned).correct(REFUSAL)
    exchange = exchange_of(target=SGLANG, body=lost, learned=learned)
    assert exchange.correct(TOO_LARGE)
    exchange.prepare(SGLANG)
    assert "reasoning_content" in exchange.prepared.body["messages"][1]
    assert len(json.dumps(exchange.prepared.body["tools"])) < 15_000
