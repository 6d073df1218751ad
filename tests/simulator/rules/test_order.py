"""Of several faults the first is told, in the order of the checks; and what only the engine is held to."""

from __future__ import annotations

from typing import Any

import pytest

from moonshim.simulator.rules import check, check_chat
from tests.simulator.rules.requests import K2, USER, Case, Json, ask, asked, call, result, tool, verdict
from tests.support.looped import looped

FAULTS: list[tuple[Json, str]] = [
    ({"temperature": 0}, "invalid temperature"),
    ({"thinking": {"type": "adaptive"}}, "invalid thinking"),
    ({"tools": [tool("?")]}, "function name is invalid"),
    ({"tools": [tool(), tool()]}, "function name ls is duplicated"),
    ({"tools": [tool("ls", {"const": 1})]}, "tools.function.parameters is not a valid"),
    ({"tools": [tool()], "tool_choice": "required"}, "tool_choice 'required'"),
    ({"messages": [{**USER, "content": ""}]}, "the message at position 0"),
    ({"messages": [USER, asked("u")]}, "an assistant message with 'tool_calls'"),
    (
        {"messages": [USER, asked("a"), result("a"), asked("a"), result("a")]},
        "Invalid request: tool call id a is duplicated",
    ),
    ({"messages": [USER, result("b")]}, "tool_call_id b is not found"),
    ({"messages": [USER, asked(tool_calls=[call("c", "no")]), result("c")]}, "tool_calls[].function.arguments"),
    ({"messages": [USER, {"role": "assistant", "tool_calls": [call("d")]}, result("d")]}, "thinking is enabled but"),
    ({"response_format": {"type": "xml"}}, "invalid response_format"),
    ({"messages": [{**USER, "partial": True}]}, "Invalid request: messages.0.partial"),
]
"""One of each, in the order in which Moonshot looks for them."""


def both(first: Json, second: Json) -> Json:
    """A request with two faults; two that stand in messages are two conversations, one behind the other."""
    messages = [*first.get("messages", ()), *second.get("messages", ())]
    return {**ask(), **second, **first, "messages": messages or [USER]}


def _pairs() -> list[Any]:
    pairs = []
    for at, (first, text) in enumerate(FAULTS):
        for second, later in FAULTS[at + 1 :]:
            if not ({*first} & {*second} - {"messages"}) and "partial" not in later:
                pairs.append(pytest.param(first, second, text, id=f"{text} | {later}"))
    return pairs


@pytest.mark.parametrize(("first", "second", "text"), _pairs())
def test_the_first_fault_is_told(first: Json, second: Json, text: str) -> None:
    reply = verdict(Case(both(first, second), ()), "k2.5")
    assert reply is not None
    assert reply.startswith(text)


def test_dynamic_tools_come_behind_tools_and_before_the_choice() -> None:
    late = {"role": "user", "content": "Hi", "tools": [tool("late")]}
    body = ask(late, tools=[tool("?")], tool_choice="any")
    assert [text.split(":")[-1].strip()[:30] for text in check_chat(body, generation="k3")] == [
        "function name is invalid, must",
        "messages.0.tools is only allow",
        "'any'",
    ]


def test_the_format_comes_before_what_was_begun() -> None:
    body = ask({**USER, "partial": True}, response_format={"type": "xml"})
    assert [text.split()[1] for text in check_chat(body, generation="k3")] == ["response_format:", "request:"]


def test_what_is_assumed_or_only_demanded_of_the_engine_does_not_hide_what_comes_behind() -> None:
    body = ask(USER, asked("a"), tools=[tool("a" * 65)], reasoning_effort="loud")
    found = check(body, wire="openai_chat", generation="k2.5", host="moonshot")
    assert found is not None
    assert found.message.startswith("an assistant message with 'tool_calls'")
    found = check(body, wire="openai_chat", generation="k2.5", host="moonshot", assume=frozenset({"names-of-64"}))
    assert found is not None
    assert found.message.startswith("function name is invalid")


# --- hosts ------------------------------------------------------------------------------------------------------

SELF = ("vllm", "sglang", "generic", "fireworks", "together", "siliconflow", "deepinfra", "nim")
ODD = [
    ask(USER, {"role": "assistant", "content": ""}, USER),
    ask({**USER, "content": []}),
    ask(USER, asked("call_59adf5614cfe4f4b8a71be54"), result("call_59adf5614cfe4f4b8a71be54")),
    ask(USER, asked("a"), result("a"), asked("a"), result("a")),
    ask(USER, asked("a")),
    ask(USER, asked("a"), result("b")),
    ask(USER, {"role": "assistant", "tool_calls": [call("a")]}, result("a")),
    ask(USER, {"role": "assistant", "content": "x", "reasoning_details": [{"index": 0}]}),
    ask(response_format={"type": "grammar"}),
    ask({**USER, "partial": True}),
]


