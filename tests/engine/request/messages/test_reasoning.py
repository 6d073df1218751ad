"""The reasoning of former turns: under the name that the host reads, asked for when it is lost, never made up."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from moonshim.engine.hosts.detect import profile_for
from moonshim.engine.request.adapt import AdaptedRequest
from moonshim.engine.request.messages.reasoning import restore_reasoning
from moonshim.engine.values.conversation import Message, Reasoning, Request, Text, ToolCall, ToolResult
from tests.engine.request.chats import Json, ai, body, call, made, parsed, rules, sent_messages, tool, user

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
    "an echo": ({"reasoning": "hm"}, {"host": "generic", "model": "some-model"}, {"reasoning": "hm"}),
    "a model that has no field for it": ({"reasoning": "hm"}, {"host": "generic", "model": "gpt-5"}, {}),
    "a model that has, though a part of its name says otherwise": (
        {"reasoning_content": "hm"},
        {"host": "generic", "model": "DeepSeek-R1-Distill-Llama-70B"},
        {"reasoning_content": "hm"},
    ),
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
        {"host": "generic", "model": "some-model"},
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


REMEMBERED = Reasoning("I thought", field="reasoning_content")


def remembering(
    given: Json | Request, recalled: dict[int, Reasoning], host: str = "moonshot", model: str = "kimi-k2.6", **more: Any
) -> AdaptedRequest:
    """What becomes of a request after what was lost of it has been put back."""
    profile = profile_for(host=host, model=model, upstream="openai_chat", overrides=more.get("overrides"))
    request, changes = restore_reasoning(given if isinstance(given, Request) else parsed(given), profile, recalled)
    found = made(request, host, model, **more)
    return replace(found, changes=[*changes, *found.changes])


def thoughts(found: AdaptedRequest) -> list[str]:
    messages = [message for message in found.request.messages if message.role == "assistant"]
    return ["".join(part.text for part in one.parts if isinstance(part, Reasoning)) for one in messages]


def test_what_is_remembered_comes_back_under_the_name_that_the_host_reads() -> None:
    given = body(user(), ai(call("c1", "my.ls")), tool(), ai(content="done"), user())
    found = remembering(given, {1: REMEMBERED}, "vllm")
    assert found.request.messages[1].parts[0] == Reasoning("I thought", field="reasoning")
    assert not any(isinstance(part, Reasoning) for part in found.request.messages[3].parts)
    assert "reasoning_recalled" in rules(found.changes)


@pytest.mark.parametrize("recalled", [{}, {0: REMEMBERED}, {2: REMEMBERED}, {7: REMEMBERED}, {-2: REMEMBERED}])
def test_a_memory_of_something_else_leaves_the_mildest_thing(recalled: dict[int, Reasoning]) -> None:
    found = remembering(body(user(), ai(call()), tool()), recalled)
    assert found.request.messages[1].parts[0] == Reasoning("")
    assert "reasoning_recalled" not in rules(found.changes)


def test_what_the_client_hands_back_counts_more_than_what_is_remembered() -> None:
    given = body(user(), ai(call(), reasoning_content="mine"), tool())
    found = remembering(given, {1: REMEMBERED})
    assert found.request.messages[1].parts[0] == Reasoning("mine")
    assert "reasoning_recalled" not in rules(found.changes)


@pytest.mark.parametrize("echo", ["", " ", None])
def test_an_echo_that_says_nothing_is_as_good_as_lost(echo: str | None) -> None:
    given = body(user(), ai(call(), reasoning_content=echo), tool())
    assert thoughts(remembering(given, {1: REMEMBERED})) == ["I thought"]


def test_thoughts_that_stand_alone_are_not_remembered_twice() -> None:
    given = body(user(), ai(content="", reasoning_content="hm"), ai(call()), tool())
    assert thoughts(remembering(given, {2: REMEMBERED})) == ["hm"]


WANTED: dict[str, tuple[dict[str, Any], bool, bool]] = {
    "a model that reads all": ({"model": "kimi-k2.6"}, True, True),
    "a model that reads those of calls": ({"model": "kimi-k2.5"}, True, False),
    "a model that takes none": ({"host": "vllm", "model": "kimi-k2-0905"}, False, False),
    "one that is told to read none": ({"overrides": {"keeps_reasoning": "none"}}, False, False),
}


@pytest.mark.parametrize(("where", "calling", "speaking"), WANTED.values(), ids=WANTED.keys())
def test_it_comes_back_where_the_host_reads_it_and_nowhere_else(
    where: dict[str, Any], calling: bool, speaking: bool
) -> None:
    given = body(user(), ai(call()), tool(), ai(content="done"), user())
    found = remembering(given, {1: REMEMBERED, 3: REMEMBERED}, **where)
    assert [text == "I thought" for text in thoughts(found)] == [calling, speaking]
    assert ("reasoning_recalled" in rules(found.changes)) == calling
    assert "reasoning_dropped" not in rules(found.changes)


def test_it_comes_back_to_a_call_of_2023() -> None:
    old = {"role": "assistant", "content": None, "function_call": {"name": "ls", "arguments": "{}"}}
    given = body(user(), old, {"role": "function", "name": "ls", "content": "a"})
    assert thoughts(remembering(given, {1: REMEMBERED}, model="kimi-k2.5")) == ["I thought"]


def test_a_model_that_reads_only_the_reasoning_of_calls_gets_no_other() -> None:
    given = body(user(), ai(content="a", reasoning_content="x"), user(), ai(content="b", reasoning_content="y"), user())
    changes = made(given, model="kimi-k2.5").changes
    assert [change.detail for change in changes if change.rule == "reasoning_dropped"] == [
        "reasoning dropped: the model reads it only in messages with tool calls (2 messages)"
    ]
    assert "reasoning_content" not in sent_messages(*given["messages"], model="kimi-k2.5")[1]
    assert sent_messages(*given["messages"])[1]["reasoning_content"] == "x"


def blocks(*parts: Any) -> Request:
    return Request(
        model="kimi-k2.6",
        messages=(
            Message("user", (Text("hi"),)),
            Message("assistant", parts),
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
    kept = made(request, "generic", upstream="anthropic").request.messages[1].parts
    assert kept[:2] == (Reasoning("one", "ErUB+/x=="), Reasoning("two", "Ab-_9=="))


def test_what_the_host_does_not_take_is_as_good_as_lost() -> None:
    redacted = blocks(Reasoning("", details=({"type": "redacted_thinking", "data": "x"},)), CALL)
    found = made(redacted, "openrouter")
    assert found.request.messages[1].parts[0] == Reasoning(" ", field="reasoning")
    assert rules(found.changes) == ["reasoning_details", "reasoning_lost", "reasoning_field", "history_id"]
    known = remembering(redacted, {1: Reasoning("hm", "sig")}, "openrouter")
    assert known.request.messages[1].parts[0] == Reasoning("hm", field="reasoning")


def test_thoughts_that_stand_alone_belong_to_what_comes_next_or_go() -> None:
    joined = sent_messages(user(), ai(content="", reasoning_content="hm"), ai(call()), tool())
    assert [message["role"] for message in joined] == ["user", "assistant", "tool"]
    assert joined[1]["reasoning_content"] == "hm"
    alone = sent_messages(user(), ai(content="", reasoning_content="hm"), user("go"))
    assert [message["role"] for message in alone] == ["user", "user"]
