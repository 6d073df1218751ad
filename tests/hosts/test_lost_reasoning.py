"""The reasoning of former turns: under the name that the host reads, asked for when it is lost, never made up."""

from __future__ import annotations

from typing import Any

import pytest

from moonshim.conversation import Message, Reasoning, Request, Text, ToolCall, ToolResult
from tests.hosts.chats import Json, ai, body, call, made, rules, sent_messages, tool, user

NAMES = ("reasoning_content", "reasoning", "reasoning_details")
DETAILS = [{"index": 0, "type": "summary", "summary": "s"}, {"index": 1, "type": "encrypted", "encrypted": "e"}]
ROUTED = [{"type": "reasoning.text", "text": "hm", "index": 0, "format": "x"}]


def reasoned(came: Json, *calls: Json, **where: Any) -> Json:
    """What is sent of the reasoning of a message with a call."""
    message = sent_messages(user(), ai(call(), **came), tool(), **where)[1]
    return {name: message[name] for name in NAMES if name in message}


FIELDS: dict[str, tuple[Json, dict[str, Any], Json]] = {
    "as the host wants it": ({"reasoning_content": "hm"}, {"host": "moonshot"}, {"reasoning_content": "hm"}),
    "from the other name": ({"reasoning": "hm"}, {"host": "moonshot"}, {"reasoning_content": "hm"}),
    "from both names": (
        {"reasoning": "hm", "reasoning_content": "hm"},
        {"host": "moonshot"},
        {"reasoning_content": "hm"},
    ),
    "for vLLM": ({"reasoning_content": "hm"}, {"host": "vllm"}, {"reasoning": "hm"}),
    "from details": ({"reasoning_details": ROUTED}, {"host": "moonshot"}, {"reasoning_content": "hm"}),
    "OpenRouter's own": (
        {"reasoning": "hm", "reasoning_details": ROUTED},
        {"host": "openrouter"},
        {"reasoning": "hm", "reasoning_details": ROUTED},
    ),
    "OpenRouter's details alone": (
        {"reasoning_details": ROUTED},
        {"host": "openrouter"},
        {"reasoning_details": ROUTED},
    ),
    "plain text for OpenRouter": ({"reasoning_content": "hm"}, {"host": "openrouter"}, {"reasoning": "hm"}),
    "an echo": ({"reasoning": "hm"}, {"host": "generic", "model": "gpt-5"}, {"reasoning": "hm"}),
    "Kimi's details, without the index of the stream": (
        {"reasoning_details": DETAILS},
        {"host": "kimi-coding", "model": "k3"},
        {"reasoning_details": [{"type": "summary", "summary": "s"}, {"type": "encrypted", "encrypted": "e"}]},
    ),
    "OpenRouter's details for Kimi, without it too": (
        {"reasoning_details": ROUTED},
        {"host": "kimi-coding", "model": "k3"},
        {"reasoning_details": [{"type": "reasoning.text", "text": "hm", "format": "x"}]},
    ),
    "OpenRouter's details at a host that nobody knows": (
        {"reasoning_details": ROUTED},
        {"host": "generic", "model": "gpt-5"},
        {"reasoning_details": ROUTED},
    ),
    "a token of ours in the details": (
        {"reasoning_details": [{"type": "encrypted", "encrypted": "moonshim1.a.b.c"}]},
        {"host": "kimi-coding", "model": "k3"},
        {"reasoning_content": ""},
    ),
    "lost, where an empty text will do": ({}, {"host": "moonshot"}, {"reasoning_content": ""}),
    "lost, where it takes a blank": ({}, {"host": "openrouter"}, {"reasoning": " "}),
    "empty, where it takes a blank": ({"reasoning": ""}, {"host": "openrouter"}, {"reasoning": " "}),
    "lost, where nobody minds": ({}, {"host": "vllm"}, {}),
    "null": ({"reasoning_content": None}, {"host": "moonshot"}, {"reasoning_content": ""}),
    "a model that takes none": ({"reasoning_content": "hm"}, {"host": "vllm", "model": "kimi-k2-0905"}, {}),
}


@pytest.mark.parametrize(("came", "where", "expected"), FIELDS.values(), ids=FIELDS.keys())
def test_reasoning_is_sent_as_the_host_reads_it(came: Json, where: dict[str, Any], expected: Json) -> None:
    assert reasoned(came, **where) == expected


