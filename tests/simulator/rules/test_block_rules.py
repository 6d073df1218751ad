"""Requests in Anthropic's format: what Kimi's two endpoints for it take."""

from __future__ import annotations

from typing import Any

import pytest

from moonshim.simulator.rules import check_messages
from moonshim.simulator.rules.tool_rules import INVALID_NAME
from tests.simulator.rules.requests import ALL, K2, K3, OFF, THINKING, USER, Case, Json, verdict
from tests.simulator.rules.requests import tool as chat_tool
from tests.support.looped import looped

HOSTS = ("moonshot-anthropic", "kimi-coding")
TEXT = {"type": "text", "text": "Hi"}
THOUGHT = {"type": "thinking", "thinking": ""}
TOOL = {"name": "ls", "input_schema": {"type": "object"}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}


def ask(*messages: Json, **more: Any) -> Json:
    return {"model": "kimi", "max_tokens": 1000, "messages": [*(messages or (USER,))], **more}


def use(id: str = "t1", input: Any = None) -> Json:
    return {"type": "tool_use", "id": id, "name": "ls", "input": {} if input is None else input}


def reply(*blocks: Json) -> Json:
    return {"role": "assistant", "content": [*blocks]}


def asked(*ids: str) -> Json:
    return reply(THOUGHT, *map(use, ids))


def gave(*blocks: Json) -> Json:
    return {"role": "user", "content": [*blocks]}


def result(id: str = "t1", content: Any = "x", **more: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **more}


def unanswered(*ids: str) -> str:
    return (
        "an assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        f"The following tool_call_ids did not have response messages: {', '.join(ids)}"
    )


def missing(index: int) -> str:
    return f"thinking is enabled but reasoning_content is missing in assistant tool call message at index {index}"


