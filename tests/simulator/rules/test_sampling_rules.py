"""The numbers of a request: which of them each generation takes."""

from __future__ import annotations

import pytest

from tests.simulator.rules.requests import ALL, K3, OFF, THINKING, Case, ask, verdict

FIXED = ("k2.5", "k2.6", "k2.7", "k3", "k3.1")
FREE = ("k2", "k2-thinking")
MAY_NOT_THINK = ("k2.5", "k2.6")


def only(name: str, value: str) -> str:
    return f"invalid {name}: only {value} is allowed for this model"


TEMPERATURE = [
    Case(ask(), ALL),
    Case(ask(temperature=None), ALL),
    Case(ask(temperature=1), ALL),
    Case(ask(temperature=1.0), ALL),
    # Moonshot's tests for other hosts expect K2.6 and later to take these while they think.
    *[Case(ask(temperature=heat), ("k2.6", "k2.7")) for heat in (0, 0.0, 0.6, 1.0)],
    *[Case(ask(temperature=heat), ("k2.5", *K3), only("temperature", "1")) for heat in (0, 0.6)],
    *[Case(ask(temperature=heat), FIXED, only("temperature", "1")) for heat in (-0.1, 0.3, 0.7, 2.0)],
    Case(ask(temperature=1.1), FIXED, only("temperature", "1")),
    Case(ask(temperature="1"), FIXED, only("temperature", "1")),
    Case(ask(temperature=True), FIXED, only("temperature", "1")),
    # Without thoughts it is another number.
    Case(ask(temperature=0.6, **OFF), MAY_NOT_THINK),
    Case(ask(temperature=1, **OFF), MAY_NOT_THINK, only("temperature", "0.6")),
    Case(ask(temperature=0, **OFF), MAY_NOT_THINK, only("temperature", "0.6")),
    Case(ask(temperature=1, **OFF), K3),
    Case(ask(temperature=0.6, **OFF), K3, only("temperature", "1")),
    # The first K2 is asked for any.
    Case(ask(temperature=0.3), FREE),
    Case(ask(temperature=0), FREE),
    Case(ask(temperature=1.1), FREE, "invalid temperature: only values from 0 to 1 are allowed for this model"),
    Case(ask(temperature=-0.1), FREE, "invalid temperature: only values from 0 to 1 are allowed for this model"),
    Case(ask(temperature="warm"), FREE, "invalid temperature: must be a number"),
    Case(ask(temperature=0, n=2), FREE, "invalid n: only 1 is allowed when temperature is close to 0"),
]
THE_REST = [
    Case(ask(top_p=0.95, n=1, presence_penalty=0, frequency_penalty=0.0), ALL),
    Case(ask(top_p=None, n=None, presence_penalty=None, frequency_penalty=None), ALL),
    Case(ask(top_p=1), FIXED, only("top_p", "0.95")),
    Case(ask(top_p=0.95, **OFF), MAY_NOT_THINK),
    Case(ask(n=2), FIXED, only("n", "1")),
    Case(ask(presence_penalty=0.1), FIXED, only("presence_penalty", "0")),
    Case(ask(frequency_penalty=-1), FIXED, only("frequency_penalty", "0")),
    Case(ask(top_p=0.5, n=2, temperature=0.3, presence_penalty=1, frequency_penalty=1), FREE),
    Case(ask(top_p=[]), FREE, "invalid top_p: must be a number"),
    Case(ask(logprobs=False), ALL),
    Case(ask(logprobs=True), K3, only("logprobs", "false")),
    Case(ask(top_logprobs=2), K3, "Invalid request: logprobs must be set to true if top_logprobs is used"),
    # What nobody knows is passed over.
    Case(ask(seed=1, user="u", top_k=3, parallel_tool_calls=False, prompt_cache_key="k", whatever={}), ALL),
]
OUT_OF_BOUNDS = "invalid {}: must be an integer from 1 to {}"
TOKENS = [
    Case(ask(max_tokens=1, max_completion_tokens=262_144), ALL),
    Case(ask(max_completion_tokens=1_048_576), K3),
    Case(ask(max_completion_tokens=1_048_577), K3, OUT_OF_BOUNDS.format("max_completion_tokens", 1_048_576)),
    Case(ask(max_tokens=262_145), THINKING, OUT_OF_BOUNDS.format("max_tokens", 262_144)),
    Case(ask(max_tokens=0), K3, OUT_OF_BOUNDS.format("max_tokens", 1_048_576)),
    Case(ask(max_tokens=10.5), K3, OUT_OF_BOUNDS.format("max_tokens", 1_048_576)),
    Case(ask(max_tokens=True), K3, OUT_OF_BOUNDS.format("max_tokens", 1_048_576)),
]
STOPS = [
    Case(ask(stop="END"), ALL),
    Case(ask(stop=["x" * 32] * 5), ALL),
    Case(ask(stop=[]), ALL),
    Case(ask(stop=["a"] * 6), ALL, "invalid stop: expected an array with maximum length 5, got 6"),
    Case(ask(stop="x" * 33), ALL, "invalid stop: a sequence must not be longer than 32 bytes"),
    Case(ask(stop=["é" * 17]), ALL, "invalid stop: a sequence must not be longer than 32 bytes"),
    Case(ask(stop=[1]), ALL, "invalid stop: must be a string or an array of strings"),
    Case(ask(stop={}), ALL, "invalid stop: must be a string or an array of strings"),
]
WRITES = frozenset({"cache-writes"})
BAD_LIFETIME = "invalid prompt_cache_options: ttl must be 5m or 1h"
LIFETIMES = [
    Case(ask(prompt_cache_options={"ttl": "1h"}), ALL, assume=WRITES),
    Case(ask(prompt_cache_options={}), ALL, assume=WRITES),
    Case(ask(prompt_cache_options={"ttl": "30m"}), ALL),
    Case(ask(prompt_cache_options={"ttl": "30m"}), K3, BAD_LIFETIME, assume=WRITES),
    Case(ask(prompt_cache_options="1h"), K3, BAD_LIFETIME, assume=WRITES),
]


@pytest.mark.parametrize("case", [*TEMPERATURE, *THE_REST, *TOKENS, *STOPS, *LIFETIMES])
def test_takes_or_refuses(case: Case) -> None:
    for generation in case.generations:
        assert verdict(case, generation) == case.says, generation


@pytest.mark.parametrize("host", ["vllm", "sglang", "generic", "fireworks", "together"])
def test_who_runs_the_model_oneself_samples_as_one_likes(host: str) -> None:
    body = ask(temperature=1.7, top_p=0.5, n=3, presence_penalty=1, stop=["x" * 40] * 6, max_tokens=5_000_000)
    for generation in ALL:
        assert verdict(Case(body, (), host=host), generation) is None


def test_a_model_that_is_no_kimi_samples_as_one_likes() -> None:
    assert verdict(Case(ask(temperature=1.7, top_p=0.2), ()), "other") is None
