"""Histories of blocks (`{speaker, blocks}`) are read like any other where identifiers are made."""

from __future__ import annotations

from typing import Any

import pytest

import moonshim


def tool_call(id: str, name: str) -> dict[str, Any]:
    return {"type": "tool_call", "id": id, "name": name, "parameters": {}}


def tool_response(id: str, name: str) -> dict[str, Any]:
    return {"type": "tool_response", "callId": id, "toolName": name, "result": {}}


HISTORY: list[dict[str, Any]] = [
    {"speaker": "human", "blocks": [{"type": "text", "text": "go"}]},
    {
        "speaker": "ai",
        "blocks": [{"type": "text", "text": "ok"}, tool_call("hist_tool_a", "read"), tool_call("hist_tool_b", "glob")],
    },
    {"speaker": "tool", "blocks": [tool_response("hist_tool_b", "glob"), tool_response("hist_tool_a", "read")]},
    {"speaker": "ai", "blocks": [tool_call("hist_tool_c", "read")]},
]
EXPECTED = {
    "kimi": {"a": "functions.read:0", "b": "functions.glob:1", "c": "functions.read:2"},
    "openai": {"a": "call_a", "b": "call_b", "c": "call_c"},
    "anthropic": {"a": "toolu_a", "b": "toolu_b", "c": "toolu_c"},
}


@pytest.mark.parametrize("format", EXPECTED)
def test_a_mapper_numbers_the_calls_of_a_history_of_blocks(format: str) -> None:
    mapper = moonshim.tool_id_strategy(format).create_mapper(HISTORY)
    blocks = [block for message in HISTORY for block in message["blocks"]]
    calls = {block["id"]: block for block in blocks if block["type"] == "tool_call"}
    results = {block["callId"]: block for block in blocks if block["type"] == "tool_response"}
    for letter, expected in EXPECTED[format].items():
        id, call = f"hist_tool_{letter}", calls[f"hist_tool_{letter}"]
        assert mapper.resolve_tool_call_id(call) == expected
        assert mapper.resolve_tool_call_id({"id": id, "name": call["name"]}) == expected
        if id in results:
            assert mapper.resolve_tool_response_id(results[id]) == expected
            assert mapper.resolve_tool_response_id({"callId": id, "toolName": call["name"]}) == expected


def test_a_result_made_after_the_mapper_gets_the_identifier_of_its_call() -> None:
    mapper = moonshim.tool_id_strategy("kimi").create_mapper(HISTORY)
    assert mapper.resolve_tool_response_id(tool_response("hist_tool_c", "read")) == "functions.read:2"


def test_blocks_and_openai_messages_may_be_mixed() -> None:
    call = {"id": "call_d", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    history = [*HISTORY, {"role": "assistant", "content": None, "tool_calls": [call]}]
    mapper = moonshim.tool_id_strategy("kimi").create_mapper(history)
    assert mapper.resolve_tool_call_id(call) == "functions.ls:3"


def test_the_next_call_of_an_answer_is_counted_on_from_a_history_of_blocks() -> None:
    call = {"id": "nonsense", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    mended = moonshim.mend_response(body, model="kimi-k2.6", history=HISTORY)
    assert mended.body["choices"][0]["message"]["tool_calls"][0]["id"] == "functions.ls:3"


def test_a_result_is_not_taken_for_a_call() -> None:
    mapper = moonshim.tool_id_strategy("kimi").create_mapper(HISTORY)
    with pytest.raises(moonshim.InvalidInput):
        mapper.resolve_tool_call_id(tool_response("hist_tool_a", "read"))
    with pytest.raises(moonshim.InvalidInput):
        mapper.resolve_tool_response_id(tool_call("hist_tool_a", "read"))
