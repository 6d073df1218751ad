"""Chunks in shapes of other times and servers: what clients of every dialect get, and what is reported."""

from __future__ import annotations

from typing import Any

import pytest

from moonshim import Mender, mend_response, prepare_request
from moonshim.engine.values.events import Failed
from tests.support.streams import chunk, parse_payloads, read_sse, sse

CALL = {"name": "ls", "arguments": "{}"}


def mended(chunks: list[dict[str, Any]], client: str | None = None, *, done: bool = True) -> tuple[list[Any], Mender]:
    """The payloads that a client gets, and the mender; without a client, a recording is mended."""
    mender = Mender(model="kimi-k2.5")
    if client is not None:
        body = {"model": "kimi-k2.5", "stream": True, "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
        if client == "openai_responses":
            body = {"model": "kimi-k2.5", "stream": True, "input": "Hi"}
        mender = Mender(plan=prepare_request(body, dialect=client, upstream="openai_chat", host="moonshot").plan)
    out = mender.feed(sse(chunks, done=done)) + mender.flush()
    return [one for one in parse_payloads(read_sse(out)) if isinstance(one, dict)], mender


class TestFunctionCall:
    def test_it_is_a_tool_call_of_a_kimi_model(self) -> None:
        payloads, mender = mended([chunk({"function_call": CALL}), chunk({}, "function_call")])
        (entry,) = payloads[0]["choices"][0]["delta"]["tool_calls"]
        assert entry["function"] == CALL
        assert payloads[-1]["choices"][0]["finish_reason"] == "tool_calls"
        assert "tool_delta" in mender.repair_counts

    def test_it_is_left_alone_where_deltas_are_not_mended(self) -> None:
        chunks = [chunk({"function_call": CALL}), chunk({}, "function_call")]
        mender = Mender(model="gpt-4o")
        data = sse(chunks)
        assert mender.feed(data) + mender.flush() == data
        message = {"role": "assistant", "content": None, "function_call": CALL}
        body = {"choices": [{"index": 0, "message": message, "finish_reason": "function_call"}]}
        assert mend_response(body, model="gpt-4o").body == body

    def test_beside_tool_calls_it_is_a_copy(self) -> None:
        entry = {"index": 0, "id": "functions.ls:0", "type": "function", "function": CALL}
        delta = {"tool_calls": [entry], "function_call": CALL}
        _, mender = mended([chunk(delta), chunk({}, "tool_calls")], "anthropic")
        (call,) = mender.message.parts
        assert (call.name, call.arguments) == ("ls", "{}")  # type: ignore[union-attr]
        assert not mender.repair_counts.keys() & {"arguments_trailing", "arguments_doubled"}


def test_calls_that_are_no_list_are_left_alone_where_deltas_are_not_mended() -> None:
    data = sse([chunk({"content": "Hi", "tool_calls": {"index": 0}}), chunk({}, "stop")])
    mender = Mender(model="gpt-4o")
    (first, _) = parse_payloads(read_sse(mender.feed(data)))[:2]
    assert first["choices"][0]["delta"]["tool_calls"] == {"index": 0}


@pytest.mark.parametrize("client", [None, "openai_chat", "anthropic", "openai_responses"])
def test_usage_that_grows_in_the_choices_counts_with_its_last_value(client: str | None) -> None:
    chunks = [chunk({"content": text}) for text in "abc"]
    for number, one in enumerate(chunks):
        one["choices"][0]["usage"] = {"prompt_tokens": 5, "completion_tokens": 10 * (number + 1)}
    _, mender = mended([*chunks, chunk({}, "stop")], client)
    assert mender.normalized_usage is not None
    assert mender.normalized_usage.output_tokens == 30


@pytest.mark.parametrize("client", [None, "openai_chat"])
@pytest.mark.parametrize(
    "error", [{"object": "error", "message": "boom", "code": 400}, {"code": 50501, "message": "boom", "data": None}]
)
def test_errors_of_older_servers_are_errors_that_clients_raise(error: dict[str, Any], client: str | None) -> None:
    payloads, mender = mended([chunk({"content": "Hi"}), error], client)
    assert payloads[-1]["error"]["message"] == "boom"
    assert isinstance(mender.ending, Failed)
    assert mender.repair_counts["error_shape"] == 1


def test_an_error_before_the_first_chunk_is_the_only_one() -> None:
    payloads, mender = mended([{"error": {"message": "boom"}}, chunk({})], done=False)
    assert sum("error" in payload for payload in payloads) == 1
    assert isinstance(mender.ending, Failed)
    assert mender.ending.message == "boom"


def test_done_after_an_error_is_in_order() -> None:
    _, mender = mended([chunk({"content": "Hi"}), {"error": {"message": "boom"}}], "anthropic")
    assert "after_done" not in mender.repair_counts


@pytest.mark.parametrize("value", [{"text": "Hm."}, ["Hm."], 7])
@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_that_is_no_string_is_reported(field: str, value: Any) -> None:
    _, mender = mended([chunk({field: value}), chunk({"content": "Hi"}), chunk({}, "stop")], "anthropic")
    assert [repair.rule for repair in mender.repairs if field in repair.detail] == ["not_said"]


def test_a_refusal_beside_content_is_reported() -> None:
    _, mender = mended([chunk({"content": "Hi", "refusal": "No."}), chunk({}, "stop")], "openai_responses")
    assert "refusal: No." in [repair.detail for repair in mender.repairs]


def test_the_field_of_reasoning_is_known_although_all_of_it_was_held_back() -> None:
    payloads, mender = mended([chunk({"reasoning": "<"}), chunk({"content": "x"}), chunk({}, "stop")], "anthropic")
    assert [part.field for part in mender.message.parts if hasattr(part, "field")] == ["reasoning"]
    assert any(payload.get("delta", {}).get("signature") for payload in payloads)


def test_a_whole_response_without_a_message_is_no_empty_success() -> None:
    body = {"model": "kimi-k2.5", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    plan = prepare_request(body, dialect="anthropic", upstream="openai_chat", host="moonshot").plan
    answer = mend_response({"choices": [{"index": 0, "text": "Hi there", "finish_reason": "stop"}]}, plan=plan)
    assert isinstance(answer.ending, Failed)
    assert any("Hi there" in repair.detail for repair in answer.repairs)
