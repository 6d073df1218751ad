"""The messages of a conversation in Chat: none may be empty, calls and results pair, thoughts come back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulator.rules.requests import (
    ALL,
    K2,
    K3,
    OFF,
    THINKING,
    USER,
    Case,
    Json,
    ask,
    asked,
    call,
    result,
    verdict,
)

SYSTEM = {"role": "system", "content": "Be brief."}


def says(content: Any, **more: Any) -> Json:
    return {"role": "assistant", "content": content, **more}


def empty(at: int, role: str) -> str:
    return f"the message at position {at} with role '{role}' must not be empty"


def text(*texts: str) -> list[Json]:
    return [{"type": "text", "text": each} for each in texts]


SHAPES = [
    Case(ask(), ALL),
    Case(ask(SYSTEM, USER, says("Hello."), USER), ALL),
    Case({"model": "kimi", "messages": []}, ALL, "Invalid request: messages must not be empty"),
    Case({"model": "kimi"}, ALL, "Invalid request: messages must not be empty"),
    Case({"model": "kimi", "messages": {}}, ALL, "Invalid request: messages must be an array of objects"),
    Case({"model": "kimi", "messages": [USER, "Hi"]}, ALL, "Invalid request: messages must be an array of objects"),
    Case({"messages": [USER]}, ALL, "Invalid request: model is missing"),
    Case({**ask(), "model": ["kimi"]}, ALL, "Invalid request: model is missing"),
    Case(ask(stream="yes"), ALL, "Invalid request: stream must be a boolean"),
    Case(ask(stream_options=True), ALL, "Invalid request: stream_options must be an object"),
    Case(ask(stream=True, stream_options={"include_usage": True}), ALL),
    Case(
        ask({"role": "developer", "content": "x"}),
        ALL,
        "Invalid request: messages.0.role 'developer' is not one of system, user, assistant, tool",
    ),
    Case(ask({**USER, "content": 5}), ALL, "Invalid request: messages.0.content must be a string or an array"),
    Case(ask({**USER, "content": ["Hi"]}), ALL, "Invalid request: messages.0.content.0 must be an object with a type"),
    Case(
        ask({**USER, "content": [{"type": "text"}]}), ALL, "Invalid request: messages.0.content.0.text must be a string"
    ),
    Case(ask({**USER, "content": [{"type": "image_url", "image_url": {"url": "data:"}}, *text("What?")]}), ALL),
]
EMPTY = [
    Case(ask({**USER, "content": ""}), ALL, empty(0, "user")),
    Case(ask({**USER, "content": None}), ALL, empty(0, "user")),
    Case(ask({**USER, "content": []}), ALL, empty(0, "user")),
    Case(ask({**USER, "content": text("", "")}), ALL, empty(0, "user")),
    Case(ask({"role": "system", "content": ""}, USER), ALL, empty(0, "system")),
    Case(ask(USER, says("")), ALL, empty(1, "assistant")),
    Case(ask(USER, says(None, tool_calls=None), USER), ALL, empty(1, "assistant")),
    Case(ask(USER, says("", tool_calls=[]), USER), ALL, empty(1, "assistant")),
    Case(ask({**USER, "content": text("", "Hi")}), ALL),
    Case(ask(USER, asked("a", content=""), result("a")), ALL),
    Case(ask(USER, asked("a", content=None), result("a")), ALL),
    Case(ask(USER, says("", partial=True)), ALL),
    # Kimi Code looks at every text, beside calls too: one leaves it out there.
    Case(ask({**USER, "content": text("", "Hi")}), ALL, "text content is empty", "kimi-coding"),
    Case(ask(USER, asked("a", content=text("")), result("a")), ALL, "text content is empty", "kimi-coding"),
    Case(ask(USER, asked("a", content=""), result("a")), ALL, "text content is empty", "kimi-coding"),
    Case(ask(USER, asked("a"), result("a")), ALL, host="kimi-coding"),
]


def unanswered(*ids: str) -> str:
    return (
        "an assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        f"The following tool_call_ids did not have response messages: {', '.join(ids)}"
    )


PAIRS = [
    Case(ask(USER, asked("Shell:58"), result("Shell:58")), ALL),
    Case(ask(USER, asked("a", "b"), result("b"), result("a"), USER), ALL),
    Case(ask(USER, asked("a"), result("a"), asked("b"), result("b", content=text("x"))), ALL),
    Case(ask(USER, asked("Shell:58")), ALL, unanswered("Shell:58")),
    Case(ask(USER, asked("a", "b", "c"), result("b")), ALL, unanswered("a", "c")),
    Case(ask(USER, asked("a"), USER, result("a")), ALL, unanswered("a")),
    Case(ask(USER, asked("a"), asked("b"), result("a"), result("b")), ALL, unanswered("a")),
    Case(ask(USER, asked("a"), result("a"), result("b")), ALL, "tool_call_id b is not found"),
    Case(ask(USER, result("b")), ALL, "tool_call_id b is not found"),
    Case(ask(USER, asked("a"), result("a"), USER, result("a")), ALL, "tool_call_id a is not found"),
    # Two spaces, where the id is not.
    Case(ask(USER, asked("a"), result("a"), result("")), ALL, "tool_call_id  is not found"),
    Case(ask(USER, asked("a"), result("a"), {"role": "tool", "content": "x"}), ALL, "tool_call_id  is not found"),
    Case(
        ask(USER, asked("a"), result("a", tool_call_id=1)),
        ALL,
        "Invalid request: messages.2.tool_call_id must be a string",
    ),
    Case(ask(USER, asked("a"), result("a", content=None)), ALL, empty(2, "tool")),
    # An id may come again since K3.
    Case(
        ask(USER, asked("write:12"), result("write:12"), asked("write:12"), result("write:12")),
        K2,
        "Invalid request: tool call id write:12 is duplicated",
    ),
    Case(ask(USER, asked("a", "a"), result("a"), result("a")), K2, "Invalid request: tool call id a is duplicated"),
    Case(ask(USER, asked("Bash_0"), result("Bash_0"), asked("Bash_0"), result("Bash_0")), K3),
    Case(ask(USER, asked("a", "a"), result("a"), result("a")), K3),
    Case(ask(USER, asked("a", "a"), result("a")), K3, unanswered("a")),
]
NO_CALL = "Invalid request: messages.1.tool_calls.0 needs an id, type function, and a function with a name"


def with_arguments(arguments: Any) -> Json:
    return ask(USER, asked(tool_calls=[call("a", arguments)]), result("a"))


def no_object(kind: str) -> str:
    return f"tool_calls[].function.arguments for function 'ls' must decode to a JSON object, got {kind}"


CALLS = [
    Case(ask(USER, asked(tool_calls={})), ALL, "Invalid request: messages.1.tool_calls must be an array"),
    *[
        Case(ask(USER, asked(tool_calls=[broken])), ALL, NO_CALL)
        for broken in (
            {"id": "a"},
            "a",
            {**call("a"), "type": "custom"},
            call(""),
            call("a", name=""),
            {**call("a"), "id": 1},
        )
    ],
    Case(with_arguments('{"path": "/"}'), ALL),
    Case(with_arguments(" {} "), ALL),
    Case(with_arguments("null"), ALL, no_object("NoneType")),
    Case(with_arguments(None), ALL, no_object("NoneType")),
    Case(with_arguments("[]"), ALL, no_object("list")),
    Case(with_arguments('"{}"'), ALL, no_object("str")),
    Case(with_arguments({"path": "/"}), ALL, no_object("dict")),
    Case(with_arguments(""), ALL, "tool_calls[].function.arguments for function 'ls' is not valid JSON"),
    Case(with_arguments('{"city": "Bei'), ALL, "tool_calls[].function.arguments for function 'ls' is not valid JSON"),
]


def missing(index: int) -> str:
    return f"thinking is enabled but reasoning_content is missing in assistant tool call message at index {index}"


BARE = {"role": "assistant", "tool_calls": [call("a")]}
ANOTHER = {"role": "assistant", "tool_calls": [call("b")]}
ROUND = ask(USER, BARE, result("a"))
NEEDS = frozenset({"k3-needs-reasoning"})
DETAIL = {"type": "summary", "summary": "So."}
REASONING = [
    Case(ROUND, THINKING, missing(1)),
    Case(ask(SYSTEM, USER, BARE, result("a")), THINKING, missing(2)),
    Case(ask(USER, asked("a"), result("a"), ANOTHER, result("b")), THINKING, missing(3)),
    Case(ask(USER, {**BARE, "reasoning_content": None}, result("a")), THINKING, missing(1)),
    Case(ask(USER, {**BARE, "reasoning": "So."}, result("a")), THINKING, missing(1)),
    *[Case(ask(USER, {**BARE, "reasoning_content": received}, result("a")), ALL) for received in ("So.", "", " ", ".")],
    Case(ask(USER, says("Hello."), USER), ALL),  # only calls need it
    Case(ask(**{**ROUND, **OFF}), ("k2.5", "k2.6")),
    Case(ROUND, ("k2", *K3)),
    Case(ROUND, K3, missing(1), assume=NEEDS),
    # Kimi Code wants it of K3 too, and reads it in two places.
    Case(ROUND, (*THINKING, *K3), missing(1), "kimi-coding"),
    Case(ask(USER, {**BARE, "reasoning_details": [DETAIL]}, result("a")), (*THINKING, *K3), host="kimi-coding"),
    Case(
        ask(SYSTEM, USER, {**BARE, "reasoning_details": [{**DETAIL, "index": 0}]}, result("a")),
        K3,
        "the reasoning_details at position 2 entry 0 must not contain streaming index",
        "kimi-coding",
    ),
    Case(
        ask(USER, says("x", reasoning_details=[DETAIL, {"type": "encrypted", "encrypted": "e", "index": 1}])),
        K3,
        "the reasoning_details at position 1 entry 1 must not contain streaming index",
        "kimi-coding",
    ),
    Case(ask(USER, says("x", reasoning_details=[{**DETAIL, "index": 0}])), K3),
]


def formed(**form: Any) -> Json:
    return ask(response_format={"type": "json_schema", "json_schema": form})


FORMATS = [
    *[Case(ask(response_format={"type": kind}), ALL) for kind in ("text", "json_object")],
    Case(formed(name="a", schema={"type": "object"}), ALL),
    Case(
        ask(response_format={"type": "xml"}),
        ALL,
        "invalid response_format: type must be one of text, json_object, json_schema",
    ),
    Case(
        ask(response_format="json_object"),
        ALL,
        "invalid response_format: type must be one of text, json_object, json_schema",
    ),
    Case(formed(name="a"), ALL, "invalid response_format: json_schema.schema is missing"),
    *[
        Case(formed(schema={"type": "object"}, **form), ALL, "invalid response_format: json_schema.name is missing")
        for form in ({}, {"name": ""}, {"name": 1})
    ],
    *[
        Case(
            formed(name="a", schema={"type": "object"}, strict=strict),
            ALL,
            "invalid response_format: json_schema.strict must be a boolean",
        )
        for strict in ("true", 1, ["x"])
    ],
    *[Case(formed(name="a", schema={"type": "object"}, strict=strict), ALL) for strict in (True, False, None)],
    Case(
        formed(name="a", schema={"format": "x"}),
        ALL,
        "invalid response_format: At path 'root': unsupported keywords: format",
    ),
    Case(
        formed(name="a", schema={"format": "x"}, strict=True),
        ALL,
        "invalid response_format: At path 'root': unsupported keywords: format",
    ),
    Case(formed(name="a", schema={"format": "x"}, strict=False), ALL),
]
NOT_LAST = "Invalid request: messages.{}.partial is only allowed on the last message with role assistant"
PARTIAL = [
    Case(ask(USER, says("{", partial=True)), ALL),
    Case(ask(USER, says("Hm.", partial=True, name="Kimi")), ALL),
    Case(ask(USER, says("x", partial=False), USER), ALL),
    Case(ask({**USER, "partial": True}), ALL, NOT_LAST.format(0)),
    Case(ask(USER, says("x", partial=True), USER), ALL, NOT_LAST.format(1)),
    Case(ask(USER, says("x", partial="yes")), ALL, "Invalid request: messages.1.partial must be a boolean"),
]


@pytest.mark.parametrize("case", [*SHAPES, *EMPTY, *PAIRS, *CALLS, *REASONING, *FORMATS, *PARTIAL])
def test_takes_or_refuses(case: Case) -> None:
    for generation in case.generations:
        assert verdict(case, generation) == case.says, generation