def test_what_is_remembered_comes_back_under_the_name_that_the_host_reads() -> None:
    asked: list[Message] = []

    def recall(message: Message) -> Reasoning | None:
        asked.append(message)
        return Reasoning("I thought", field="reasoning_content")

    given = body(user(), ai(call("c1", "my.ls")), tool(), ai(content="done"), user())
    found = made(given, "vllm", recall=recall)
    assert found.request.messages[1].parts[0] == Reasoning("I thought", field="reasoning")
    assert "reasoning_recalled" in rules(found.changes)
    # It is asked once, about the message with calls, under the names that the client knows.
    assert [part for message in asked for part in message.parts] == [ToolCall("hist_tool_c1", "my.ls", "{}", "c1")]


def test_a_memory_without_an_answer_leaves_the_mildest_thing() -> None:
    request = made(body(user(), ai(call()), tool()), recall=lambda message: None).request
    assert request.messages[1].parts[0] == Reasoning("")


def test_a_model_that_reads_only_the_reasoning_of_calls_gets_no_other() -> None:
    given = body(user(), ai(content="a", reasoning_content="x"), user(), ai(content="b", reasoning_content="y"), user())
    changes = made(given, model="kimi-k2.5").changes
    assert [change.detail for change in changes if change.rule == "reasoning_dropped"] == [
        "the model reads no reasoning of messages without calls: not sent (2 messages)"
    ]
    assert "reasoning_content" not in sent_messages(*given["messages"], model="kimi-k2.5")[1]
    assert sent_messages(*given["messages"])[1]["reasoning_content"] == "x"


def blocks(*parts: Any) -> Request:
    return Request(
        model="kimi-k2.6",
        messages=(
            Message("human", (Text("hi"),)),
            Message("ai", parts),
            Message("tool", (ToolResult("hist_tool_a", "ls", (Text("x"),), wire_id="a"),)),
        ),
    )


CALL = ToolCall("hist_tool_a", "ls", "{}", "a")


def test_pieces_are_one_text_in_chat_and_stay_apart_in_messages() -> None:
    request = blocks(Reasoning("one", "s1"), Text("so"), Reasoning("two", "s2"), CALL)
    assert made(request).request.messages[1].parts == (Reasoning("one\ntwo"), Text("so"), CALL)
    assert made(request, "moonshot-anthropic").request.messages == request.messages


def test_in_messages_thinking_comes_first_and_no_token_of_ours_leaves() -> None:
    made_parts = made(blocks(Text("so"), Reasoning("two", "moonshim1.a.b.c"), CALL), "moonshot-anthropic").request
    assert made_parts.messages[1].parts == (Reasoning("two"), Text("so"), CALL)
    assert made(blocks(Text("so"), CALL), "moonshot-anthropic").request.messages[1].parts[0] == Reasoning("")


def test_a_signature_of_another_form_is_not_sent_to_a_host_that_checks_it() -> None:
    request = blocks(Reasoning("one", "ErUB+/x=="), Reasoning("two", "Ab-_9=="), CALL)
    found = made(request, "moonshot-anthropic")
    assert found.request.messages[1].parts == (Reasoning("one"), Reasoning("two", "Ab-_9=="), CALL)
    assert rules(found.changes) == ["reasoning_signature", "max_tokens"]
    assert made(request, "generic", upstream="anthropic").request.messages == request.messages


def test_what_the_host_does_not_take_is_as_good_as_lost() -> None:
    redacted = blocks(Reasoning("", details=({"type": "redacted_thinking", "data": "x"},)), CALL)
    found = made(redacted, "openrouter")
    assert found.request.messages[1].parts[0] == Reasoning(" ", field="reasoning")
    assert rules(found.changes) == ["reasoning_details", "reasoning_lost", "reasoning_field", "history_id"]
    known = made(redacted, "openrouter", recall=lambda message: Reasoning("hm", "sig"))
    assert known.request.messages[1].parts[0] == Reasoning("hm", field="reasoning")


def test_thoughts_that_stand_alone_belong_to_what_comes_next_or_go() -> None:
    joined = sent_messages(user(), ai(content="", reasoning_content="hm"), ai(call()), tool())
    assert [message["role"] for message in joined] == ["user", "assistant", "tool"]
    assert joined[1]["reasoning_content"] == "hm"
    alone = sent_messages(user(), ai(content="", reasoning_content="hm"), user("go"))
    assert [message["role"] for message in alone] == ["user", "user"]
