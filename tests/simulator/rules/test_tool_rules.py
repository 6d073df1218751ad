"""Tools: what a declaration needs, what a name may be, and whom one may choose."""

from __future__ import annotations

from typing import Any

import pytest

from moonshim.simulator.rules import check_chat
from moonshim.simulator.rules.tool_rules import INVALID_NAME
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
    builtin,
    named,
    tool,
    verdict,
)

MAY_NOT_THINK = ("k2.5", "k2.6")


def flawed(details: str) -> str:
    return f"tools.function.parameters is not a valid moonshot flavored json schema, details: <{details}>"


def taking(schema: Any) -> Json:
    """A tool with one argument."""
    return ask(tools=[tool("ls", {"type": "object", "properties": {"x": schema}})])


DECLARED = [
    Case(ask(tools=None), ALL),
    Case(ask(tools=[]), ALL),
    Case(ask(tools=[tool()]), ALL),
    Case(ask(tools=[tool("ls", {})]), ALL),
    Case(ask(tools=[{**tool(), "strict": True, "whatever": 1}]), ALL),
    Case(ask(tools=[{"function": {"name": "ls"}}]), ALL, "Invalid request: tools.0.type null is not supported"),
    Case(
        ask(tools=[{"type": "web", "function": {"name": "ls"}}]),
        ALL,
        "Invalid request: tools.0.type 'web' is not supported",
    ),
    Case(ask(tools=[{"type": "function"}]), ALL, "Invalid request: tools.0.function is missing"),
    Case(
        ask(tools=[tool(), {"type": "function", "function": "ls"}]), ALL, "Invalid request: tools.1.function is missing"
    ),
    Case(ask(tools=[tool(None)]), ALL, "Invalid request: function name is missing"),
    Case(ask(tools=[tool("")]), ALL, "Invalid request: function name is missing"),
    Case(ask(tools=[tool(["ls"])]), ALL, "Invalid request: function name is missing"),
    Case(ask(tools={"ls": {}}), ALL, "Invalid request: tools must be an array"),
    Case(ask(tools=["ls"]), ALL, "Invalid request: tools.0 must be an object"),
]
NAMES = [
    Case(ask(tools=[tool("a"), tool("Read-File_2")]), ALL),
    *[
        Case(ask(tools=[tool(name)]), ALL, INVALID_NAME)
        for name in ("1st", "_ls", "-ls", "a.b", "a b", "ä", "ls\n", "$ls")
    ],
    Case(ask(tools=[tool("a" * 256)]), ALL),
    Case(ask(tools=[tool("a" * 257)]), ALL, INVALID_NAME),
    Case(ask(tools=[tool("a" * 65)]), K2, INVALID_NAME, assume=frozenset({"names-of-64"})),
    Case(ask(tools=[tool("a" * 64)]), K2, assume=frozenset({"names-of-64"})),
    Case(ask(tools=[tool("a" * 65)]), K3, assume=frozenset({"names-of-64"})),
    Case(ask(tools=[tool("ls"), tool("cat"), tool("ls")]), ALL, "function name ls is duplicated"),
    Case(ask(tools=[tool("ls"), tool("LS")]), ALL),
]
BUILT_IN = [
    Case(ask(tools=[builtin(), tool()]), ALL),
    Case(
        ask(tools=[builtin("web_search")]),
        ALL,
        "Invalid request: tools.0.function.name of a builtin_function must start with $",
    ),
    Case(ask(tools=[builtin(), builtin()]), ALL, "function name $web_search is duplicated"),
    Case(
        ask(tools=[builtin()]),
        (*THINKING, *K3),
        "builtin_function $web_search is incompatible with thinking enabled",
        assume=frozenset({"web-search-thinks-not"}),
    ),
    Case(ask(tools=[builtin()], **OFF), MAY_NOT_THINK, assume=frozenset({"web-search-thinks-not"})),
]
SCHEMAS = [
    Case(taking({"type": "string", "minLength": 1}), ALL),
    Case(
        taking({"type": "string", "anyOf": [{"type": "string"}]}),
        ALL,
        flawed(
            "At path 'properties.x': when using anyOf, type should be defined in anyOf items "
            "instead of the parent schema"
        ),
    ),
    Case(taking({"const": 1}), ALL, flawed("At path 'properties.x': unsupported keywords: const")),
    Case(taking({"type": "string", "minimum": 1}), ALL, flawed("At path 'properties.x': invalid keywords: minimum")),
    Case(
        ask(tools=[tool("ls", {"type": "object", "properties": {}, "required": ["age"]})]),
        ALL,
        flawed("At path 'required': required property 'age' is not defined in properties"),
    ),
    Case(
        ask(tools=[{"type": "function", "function": {"name": "ls", "parameters": None}}]),
        ALL,
        flawed("At path 'root': schema must be a dict"),
    ),
    *[
        Case(
            ask(tools=[tool("ls", given)]),
            ALL,
            flawed(f"JSON schema parsing error: JSON type error: expected an object but got {kind}"),
        )
        for given, kind in (([], "list"), ('{"type": "object"}', "str"), (5, "int"))
    ],
]
LATE = {"role": "system", "tools": [tool("late")]}
DYNAMIC = [
    Case(ask(LATE, USER), K3),
    Case(ask(USER, {**LATE, "content": ""}, tools=[tool()]), K3),
    Case(ask({**LATE, "tools": []}, USER), K3),
    Case(ask({**USER, "tools": [tool()]}), K3, "Invalid request: messages.0.tools is only allowed with role system"),
    Case(
        ask({**LATE, "content": "New."}, USER), K3, "Invalid request: messages.0.content must be empty if tools is set"
    ),
    Case(ask({**LATE, "tools": ["ls"]}, USER), K3, "Invalid request: messages.0.tools must be an array of objects"),
    Case(ask({**LATE, "tools": {}}, USER), K3, "Invalid request: messages.0.tools must be an array of objects"),
    Case(ask(LATE, USER, tools=[tool("late")]), K3, "function name late is duplicated"),
    Case(ask(LATE, USER, LATE), K3, "function name late is duplicated"),
    Case(ask({**LATE, "tools": [tool("?")]}, USER), K3, INVALID_NAME),
    # Who does not know them sees a message with nothing in it, and passes over them where there is something.
    Case(ask(LATE, USER), K2, "the message at position 0 with role 'system' must not be empty"),
    Case(ask({**LATE, "content": "New."}, USER), K2),
]


