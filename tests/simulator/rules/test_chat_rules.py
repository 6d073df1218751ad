"""Each rule for chat requests has a request that it refuses, with its text, and one that it takes."""

from __future__ import annotations

from typing import Any

import pytest

from moonshim.simulator.rules.request_rules import check_chat
from moonshim.simulator.rules.tool_rules import INVALID_NAME

Json = dict[str, Any]
K2 = ("k2", "k2-thinking", "k2.5", "k2.6", "k2.7")
ALL = (*K2, "k3", "k3.1", "other")


def tool(name: Any = "ls", parameters: Any = None) -> Json:
    function = {"name": name} if parameters is None else {"name": name, "parameters": parameters}
    return {"type": "function", "function": function}


def call(id: str = "functions.ls:0", arguments: Any = "{}", name: str = "ls") -> Json:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def asked(*ids: str, **more: Any) -> Json:
    return {"role": "assistant", "reasoning_content": "", "tool_calls": [call(id) for id in ids], **more}


def result(id: str = "functions.ls:0", **more: Any) -> Json:
    return {"role": "tool", "tool_call_id": id, "content": "", **more}


USER = {"role": "user", "content": "Hi"}


def ask(*messages: Json, **more: Any) -> Json:
    return {"model": "kimi", "messages": [*(messages or (USER,))], **more}


ROUND = ask(USER, asked("functions.ls:0"), result())


def refused(body: Json, generation: str, text: str, host: str = "moonshot") -> None:
    assert check_chat(body, generation=generation, host=host) == [text]


def taken(body: Json, generation: str, host: str = "moonshot") -> None:
    assert check_chat(body, generation=generation, host=host) == []


@pytest.mark.parametrize("generation", ALL)
@pytest.mark.parametrize("host", ["moonshot", "openrouter", "fireworks", "sglang", "generic"])
def test_a_plain_round_is_taken_everywhere(generation: str, host: str) -> None:
    taken(ROUND, generation, host)


OFF = {"thinking": {"type": "disabled"}}


@pytest.mark.parametrize(
    ("words", "generation", "text"),
    [
        ({"temperature": 0.6}, "k2.5", "invalid temperature: only 1 is allowed for this model"),
        ({"temperature": 1, **OFF}, "k2.5", "invalid temperature: only 0.6 is allowed for this model"),
        ({"temperature": 0.6}, "k3", "invalid temperature: only 1 is allowed for this model"),
        ({"top_p": 1}, "k2.6", "invalid top_p: only 0.95 is allowed for this model"),
        ({"presence_penalty": 0.1}, "k2.7", "invalid presence_penalty: only 0 is allowed for this model"),
        ({"frequency_penalty": 1}, "k3.1", "invalid frequency_penalty: only 0 is allowed for this model"),
        ({"n": 2}, "k2.5", "invalid n: only 1 is allowed for this model"),
        ({"temperature": 1.1}, "k2", "invalid temperature: only values from 0 to 1 are allowed for this model"),
        ({"temperature": 0, "n": 2}, "k2", "invalid n: only 1 is allowed when temperature is close to 0"),
        ({"max_tokens": 0}, "k2.5", "invalid max_tokens: must be an integer from 1 to 262144"),
        (
            {"max_completion_tokens": 262_145},
            "k2.5",
            "invalid max_completion_tokens: must be an integer from 1 to 262144",
        ),
        ({"stop": ["a"] * 6}, "k3", "invalid stop: at most 5 sequences are allowed"),
        ({"stop": "é" * 17}, "k3", "invalid stop: a sequence may have at most 32 bytes"),
        ({"stop": [1]}, "k3", "invalid stop: must be a string or an array of strings"),
        (OFF, "k2.7", "invalid thinking: only type=enabled is allowed for this model"),
        (OFF, "k3", "invalid thinking: only type=enabled is allowed for this model"),
        ({"thinking": {"type": "adaptive"}}, "k2.5", "invalid thinking: type must be enabled or disabled"),
        (
            {"thinking": {"type": "enabled", "keep": "all"}},
            "k2.5",
            "invalid thinking: keep is not allowed for this model",
        ),
        ({"thinking": {"type": "enabled", "keep": "some"}}, "k2.6", "invalid thinking: keep must be 'all' or null"),
        ({"reasoning_effort": "medium"}, "k3", "invalid reasoning_effort: 'medium' is not one of low, high, max"),
        (
            {"thinking": {"type": "enabled"}, "reasoning_effort": "high"},
            "k2.6",
            "cannot specify both 'thinking' and 'reasoning_effort'",
        ),
        ({"model": ""}, "k3", "model is missing"),
        (
            {"response_format": {"type": "xml"}},
            "k3",
            "invalid response_format: type must be one of text, json_object, json_schema",
        ),
    ],
)
def test_refuses_words_of_the_request(words: Json, generation: str, text: str) -> None:
    refused(ask(**words) if "model" not in words else {**ask(), **words}, generation, text)


