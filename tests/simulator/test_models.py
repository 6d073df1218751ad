"""Names of models, as each host spells them."""

from __future__ import annotations

import time

import pytest

from moonshim.simulator.host.models import MODELS, generation_of, tokens_by_default
from moonshim.simulator.rules.contracts import GENERATIONS
from moonshim.simulator.settings import ModelRow

NAMES = {
    "kimi-k2-0711-preview": "k2",
    "kimi-k2-0905-preview": "k2",
    "kimi-k2-turbo-preview": "k2",
    "moonshotai/Kimi-K2-Instruct-0905": "k2",
    "moonshotai/kimi-k2:free": "k2",
    "kimi-k2-thinking": "k2-thinking",
    "kimi-k2-thinking-turbo": "k2-thinking",
    "moonshotai/Kimi-K2-Thinking": "k2-thinking",
    "kimi-k2.5": "k2.5",
    "Pro/moonshotai/Kimi-K2.5": "k2.5",
    "accounts/fireworks/models/kimi-k2p5": "k2.5",
    "k2p5": "k2.5",
    "nvidia/Kimi-K2.5-NVFP4": "k2.5",
    "kimi-k2.5:cloud": "k2.5",
    "kimi-k2.6": "k2.6",
    "accounts/fireworks/models/kimi-k2p6": "k2.6",
    "kimi-k2.7-code": "k2.7",
    "kimi-k2.7-code-highspeed": "k2.7",
    "accounts/fireworks/models/kimi-k2p7-code": "k2.7",
    "kimi-for-coding": "k2.7",
    "kimi-for-coding-highspeed": "k2.7",
    "kimi-k3": "k3",
    "k3": "k3",
    "K3-256k": "k3",
    "accounts/fireworks/models/kimi-k3": "k3",
    "kimi-k3.1-pro": "k3.1",
    "kimi-k3.1-pro-highspeed": "k3.1",
    "k3.1-pro": "k3.1",
    "plain-1": "other",
}


@pytest.mark.parametrize("name", NAMES)
def test_every_spelling_is_known(name: str) -> None:
    assert generation_of(name) == NAMES[name]


@pytest.mark.parametrize(
    "name",
    ["", "kimi", "gpt-5", "kimi-k4", "kimi-k2.9", "kimi-k25", "mk3", "kimi-k3+split-bytes!", "k3/", "a" * 100_000],
)
def test_others_are_not(name: str) -> None:
    assert generation_of(name) is None


def test_ones_own_models_come_first() -> None:
    own = {"mine": ModelRow(generation="k3"), "kimi-k3": ModelRow(generation="k2.5")}
    assert generation_of("mine", own) == "k3"
    assert generation_of("kimi-k3", own) == "k2.5"
    assert generation_of("kimi-k2.5", own) == "k2.5"


def test_the_list_has_every_generation() -> None:
    assert {generation_of(name) for name in MODELS} == {*GENERATIONS}


def test_how_long_an_answer_gets_when_nobody_says() -> None:
    assert [tokens_by_default(name) for name in GENERATIONS] == [None, None, 32_768, 32_768, None, None, None, None]
    assert tokens_by_default("k2", frozenset({"short-answers"})) == 1024
    assert tokens_by_default("k3", frozenset({"short-answers"})) is None


def test_a_hostile_name_takes_no_time() -> None:
    """CPU time, which other processes do not lengthen: a pattern that tries every way to read a name takes minutes."""
    names = ("k2" + "-a.a" * 60, "/" * 255, "k2" + "." * 200, "k3-" * 80, "kimi-" * 51, "/" * 1_000_000)
    for name in names:
        begun = time.thread_time()
        assert generation_of(name + "!") is None
        assert time.thread_time() - begun < 0.1, name[:40]
