"""Whatever JSON comes in, the rules answer and the reading reads: nothing makes them fail."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.simulator.host.parse_request import parse_request
from moonshim.simulator.request import SimRequest, Wire
from moonshim.simulator.rules import Objection, check, check_chat, check_messages
from moonshim.simulator.rules.contracts import GENERATIONS, HOSTS
from tests.simulator.rules.requests import ALL, USER, Json, ask, asked, call, result, tool

WIRES: tuple[Wire, ...] = ("openai_chat", "anthropic")
KEYS = [
    *("model", "messages", "role", "content", "type", "text", "name", "id", "tools", "tool_calls", "tool_call_id"),
    *("function", "arguments", "parameters", "properties", "items", "anyOf", "enum", "required", "$ref", "$defs"),
    *("reasoning_content", "reasoning_details", "thinking", "keep", "effort", "signature", "index", "partial", "stop"),
    *("tool_choice", "response_format", "json_schema", "schema", "temperature", "n", "max_tokens", "stream"),
    *("tool_use_id", "input", "input_schema", "system", "output_config", "chat_template_kwargs", "description"),
]
WORDS = [
    *("user", "assistant", "tool", "system", "text", "function", "builtin_function", "$web_search", "auto", "required"),
    *("enabled", "disabled", "all", "tool_use", "tool_result", "image", "tool_reference", "any", "object", "string"),
    *("json_schema", "{}", "null", "#/$defs/a", "#", "a", "", "\ud800"),
]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(WORDS),
    st.sampled_from([0, 1, -1, 0.6, 0.95, 2**70, -(10**4000), float("inf"), float("nan"), 1e308]),
    st.text(max_size=5),
)
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda below: st.one_of(
        st.lists(below, max_size=4),
        st.dictionaries(st.one_of(st.sampled_from(KEYS), st.text(max_size=3)), below, max_size=6),
    ),
    max_leaves=30,
)


def mostly(right: Any) -> st.SearchStrategy[Any]:
    return st.one_of(st.just(right), ANYTHING)


MESSAGES = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {"role": st.sampled_from(["user", "assistant", "tool", "system"])},
            optional={
                "content": ANYTHING,
                "tool_calls": st.lists(mostly(call("a")), max_size=2) | ANYTHING,
                "tool_call_id": mostly("a"),
                "reasoning_content": ANYTHING,
                "reasoning_details": ANYTHING,
                "tools": st.lists(mostly(tool()), max_size=2) | ANYTHING,
                "partial": ANYTHING,
                "name": ANYTHING,
            },
        ),
        st.just(asked("a")),
        st.just(result("a")),
        st.just({"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "ls", "input": {}}]}),
        st.just({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}),
        ANYTHING,
    ),
    max_size=5,
)
REQUESTS = st.fixed_dictionaries(
    {"model": mostly("kimi"), "messages": MESSAGES},
    optional=dict.fromkeys(
        (
            *("temperature", "top_p", "n", "max_tokens", "stop", "stop_sequences", "thinking", "reasoning_effort"),
            *("tool_choice", "response_format", "output_config", "system", "stream", "stream_options", "reasoning"),
        ),
        ANYTHING,
    )
    | {"tools": st.lists(st.one_of(st.builds(tool, ANYTHING, ANYTHING), ANYTHING), max_size=3)},
)


def judge(body: Any, generation: str, host: str) -> None:
    for wire in WIRES:
        found = check(body, wire=wire, generation=generation, host=host, assume=frozenset({"names-of-64"}))
        assert found is None or (isinstance(found, Objection) and found.status == 400 and found.message)
        assert isinstance(parse_request(body, wire=wire, model="m", generation=generation, host=host), SimRequest)
    assert all(isinstance(text, str) for text in check_chat(body, generation=generation, host=host))
    assert all(isinstance(text, str) for text in check_messages(body, generation=generation, host=host))


@given(ANYTHING, st.sampled_from([*GENERATIONS]), st.sampled_from([*HOSTS]))
def test_any_json(body: Any, generation: str, host: str) -> None:
    judge(body, generation, host)


@given(REQUESTS, st.sampled_from([*GENERATIONS]), st.sampled_from([*HOSTS]))
def test_any_request(body: Json, generation: str, host: str) -> None:
    judge(body, generation, host)


@given(ANYTHING)
def test_any_schema(schema: Any) -> None:
    judge(ask(tools=[tool("ls", schema)]), "k3", "moonshot")


def nested(levels: int, key: str = "") -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = {key: value} if key else [value]
    return value


DEEP = 20_000


@pytest.mark.parametrize(
    "body",
    [
        nested(DEEP),
        nested(DEEP, "messages"),
        ask({**USER, "content": nested(DEEP)}),
        ask(USER, {"role": nested(DEEP), "content": "x"}),
        ask(tools=[nested(DEEP, "function")]),
        ask(tools=[{"type": nested(DEEP), "function": {}}]),
        *[ask(tools=[tool("ls", nested(DEEP, key))]) for key in ("properties", "items", "anyOf", "$defs", "default")],
        ask(USER, asked(tool_calls=[call("a", "[" * DEEP)]), result("a")),
        ask(USER, asked(tool_calls=[call("a", nested(DEEP, "a"))]), result("a")),
        ask(tool_choice=nested(DEEP)),
        ask(
            temperature=10**5000, max_tokens=10**5000, tools=[tool("ls", {"minimum": 10**5000, "maximum": -(10**5000)})]
        ),
        ask(thinking=nested(DEEP, "type"), stop=nested(DEEP), response_format=nested(DEEP, "type")),
        ask(
            USER,
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "n", "input": nested(DEEP)}]},
        ),
    ],
)
def test_what_is_nested_or_counts_without_end(body: Any) -> None:
    for generation in ALL:
        judge(body, generation, "moonshot")


def chain(length: int) -> Json:
    """Each definition needs the next one."""
    defs = {f"d{at}": need(f"d{at + 1}") for at in range(length)}
    return {"$defs": {**defs, f"d{length}": need("d0")}, **need("d0")}


def need(name: str) -> Json:
    return {"type": "object", "properties": {"p": {"$ref": f"#/$defs/{name}"}}, "required": ["p"]}


def bush(height: int) -> Json:
    """Each definition can be either of two, which are the same: two ways at every step."""
    defs = {f"d{at}": {"anyOf": [need(f"d{at + 1}"), need(f"d{at + 1}")]} for at in range(height)}
    return {"$defs": {**defs, f"d{height}": need("d0")}, **need("d0")}


@pytest.mark.parametrize(
    "schema",
    [
        chain(1000),
        bush(20),
        bush(200),
        {"type": "object", "properties": {}, "required": [f"p{at}" for at in range(15_000)]},
        {"type": "object", "properties": {f"p{at}": {} for at in range(2_900)}},
    ],
    ids=["chain", "bush", "forest", "required", "wide"],
)
def test_a_schema_cannot_keep_the_server_busy(schema: Json) -> None:
    judge(ask(tools=[tool("ls", schema)]), "k3", "moonshot")


def test_many_calls_cannot_either() -> None:
    ids = [f"a{at}" for at in range(20_000)]
    body = ask(USER, asked(*ids), *map(result, reversed(ids)))
    judge(body, "k2.5", "moonshot")