@pytest.mark.parametrize(
    ("words", "generation", "host"),
    [
        ({"temperature": 1, "top_p": 0.95, "n": 1, "presence_penalty": 0, "frequency_penalty": 0}, "k2.5", "moonshot"),
        ({"temperature": 0.6, **OFF}, "k2.6", "moonshot"),
        ({"temperature": None, "top_p": None}, "k3", "moonshot"),
        ({"temperature": 0.3, "top_p": 1, "n": 2}, "k2", "moonshot"),
        ({"temperature": 0.3, "top_p": 0.5}, "k2.5", "vllm"),
        ({"temperature": 1.7}, "other", "moonshot"),
        ({"max_tokens": 262_144, "stop": ["x" * 32] * 5}, "k2.5", "moonshot"),
        ({"stop": ["x" * 33] * 6}, "k2.5", "vllm"),
        ({"max_completion_tokens": 1_048_576}, "k3", "moonshot"),
        ({"thinking": {"type": "enabled", "keep": "all"}}, "k2.7", "moonshot"),
        ({"thinking": {"type": "enabled"}, "reasoning_effort": "low"}, "k3", "moonshot"),
        ({"response_format": {"type": "json_object"}}, "k3", "moonshot"),
    ],
)
def test_takes_words_of_the_request(words: Json, generation: str, host: str) -> None:
    taken(ask(**words), generation, host)


NO_FLAVOUR = (
    "tools.function.parameters is not a valid moonshot flavored json schema, "
    "details: <At path 'properties.a': unsupported keywords: const>"
)
LATE = {"role": "system", "tools": [tool("late")]}


@pytest.mark.parametrize(
    ("body", "generation", "text"),
    [
        (ask(tools=[{"function": {"name": "ls"}}]), "k3", "tools.0.type None is not supported"),
        (ask(tools=[{"type": "function"}]), "k3", "tools.0.function is missing"),
        (ask(tools=[tool(None)]), "k3", "function name is missing"),
        (ask(tools=[tool("1st")]), "k3", INVALID_NAME),
        (ask(tools=[tool("a.b")]), "k2.5", INVALID_NAME),
        (ask(tools=[tool("a" * 65)]), "k2.5", INVALID_NAME),
        (ask(tools=[tool("a" * 257)]), "k3", INVALID_NAME),
        (ask(tools=[tool(), tool()]), "k3", "function name ls is duplicated"),
        (
            ask(tools=[tool("ls", {"type": "object", "properties": {"a": {"const": 1}}})]),
            "k3",
            NO_FLAVOUR,
        ),
        (
            ask(tools=[{"type": "builtin_function", "function": {"name": "web"}}]),
            "k2.5",
            "tools.0.function.name of a builtin_function must start with $",
        ),
        (ask(LATE, USER), "k2.7", "messages.0.tools is not allowed for this model"),
        (ask({**USER, "tools": []}), "k3", "messages.0.tools is only allowed with role system"),
        (ask({**LATE, "content": "New."}, USER), "k3", "messages.0.content must be empty beside tools"),
        (ask({**LATE, "tools": ["ls"]}, USER), "k3", "messages.0.tools must be an array of objects"),
        (ask(LATE, USER, tools=[tool("late")]), "k3", "function name late is duplicated"),
        (
            ask(tools=[tool()], tool_choice="required"),
            "k2.5",
            "tool_choice 'required' is incompatible with thinking enabled",
        ),
        (
            ask(tools=[tool()], tool_choice=tool()),
            "k2-thinking",
            "tool_choice 'specified' is incompatible with thinking enabled",
        ),
        (ask(tool_choice="required"), "k3", "tool_choice 'required' needs tools"),
        (ask(tool_choice="any"), "k3", "invalid tool_choice: 'any'"),
    ],
)
def test_refuses_tools_and_choices(body: Json, generation: str, text: str) -> None:
    refused(body, generation, text)


