"""The AI SDK's model messages to and from the canonical form, under identifiers that a mapper chooses."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from moonshim.engine.dialects.vercel_ai import parse_messages, render_messages
from moonshim.engine.ids import tool_id_strategy
from moonshim.engine.values.conversation import Media, Message, Reasoning, Text, ToolCall, ToolResult
from moonshim.errors import InvalidInput

OPTIONS = {"anthropic": {"cacheControl": {"type": "ephemeral"}}}


def call(id: str = "call_1", name: str = "weather", input: Any = None, **more: Any) -> dict[str, Any]:
    given = {"city": "Rome"} if input is None else input
    return {"type": "tool-call", "toolCallId": id, "toolName": name, "input": given, **more}


def result(output: Any, id: str = "call_1", **more: Any) -> dict[str, Any]:
    return {"type": "tool-result", "toolCallId": id, "toolName": "weather", "output": output, **more}


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def ai(*content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content)}


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def tool(*content: Any) -> dict[str, Any]:
    return {"role": "tool", "content": list(content)}


SHAPES: dict[str, dict[str, Any]] = {
    "system": {"role": "system", "content": "be brief", "providerOptions": OPTIONS},
    "user text": {"role": "user", "content": "hi"},
    "empty user text": {"role": "user", "content": ""},
    "user list": user(text("a"), text("b")),
    "user list of one": user(text("a")),
    "empty list": user(),
    "text with options": user(text("a", providerOptions=OPTIONS)),
    "image by address": user({"type": "image", "image": "https://x.org/a.png"}),
    "image by value": user({"type": "image", "image": "iVBO", "mediaType": "image/png"}),
    "image as bytes": user({"type": "image", "image": b"\x89PNG"}),
    "file": user({"type": "file", "data": "JVBE", "mediaType": "application/pdf", "filename": "a.pdf"}),
    "assistant text": {"role": "assistant", "content": "hello"},
    "assistant list": ai(text("hello")),
    "reasoning": ai({"type": "reasoning", "text": "hm"}, text("4")),
    "signed reasoning": ai(
        {"type": "reasoning", "text": "hm", "providerOptions": {"anthropic": {"signature": "sig"}}}, text("4")
    ),
    "reasoning with other options": ai({"type": "reasoning", "text": "hm", "providerOptions": {"x": {"y": 1}}}),
    "text and a call": ai(text("let me see"), call()),
    "empty text and a call": ai(text(""), call()),
    "calls between texts": ai(text("a"), call(), text("b"), call("call_2")),
    "a call with options": ai(call(providerOptions=OPTIONS, providerExecuted=True)),
    "a call without input": ai({"type": "tool-call", "toolCallId": "call_1", "toolName": "weather"}),
    "a call whose input is no object": ai(call(input=[1, 2.0, "ä"])),
    "a call whose input is broken text": ai(call(input='{"city": "Ro')),
    "a call whose input is JSON in a text": ai(call(input='{"city": "Rome"}')),
    "an approval request": ai(call(), {"type": "tool-approval-request", "approvalId": "p", "toolCallId": "call_1"}),
    "a result in the assistant's turn": ai(call(), result({"type": "json", "value": {"t": 12}})),
    "text result": tool(result({"type": "text", "value": "12"})),
    "json result": tool(result({"type": "json", "value": {"t": 12}})),
    "error text": tool(result({"type": "error-text", "value": "no"})),
    "error json": tool(result({"type": "error-json", "value": None})),
    "denied": tool(result({"type": "execution-denied", "reason": "no"})),
    "content result": tool(
        result({"type": "content", "value": [text("a"), {"type": "media", "data": "AA", "mediaType": "image/png"}]})
    ),
    "content of one text": tool(result({"type": "content", "value": [text("a")]})),
    "content of nothing": tool(result({"type": "content", "value": []})),
    "content that nobody knows": tool(result({"type": "content", "value": [{"type": "x"}, None]})),
    "a kind of result that nobody knows": tool(result({"type": "hologram", "value": 1})),
    "several results": tool(result({"type": "text", "value": "1"}), result({"type": "text", "value": "2"}, "call_2")),
    "results with options": tool(result({"type": "text", "value": "1"}, providerOptions=OPTIONS)),
    "approval": tool({"type": "tool-approval-response", "approvalId": "p", "approved": True}),
    "junk in the list": ai(None, 3, "x", {}, {"type": "text"}, call()),
}


@pytest.mark.parametrize("message", SHAPES.values(), ids=SHAPES.keys())
def test_every_shape_is_equal_after_the_round_trip(message: dict[str, Any]) -> None:
    before = copy.deepcopy(message)
    assert render_messages(parse_messages([message])) == [message]
    assert message == before


@given(st.lists(st.sampled_from(list(SHAPES.values())).map(copy.deepcopy), max_size=8))
def test_whole_conversations_are_equal_after_the_round_trip(messages: list[dict[str, Any]]) -> None:
    before = copy.deepcopy(messages)
    parsed = parse_messages(messages)
    out = render_messages(parsed)
    assert messages == before
    assert out == messages
    for message in out:
        message.clear()
    assert render_messages(parsed) == before


def test_what_the_canonical_form_says() -> None:
    parsed = parse_messages(
        [
            user(text("look"), {"type": "image", "image": "iVBO", "mediaType": "image/png"}),
            ai(SHAPES["signed reasoning"]["content"][0], call(input={"a": 1})),
            tool(result({"type": "error-json", "value": {"code": 7}})),
        ]
    )
    assert [message.parts for message in parsed] == [
        (Text("look"), Media("image", data="iVBO", media_type="image/png")),
        (Reasoning("hm", signature="sig"), ToolCall("hist_tool_1", "weather", '{"a":1}', "call_1")),
        (ToolResult("hist_tool_1", "weather", (Text('{"code":7}'),), is_error=True, wire_id="call_1"),),
    ]


FOREIGN: dict[str, tuple[list[Message], list[dict[str, Any]]]] = {
    "text and a call": (
        [Message("assistant", (Text("I look."), ToolCall("call_9", "weather", '{"city":"Rome"}')))],
        [ai(text("I look."), call("call_9"))],
    ),
    "empty text is left out": (
        [Message("assistant", (Text(""), ToolCall("call_9", "weather", "")))],
        [ai(call("call_9", input={}))],
    ),
    "texts of a human are lines": (
        [Message("user", (Text("one"), Text("two")))],
        [{"role": "user", "content": "one\ntwo"}],
    ),
    "a result is text": (
        [Message("tool", (ToolResult("hist_tool_9", "weather", (Text('{"t":72}'),)),))],
        [tool(result({"type": "text", "value": '{"t":72}'}, "call_9"))],
    ),
    "a failed result": (
        [Message("tool", (ToolResult("hist_tool_9", "weather", (Text("no"),), is_error=True),))],
        [tool(result({"type": "error-text", "value": "no"}, "call_9"))],
    ),
    "a result with a picture": (
        [
            Message(
                "tool",
                (
                    ToolResult(
                        "hist_tool_9",
                        "weather",
                        (
                            Text("a"),
                            Media("image", data="A", media_type="image/png"),
                            Media("file", url="https://x.org"),
                        ),
                    ),
                ),
            )
        ],
        [
            tool(
                result(
                    {
                        "type": "content",
                        "value": [
                            text("a"),
                            {"type": "image-data", "data": "A", "mediaType": "image/png"},
                            {"type": "file-url", "url": "https://x.org"},
                        ],
                    },
                    "call_9",
                )
            )
        ],
    ),
    "a result of nothing": (
        [Message("tool", (ToolResult("call_9", "weather"),))],
        [tool(result({"type": "text", "value": "[no tool result]"}, "call_9"))],
    ),
    "the name of the tool is that of the call": (
        [
            Message("assistant", (ToolCall("hist_tool_9", "weather", "{}"),)),
            Message("tool", (ToolResult("hist_tool_9", None, (Text("x"),)),)),
        ],
        [ai(call("call_9", input={})), tool(result({"type": "text", "value": "x"}, "call_9"))],
    ),
    "a message of nothing is left out": (
        [Message("user"), Message("assistant"), Message("assistant", (Text(""), Text("")))],
        [],
    ),
    "the system speaks": ([Message("system", (Text("be brief"),))], [{"role": "system", "content": "be brief"}]),
    "a result in a human turn": (
        [Message("user", (ToolResult("call_9", "weather", (Text("x"),)), Text("and?")))],
        [tool(result({"type": "text", "value": "x"}, "call_9")), {"role": "user", "content": "and?"}],
    ),
    "signed reasoning": (
        [Message("assistant", (Reasoning("hm", signature="sig"), Text("4")))],
        [SHAPES["signed reasoning"]],
    ),
    "arguments too deep to read": (
        [Message("assistant", (ToolCall("call_9", "weather", "[" * 100_000),))],
        [ai(call("call_9", input="[" * 100_000))],
    ),
}


@pytest.mark.parametrize(("messages", "expected"), FOREIGN.values(), ids=FOREIGN.keys())
def test_messages_that_came_from_elsewhere(messages: list[Message], expected: list[dict[str, Any]]) -> None:
    assert render_messages(messages) == expected


def ids_of(messages: list[dict[str, Any]]) -> list[str]:
    entries = [entry for message in messages if isinstance(message["content"], list) for entry in message["content"]]
    return [entry["toolCallId"] for entry in entries if "toolCallId" in entry]


def resolved(history: list[Message], format: str) -> list[dict[str, Any]]:
    mapper = tool_id_strategy(format).create_mapper(history)
    return render_messages(
        history,
        resolve_tool_call_id=lambda id, name: mapper.resolve_tool_call_id({"id": id, "name": name}),
        resolve_tool_response_id=lambda id, name: mapper.resolve_tool_response_id({"tool_call_id": id, "name": name}),
    )


def test_resolvers_are_asked_with_the_canonical_identifier_and_the_name() -> None:
    asked: list[tuple[str, str]] = []

    def answer(id: str, name: str) -> str:
        asked.append((id, name))
        return f"{name}!"

    history = parse_messages(
        [ai(call("toolu_1", providerOptions=OPTIONS)), tool(result({"type": "json", "value": 1}, "toolu_1"))]
    )
    out = render_messages(history, resolve_tool_call_id=answer, resolve_tool_response_id=answer)
    assert asked == [("hist_tool_1", "weather")] * 2
    assert out == [
        ai(call("weather!", providerOptions=OPTIONS)),
        tool(result({"type": "json", "value": 1}, "weather!")),
    ]


def test_kimi_identifiers_through_resolvers() -> None:
    history = [
        Message("assistant", (ToolCall("hist_tool_xyz", "read", "{}"), ToolCall("hist_tool_abc", "glob", "{}"))),
        Message("tool", (ToolResult("hist_tool_abc", "glob"), ToolResult("hist_tool_xyz", "read"))),
        Message("tool", (ToolResult("hist_tool_lost", "grep"),)),
    ]
    assert ids_of(resolved(history, "kimi")) == [
        "functions.read:0",
        "functions.glob:1",
        "functions.glob:1",
        "functions.read:0",
        "functions.grep:2",
    ]


def test_repeated_wire_identifiers_stay_apart_through_resolvers() -> None:
    turn = [ai(call("x")), tool(result({"type": "text", "value": "1"}, "x"))]
    history = parse_messages(copy.deepcopy(turn * 3))
    expected = [f"functions.weather:{n}" for n in (0, 0, 1, 1, 2, 2)]
    assert ids_of(resolved(history, "kimi")) == expected


def test_with_a_resolver_for_calls_alone_results_follow_their_calls() -> None:
    history = parse_messages([ai(call("x")), tool(result({"type": "text", "value": "1"}, "x"))])
    assert ids_of(render_messages(history, resolve_tool_call_id=lambda id, name: "new")) == ["new", "new"]


def test_the_parts_win_over_what_was_kept() -> None:
    (parsed,) = parse_messages([ai(text("a", providerOptions=OPTIONS), call(input='{"a":1}', providerExecuted=True))])
    assert isinstance(parsed.parts[1], ToolCall)
    changed = replace(parsed, parts=(Text("b"), replace(parsed.parts[1], arguments='{"a":2}'), Text("c")))
    assert render_messages([changed]) == [ai(text("b", providerOptions=OPTIONS), call(input={"a": 2}), text("c"))]


def test_what_continues_a_conversation_does_not_reuse_its_identifiers() -> None:
    stored = parse_messages([ai(call("x"))])
    more = parse_messages([tool(result({"type": "text", "value": "1"}, "x")), ai(call("x"))], after=stored)
    assert more[0].parts == (ToolResult("hist_tool_x", "weather", (Text("1"),), wire_id="x"),)
    assert more[1].parts == (ToolCall("hist_tool_x_2", "weather", '{"city":"Rome"}', "x"),)


@pytest.mark.parametrize(
    ("messages", "field"),
    [
        ("hi", "messages"),
        ({"role": "user"}, "messages"),
        (["hi"], "messages[0]"),
        ([{"role": "user", "content": "x"}, {"role": "critic", "content": "x"}], "messages[1]"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": {}}], "messages[0].content"),
    ],
)
def test_what_is_no_message_is_refused_and_the_place_is_told(messages: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_messages(messages)
    assert refused.value.field == field
