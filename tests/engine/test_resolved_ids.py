"""Histories translated for the AI SDK, with the identifiers that a resolver chooses."""

from __future__ import annotations

from typing import Any

import pytest

import moonshim


def call(id: str, name: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}}


HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "go"},
    {"role": "assistant", "content": None, "tool_calls": [call("call_x", "read"), call("call_y", "glob")]},
    {"role": "tool", "tool_call_id": "call_y", "content": "a.py"},
    {"role": "tool", "tool_call_id": "call_x", "content": "text"},
    {"role": "assistant", "content": None, "tool_calls": [call("call_x", "read")]},
    {"role": "tool", "tool_call_id": "call_x", "content": "more"},
]
KIMI = ["functions.read:0", "functions.glob:1", "functions.glob:1", "functions.read:0"] + ["functions.read:2"] * 2


def ids_of(messages: list[dict[str, Any]]) -> list[str]:
    entries = [entry for message in messages if isinstance(message["content"], list) for entry in message["content"]]
    return [entry["toolCallId"] for entry in entries if "toolCallId" in entry]


@pytest.mark.parametrize("from_", ["openai_chat", "anthropic", "vercel_ai"])
def test_a_mapper_of_the_same_history_gives_kimi_identifiers(from_: str) -> None:
    history = moonshim.translate_messages(HISTORY, from_="openai_chat", to=from_)
    mapper = moonshim.tool_id_strategy("kimi").create_mapper(HISTORY)
    translated = moonshim.translate_messages(
        history,
        from_=from_,
        to="vercel_ai",
        resolve_tool_call_id=lambda id, name: mapper.resolve_tool_call_id({"id": id, "name": name}),
        resolve_tool_response_id=lambda id, name: mapper.resolve_tool_response_id({"tool_call_id": id, "name": name}),
    )
    assert ids_of(translated) == KIMI


def test_a_resolver_is_asked_with_the_identifier_of_the_caller_and_the_name() -> None:
    asked: list[tuple[str, str]] = []

    def answer(id: str, name: str) -> str:
        asked.append((id, name))
        return f"{name}!"

    translated = moonshim.translate_messages(
        HISTORY[:4], from_="openai_chat", to="vercel_ai", resolve_tool_call_id=answer, resolve_tool_response_id=answer
    )
    assert asked == [("call_x", "read"), ("call_y", "glob"), ("call_y", "glob"), ("call_x", "read")]
    assert ids_of(translated) == ["read!", "glob!", "glob!", "read!"]


def test_results_follow_their_calls_when_only_calls_are_resolved() -> None:
    translated = moonshim.translate_messages(
        HISTORY[:4], from_="openai_chat", to="vercel_ai", resolve_tool_call_id=lambda id, name: f"{name}-{id}"
    )
    assert ids_of(translated) == ["read-call_x", "glob-call_y", "glob-call_y", "read-call_x"]


def test_without_resolvers_identifiers_stay_as_they_came() -> None:
    translated = moonshim.translate_messages(HISTORY[:4], from_="openai_chat", to="vercel_ai")
    assert ids_of(translated) == ["call_x", "call_y", "call_y", "call_x"]


@pytest.mark.parametrize("to", ["openai_chat", "anthropic", "openai_responses"])
def test_a_resolver_for_another_dialect_is_refused(to: str) -> None:
    with pytest.raises(moonshim.InvalidInput, match="vercel_ai") as error:
        moonshim.translate_messages(HISTORY, from_="openai_chat", to=to, resolve_tool_call_id=lambda id, name: id)
    assert error.value.field == "resolve_tool_call_id"
