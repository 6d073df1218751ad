"""Which key of a provider a conversation is asked with."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest
from msgspec.structs import replace

from moonshim.config import ProviderConfig, Secret
from moonshim.errors import Problem, ProblemKind
from moonshim.gateway.outbound.provider_keys import ProviderKeys

KEYS: Final = tuple(Secret(f"sk-{name}") for name in ("one", "two", "three"))
PROVIDER: Final = ProviderConfig(name="moonshot", api_base_url="https://api.test/v1", keys=KEYS)
CONVERSATIONS: Final = [f"conversation {number}" for number in range(300)]


def problem(kind: ProblemKind, status: int = 401) -> Problem:
    return Problem(status=status, kind=kind, message="no")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def chosen(keys: ProviderKeys, provider: ProviderConfig = PROVIDER) -> dict[str, Secret | None]:
    return {conversation: keys.key_for(provider, conversation) for conversation in CONVERSATIONS}


def test_a_provider_without_keys_has_none_for_anybody() -> None:
    assert ProviderKeys().key_for(replace(PROVIDER, keys=()), "x") is None


def test_a_conversation_keeps_its_key_also_in_another_process() -> None:
    assert chosen(ProviderKeys()) == chosen(ProviderKeys())


def test_conversations_are_spread_over_all_keys() -> None:
    counts = Counter(chosen(ProviderKeys()).values())
    assert set(counts) == set(KEYS)
    assert min(counts.values()) > 50


def test_a_key_that_is_taken_away_moves_only_its_own_conversations() -> None:
    before, after = chosen(ProviderKeys()), chosen(ProviderKeys(), replace(PROVIDER, keys=KEYS[:2]))
    moved = {conversation for conversation in CONVERSATIONS if before[conversation] != after[conversation]}
    assert moved == {conversation for conversation, key in before.items() if key == KEYS[2]}


def test_a_key_that_was_refused_rests_and_then_has_its_conversations_again() -> None:
    clock = Clock()
    keys = ProviderKeys(clock)
    before = chosen(keys)
    assert keys.failed(PROVIDER, KEYS[0], problem("quota", 429))
    resting = chosen(keys)
    assert KEYS[0] not in resting.values()
    assert all(resting[name] == key for name, key in before.items() if key != KEYS[0])
    clock.now += 301
    assert chosen(keys) == before


def test_when_all_keys_rest_they_are_used_as_if_none_did() -> None:
    keys = ProviderKeys(Clock())
    before = chosen(keys)
    assert [keys.failed(PROVIDER, key, problem("authentication")) for key in KEYS] == [True, True, False]
    assert chosen(keys) == before


@pytest.mark.parametrize(
    "told",
    [problem("rate_limit", 429), problem("overloaded", 429), problem("server", 500), problem("invalid_request", 400)],
    ids=lambda told: told.kind,
)
def test_what_is_not_about_a_key_lets_none_rest(told: Problem) -> None:
    keys = ProviderKeys(Clock())
    before = chosen(keys)
    assert not keys.failed(PROVIDER, KEYS[0], told)
    assert chosen(keys) == before


def test_the_same_key_at_another_provider_does_not_rest() -> None:
    keys = ProviderKeys(Clock())
    other = replace(PROVIDER, name="other")
    before = chosen(keys, other)
    keys.failed(PROVIDER, KEYS[0], problem("authentication"))
    assert chosen(keys, other) == before


def test_a_refusal_without_a_key_of_ours_is_nothing_to_remember() -> None:
    assert not ProviderKeys().failed(PROVIDER, None, problem("authentication"))


def test_a_single_key_is_used_also_when_it_rests() -> None:
    keys, single = ProviderKeys(Clock()), replace(PROVIDER, keys=KEYS[:1])
    assert not keys.failed(single, KEYS[0], problem("authentication"))
    assert keys.key_for(single, "x") == KEYS[0]


def test_no_key_is_kept_in_the_clear() -> None:
    keys = ProviderKeys(Clock())
    keys.failed(PROVIDER, KEYS[0], problem("authentication"))
    assert "sk-one" not in repr(vars(keys))
