"""The identifiers of the history, host by host."""

from __future__ import annotations

from typing import Any

import pytest

from moonshim.engine.values.conversation import Message, Request, Text, ToolCall, ToolResult
from tests.engine.request.chats import Json, ai, body, call, made, rules, sent_messages, tool, user

ROUNDS = [
    user(),
    ai(call("a", "ls"), call("b", "cat"), reasoning_content="r"),
    tool("a"),
    tool("b"),
    ai(call("a", "ls"), reasoning_content="r"),
    tool("a"),
    ai(call("functions.x:9", "ls"), reasoning_content="r"),
    tool("functions.x:9"),
]
IDS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "k2: from the position": (
        {"host": "vllm", "model": "kimi-k2.5"},
        ["functions.ls:0", "functions.cat:1", "functions.ls:2", "functions.ls:3"],
    ),
    "k2_repair: the valid ones stay": (
        {"overrides": {"history_ids": "k2_repair"}},
        ["functions.ls:0", "functions.cat:1", "functions.ls:2", "functions.ls:3"],
    ),
    "unique: only what repeats": ({"host": "kimi-coding"}, ["a", "b", "a_2", "functions.x:9"]),
    "keep: as they came": ({"overrides": {"history_ids": "keep"}}, ["a", "b", "a", "functions.x:9"]),
    "standard: what OpenAI takes, and unique": (
        {"host": "generic", "model": "gpt-5"},
        ["a", "b", "a_2", "call_functionsx9"],
    ),
    "anthropic: legal and unique": (
        {"overrides": {"history_ids": "anthropic"}},
        ["a", "b", "a_2", "toolu_functions-x-9"],
    ),
}


def ids_of(messages: list[Json]) -> tuple[list[str], list[str]]:
    calls = [entry["id"] for message in messages for entry in message.get("tool_calls", ())]
    return calls, [message["tool_call_id"] for message in messages if message["role"] == "tool"]


@pytest.mark.parametrize(("where", "expected"), IDS.values(), ids=IDS.keys())
def test_calls_and_their_results_get_the_ids_of_the_policy(where: dict[str, Any], expected: list[str]) -> None:
    assert ids_of(sent_messages(*ROUNDS, **where)) == (expected, expected)


def test_what_is_unique_already_is_not_touched() -> None:
    given = body(*ROUNDS[:4])
    assert rules(made(given).changes) == []
    assert made(given, "generic", "some-model").request.messages == made(given).request.messages


@pytest.mark.parametrize("id", [None, "", 7])
def test_a_call_without_an_id_gets_one(id: Any) -> None:
    entry = call("x")
    entry = {key: value for key, value in entry.items() if key != "id"} | ({} if id is None else {"id": id})
    calls, results = ids_of(sent_messages(user(), ai(entry), host="generic", model="gpt-5"))
    assert calls == results
    assert calls[0].startswith("call_")


def test_a_made_id_does_not_meet_one_that_was_given() -> None:
    messages = (
        Message("user", (Text("hi"),)),
        Message("assistant", (ToolCall("hist_tool_1", "ls", "{}", "call_a"), ToolCall("hist_tool_a", "ls", "{}"))),
        Message("tool", (ToolResult("hist_tool_1"),)),
        Message("tool", (ToolResult("hist_tool_a"),)),
    )
    for policy in ("keep", "unique", "standard", "anthropic", "mistral"):
        parts = made(Request(model="x", messages=messages), overrides={"history_ids": policy}).request.messages[1].parts
        ids = [part.wire_id for part in parts if isinstance(part, ToolCall)]
        assert len(set(ids)) == 2, policy


def test_orphans_take_no_index() -> None:
    calls, _ = ids_of(sent_messages(tool("zz", name="cat"), user(), ai(call("a")), tool("a"), host="vllm"))
    assert calls == ["functions.ls:0"]