@pytest.mark.parametrize(
    ("body", "generation", "host"),
    [
        (ask(tools=[tool("a" * 64)]), "k2.5", "moonshot"),
        (ask(tools=[tool("a" * 256), tool("b_2-c")]), "k3", "moonshot"),
        (ask(tools=[tool("ls", {"type": "object", "properties": {"a": {"const": 1}}})]), "k3", "vllm"),
        (ask(tools=[{"type": "builtin_function", "function": {"name": "$web_search"}}]), "k2.5", "moonshot"),
        (ask(LATE, USER), "k3", "moonshot"),
        (ask(tools=[tool()], tool_choice="required"), "k3", "moonshot"),
        (ask(tools=[tool()], tool_choice="required", **OFF), "k2.5", "moonshot"),
        (ask(tools=[tool()], tool_choice=tool()), "k3", "moonshot"),
        (ask(tools=[tool()], tool_choice="required"), "k2.5", "vllm"),
        (ask(tool_choice="auto"), "k2.5", "moonshot"),
    ],
)
def test_takes_tools_and_choices(body: Json, generation: str, host: str) -> None:
    taken(body, generation, host)


UNANSWERED = (
    "an assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
    "The following tool_call_ids did not have response messages: "
)
MISSING = "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1"
BARE = {"role": "assistant", "tool_calls": [call("functions.ls:0")]}
DETAILS = {"role": "assistant", "content": "x", "reasoning_details": [{"index": 0, "type": "summary", "summary": "s"}]}


@pytest.mark.parametrize(
    ("body", "generation", "text"),
    [
        ({"model": "kimi", "messages": []}, "k3", "messages must not be empty"),
        (
            ask({"role": "developer", "content": "x"}),
            "k3",
            "messages must be objects with a role of system, user, assistant, tool",
        ),
        (
            ask(USER, {"role": "assistant", "content": ""}),
            "k3",
            "the message at position 1 with role 'assistant' must not be empty",
        ),
        (ask({"role": "user", "content": []}), "k3", "the message at position 0 with role 'user' must not be empty"),
        (ask(USER, asked("a", "b"), result("a")), "k3", UNANSWERED + "b"),
        (ask(USER, asked("a"), USER, result("a")), "k3", UNANSWERED + "a"),
        (ask(USER, asked("a"), result("a"), result("b")), "k3", "tool_call_id b is not found"),
        (ask(USER, asked("a"), result("a"), result("")), "k3", "tool_call_id  is not found"),
        (
            ask(USER, asked("a"), result("a"), asked("a"), result("a")),
            "k2.6",
            "Invalid request: tool call id a is duplicated",
        ),
        (
            ask(USER, asked("a"), result("a", content=None)),
            "k3",
            "the message at position 2 with role 'tool' has no content",
        ),
        (
            ask(USER, asked(tool_calls=[call("a", "null")]), result("a")),
            "k3",
            "tool_calls[].function.arguments for function 'ls' must decode to a JSON object, got NoneType",
        ),
        (
            ask(USER, asked(tool_calls=[call("a", '{"a')]), result("a")),
            "k3",
            "tool_calls[].function.arguments for function 'ls' is not valid JSON",
        ),
        (ask(USER, asked(tool_calls=[])), "k3", "messages.1.tool_calls must be a non-empty array"),
        (
            ask(USER, asked(tool_calls=[{"id": "a"}])),
            "k3",
            "messages.1.tool_calls.0 needs an id, type function and a function with a name",
        ),
        *[(ask(USER, BARE, result()), generation, MISSING) for generation in ("k2-thinking", "k2.5", "k2.6", "k2.7")],
        (ask(USER, DETAILS), "k3", "the reasoning_details at position 1 entry 0 must not contain streaming index"),
        (
            ask({**USER, "partial": True}),
            "k3",
            "messages.0.partial is only allowed on the last message with role assistant",
        ),
        (
            ask(USER, {"role": "assistant", "content": "x", "partial": True}, USER),
            "k3",
            "messages.1.partial is only allowed on the last message with role assistant",
        ),
        (
            ask(USER, {"role": "assistant", "content": "x", "reasoning_details": [{"encrypted": "moonshim.v1.abc"}]}),
            "k3",
            "encrypted is one of Moonshim's own and must not leave",
        ),
    ],
)
def test_refuses_messages(body: Json, generation: str, text: str) -> None:
    found = check_chat(body, generation=generation)
    assert found[0] == text
    # A result that stands in the wrong place is missing in the right one, and found in no other.
    assert found[1:] in ([], ["tool_call_id a is not found"])


