"""The switches of thinking: who knows which, and which may come together."""

from __future__ import annotations

from typing import Any

import pytest

from moonshim.simulator.rules import check_chat
from moonshim.simulator.rules.contracts import HOSTS, contract
from moonshim.simulator.rules.thinking_rules import will_think
from tests.simulator.rules.requests import ALL, K3, OFF, THINKING, Case, Json, ask, verdict

ON = {"type": "enabled"}
ONLY_ON = "invalid thinking: only type=enabled is allowed for this model"
NO_TYPE = "invalid thinking: type must be enabled or disabled"
BOTH = "cannot specify both 'thinking' and 'reasoning_effort'"


def thinking(**words: Any) -> Json:
    return ask(thinking={**ON, **words})


UNKNOWN_EFFORTS: list[Any] = ["medium", "xhigh", "none", "off", "loud", 5, {}]
UNKNOWN_THINKING: list[Any] = [{"type": "adaptive"}, {"type": "disabled"}, {}, "on"]
CASES = [
    Case(ask(thinking=None), ALL),
    Case(thinking(), ALL),
    Case(ask(**OFF), ("k2.5", "k2.6")),
    Case(ask(**OFF), ("k2.7", "k2-thinking"), ONLY_ON),
    Case(ask(thinking={"type": "adaptive"}), THINKING, NO_TYPE),
    Case(ask(thinking={}), THINKING, NO_TYPE),
    Case(ask(thinking=True), THINKING, NO_TYPE),
    Case(thinking(budget_tokens=1000), ALL),
    # Kept thoughts came with K2.6.
    Case(thinking(keep=None), ALL),
    Case(thinking(keep="all"), ("k2.5",), 'thinking.keep is not supported by model "kimi"'),
    Case(thinking(keep="all"), ("k2.6", "k2.7", "k3", "k3.1")),
    Case(thinking(keep="some"), ("k2.6", "k2.7"), "invalid thinking: keep must be 'all' or null"),
    # How hard to think is said in one place.
    Case(ask(reasoning_effort="low"), ALL),
    Case(ask(reasoning_effort="high", thinking=ON), ("k2.5", "k2.6"), BOTH),
    Case(ask(reasoning_effort="high", thinking=ON), ("k2.7", *K3)),
    Case(ask(reasoning_effort="high", **OFF), ("k2.5", "k2.6"), BOTH),
    Case(thinking(effort="low"), K3),
    # The platform passes over what it does not know.
    *[Case(ask(reasoning_effort=word), ALL) for word in UNKNOWN_EFFORTS],
    *[Case(ask(thinking=word), K3) for word in UNKNOWN_THINKING],
    Case(ask(thinking={"type": "adaptive"}), ("k2",)),
    # Kimi Code refuses it, but for two words that others have.
    *[Case(ask(reasoning_effort=word), K3, host="kimi-coding") for word in ("low", "high", "max", "medium", "xhigh")],
    *[
        Case(
            ask(reasoning_effort=word),
            (*THINKING, *K3),
            f"invalid reasoning_effort: {word!r} is not one of low, high, max",
            "kimi-coding",
        )
        for word in ("off", "none", "disabled", "loud")
    ],
    Case(ask(**OFF), ("k2.7",), ONLY_ON, "kimi-coding"),
    # Elsewhere it is the template that is told, and what is sent beside it is nobody's business.
    *[
        Case(ask(thinking={"type": "adaptive"}, reasoning_effort="loud", chat_template_kwargs={}), ALL, host=host)
        for host in ("vllm", "sglang", "generic", "fireworks")
    ],
]


@pytest.mark.parametrize("case", CASES)
def test_takes_or_refuses(case: Case) -> None:
    for generation in case.generations:
        assert verdict(case, generation) == case.says, generation


TEMPLATE_OFF = {"chat_template_kwargs": {"thinking": False}}
ROUTER_OFF = {"reasoning": {"enabled": False}}


@pytest.mark.parametrize(
    ("words", "host", "thinks"),
    [
        ({}, "moonshot", (*THINKING, *K3)),
        (OFF, "moonshot", ("k2-thinking", "k2.7")),
        (OFF, "moonshot-anthropic", ("k2-thinking", "k2.7")),
        (TEMPLATE_OFF, "moonshot", (*THINKING, *K3)),
        (TEMPLATE_OFF, "vllm", ("k2-thinking", "k2.7")),
        (OFF, "vllm", (*THINKING, *K3)),
        (ROUTER_OFF, "openrouter", ("k2-thinking", "k2.7", *K3)),
        (ROUTER_OFF, "moonshot", (*THINKING, *K3)),
        ({"thinking": "disabled", "chat_template_kwargs": [], "reasoning": None}, "generic", (*THINKING, *K3)),
    ],
)
def test_who_thinks(words: Json, host: str, thinks: tuple[str, ...]) -> None:
    assert tuple(each for each in ALL if will_think(words, contract(each, host))) == thinks


def test_a_model_that_is_no_kimi_does_not_think() -> None:
    assert not any(will_think({}, contract("other", host)) for host in HOSTS)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"reasoning_effort": "medium"}, "invalid reasoning_effort: 'medium' is not one of low, high, max"),
        (OFF, ONLY_ON),
        ({"thinking": {"type": "adaptive"}}, NO_TYPE),
        ({"thinking": {**ON, "effort": "loud"}}, "invalid thinking.effort: 'loud' is not one of low, high, max"),
    ],
)
def test_what_is_passed_over_was_meant_all_the_same_and_the_engine_may_not_send_it(words: Json, text: str) -> None:
    assert check_chat(ask(**words), generation="k3") == [text]