WORDS = [
    Case(ask(), ALL),
    Case(ask(system="Be brief.", metadata={"user_id": "u"}, top_k=5, context_management={}), ALL),
    Case(ask(max_tokens=None), ALL, "max_tokens: Field required"),
    Case(ask(max_tokens="many"), K3, "invalid max_tokens: must be an integer from 1 to 1048576"),
    Case(ask(stop_sequences=["a"] * 6), ALL, "invalid stop: expected an array with maximum length 5, got 6"),
    Case(ask(thinking={"type": "enabled", "budget_tokens": 500}), ALL),
    Case(ask(**OFF), ("k2", "k2.5", "k2.6", *K3)),
    Case(ask(**OFF), ("k2.7",), "invalid thinking: only type=enabled is allowed for this model"),
    Case(ask(thinking={"type": "adaptive"}), THINKING, "invalid thinking: type must be enabled or disabled"),
    *[Case(ask(output_config={"effort": word}), ALL) for word in ("low", "high", "max")],
    Case(ask(output_config="max"), ALL),
    Case(ask(system=[TEXT]), ALL),
    Case(ask(system=5), ALL, "Invalid request: system must be a string or an array of text blocks"),
    Case(ask(system=[IMAGE]), ALL, "Invalid request: system must be a string or an array of text blocks"),
    Case(ask(system=[{"type": "text", "text": ""}]), ALL, "text content is empty"),
]
TOOLS = [
    Case(ask(tools=[TOOL]), ALL),
    Case(ask(tools=[{**TOOL, "type": "custom", "cache_control": {}, "defer_loading": True}]), ALL),
    Case(ask(tools=[chat_tool()]), ALL),  # passed over
    Case(
        ask(tools=[{"type": "web_search_20250305", "name": "w"}]),
        ALL,
        "Invalid request: tools.0.type 'web_search_20250305' is not supported",
    ),
    Case(ask(tools=[{"name": "ls"}]), ALL, "Invalid request: tools.0.input_schema is missing"),
    Case(ask(tools=[{**TOOL, "name": None}]), ALL, "Invalid request: function name is missing"),
    Case(ask(tools=[{**TOOL, "name": "a.b"}]), ALL, INVALID_NAME),
    Case(ask(tools=[TOOL, TOOL]), ALL, "function name ls is duplicated"),
    Case(
        ask(tools=[{**TOOL, "input_schema": {"$schema": "x"}}]),
        ALL,
        "tools.function.parameters is not a valid moonshot flavored json schema, "
        "details: <At path 'root': unsupported keywords: $schema>",
    ),
    Case(ask(tools=[TOOL], tool_choice={"type": "auto", "disable_parallel_tool_use": True}), ALL),
    Case(ask(tool_choice={"type": "none"}), ALL),
    Case(
        ask(tools=[TOOL], tool_choice={"type": "any"}),
        THINKING,
        "tool_choice 'required' is incompatible with thinking enabled",
    ),
    Case(
        ask(tools=[TOOL], tool_choice={"type": "tool", "name": "ls"}),
        THINKING,
        "tool_choice 'specified' is incompatible with thinking enabled",
    ),
    Case(ask(tools=[TOOL], tool_choice={"type": "any"}, **OFF), ("k2.5", "k2.6")),
    Case(ask(tools=[TOOL], tool_choice={"type": "any"}), K3),
    Case(ask(tools=[TOOL], tool_choice={"type": "tool", "name": "ls"}), K3),
    Case(ask(tool_choice={"type": "any"}), K3, "Invalid request: tool_choice 'required' needs tools"),
    Case(ask(tools=[TOOL], tool_choice="auto"), ALL, "Invalid request: invalid tool_choice: 'auto'"),
    Case(ask(tools=[TOOL], tool_choice={"type": "tool"}), ALL, "Invalid request: invalid tool_choice: an object"),
]
SHAPES = [
    Case(ask(USER, reply(TEXT), gave(TEXT, IMAGE)), ALL),
    Case({"model": "kimi", "max_tokens": 1, "messages": []}, ALL, "Invalid request: messages must not be empty"),
    Case(ask("Hi"), ALL, "Invalid request: messages must be an array of objects"),  # type: ignore[arg-type]
    Case(
        ask(USER, {"role": "system", "content": "x"}),
        ALL,
        "Invalid request: messages.1.role 'system' is not user or assistant",
    ),
    Case(ask({"role": "user", "content": 1}), ALL, "Invalid request: messages.0.content must be a string or an array"),
    Case(ask(gave("Hi")), ALL, "Invalid request: messages.0.content.0 must be an object with a type"),  # type: ignore[arg-type]
    Case(
        ask(gave(THOUGHT)), ALL, "Invalid request: messages.0.content.0: type 'thinking' is not allowed with role user"
    ),
    Case(
        ask(USER, reply(IMAGE)),
        ALL,
        "Invalid request: messages.1.content.0: type 'image' is not allowed with role assistant",
    ),
    Case(ask(USER, reply({**use(), "id": None})), ALL, "Invalid request: messages.1.content.0 needs an id and a name"),
    Case(ask(gave()), ALL, "the message at position 0 with role 'user' must not be empty"),
    Case(
        ask({"role": "user", "content": ""}, system="s"),
        ALL,
        "the message at position 1 with role 'user' must not be empty",
    ),
    Case(ask(gave({"type": "text", "text": ""})), ALL, "text content is empty"),
    # What Claude Code's search for tools leaves in a history.
    Case(ask(gave({"type": "tool_reference", "tool_name": "x"})), ALL, "Invalid request Error"),
    Case(ask(USER, asked("t1"), gave(result(content=[{"type": "tool_reference"}]))), ALL, "Invalid request Error"),
]
PAIRS = [
    Case(ask(USER, asked("t1", "t2"), gave(result("t2"), result("t1"), TEXT)), ALL),
    Case(ask(USER, asked("t1"), gave(result(content=[TEXT, IMAGE], is_error=True))), ALL),
    Case(ask(USER, asked("t1"), gave(result(content=None))), ALL),
    Case(ask(USER, asked("t1")), ALL, unanswered("t1")),
    Case(ask(USER, asked("t1"), gave(TEXT)), ALL, unanswered("t1")),
    Case(ask(USER, asked("t1", "t2"), gave(result("t2"))), ALL, unanswered("t1")),
    Case(ask(USER, asked("t1"), gave(result(), result("t2"))), ALL, "tool_call_id t2 is not found"),
    Case(ask(USER, asked("t1"), gave(result(), result(""))), ALL, "tool_call_id  is not found"),
    Case(
        ask(USER, asked("t1"), gave(result()), asked("t1"), gave(result())),
        K2,
        "Invalid request: tool call id t1 is duplicated",
    ),
    Case(ask(USER, asked("t1"), gave(result()), asked("t1"), gave(result())), K3),
    Case(
        ask(USER, reply(THOUGHT, use(input=[])), gave(result())),
        ALL,
        "tool_calls[].function.arguments for function 'ls' must decode to a JSON object, got list",
    ),
]
REASONING = [
    Case(ask(USER, reply(THOUGHT, TEXT, use()), gave(result())), ALL),
    Case(ask(USER, reply({"type": "redacted_thinking", "data": "x"}, use()), gave(result())), ALL),
    Case(ask(USER, reply(use()), gave(result())), THINKING, missing(1)),
    Case(ask(USER, reply(use()), gave(result()), system="s"), THINKING, missing(2)),
    Case(ask(USER, reply(TEXT, THOUGHT, use()), gave(result())), THINKING, missing(1)),
    Case(ask(USER, reply(use()), gave(result()), **OFF), ("k2.5", "k2.6")),
    Case(ask(USER, reply(TEXT), USER), ALL),
    *[Case(ask(USER, reply({**THOUGHT, "signature": seal}, TEXT)), ALL) for seal in ("", "Ab-_9==", None)],
    *[
        Case(
            ask(USER, reply({**THOUGHT, "signature": seal}, TEXT)),
            ALL,
            "messages.1.content.0.signature: malformed encrypted reasoning content: invalid base64url encoding",
        )
        for seal in ("a+b", "a b", 7)
    ],
]