def incompatible(word: str) -> str:
    return f"tool_choice '{word}' is incompatible with thinking enabled"


CHOICES = [
    *[Case(ask(tool_choice=word, **tools), ALL) for word in ("auto", "none") for tools in ({}, {"tools": [tool()]})],
    Case(ask(tools=[tool()], tool_choice="required"), THINKING, incompatible("required")),
    Case(ask(tools=[tool()], tool_choice=named()), THINKING, incompatible("specified")),
    Case(ask(tools=[tool()], tool_choice="required", **OFF), MAY_NOT_THINK),
    Case(ask(tools=[tool()], tool_choice=named(), **OFF), MAY_NOT_THINK),
    Case(ask(tools=[tool()], tool_choice="required"), ("k2", *K3)),
    # K3 does as if no tool had been named.
    Case(ask(tools=[tool()], tool_choice=named()), ("k2", *K3)),
    Case(ask(tools=[tool()], tool_choice=named("another")), ("k2", *K3)),
    Case(
        ask(tools=[tool()], tool_choice=named()),
        K3,
        incompatible("specified"),
        assume=frozenset({"k3-refuses-named-choice"}),
    ),
    Case(ask(tool_choice="required"), ("k2", *K3), "Invalid request: tool_choice 'required' needs tools"),
    Case(ask(tool_choice="required", tools=[]), ("k2", *K3), "Invalid request: tool_choice 'required' needs tools"),
    Case(ask(LATE, USER, tool_choice="required"), K3),
    Case(ask(tool_choice="any", tools=[tool()]), ALL, "Invalid request: invalid tool_choice: 'any'"),
    Case(ask(tool_choice={"type": "any"}, tools=[tool()]), ALL, "Invalid request: invalid tool_choice: an object"),
    Case(ask(tool_choice={"type": "function"}, tools=[tool()]), ALL, "Invalid request: invalid tool_choice: an object"),
    Case(ask(tool_choice=1, tools=[tool()]), ALL, "Invalid request: invalid tool_choice: a number"),
]


@pytest.mark.parametrize("case", [*DECLARED, *NAMES, *BUILT_IN, *SCHEMAS, *DYNAMIC, *CHOICES])
def test_takes_or_refuses(case: Case) -> None:
    for generation in case.generations:
        assert verdict(case, generation) == case.says, generation


@pytest.mark.parametrize("host", ["vllm", "sglang", "generic", "siliconflow"])
@pytest.mark.parametrize(
    "body",
    [
        taking({"const": 1}),
        ask(tools=[tool("a.b")]),
        ask(tools=[tool("a" * 300), tool("a" * 300)]),
        ask(tools=[tool()], tool_choice="required"),
        ask(tools=[tool()], tool_choice=named()),
        ask({**LATE, "content": "New."}, USER),
    ],
)
def test_who_runs_the_model_oneself_declares_and_chooses_as_one_likes(host: str, body: Json) -> None:
    for generation in (*ALL, "other"):
        assert verdict(Case(body, (), host=host), generation) is None


def test_the_engine_keeps_to_the_old_length_of_names_and_tells_no_k2_of_late_tools() -> None:
    assert check_chat(ask(tools=[tool("a" * 65)]), generation="k2.5") == [INVALID_NAME]
    assert check_chat(ask({**LATE, "content": "New."}, USER), generation="k2.5") == [
        "messages.0.tools is not supported by this model"
    ]
    assert check_chat(ask(tools=[tool("ls"), tool("ls")]), generation="k3", host="vllm") == [
        "function name ls is duplicated"
    ]