@looped("host", SELF)
@pytest.mark.parametrize("body", ODD)
def test_who_only_runs_the_model_takes_nearly_anything(host: str, body: Json) -> None:
    for generation in ("k2", "k2.5", "k2.7", "k3"):
        assert verdict(Case(body, (), host=host), generation) is None


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (ask(USER, asked(tool_calls=[call("a", "{")]), result("a")), "tool_calls[].function.arguments for"),
        (ask({"role": "wizard", "content": "x"}), "Invalid request: messages.0.role"),
        (ask(tools=[{"type": "function"}]), "Invalid request: tools.0.function is missing"),
    ],
)
def test_but_not_what_it_cannot_read(body: Json, text: str) -> None:
    for host in SELF:
        assert (verdict(Case(body, (), host=host), "k2.5") or "").startswith(text)


def test_k3_in_vllm_needs_the_name_of_the_tool_that_a_result_is_of() -> None:
    lost, other = ask(USER, result("a")), ask(USER, asked("a"), result("b"))
    assert verdict(Case(lost, (), host="vllm"), "k3") == "tool_call_id a is not found"
    assert verdict(Case(other, (), host="vllm"), "k3") is None  # taken in the order of the calls
    assert verdict(Case(lost, (), host="vllm"), "k2.5") is None  # which writes the id alone


def test_groq_says_it_in_its_own_words() -> None:
    body = ask(USER, asked("a"), {"role": "tool", "tool_call_id": "a"})
    assert verdict(Case(body, (), host="groq"), "k2") == (
        "'messages.2' : for 'role:tool' the following must be satisfied"
        "[('messages.2.content' : property 'content' is missing)]"
    )


def test_openrouter_has_moonshots_rules_and_keeps_the_index() -> None:
    details = {"reasoning_details": [{"index": 0, "type": "reasoning.text", "text": "So."}]}
    calls = {"role": "assistant", "tool_calls": [call("a")]}
    assert verdict(Case(ask(USER, {**calls, **details}, result("a")), (), host="openrouter"), "k2.5") is None
    assert "reasoning_content is missing" in str(
        verdict(Case(ask(USER, calls, result("a")), (), host="openrouter"), "k2.5")
    )
    assert verdict(Case(ask(temperature=0), (), host="openrouter"), "other") is None


# --- what the engine is held to ---------------------------------------------------------------------------------


@pytest.mark.parametrize("generation", K2)
@pytest.mark.parametrize("host", ["sglang", "siliconflow", "nim", "generic"])
def test_where_the_model_reads_ids_they_have_to_be_its_own(generation: str, host: str) -> None:
    body = ask(USER, asked("call_1"), result("call_1"))
    assert check_chat(body, generation=generation, host=host) == [
        "this host passes ids to the model unchanged: call_1 must be functions.ls:0"
    ]


@pytest.mark.parametrize(
    ("body", "generation", "host", "text"),
    [
        (
            ask(USER, asked("functions.ls:0"), result(), asked("functions.ls:0"), result()),
            "k2",
            "together",
            "this host passes ids to the model unchanged: functions.ls:0 must be functions.ls:1",
        ),
        (
            ask(USER, asked("functions.ls:0"), result()),
            "k2.5",
            "vllm",
            "the message at position 1 has reasoning_content, but this host only reads reasoning",
        ),
        (
            ask(USER, {"role": "assistant", "content": "x", "reasoning_details": [{"index": 0}]}),
            "k3",
            "moonshot",
            "the reasoning_details at position 1 entry 0 must not contain streaming index",
        ),
        (
            ask(USER, {"role": "assistant", "content": "x", "reasoning_details": [{"encrypted": "moonshim.v1.abc"}]}),
            "k3",
            "moonshot",
            "encrypted is a token signed by Moonshim, which must not be sent to a host",
        ),
        (ask(USER, {"role": "assistant", "content": "x", "tool_calls": []}), "k3", "moonshot",
         "messages.1.tool_calls must be a non-empty array"),
        (ask({**USER, "tool_calls": [call("a")]}), "k3", "moonshot",
         "messages.0.tool_calls is only allowed with role assistant"),
    ],
)  # fmt: skip
def test_a_host_takes_it_but_the_engine_may_not_send_it(body: Json, generation: str, host: str, text: str) -> None:
    assert verdict(Case(body, (), host=host), generation) is None
    assert check_chat(body, generation=generation, host=host) == [text]


@pytest.mark.parametrize("names", [("k4", "moonshot"), ("k3", "nobody")])
def test_unknown_generations_and_hosts_are_an_error(names: tuple[str, str]) -> None:
    with pytest.raises(KeyError):
        check_chat(ask(), generation=names[0], host=names[1])