@pytest.mark.parametrize(
    ("body", "generation", "host"),
    [
        (ask(USER, asked("a", "b"), result("b"), result("a"), USER), "k2.5", "moonshot"),
        (ask(USER, asked("a"), result("a"), asked("a"), result("a")), "k3", "moonshot"),
        (ask(USER, BARE, result()), "k3", "moonshot"),
        (ask(USER, BARE, result()), "k2", "moonshot"),
        (ask(USER, BARE, result(), **OFF), "k2.5", "moonshot"),
        (ask(USER, {**BARE, "reasoning": "So."}, result()), "k2.5", "openrouter"),
        (ask(USER, DETAILS), "k3", "openrouter"),
        (ask(USER, {"role": "assistant", "content": "x", "partial": True}), "k3", "moonshot"),
        (ask(USER, {**BARE, "reasoning": "So."}, result()), "k2.5", "vllm"),
        (ask(USER, BARE, result()), "k2.5", "vllm"),
    ],
)
def test_takes_messages(body: Json, generation: str, host: str) -> None:
    taken(body, generation, host)


GROQ = (
    "'messages.2' : for 'role:tool' the following must be satisfied"
    "[('messages.2.content' : property 'content' is missing)]"
)
UNREAD = "the message at position 1 has its reasoning in reasoning_content, and this host reads only reasoning"
EMPTY = {"type": "text", "text": ""}


@pytest.mark.parametrize(
    ("body", "generation", "host", "text"),
    [
        (ask(USER, BARE, result()), "k3", "kimi-coding", MISSING),
        (ask(USER, asked("a", content=""), result("a")), "k3", "kimi-coding", "text content is empty"),
        (
            ask({"role": "user", "content": [EMPTY, {"type": "text", "text": "x"}]}),
            "k3",
            "kimi-coding",
            "text content is empty",
        ),
        (ask(USER, asked("functions.ls:0"), result()), "k2.5", "vllm", UNREAD),
        (
            ask(USER, asked("functions.ls:0"), {"role": "tool", "tool_call_id": "functions.ls:0"}),
            "k2",
            "groq",
            GROQ,
        ),
        *[
            (
                ask(USER, asked("call_1"), result("call_1")),
                generation,
                host,
                "the model reads ids as they are on this host: call_1 has to be functions.ls:0",
            )
            for generation in K2
            for host in ("sglang", "siliconflow", "nim")
        ],
        (
            ask(USER, asked("functions.ls:0"), result(), asked("functions.ls:0"), result()),
            "k2",
            "together",
            "the model reads ids as they are on this host: functions.ls:0 has to be functions.ls:1",
        ),
    ],
)
def test_hosts_refuse_what_others_take(body: Json, generation: str, host: str, text: str) -> None:
    refused(body, generation, text, host)
    if generation != "k2":
        taken(body, generation, "moonshot")


def test_faults_come_in_the_order_of_the_checks() -> None:
    body = ask(
        USER,
        BARE,
        temperature=0,
        thinking={"type": "enabled", "keep": "all"},
        tools=[tool("?")],
        tool_choice="required",
    )
    assert [text.split(" ")[0] for text in check_chat(body, generation="k2.5")] == [
        "invalid", "invalid", "function", "tool_choice", "an", "thinking",
    ]  # fmt: skip


@pytest.mark.parametrize("names", [("k4", "moonshot"), ("k3", "nobody")])
def test_unknown_generations_and_hosts_are_an_error(names: tuple[str, str]) -> None:
    with pytest.raises(KeyError):
        check_chat(ask(), generation=names[0], host=names[1])
