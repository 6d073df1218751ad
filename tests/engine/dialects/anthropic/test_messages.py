"""Messages to canonical messages and back: nothing is lost, and what was changed is written fresh."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from msgspec.structs import replace

from moonshim.engine.dialects.anthropic.messages import parse_messages, render_message_list, render_messages
from moonshim.engine.values.conversation import Media, Message, Reasoning, Text, ToolCall, ToolResult
from moonshim.errors import CannotExpress, InvalidInput
from tests.engine.dialects.anthropic import strategies

Json = dict[str, Any]
EPHEMERAL: Final = {"cache_control": {"type": "ephemeral"}}
CALL: Final = {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {"path": "."}}
RESULT: Final = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.py"}


def user(*blocks: Json, **more: Any) -> Json:
    return {"role": "user", "content": list(blocks), **more}


def assistant(*blocks: Json) -> Json:
    return {"role": "assistant", "content": list(blocks)}


def text(words: str, **more: Any) -> Json:
    return {"type": "text", "text": words, **more}


@given(strategies.messages)
def test_what_is_parsed_and_rendered_is_unchanged(messages: list[Json]) -> None:
    assert render_messages(parse_messages(messages)) == messages


@given(strategies.messages)
def test_rendered_without_memory_it_says_the_same(messages: list[Json]) -> None:
    parsed = [replace(message, extras={}) for message in parse_messages(messages)]
    again = parse_messages(render_messages(parsed))

    def said(conversation: list[Message]) -> list[tuple[str, str]]:
        return sorted(
            (type(part).__name__, getattr(part, "arguments", getattr(part, "text", "")))
            for message in conversation
            for part in message.parts
        )

    assert said(again) == said(parsed)


PARSED: Final[dict[str, tuple[Json, list[tuple[str, tuple[Any, ...]]]]]] = {
    "a string is a text": ({"role": "user", "content": "hi"}, [("user", (Text("hi"),))]),
    "a system prompt in the middle is one": ({"role": "system", "content": "hi"}, [("system", (Text("hi"),))]),
    "developer means system": ({"role": "developer", "content": [text("hi")]}, [("system", (Text("hi"),))]),
    "an empty signature is none": (
        assistant({"type": "thinking", "thinking": "Hm.", "signature": ""}),
        [("assistant", (Reasoning("Hm."),))],
    ),
    "what is redacted is a detail": (
        assistant({"type": "redacted_thinking", "data": "xyz"}),
        [("assistant", (Reasoning("", details=({"type": "redacted_thinking", "data": "xyz"},)),))],
    ),
    "input as a JSON string is arguments": (
        assistant({**CALL, "input": '{"path": "."}'}),
        [("assistant", (ToolCall("hist_tool_1", "ls", '{"path": "."}', "toolu_1"),))],
    ),
    "no input is no arguments": (
        assistant({**CALL, "input": None}),
        [("assistant", (ToolCall("hist_tool_1", "ls", "", "toolu_1"),))],
    ),
    "results come before what was said with them": (
        user(text("go on"), {**RESULT, "is_error": True}),
        [
            ("tool", (ToolResult("hist_tool_1", None, (Text("a.py"),), True, "toolu_1"),)),
            ("user", (Text("go on"),)),
        ],
    ),
    "an image by its address": (
        user({"type": "image", "source": {"type": "url", "url": "https://x.example/a.png"}}),
        [("user", (Media("image", url="https://x.example/a.png"),))],
    ),
    "a PDF is a file": (
        user(
            {
                "type": "document",
                "title": "a.pdf",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "YQ=="},
            }
        ),
        [("user", (Media("file", data="YQ==", media_type="application/pdf", name="a.pdf"),))],
    ),
}


@pytest.mark.parametrize(("message", "expected"), PARSED.values(), ids=PARSED.keys())
def test_blocks_become_parts(message: Json, expected: list[tuple[str, tuple[Any, ...]]]) -> None:
    assert [(one.role, one.parts) for one in parse_messages([message])] == expected


FOREIGN: Final[dict[str, tuple[Json, str]]] = {
    "a reference to a tool": ({"type": "tool_reference", "tool_name": "ls"}, "The tool ls can be called now."),
    "a search result": (
        {"type": "search_result", "title": "T", "source": "https://x", "content": [text("words")]},
        "https://x\nwords",
    ),
    "a document of text": (
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}},
        "words",
    ),
    "a document of blocks": (
        {"type": "document", "source": {"type": "content", "content": [text("one"), text("two")]}},
        "one\ntwo",
    ),
    "a search that the host ran": (
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
        '[web_search was run by the host: {"query":"q"}]',
    ),
    "what such a search found": (
        {
            "type": "web_search_tool_result",
            "content": [{"type": "web_search_result", "title": "T", "url": "https://x", "encrypted_content": "…"}],
        },
        "T https://x",
    ),
    "a block of tomorrow": ({"type": "novelty", "content": 1}, '{"type":"novelty","content":1}'),
}


@pytest.mark.parametrize(("block", "words"), FOREIGN.values(), ids=FOREIGN.keys())
def test_what_others_do_not_know_is_a_file_of_text_for_them(block: Json, words: str) -> None:
    (message,) = parse_messages([user(block)])
    (media,) = message.parts
    assert isinstance(media, Media)
    plain = replace(media, extras={}, name=None)
    (again,) = render_messages([Message("user", (plain,))])
    assert again["content"][0]["source"] == {"type": "text", "media_type": "text/plain", "data": words}
    assert render_messages([message]) == [user(block)]


def test_a_call_that_was_renamed_keeps_what_stood_beside_it() -> None:
    history = parse_messages(
        [assistant(text("Hm.", **EPHEMERAL), {**CALL, **EPHEMERAL}), user({**RESULT, **EPHEMERAL})]
    )
    ai, tool = history
    call, result = ai.parts[1], tool.parts[0]
    assert isinstance(call, ToolCall)
    assert isinstance(result, ToolResult)
    changed = [
        replace(ai, parts=(ai.parts[0], replace(call, wire_id="x_1", name="list"))),
        replace(tool, parts=(replace(result, wire_id="x_1"),)),
    ]
    assert render_messages(changed) == [
        assistant(text("Hm.", **EPHEMERAL), {**CALL, **EPHEMERAL, "id": "x_1", "name": "list"}),
        user({**RESULT, **EPHEMERAL, "tool_use_id": "x_1"}),
    ]


def test_a_part_that_was_put_in_moves_no_field_to_another() -> None:
    (message,) = parse_messages([user(text("one", a=1), text("two", b=2))])
    one, two = message.parts
    changed = replace(message, parts=(Media("image", url="https://x"), replace(one, text="1"), Text("new"), two))
    image = {"type": "image", "source": {"type": "url", "url": "https://x"}}
    assert render_messages([changed]) == [user(image, text("1", a=1), text("new"), text("two", b=2))]


FRESH: Final[dict[str, tuple[list[Message], list[Json]]]] = {
    "thinking stands first": (
        [Message("assistant", (Text("Hi"), Reasoning("Hm.", "EqoB")))],
        [assistant({"type": "thinking", "thinking": "Hm.", "signature": "EqoB"}, text("Hi"))],
    ),
    "no signature is no field": (
        [Message("assistant", (Reasoning(""), Text("Hi")))],
        [assistant({"type": "thinking", "thinking": ""}, text("Hi"))],
    ),
    "neighbours of one role are one message, results first": (
        [
            Message("assistant", (ToolCall("hist_tool_1", "ls", "{}", None),)),
            Message("user", (Text("go on"),)),
            Message("tool", (ToolResult("hist_tool_1", parts=(Text("a.py"),)),)),
        ],
        [assistant({**CALL, "input": {}}), user(RESULT, text("go on"))],
    ),
    "an empty text is not written, nor a message of nothing": (
        [Message("user", (Text("a"), Text(""))), Message("assistant", (Text(""),)), Message("assistant", (Text("b"),))],
        [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
    ),
    "an image tells its type by its first bytes": (
        [Message("user", (Media("image", data="/9j/4AAQ"),))],
        [user({"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "/9j/4AAQ"}})],
    ),
    "an address that holds the data is data": (
        [Message("user", (Media("image", url="data:image/gif;base64,R0lG"),))],
        [user({"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "R0lG"}})],
    ),
    "a result of nothing has empty content": (
        [Message("tool", (ToolResult("hist_tool_9"),))],
        [user({"type": "tool_result", "tool_use_id": "toolu_9", "content": ""})],
    ),
}


@pytest.mark.parametrize(("messages", "expected"), FRESH.values(), ids=FRESH.keys())
def test_messages_of_others_are_written_as_messages_has_them(messages: list[Message], expected: list[Json]) -> None:
    assert render_message_list(messages)[0] == expected


def test_a_later_system_prompt_of_others_becomes_text_of_the_user_and_is_told() -> None:
    messages = [Message("user", (Text("hi"),)), Message("system", (Text("Be brief."),))]
    written, changes = render_message_list(messages)
    assert written == [user(text("hi"), text("<system>\nBe brief.\n</system>"))]
    assert [(change.rule, change.place) for change in changes] == [("cannot_say", "messages[1]")]
    assert render_messages(messages)[1] == {"role": "system", "content": "Be brief."}


def test_identifiers_of_others_are_spelled_legally_for_a_client_and_stay_apart() -> None:
    calls = [ToolCall(f"hist_tool_{n}", "ls", "{}", wire_id) for n, wire_id in enumerate(("a.b", "a:b", "toolu_a-b"))]
    results = [ToolResult(call.id, wire_id=call.wire_id) for call in calls]
    ai, answered = render_messages([Message("assistant", tuple(calls)), Message("tool", tuple(results))])
    written = [block["id"] for block in ai["content"]]
    assert written == ["toolu_a-b__2", "toolu_a-b__3", "toolu_a-b"]
    assert [block["tool_use_id"] for block in answered["content"]] == written
    # For a host, whoever prepares the request has decided.
    assert render_message_list([Message("assistant", tuple(calls))])[0][0]["content"][0]["id"] == "a.b"


def test_details_that_only_repeat_the_signature_are_no_loss() -> None:
    detail = {"type": "reasoning.text", "signature": "EqoB"}
    written, changes = render_message_list([Message("assistant", (Reasoning("Hm.", "EqoB", (detail,)),))])
    assert (written[0]["content"][0]["signature"], changes) == ("EqoB", [])


def test_arguments_that_are_no_object_are_told() -> None:
    written, changes = render_message_list([Message("assistant", (ToolCall("hist_tool_1", "ls", '{"a": ', None),))])
    assert written == [assistant({**CALL, "input": {}})]
    assert [change.rule for change in changes] == ["cannot_say"]


def test_a_sound_is_refused() -> None:
    with pytest.raises(CannotExpress) as caught:
        render_messages([Message("user", (Media("audio", data="YQ=="),))])
    assert caught.value.field == "messages[0]"


REFUSED: Final[dict[str, tuple[Any, str]]] = {
    "not a list": ({}, "messages"),
    "an invalid message": (["hi"], "messages[0]"),
    "an unknown role": ([{"role": "tool", "content": "x"}], "messages[0].role"),
    "no content": ([user(text("hi")), {"role": "user"}], "messages[1].content"),
    "an invalid block": ([{"role": "user", "content": ["hi"]}], "messages[0].content[0]"),
    "a text without text": ([user(text("hi"), {"type": "text"})], "messages[0].content[1].text"),
    "a call without a name": ([assistant({"type": "tool_use", "id": "x"})], "messages[0].content[0].name"),
    "a call of the user": ([user(CALL)], "messages[0].content[0]"),
    "a result of the assistant": ([assistant(RESULT)], "messages[0].content[0]"),
    "an image without a source": ([user({"type": "image"})], "messages[0].content[0].source"),
    "bad content in a result": (
        [user({**RESULT, "content": [text("a"), {"type": "text", "text": 1}]})],
        "messages[0].content[0].content[1].text",
    ),
}


@pytest.mark.parametrize(("messages", "field"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_understood_is_refused_by_its_place(messages: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_messages(messages)
    assert caught.value.field == field
