"""Each rule for requests in Anthropic's format has a request that it refuses, and one that it takes."""

from __future__ import annotations

from typing import Any

import pytest

from moonshim.simulator.rules.request_rules import check_messages

Json = dict[str, Any]
TEXT = {"type": "text", "text": "Hi"}
THOUGHT = {"type": "thinking", "thinking": ""}
USER = {"role": "user", "content": "Hi"}
TOOL = {"name": "ls", "input_schema": {"type": "object"}}


def use(id: str = "t1", input: Any = None) -> Json:
    return {"type": "tool_use", "id": id, "name": "ls", "input": {} if input is None else input}


def asked(*blocks: Json) -> Json:
    return {"role": "assistant", "content": [*blocks]}


def answered(*blocks: Json) -> Json:
    return {"role": "user", "content": [*blocks]}


def result(id: str = "t1", content: Any = "x") -> Json:
    return {"type": "tool_result", "tool_use_id": id, "content": content}


def ask(*messages: Json, **more: Any) -> Json:
    return {"model": "kimi", "max_tokens": 1000, "messages": [*(messages or (USER,))], **more}


UNANSWERED = (
    "an assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
    "The following tool_call_ids did not have response messages: t1"
)
MISSING = "thinking is enabled but reasoning_content is missing in assistant tool call message at index "


@pytest.mark.parametrize(
    ("body", "generation", "text"),
    [
        (ask(max_tokens=None), "k3", "max_tokens: Field required"),
        (ask(temperature=0.5), "k3", "invalid temperature: only 1 is allowed for this model"),
        (ask(stop_sequences=["a"] * 6), "k3", "invalid stop: at most 5 sequences are allowed"),
        (ask(thinking={"type": "adaptive"}), "k2.6", "invalid thinking: type must be enabled or disabled"),
        (ask(thinking={"type": "disabled"}), "k2.7", "invalid thinking: only type=enabled is allowed for this model"),
        (
            ask(output_config={"effort": "xhigh"}),
            "k3",
            "invalid reasoning_effort: 'xhigh' is not one of low, high, max",
        ),
        (
            ask(tools=[{"type": "function", "function": {}}]),
            "k3",
            "tools.0 is in OpenAI's format, which this endpoint ignores",
        ),
        (
            ask(tools=[{"type": "web_search_20250305", "name": "w"}]),
            "k3",
            "tools.0.type 'web_search_20250305' is not supported",
        ),
        (ask(tools=[{"name": "ls"}]), "k3", "tools.0.input_schema is missing"),
        (ask(tools=[TOOL, TOOL]), "k3", "function name ls is duplicated"),
        (
            ask(tools=[TOOL], tool_choice={"type": "any"}),
            "k2.5",
            "tool_choice 'required' is incompatible with thinking enabled",
        ),
        (
            ask(tools=[TOOL], tool_choice={"type": "tool", "name": "ls"}),
            "k2.6",
            "tool_choice 'specified' is incompatible with thinking enabled",
        ),
        (
            ask(USER, {"role": "system", "content": "x"}),
            "k3",
            "messages: role 'system' is not allowed, it is user or assistant",
        ),
        (ask(asked(TEXT)), "k3", "messages: the first message must have role user"),
        (ask(USER, USER), "k3", "messages.1: roles must alternate between user and assistant"),
        (ask(answered()), "k3", "the message at position 0 with role 'user' must not be empty"),
        (ask(answered({"type": "text", "text": ""})), "k3", "text content is empty"),
        (ask(system=[{"type": "text", "text": ""}]), "k3", "text content is empty"),
        (ask(answered({"type": "tool_reference", "tool_name": "x"})), "k3", "Invalid request Error"),
        (
            ask(USER, asked(use()), answered(result(content=[{"type": "tool_reference"}]))),
            "k3",
            "Invalid request Error",
        ),
        (ask(answered(THOUGHT)), "k3", "messages.0.content.0: type 'thinking' is not allowed with role user"),
        (
            ask(USER, asked(THOUGHT, use("ls:0")), answered(result("ls:0"))),
            "k3",
            "messages.1.content.1.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
        ),
        (
            ask(USER, asked(use(input=[])), answered(result())),
            "k3",
            "tool_calls[].function.arguments for function 'ls' must decode to a JSON object, got list",
        ),
        (ask(USER, asked(use())), "k3", UNANSWERED),
        (ask(USER, asked(use()), answered(TEXT)), "k3", UNANSWERED),
        (ask(USER, asked(use()), answered(TEXT, result())), "k3", "messages.2: tool_result blocks must come first"),
        (ask(USER, asked(use()), answered(result(), result("t2"))), "k3", "tool_call_id t2 is not found"),
        (
            ask(USER, asked(THOUGHT, use()), answered(result()), asked(THOUGHT, use()), answered(result())),
            "k2.5",
            "Invalid request: tool call id t1 is duplicated",
        ),
        (ask(USER, asked(use()), answered(result())), "k2.5", MISSING + "1"),
        (ask(USER, asked(TEXT, THOUGHT, use()), answered(result()), system="s"), "k2.7", MISSING + "2"),
        (
            ask(USER, asked({**THOUGHT, "signature": "a+b"}, TEXT)),
            "k3",
            "messages.1.content.0.signature: malformed encrypted reasoning content: invalid base64url encoding",
        ),
        (
            ask(USER, asked({**THOUGHT, "signature": "moonshim-x"}, TEXT)),
            "k3",
            "signature is one of Moonshim's own and must not leave",
        ),
    ],
)
def test_refuses(body: Json, generation: str, text: str) -> None:
    assert check_messages(body, generation=generation, host="moonshot-anthropic") == [text]


@pytest.mark.parametrize(
    ("body", "generation", "host"),
    [
        (ask(), "k2.5", "moonshot-anthropic"),
        (ask(system=[TEXT], tools=[TOOL], tool_choice={"type": "auto"}), "k2.5", "moonshot-anthropic"),
        (ask(tools=[TOOL], tool_choice={"type": "any"}), "k3", "moonshot-anthropic"),
        (ask(tools=[TOOL], tool_choice={"type": "any"}, thinking={"type": "disabled"}), "k2.5", "moonshot-anthropic"),
        (ask(thinking={"type": "enabled", "budget_tokens": 500}), "k2.7", "moonshot-anthropic"),
        (ask(output_config={"effort": "max"}), "k3.1", "kimi-coding"),
        (ask(USER, asked(THOUGHT, TEXT, use()), answered(result(), TEXT)), "k2.6", "moonshot-anthropic"),
        (
            ask(USER, asked({**THOUGHT, "signature": "Ab-_9=="}, use()), answered(result(content=[TEXT]))),
            "k3",
            "kimi-coding",
        ),
        (ask(USER, asked({**THOUGHT, "signature": "a+b"}, TEXT)), "k2.6", "generic"),
        (ask(USER, asked(use()), answered(result())), "k3", "moonshot-anthropic"),
        (ask(USER, asked(use()), answered(result()), asked(use()), answered(result())), "k3", "moonshot-anthropic"),
        (ask(USER, asked(use()), answered(result()), thinking={"type": "disabled"}), "k2.5", "moonshot-anthropic"),
    ],
)
def test_takes(body: Json, generation: str, host: str) -> None:
    assert check_messages(body, generation=generation, host=host) == []


def test_kimi_code_needs_the_thinking_of_k3_too() -> None:
    body = ask(USER, asked(use()), answered(result()))
    assert check_messages(body, generation="k3", host="kimi-coding") == [MISSING + "1"]
