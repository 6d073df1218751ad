"""A history -> slots: one for every call, and one for every result without a call.

A result belongs to the nearest earlier message that has an unanswered call with its id; among several such calls in
one message, one with the result's name is preferred, then the earliest. When all are answered, it is a second result
of the last one. Later messages never change a slot.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, TypeAlias

from msgspec import Struct

from moonshim.engine.ids.spelling import CanonicalIds
from moonshim.engine.values.tool_calls import FoundCall, FoundResult, walk_calls

__all__ = ["Key", "Pairing", "Slot", "canonical_ids", "keys_of", "keys_of_entry", "pair"]

Key: TypeAlias = tuple[bool, str]
"""Whether the id is canonical, and the id: `hist_tool_a` may also be a received id."""


class Slot(Struct, frozen=True):
    """A call, or an orphaned result, that needs its own id."""

    id: str
    name: str
    orphan: bool = False


class Pairing(Struct, frozen=True):
    """`slot_of[i]` is the slot of `seen[i]`; a result has the slot of its call."""

    seen: list[FoundCall | FoundResult]
    slots: list[Slot]
    slot_of: list[int]


def keys_of(seen: FoundCall | FoundResult) -> list[Key]:
    """The keys to look it up by, the most reliable first."""
    if seen.canonical is None:
        return [(False, seen.id), (True, seen.id)]
    keys = [(True, seen.canonical), (False, seen.id)]
    return keys if seen.id == seen.canonical else [*keys, (False, seen.canonical)]


def keys_of_entry(seen: FoundCall | FoundResult) -> list[Key]:
    """The keys under which it is stored."""
    return [(False, seen.id)] if seen.canonical is None else [(True, seen.canonical), (False, seen.id)]


def pair(messages: Iterable[Any] | None) -> Pairing:
    """Find the call of every result, in linear time.

    >>> call = {"id": "x", "function": {"name": "ls", "arguments": "{}"}}
    >>> found = pair([{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "x"}])
    >>> found.slot_of
    [0, 0]
    """
    seen, slots, slot_of = list(walk_calls(messages)), list[Slot](), list[int]()
    open_calls = _OpenCalls()
    for entry in seen:
        slot = None if isinstance(entry, FoundCall) else open_calls.answer(entry)
        if slot is None:
            slot = len(slots)
            slots.append(Slot(entry.id, entry.name or "", isinstance(entry, FoundResult)))
            if isinstance(entry, FoundCall):
                open_calls.add(entry, slot)
        slot_of.append(slot)
    return Pairing(seen, slots, slot_of)


def canonical_ids(pairing: Pairing, known: int = 0) -> list[str]:
    """A unique canonical id for every slot.

    The first `known` messages are already canonical and keep their ids.
    """
    ids, out = CanonicalIds(), dict[int, str]()
    for seen, slot in zip(pairing.seen, pairing.slot_of, strict=True):
        if slot in out:
            continue
        if seen.position < known and seen.canonical is not None:
            out[slot] = seen.canonical
            ids.reserve(seen.canonical)
        else:
            out[slot] = ids.new(seen.id)
    return [out[slot] for slot in range(len(pairing.slots))]


class _CallGroup:
    """Calls of one message that share a key."""

    __slots__ = ("by_name", "in_order", "position")

    def __init__(self, position: int) -> None:
        self.position = position
        self.in_order: deque[int] = deque()
        self.by_name: dict[str, deque[int]] = {}

    def add(self, name: str, slot: int) -> None:
        self.in_order.append(slot)
        self.by_name.setdefault(name, deque()).append(slot)

    def first(self, name: str | None, answered: set[int]) -> int | None:
        for queue in (self.by_name.get(name) if name else None, self.in_order):
            while queue:
                if queue[0] not in answered:
                    return queue[0]
                queue.popleft()
        return None


class _OpenCalls:
    def __init__(self) -> None:
        self._waiting: dict[Key, list[_CallGroup]] = {}
        self._last: dict[Key, int] = {}
        self._answered: set[int] = set()

    def add(self, call: FoundCall, slot: int) -> None:
        for key in keys_of_entry(call):
            stack = self._waiting.setdefault(key, [])
            if not stack or stack[-1].position != call.position:
                stack.append(_CallGroup(call.position))
            stack[-1].add(call.name, slot)
            self._last[key] = slot

    def answer(self, result: FoundResult) -> int | None:
        for key in keys_of(result):
            stack = self._waiting.get(key, [])
            while stack:
                slot = stack[-1].first(result.name, self._answered)
                if slot is not None:
                    self._answered.add(slot)
                    return slot
                stack.pop()
            if key in self._last:
                return self._last[key]
        return None
