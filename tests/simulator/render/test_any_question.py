"""Whatever is asked is rendered: without an exception, without ids in a prompt of K3, and in time that it deserves."""

from __future__ import annotations

import sys
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.simulator.host.parse_request import parse_request
from moonshim.simulator.render import render_prompt
from moonshim.simulator.request import OfferedTool, Role, SimCall, SimMedia, SimRequest, SimResult, SimTurn, Wire

GENERATIONS: Final = ("k2", "k2-thinking", "k2.5", "k2.6", "k2.7", "k3", "k3.1", "other")
ROLES: Final[tuple[Role, ...]] = ("system", "user", "assistant", "tool")
WIRES: Final[tuple[Wire, ...]] = ("openai_chat", "anthropic")

texts = st.text(st.characters(), max_size=12)  # halves of characters too: JSON can say them
jsons = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
words = st.sampled_from(
    ["type", "anyOf", "enum", "$ref", "$defs", "properties", "required", "items", "additionalProperties", "default"]
)
kinds = st.sampled_from(["object", "array", "string", "integer", "number", "boolean", "null", "#", "#/$defs/a"])
schemas = st.recursive(
    jsons | kinds,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words | texts, inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(words | texts, schemas, max_size=4)
parts = st.lists(texts | st.sampled_from([SimMedia(), SimMedia("video")]), max_size=3).map(tuple)
offered = st.builds(OfferedTool, texts, texts, objects)
turns = st.builds(
    SimTurn,
    role=st.sampled_from(ROLES),
    name=texts,
    text=texts,
    parts=parts,
    reasoning=st.none() | texts,
    calls=st.lists(st.builds(SimCall, texts, texts, texts), max_size=3).map(tuple),
    results=st.lists(st.builds(SimResult, texts, texts, texts, st.booleans(), parts), max_size=3).map(tuple),
    tools=st.lists(offered, max_size=2).map(tuple),
    partial=st.booleans(),
)
switches = ("thinking", "chat_template_kwargs", "response_format", "tool_choice", "reasoning_effort", "output_config")
questions = st.builds(
    SimRequest,
    wire=st.sampled_from(WIRES),
    model=texts,
    generation=st.sampled_from(GENERATIONS),
    turns=st.lists(turns, max_size=5).map(tuple),
    tools=st.lists(offered, max_size=3).map(tuple),
    tool_choice=st.sampled_from(["auto", "none", "required"]) | texts,
    thinking=st.booleans(),
    body=st.dictionaries(st.sampled_from(switches), jsons, max_size=3),
)


@given(questions, st.booleans())
def test_any_question_has_a_prompt(sim_request: SimRequest, renamed: bool) -> None:
    assert render_prompt(sim_request, renamed=renamed)


@given(st.dictionaries(st.sampled_from(["messages", "tools", "system", *switches]), jsons), st.sampled_from(WIRES))
def test_any_body_has_a_prompt(body: dict[str, Any], wire: Wire) -> None:
    for generation in GENERATIONS:
        assert render_prompt(parse_request(body, wire=wire, model="m", generation=generation))


def conversation(rounds: int, generation: str) -> SimRequest:
    """`rounds` rounds of two calls whose results come in the wrong order."""
    turns = [SimTurn(role="user", text="Go.")]
    for at in range(rounds):
        first, second = SimCall(f"idOfCall{at}a", "ls", '{"p": 1}'), SimCall(f"idOfCall{at}b", "ls", "{}")
        turns.append(SimTurn(role="assistant", calls=(first, second), reasoning="Hm."))
        turns += [SimTurn(role="tool", results=(SimResult(call.id, "ls", "x"),)) for call in (second, first)]
    tools = tuple(OfferedTool(f"tool{at}", "", {"properties": {"a": {"type": "string"}}}) for at in range(rounds))
    return SimRequest(wire="openai_chat", model="m", generation=generation, turns=tuple(turns), tools=tools)


@pytest.mark.parametrize("generation", ["k3", "k3.1"])
@pytest.mark.parametrize("renamed", [False, True])
def test_k3_never_sees_an_id(generation: str, renamed: bool) -> None:
    prompt = render_prompt(conversation(20, generation), renamed=renamed)
    assert "idOfCall" not in prompt
    assert "functions." not in prompt


def test_k2_sees_every_id_twice() -> None:
    prompt = render_prompt(conversation(5, "k2.5"))
    assert [prompt.count(f"idOfCall{at}{which}") for at in range(5) for which in "ab"] == [2] * 10


@pytest.mark.parametrize("generation", GENERATIONS)
def test_twice_the_conversation_is_twice_the_work(generation: str) -> None:
    small, large = (work(conversation(rounds, generation)) for rounds in (100, 200))
    assert large < 2.2 * small


def work(sim_request: SimRequest) -> int:
    """How many functions were called, Python's own included."""
    count = 0

    def step(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(step)
    try:
        render_prompt(sim_request, renamed=True)
    finally:
        sys.setprofile(before)
    return count


def test_schemas_of_any_depth_are_no_fault() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(5000):
        schema = {"type": "object", "properties": {"a": schema}}
    for generation in GENERATIONS:
        tools = (OfferedTool("deep", "", schema),)
        sim_request = SimRequest(wire="openai_chat", model="m", generation=generation, turns=(), tools=tools)
        assert "deep" in render_prompt(sim_request)
