"""One conversation, several providers: each sees identifiers of its own kind, and the stored form never changes."""

from __future__ import annotations

import re
from typing import Any

import pytest

from moonshim.engine.dialects.openai_chat.messages import parse_messages, render_messages
from moonshim.engine.values.conversation import Message, Text, ToolCall, ToolResult

KINDS = {
    "openai": re.compile(r"call_[A-Za-z0-9_-]+"),
    "kimi": re.compile(r"functions\.[a-z_]+:\d+"),
    "anthropic": re.compile(r"toolu_[A-Za-z0-9_-]+"),
    "mistral": re.compile(r"[A-Za-z0-9]{9}"),
}
TOOLS = ["read_file", "grep", "read_file", "run", "grep"]


def reply(format: str, round: int, calls_so_far: int) -> dict[str, Any]:
    """What a model of this kind answers: two calls, under identifiers of its own making."""
    own = {
        "openai": [f"call_{round}aB", f"call_{round}.aB"],
        "kimi": [f"functions.{TOOLS[round]}:{calls_so_far}", f"functions.list:{calls_so_far + 1}"],
        "anthropic": [f"toolu_0{round}", f"toolu_1{round}"],
        "mistral": [f"D681PevK{round}", f"E681PevK{round}"],
    }[format]
    calls = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": f'{{"n":{round}}}'}}
        for id, name in zip(own, [TOOLS[round], "list"], strict=True)
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def check(sent: list[dict[str, Any]], format: str) -> None:
    called = [entry for message in sent for entry in message.get("tool_calls", ())]
    ids = [entry["id"] for entry in called]
    assert all(KINDS[format].fullmatch(id) for id in ids)
    assert len(set(ids)) == len(ids)
    answered = {message["tool_call_id"]: message["content"] for message in sent if message["role"] == "tool"}
    assert answered == {entry["id"]: f"{entry['function']['name']} said {n}" for n, entry in enumerate(called)}
    if format == "kimi":
        assert ids == [f"functions.{entry['function']['name']}:{n}" for n, entry in enumerate(called)]


@pytest.mark.parametrize(
    "providers",
    [
        ["openai", "kimi", "anthropic", "kimi", "openai"],
        ["kimi", "openai", "kimi", "mistral", "anthropic"],
        ["kimi"] * 5,
        ["mistral", "mistral", "kimi", "kimi", "openai"],
    ],
    ids="-".join,
)
def test_five_rounds_over_several_providers(providers: list[str]) -> None:
    stored: list[Message] = [Message("user", (Text("go"),))]
    count = 0
    for round, format in enumerate(providers):
        check(render_messages(stored, format=format), format)
        before = list(stored)
        stored += parse_messages([reply(format, round, count)], after=stored)
        for call in stored[-1].parts:
            assert isinstance(call, ToolCall)
            assert call.id.startswith("hist_tool_")
            stored.append(Message("tool", (ToolResult(call.id, call.name, (Text(f"{call.name} said {count}"),)),)))
            count += 1
        assert stored[: len(before)] == before
    calls = [part for message in stored for part in message.parts if isinstance(part, ToolCall)]
    assert len({call.id for call in calls}) == len(calls) == 10
    for format in KINDS:
        check(render_messages(stored, format=format), format)


@pytest.mark.parametrize("format", KINDS)
def test_each_request_begins_with_the_one_before_it(format: str) -> None:
    stored: list[Message] = []
    sent: list[dict[str, Any]] = []
    for round in range(5):
        stored += parse_messages([reply("kimi" if round % 2 else "openai", round, 0)], after=stored)
        for call in stored[-1].parts:
            assert isinstance(call, ToolCall)
            stored.append(Message("tool", (ToolResult(call.id, parts=(Text("ok"),)),)))
        now = render_messages(stored, format=format)
        assert now[: len(sent)] == sent
        sent = now


def test_k2_identifiers_survive_the_round_trip_through_the_canonical_form() -> None:
    wire = [
        {"role": "user", "content": "read both"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": f"functions.read_file:{n}",
                    "type": "function",
                    "function": {"name": "read_file", "arguments": a},
                }
                for n, a in enumerate(['{"path":"a"}', '{"path":"b"}'])
            ],
        },
        {"role": "tool", "tool_call_id": "functions.read_file:1", "content": "B"},
        {"role": "tool", "tool_call_id": "functions.read_file:0", "content": "A"},
    ]
    stored = parse_messages(wire)
    assert [part.id for part in stored[1].parts if isinstance(part, ToolCall)] == [
        "hist_tool_functionsread_file0",
        "hist_tool_functionsread_file1",
    ]
    assert render_messages(stored) == wire
    assert render_messages(stored, format="kimi") == wire


def test_a_k2_identifier_in_the_middle_of_a_count_comes_back_as_it_was() -> None:
    entry = {"id": "functions.read_file:3", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
    wire = [{"role": "assistant", "tool_calls": [entry]}, {"role": "tool", "tool_call_id": entry["id"], "content": ""}]
    assert render_messages(parse_messages(wire)) == wire
