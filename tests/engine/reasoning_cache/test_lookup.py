"""What a store is asked for, and what its entries mean: the same for every store."""

from __future__ import annotations

from typing import Any

import pytest

from moonshim.engine import reasoning_cache
from moonshim.engine.reasoning_cache import ConversationIndex, ReasoningLookup, cache_entry, store_key
from moonshim.engine.values.conversation import Message, Reasoning, Request, Text


def conversation(turns: int, *, same: bool = False) -> list[Message]:
    """So many turns whose reasoning is gone."""
    out: list[Message] = []
    for turn in range(turns):
        number = 0 if same else turn
        out += [Message("user", (Text(f"question {number}"),)), Message("assistant", (Text(f"answer {number}"),))]
    return out


def stored(messages: list[Message], space: str) -> dict[str, dict[str, bytes]]:
    """What a store holds after this conversation."""
    entries: dict[str, dict[str, bytes]] = {}
    for index in range(1, len(messages), 2):
        answer = Message("assistant", (Reasoning(f"thought {index}"), *messages[index].parts))
        entry = cache_entry(Request(model="k3", messages=tuple(messages[:index])), answer)
        assert entry is not None
        entries.setdefault(store_key(space, entry.key), {})[entry.field] = entry.value
    return entries


def test_each_turn_gets_its_own_reasoning_back() -> None:
    messages = conversation(5)
    wanted = ReasoningLookup(ConversationIndex(messages).lost, "alice")
    found = wanted.resolve(stored(messages, "alice"))
    assert {index: thought.text for index, thought in found.items()} == {
        index: f"thought {index}" for index in range(1, 10, 2)
    }


def test_nothing_is_found_in_another_space() -> None:
    messages = conversation(5)
    wanted = ReasoningLookup(ConversationIndex(messages).lost, "bob")
    assert not set(wanted.keys) & set(stored(messages, "alice"))
    assert wanted.resolve(stored(messages, "alice")) == {}


def test_a_key_is_asked_for_once_also_where_several_turns_share_it() -> None:
    messages = conversation(4, same=True)
    wanted = ReasoningLookup(ConversationIndex(messages).lost, "alice")
    assert len(wanted.keys) == 1
    assert len(wanted.resolve(stored(messages, "alice"))) == 4


def test_keys_come_in_batches_that_together_are_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasoning_cache, "_KEYS_PER_BATCH", 3)
    wanted = ReasoningLookup(ConversationIndex(conversation(8)).lost, "alice")
    batches = wanted.batches()
    assert [len(batch) for batch in batches] == [3, 3, 2]
    assert [key for batch in batches for key in batch] == wanted.keys
    assert ReasoningLookup([], "alice").batches() == []


@pytest.mark.parametrize(("turns", "looked_up"), [(10, 10), (11, 7), (14, 10), (15, 7), (18, 10)])
def test_beyond_the_limit_the_oldest_turns_are_given_up_in_steps(
    turns: int, looked_up: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reasoning_cache, "_TURNS_DROPPED_AT_ONCE", 4)
    messages: list[Any] = conversation(turns)
    lost = ConversationIndex(messages).lost
    assert len(ReasoningLookup(lost, "alice").keys) == turns
    wanted = ReasoningLookup(lost, "alice", limit=10)
    found = wanted.resolve(stored(messages, "alice"))
    assert sorted(found) == [turn.index for turn in lost[-looked_up:]]
