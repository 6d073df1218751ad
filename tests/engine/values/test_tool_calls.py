"""A history of any form is walked alike, and nothing in it makes the walk fail."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.engine.values.conversation import Message, Text, Tool, ToolCall, ToolResult
from moonshim.engine.values.tool_calls import FoundCall, FoundResult, declared_tools, walk_calls


def call(id: Any, name: Any = "ls") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}}


def told(history: Any) -> list[tuple[str, str, str | None, int, int]]:
    return [
        ("call" if isinstance(seen, FoundCall) else "result", seen.id, seen.name, seen.position, seen.place)
        for seen in walk_calls(history)
    ]


def test_calls_and_results_come_in_order_with_their_places() -> None:
    history = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call("a"), call("b", "cat")]},
        {"role": "tool", "tool_call_id": "b", "content": "x", "name": "cat"},
        {"role": "tool", "tool_call_id": "a", "content": "y"},
    ]
    assert told(history) == [
        ("call", "a", "ls", 1, 0),
        ("call", "b", "cat", 1, 1),
        ("result", "b", "cat", 2, 0),
        ("result", "a", None, 3, 0),
    ]


def test_dicts_and_canonical_messages_may_be_mixed() -> None:
    history = [
        Message("assistant", (Text("let me see"), ToolCall("hist_tool_a", "ls", "{}", wire_id="call_a"))),
        {"role": "tool", "tool_call_id": "call_a", "content": ""},
        Message("assistant", (ToolCall("hist_tool_b", "cat", "{}"),)),
        Message("tool", (ToolResult("hist_tool_b"),)),
    ]
    assert told(history) == [
        ("call", "call_a", "ls", 0, 1),
        ("result", "call_a", None, 1, 0),
        ("call", "hist_tool_b", "cat", 2, 0),
        ("result", "hist_tool_b", None, 3, 0),
    ]
    assert [seen.canonical for seen in walk_calls(history)] == ["hist_tool_a", None, "hist_tool_b", "hist_tool_b"]


def test_the_very_object_is_handed_on() -> None:
    history: list[dict[str, Any]] = [
        {"role": "assistant", "tool_calls": [call("a")]},
        {"role": "tool", "tool_call_id": "a"},
    ]
    first, second = walk_calls(history)
    assert first.value is history[0]["tool_calls"][0]
    assert second.value is history[1]


ODD: dict[str, Any] = {
    "nothing": None,
    "a string": "assistant",
    "one message instead of a list": {"role": "tool", "tool_call_id": "a"},
    "a number": 7,
    "entries that are no messages": [None, 1, "x", [], b""],
    "calls that are no list": [
        {"role": "assistant", "tool_calls": {"id": "a"}},
        {"role": "assistant", "tool_calls": 3},
    ],
    "entries that are no calls": [{"role": "assistant", "tool_calls": [None, 1, "a", {}, {"function": {"name": 3}}]}],
    "calls of somebody else": [{"role": "user", "tool_calls": [call("a")]}],
    "the protocol of 2023": [{"role": "function", "name": "ls", "content": ""}],
}


@pytest.mark.parametrize("history", ODD.values(), ids=ODD.keys())
def test_what_is_no_call_is_passed_over(history: Any) -> None:
    assert told(history) == []


HALF = {
    "no id": (call(None), "", "ls"),
    "a numeric id": (call(5), "", "ls"),
    "no name": (call("a", None), "a", ""),
    "no function": ({"id": "a"}, "a", ""),
    "a custom tool": ({"id": "a", "type": "custom", "custom": {"name": "sh", "input": "ls"}}, "a", "sh"),
    "flat": ({"id": "a", "name": "ls"}, "a", "ls"),
}


@pytest.mark.parametrize(("entry", "id", "name"), HALF.values(), ids=HALF.keys())
def test_a_call_that_lacks_something_is_still_a_call(entry: Any, id: str, name: str) -> None:
    assert told([{"role": "assistant", "tool_calls": [entry]}]) == [("call", id, name, 0, 0)]


def test_a_result_without_an_id_is_still_a_result() -> None:
    assert told([{"role": "tool", "content": "x"}]) == [("result", "", None, 0, 0)]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["assistant", "tool", "x", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "tool_calls", "id", "function", "name", "tool_call_id", "custom"]), inner
        )
    ),
    max_leaves=15,
)


@given(st.lists(ANYTHING, max_size=4) | ANYTHING)
def test_no_shape_makes_the_walk_fail(history: Any) -> None:
    for seen in walk_calls(history):
        assert isinstance(seen, (FoundCall, FoundResult))


DECLARED = {
    "openai": {"type": "function", "function": {"name": "ls", "description": "d", "parameters": {"type": "object"}}},
    "flat": {"name": "ls", "description": "d", "parameters": {"type": "object"}},
    "anthropic": {"name": "ls", "description": "d", "input_schema": {"type": "object"}},
    "canonical": Tool("ls", "d", {"type": "object"}),
}


@pytest.mark.parametrize("tool", DECLARED.values(), ids=DECLARED.keys())
def test_a_declared_tool_is_read_from_every_form(tool: Any) -> None:
    assert declared_tools([tool]) == [Tool("ls", "d", {"type": "object"})]


@pytest.mark.parametrize("tools", [None, "ls", {"name": "ls"}, 3, [], [None, 1, {}, {"function": {}}, {"name": ""}]])
def test_what_is_no_declaration_is_left_out(tools: Any) -> None:
    assert declared_tools(tools) == []


@given(st.lists(ANYTHING, max_size=4) | ANYTHING)
def test_no_shape_makes_reading_declarations_fail(tools: Any) -> None:
    assert all(isinstance(tool, Tool) for tool in declared_tools(tools))
