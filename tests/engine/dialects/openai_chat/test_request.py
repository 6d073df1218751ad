"""Chat requests: parsed and rendered they are what they were, and what cannot be understood is named."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.engine.dialects.openai_chat.request import parse_request, render_request
from moonshim.engine.signing import Signer
from moonshim.engine.values.conversation import Request, ResponseFormat, Sampling, Thinking, ToolChoice
from moonshim.errors import InvalidInput

SEALER = Signer(b"test")
HELLO: dict[str, Any] = {"role": "user", "content": "hi"}
LS: dict[str, Any] = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}, "x": 1}, "y": 2}


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "kimi-k2.5", "messages": [HELLO], **fields}


def parsed(**fields: Any) -> Request:
    return parse_request(body(**fields), SEALER)[0]


UNCHANGED: dict[str, dict[str, Any]] = {
    "nothing but a message": {},
    "sampling": {"temperature": 0.5, "top_p": 1, "top_k": 5, "n": 2, "seed": 7, "presence_penalty": 0},
    "both limits of tokens": {"max_tokens": 5, "max_completion_tokens": 10},
    "one stop sequence as a string": {"stop": "END"},
    "stop sequences": {"stop": ["a", "b"]},
    "a stop that is null": {"stop": None, "temperature": None, "tools": None},
    "tools with fields of their own": {"tools": [LS], "tool_choice": "auto"},
    "no tools, said so": {"tools": []},
    "a custom tool": {"tools": [{"type": "custom", "custom": {"name": "py", "format": {"type": "text"}}}]},
    "a tool of the host": {"tools": [{"type": "builtin_function", "function": {"name": "$web_search"}}]},
    "a tool that nobody knows": {"tools": [{"type": "mystery", "mystery": {"name": "m"}}]},
    "a named choice": {"tools": [LS], "tool_choice": {"type": "function", "function": {"name": "ls"}}},
    "allowed tools": {
        "tools": [LS],
        "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [LS]}},
    },
    "thinking as Kimi says it": {"thinking": {"type": "enabled", "keep": "all", "unknown": 1}},
    "thinking in three ways": {
        "thinking": {"type": "disabled"},
        "reasoning_effort": "high",
        "chat_template_kwargs": {"thinking": False, "other": 1},
    },
    "thinking as OpenRouter says it": {"reasoning": {"effort": "low", "exclude": True}},
    "a schema for the answer": {
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {}, "strict": True, "z": 1}}
    },
    "usage of a stream": {"stream": True, "stream_options": {"include_usage": True, "x": 1}},
    "users": {"user": "u", "safety_identifier": "s", "metadata": {"a": "b"}, "prompt_cache_key": "k"},
    "fields that nobody knows": {"frobnicate": {"a": [1]}, "functions": [], "logit_bias": {"1": 2}},
}


@pytest.mark.parametrize("fields", UNCHANGED.values(), ids=UNCHANGED.keys())
def test_a_request_comes_back_as_it_was(fields: dict[str, Any]) -> None:
    came = body(**fields)
    before = copy.deepcopy(came)
    request, changes = parse_request(came, SEALER)
    rendered, unsaid = render_request(request)
    assert rendered == before
    assert came == before
    assert (changes, unsaid) == ([], [])


READ: dict[str, tuple[dict[str, Any], str, Any]] = {
    "the newer limit wins": ({"max_tokens": 5, "max_completion_tokens": 10}, "sampling", Sampling(max_tokens=10)),
    "one stop": ({"stop": "END"}, "sampling", Sampling(stop=("END",))),
    "a named tool": (
        {"tool_choice": {"type": "function", "function": {"name": "ls"}}},
        "tool_choice",
        ToolChoice("tool", "ls"),
    ),
    "allowed tools": (
        {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [LS]}}},
        "tool_choice",
        ToolChoice("required", allowed=("ls",)),
    ),
    "no thinking by effort": ({"reasoning_effort": "none"}, "thinking", Thinking(enabled=False)),
    "thinking by template": (
        {"chat_template_kwargs": {"thinking": True, "preserve_thinking": True}},
        "thinking",
        Thinking(enabled=True, keep="all"),
    ),
    "thinking with effort and keep": (
        {"thinking": {"type": "enabled", "effort": "low", "keep": "all"}},
        "thinking",
        Thinking(enabled=True, effort="low", keep="all"),
    ),
    "OpenRouter's reasoning": ({"reasoning": {"max_tokens": 9}}, "thinking", Thinking(budget=9)),
    "json": ({"response_format": {"type": "json_object"}}, "response_format", ResponseFormat("json_object")),
    "usage": ({"stream_options": {"include_usage": True}}, "include_usage", True),
}


@pytest.mark.parametrize(("fields", "name", "value"), READ.values(), ids=READ.keys())
def test_what_a_field_means(fields: dict[str, Any], name: str, value: Any) -> None:
    assert getattr(parsed(**fields), name) == value


def test_a_custom_tool_is_a_function_of_one_text_that_knows_its_grammar() -> None:
    grammar = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: X"}}
    (tool,) = (
        parsed(tools=[{"type": "custom", "custom": {"name": "patch", "description": "d", "format": grammar}}]).tools
        or ()
    )
    assert tool.kind == "custom"
    assert tool.description == "d\n\nThe input must follow this lark grammar:\nstart: X"
    assert (tool.parameters or {})["required"] == ["input"]


REFUSED: dict[str, tuple[Any, str | None]] = {
    "no object": ([], None),
    "no model": ({"messages": [HELLO]}, "model"),
    "no messages": ({"model": "m"}, "messages"),
    "an empty list of messages": ({"model": "m", "messages": []}, "messages"),
    "a message that is a string": ({"model": "m", "messages": [HELLO, "hi"]}, "messages[1]"),
    "a message without a role": ({"model": "m", "messages": [{"content": "x"}]}, "messages[0].role"),
    "content that is a number": (body(messages=[{"role": "user", "content": 5}]), "messages[0].content"),
    "a part that is a number": (body(messages=[{"role": "user", "content": [5]}]), "messages[0].content[0]"),
    "calls that are no list": (body(messages=[{"role": "assistant", "tool_calls": {}}]), "messages[0].tool_calls"),
    "a call that is no object": (
        body(messages=[HELLO, {"role": "assistant", "tool_calls": [1]}]),
        "messages[1].tool_calls[0]",
    ),
    "a temperature in words": (body(temperature="hot"), "temperature"),
    "a temperature that is a switch": (body(temperature=True), "temperature"),
    "half a token": (body(max_tokens=1.5), "max_tokens"),
    "a stop that is a number": (body(stop=[1]), "stop[0]"),
    "a choice that nobody knows": (body(tool_choice="maybe"), "tool_choice"),
    "a choice without a name": (body(tool_choice={"type": "function"}), "tool_choice"),
    "tools that are no list": (body(tools={"ls": 1}), "tools"),
    "a tool that is a string": (body(tools=["ls"]), "tools[0]"),
    "a tool without a name": (body(tools=[{"type": "function", "function": {}}]), "tools[0].function.name"),
    "a tool without a function": (body(tools=[LS, {"type": "function"}]), "tools[1].function"),
    "a schema that is a list": (
        body(tools=[{"type": "function", "function": {"name": "a", "parameters": []}}]),
        "tools[0].function.parameters",
    ),
    "thinking in words": (body(thinking="a lot"), "thinking"),
    "a format that nobody knows": (body(response_format={"type": "yaml"}), "response_format.type"),
}


@pytest.mark.parametrize(("came", "field"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_understood_is_named(came: Any, field: str | None) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_request(came, SEALER)
    assert caught.value.field == field


def test_what_chat_cannot_say_is_reported() -> None:
    request = Request(model="m", messages=parsed().messages, sampling=Sampling(top_k=4))
    rendered, changes = render_request(request)
    assert "top_k" not in rendered
    assert [change.rule for change in changes] == ["cannot_say"]


def test_fields_that_were_changed_are_written_fresh_and_the_rest_stays() -> None:
    came = parsed(stream=True, stream_options={"include_usage": False, "x": 1}, max_completion_tokens=9, tools=[LS])
    from msgspec.structs import replace

    (tool,) = came.tools or ()
    changed = replace(
        came, include_usage=True, sampling=Sampling(max_tokens=4), tools=(replace(tool, parameters={"a": 1}),)
    )
    rendered, _ = render_request(changed)
    assert rendered["stream_options"] == {"include_usage": True, "x": 1}
    assert rendered["max_completion_tokens"] == 4
    assert "max_tokens" not in rendered
    assert rendered["tools"] == [
        {"type": "function", "function": {"x": 1, "name": "ls", "parameters": {"a": 1}}, "y": 2}
    ]


def test_what_the_host_spells_otherwise_is_put_over_everything() -> None:
    from msgspec.structs import replace

    request = replace(
        parsed(thinking={"type": "enabled"}, temperature=1), body_overrides={"thinking": None, "temperature": 0.6}
    )
    rendered, _ = render_request(request)
    assert "thinking" not in rendered
    assert rendered["temperature"] == 0.6


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELD = st.sampled_from(
    [
        *("model", "messages", "tools", "tool_choice", "stop", "thinking", "reasoning", "response_format"),
        *("temperature", "max_tokens", "metadata", "user", "chat_template_kwargs", "parallel_tool_calls"),
        *("stream_options", "n", "other"),
    ]
)


@given(st.dictionaries(FIELD, JSON, max_size=6), JSON)
def test_any_json_is_a_request_or_a_clear_error(fields: dict[str, Any], content: Any) -> None:
    message = {"role": "user", "content": content, "tool_calls": content}
    for came in (fields, body(**fields), body(**fields | {"messages": [message]}), content):
        before = copy.deepcopy(came)
        try:
            request, _ = parse_request(came, SEALER)
        except InvalidInput:
            continue
        assert render_request(request)[0] == before