@looped("host", HOSTS)
@pytest.mark.parametrize("case", [*WORDS, *TOOLS, *SHAPES, *PAIRS, *REASONING])
def test_takes_or_refuses(case: Case, host: str) -> None:
    for generation in case.generations:
        assert verdict(Case(case.body, (), host=host), generation, "anthropic") == case.says, generation


ROUND = ask(USER, reply(use()), gave(result()))
ONE = [
    Case(ROUND, K3, None, "moonshot-anthropic"),
    Case(ROUND, K3, missing(1), "moonshot-anthropic", frozenset({"k3-needs-reasoning"})),
    Case(ROUND, K3, missing(1), "kimi-coding"),
    Case(ask(temperature=0.5), K3, "invalid temperature: only 1 is allowed for this model", "moonshot-anthropic"),
    Case(ask(temperature=0.5), K3, None, "kimi-coding"),
    Case(ask(output_config={"effort": "off"}), K3, None, "moonshot-anthropic"),
    Case(
        ask(output_config={"effort": "off"}),
        K3,
        "invalid output_config.effort: 'off' is not one of low, high, max",
        "kimi-coding",
    ),
    Case(ask(output_config={"effort": "xhigh"}), K3, None, "kimi-coding"),
    Case(
        ask(thinking={"type": "adaptive"}, output_config={"effort": "loud"}, tools=[{**TOOL, "name": "a.b"}]),
        ALL,
        None,
        "vllm",
    ),
]


@pytest.mark.parametrize("case", ONE)
def test_the_endpoints_differ(case: Case) -> None:
    for generation in case.generations:
        assert verdict(case, generation, "anthropic") == case.says, generation


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (ask(reply(TEXT)), "messages: the first message must have role user"),
        (ask(USER, USER), "messages.1: roles must alternate between user and assistant"),
        (ask(USER, asked("t1"), gave(TEXT, result())), "messages.2: tool_result blocks must come first"),
        (
            ask(USER, asked("ls:0"), gave(result("ls:0"))),
            "messages.1.content.1.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
        ),
        (ask(tools=[chat_tool()]), "tools.0 is in OpenAI's format, which this endpoint ignores"),
        (
            ask(USER, reply({**THOUGHT, "signature": "moonshim-x"}, TEXT)),
            "signature is a token signed by Moonshim, which must not be sent to a host",
        ),
        (ask(output_config={"effort": "xhigh"}), "invalid output_config.effort: 'xhigh' is not one of low, high, max"),
    ],
)
def test_kimi_takes_it_but_the_engine_may_not_send_it(body: Json, text: str) -> None:
    assert verdict(Case(body, (), host="moonshot-anthropic"), "k3", "anthropic") is None
    assert check_messages(body, generation="k3") == [text]
