"""Whole responses: the rules of a stream, a body that stays as it was, and what was put right."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from moonshim.engine.response.body import Mended, mend_response
from moonshim.engine.values.conversation import Message, Reasoning, Text, ToolCall
from moonshim.engine.values.events import Failed, Finished, Repaired
from moonshim.engine.values.options import KimiOptions
from moonshim.errors import InvalidInput

CALL = "<|tool_call_begin|>functions.ls:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
ENTRY = {"id": "functions.ls:0", "type": "function", "function": {"name": "ls", "arguments": "{}"}}


def body(message: Any, finish: str | None = "stop", **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
    return {"id": "c1", "object": "chat.completion", "choices": [choice], "invented_tomorrow": 1, **more}


def said(**fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, **fields}


def mended(value: Any, **more: Any) -> Mended:
    return mend_response(value, model="kimi-k2.5", **more)


CLEAN: dict[str, dict[str, Any]] = {
    "text": body(said(content="Hi")),
    "reasoning and text": body(said(content="Hi", reasoning_content="Hm", reasoning="Hm")),
    "a call": body(said(tool_calls=[ENTRY]), "tool_calls"),
    "a call with fields that nobody knows": body(said(tool_calls=[{**ENTRY, "cache": 1}]), "tool_calls"),
    "an empty list of calls": body(said(content="Hi", tool_calls=[])),
    "cut short": body(said(content="Hi"), "length"),
    "usage at the top": body(said(content="Hi"), usage={"total_tokens": 7}),
    "no choices": {"id": "c1", "choices": []},
    "a refusal": body(said(content="Hi", refusal="No.")),
}


@pytest.mark.parametrize("case", CLEAN)
def test_a_clean_body_is_the_same_object(case: str) -> None:
    result = mended(CLEAN[case])
    assert result.body is CLEAN[case]
    assert result.repairs == []


# the message and the finish reason that came, and what they become
MENDED: dict[str, tuple[dict[str, Any], str | None, dict[str, Any], str | None]] = {
    "a call in the content": (
        said(content="Hi " + CALL),
        "stop",
        said(content="Hi ", tool_calls=[ENTRY]),
        "tool_calls",
    ),
    "a call in the reasoning": (
        said(reasoning_content="Hm " + CALL),
        "stop",
        said(reasoning_content="Hm ", tool_calls=[ENTRY]),
        "tool_calls",
    ),
    "a call in details of reasoning": (
        said(reasoning_details=[{"type": "reasoning.text", "text": "Hm " + CALL, "signature": "s"}]),
        "stop",
        said(reasoning_details=[{"type": "reasoning.text", "text": "Hm ", "signature": "s"}], tool_calls=[ENTRY]),
        "tool_calls",
    ),
    "a wrong reason": (said(tool_calls=[ENTRY]), "stop", said(tool_calls=[ENTRY]), "tool_calls"),
    "no reason": (said(content="Hi"), None, said(content="Hi"), "stop"),
    "calls that are none": (said(content="Hi"), "tool_calls", said(content="Hi"), "stop"),
    "a wrong identifier": (
        said(tool_calls=[{**ENTRY, "id": "call_1"}]),
        "tool_calls",
        said(tool_calls=[ENTRY]),
        "tool_calls",
    ),
    "a field that nobody knows, in an entry that is mended": (
        said(tool_calls=[{**ENTRY, "id": "call_1", "cache": 1}]),
        "tool_calls",
        said(tool_calls=[{**ENTRY, "cache": 1}]),
        "tool_calls",
    ),
    "the same call native and in markers": (
        said(content=CALL, tool_calls=[ENTRY]),
        "tool_calls",
        said(content="", tool_calls=[ENTRY]),
        "tool_calls",
    ),
    "unequal copies of the reasoning": (
        said(content="Hi", reasoning_content="Hm", reasoning="other"),
        "stop",
        said(content="Hi", reasoning_content="Hm", reasoning="Hm"),
        "stop",
    ),
    "half a character": (said(content="a\ud83d"), "stop", said(content="a\ufffd"), "stop"),
}


@pytest.mark.parametrize("case", MENDED)
def test_what_is_wrong_is_put_right_and_every_other_field_stays(case: str) -> None:
    came, raw, went, reason = MENDED[case]
    value = body(came, raw)
    before = copy.deepcopy(value)
    result = mended(value)
    assert result.body == body(went, reason)
    assert result.repairs
    assert value == before


OBJECT = body(said(tool_calls=[{**ENTRY, "function": {"name": "ls", "arguments": {}}}]), "tool_calls")


def test_arguments_as_an_object_become_their_text() -> None:
    assert mended(OBJECT).body == body(said(tool_calls=[ENTRY]), "tool_calls")


def test_arguments_as_an_object_are_told() -> None:
    assert mended(OBJECT).repairs


def test_the_message_and_the_ending_are_told_beside_the_body() -> None:
    result = mended(body(said(reasoning_content="Hm", content="Hi " + CALL)))
    reasoning, text, call = result.message.parts
    assert (reasoning, text) == (Reasoning("Hm"), Text("Hi "))
    assert isinstance(call, ToolCall)
    assert (call.name, call.arguments, call.wire_id) == ("ls", "{}", "functions.ls:0")
    assert result.ending == Finished("tool_calls", "stop")


@pytest.mark.parametrize("reason", ["engine_overloaded", "error"])
def test_an_error_as_a_reason_becomes_an_error_beside_what_was_said(reason: str) -> None:
    result = mended(body(said(content="Hi"), reason))
    assert result.body["error"]["code"] == reason
    assert result.body["choices"][0]["finish_reason"] is None
    assert result.body["choices"][0]["message"]["content"] == "Hi"
    assert isinstance(result.ending, Failed)


def test_arguments_that_break_off_are_an_error_and_never_tool_calls() -> None:
    half = {**ENTRY, "function": {"name": "ls", "arguments": '{"a": "b'}}
    result = mended(body(said(tool_calls=[half]), "tool_calls"))
    assert result.body["choices"][0]["finish_reason"] is None
    assert result.body["error"]["retryable"] is True


def test_an_error_of_the_host_passes_unchanged() -> None:
    value = {"error": {"message": "No.", "code": "overloaded"}}
    result = mended(value)
    assert result.body is value
    assert result.ending == Failed("overloaded", "No.")


@pytest.mark.parametrize("value", [{}, {"object": "list"}, {"choices": None}, body(None), {"choices": [7]}])
def test_what_is_no_response_passes_unchanged_and_is_told(value: dict[str, Any]) -> None:
    result = mended(value)
    assert result.body == value
    assert [repair.rule for repair in result.repairs] == ["not_a_chunk"]
    assert result.repair_counts == {"not_a_chunk": 1}
    assert result.message == Message("assistant")


@pytest.mark.parametrize("value", [None, "{}", b"{}", [], 7])
def test_a_body_that_is_no_dict_is_an_error_that_says_so(value: Any) -> None:
    with pytest.raises(InvalidInput, match=type(value).__name__) as caught:
        mended(value)
    assert caught.value.field == "body"


def test_each_choice_is_mended_on_its_own() -> None:
    value = body(said(content="Hi"))
    value["choices"].append({"index": 1, "message": said(content=CALL), "finish_reason": "stop"})
    result = mended(value)
    assert result.body["choices"][0] == value["choices"][0]
    assert result.body["choices"][1]["message"]["tool_calls"] == [ENTRY]
    assert {repair.choice for repair in result.repairs} == {1}
    assert result.message == Message("assistant", (Text("Hi"),))


def test_usage_inside_a_choice_moves_to_the_top() -> None:
    value = body(said(content="Hi"))
    value["choices"][0]["usage"] = {"total_tokens": 7}
    result = mended(value)
    assert result.body == body(said(content="Hi"), usage={"total_tokens": 7})
    assert Repaired("usage_moved", "choices[].usage") in result.repairs


def test_with_plain_options_only_identifiers_and_reasons_are_put_right() -> None:
    entry = {**ENTRY, "id": "call_1", "function": {"name": "ls", "arguments": "{}{}"}}
    result = mended(body(said(content=CALL, tool_calls=[entry])), options=KimiOptions())
    message = result.body["choices"][0]["message"]
    assert message["content"] == CALL
    assert message["tool_calls"] == [{**entry, "id": "functions.ls:0"}]
    assert result.body["choices"][0]["finish_reason"] == "tool_calls"


def test_a_model_that_is_no_kimi_is_passed_through() -> None:
    value = body(said(content=CALL, tool_calls=[{**ENTRY, "id": "call_1"}]), "tool_calls")
    assert mend_response(value, model="gpt-4o").body is value


@pytest.mark.parametrize(("name", "value"), [("model", 7), ("tools", "ls"), ("history", {"role": "user"})])
def test_bad_arguments_are_an_error_that_names_them(name: str, value: Any) -> None:
    passed: dict[str, Any] = {"model": "kimi-k2.5", name: value}
    with pytest.raises(InvalidInput) as caught:
        mend_response(body(said(content="Hi")), **passed)
    assert caught.value.field == name
