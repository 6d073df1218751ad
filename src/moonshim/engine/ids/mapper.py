"""A history becomes the identifiers that a provider wants to see in it.

A strategy makes a mapper from the whole history, for one request. The mapper decides
everything when it is made and then only looks up, so that no answer depends on which
question came first.

How a question is understood:

- a call or result that is one of the history's own objects is known by identity, so
  that equal ones at different positions have different answers;
- any other is known by its value: its identifier, then its name, then its arguments or
  content. Where several in the history are alike in all of that, the first such object
  asked about stands for the first of them, the next object for the second, and so on;
  asking about the same object again gives the same answer;
- one that the history does not have gets an answer of its own, computed from its
  identifier and the history alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from msgspec import Struct

from moonshim.engine.formats.detect import ToolFormat, check_format
from moonshim.engine.ids.lookup import Lookup
from moonshim.engine.ids.pairing import Slot, pair
from moonshim.engine.ids.spelling import (
    CANONICAL,
    K2_MAX_INDEX,
    Distinct,
    anthropic_id,
    digest,
    k2_id,
    mistral_id,
    standard_id,
)
from moonshim.engine.values.conversation import ToolCall, ToolResult
from moonshim.engine.values.tool_calls import CallSeen, ResultSeen, read_call, read_result
from moonshim.errors import InvalidInput

__all__ = ["HistoryMapper", "Strategy", "ToolIdMapper", "tool_id_strategy"]

AnyCall: TypeAlias = ToolCall | dict[str, Any]
AnyResult: TypeAlias = ToolResult | dict[str, Any]


class ToolIdMapper(Protocol):
    """The identifiers of one request."""

    def resolve_tool_call_id(self, call: AnyCall) -> str:
        """The identifier to send for this call."""

    def resolve_tool_response_id(self, result: AnyResult) -> str:
        """The identifier to send for this result: that of its call."""


class Strategy(Struct, frozen=True):
    """How a family of providers spells identifiers.

    Guaranteed for every strategy: the mapper is deterministic; different calls have
    different identifiers, and so do different orphans; a result has the identifier of
    its call; a longer history does not change what a shorter one got.
    """

    name: str
    assign: Callable[[list[Slot]], list[str]]
    """Identifiers for the slots of a history, in order."""
    stranger: Callable[[str, str, int, AbstractSet[str]], str]
    """An identifier for what is not in the history, from its identifier and name, the
    number of slots, and those taken."""

    def create_mapper(self, messages: Iterable[Any]) -> HistoryMapper:
        """The mapper for this history: OpenAI dicts, canonical messages, `{speaker, blocks}`, mixed or not."""
        return HistoryMapper(self, messages)


class HistoryMapper:
    """The identifiers for one history. See the top of this file for how it reads a question."""

    def __init__(self, strategy: Strategy, messages: Iterable[Any]) -> None:
        pairing = pair(messages)
        ids = strategy.assign(pairing.slots)
        self._stranger = strategy.stranger
        self._slots = len(ids)
        self._taken = frozenset(ids)
        self._ids = [ids[slot] for slot in pairing.slot_of]
        self._calls, self._results = Lookup(), Lookup()
        self._at: dict[tuple[int, int], str] = {}
        for number, seen in enumerate(pairing.seen):
            (self._calls if isinstance(seen, CallSeen) else self._results).add(number, seen)
            self._at[seen.position, seen.place] = self._ids[number]

    def resolve_tool_call_id(self, call: AnyCall) -> str:
        """The identifier to send for this call."""
        seen = read_call(call)
        if seen is None:
            raise InvalidInput("not a tool call: it has neither an id nor a name", field="call")
        return self._answer(self._calls.find(call, seen), seen)

    def resolve_tool_response_id(self, result: AnyResult) -> str:
        """The identifier to send for this result: that of its call."""
        seen = read_result(result)
        if seen is None:
            raise InvalidInput("not a tool result: it has neither tool_call_id nor callId", field="result")
        return self._answer(self._results.find(result, seen), seen)

    def at(self, position: int, place: int) -> str | None:
        """The identifier of the call or result at this place of the history that the mapper was made from."""
        return self._at.get((position, place))

    def _answer(self, number: int | None, seen: CallSeen | ResultSeen) -> str:
        if number is None and isinstance(seen, ResultSeen):
            # A result made after the mapper was: its call may well be in the history.
            number = self._calls.last(seen)
        if number is not None:
            return self._ids[number]
        return self._stranger(seen.id, seen.name or "", self._slots, self._taken)


def _kimi_assign(slots: list[Slot]) -> list[str]:
    # Every slot counts, those without an identifier too: skipping them would leave them
    # without an index, or with one that changes as the conversation grows. An orphan
    # counts for the call that it has lost.
    return [k2_id(slot.name, index) for index, slot in enumerate(slots)]


def _kimi_stranger(wire_id: str, name: str, slots: int, taken: AbstractSet[str]) -> str:
    # Not simply the next index: then two strangers would be told apart by who asked first.
    room = K2_MAX_INDEX + 1 - slots
    return k2_id(name, slots + int(digest(wire_id), 16) % room)


def _assign_by(spell: Callable[[str, str], str]) -> Callable[[list[Slot]], list[str]]:
    def assign(slots: list[Slot]) -> list[str]:
        ids = Distinct()
        return [ids.take(partial(spell, slot.id)) for slot in slots]

    return assign


def _stranger_by(spell: Callable[[str, str], str]) -> Callable[[str, str, int, AbstractSet[str]], str]:
    def stranger(wire_id: str, name: str, slots: int, taken: AbstractSet[str]) -> str:
        found = spell(wire_id, "")
        # The plain spelling belongs to the identifier that it spells without a loss.
        faithful = found == wire_id or wire_id == CANONICAL + found.partition("_")[2]
        salt = 0
        while not faithful or found in taken:
            found, faithful = spell(wire_id, f"_{digest(wire_id, str(salt))}"), True
            salt += 1
        return found

    return stranger


def _spelling_strategy(name: str, spell: Callable[[str, str], str]) -> Strategy:
    return Strategy(name, _assign_by(spell), _stranger_by(spell))


_STANDARD: Final = _spelling_strategy("standard", standard_id)
_STRATEGIES: Final[dict[ToolFormat, Strategy]] = {
    "kimi": Strategy("kimi", _kimi_assign, _kimi_stranger),
    "anthropic": _spelling_strategy("anthropic", anthropic_id),
    "mistral": _spelling_strategy("mistral", mistral_id),
}


def tool_id_strategy(format: str) -> Strategy:
    """The strategy for a tool format: kimi, anthropic and mistral have their own, the others the standard one.

    >>> history = [
    ...     {"role": "assistant", "tool_calls": [{"id": "call_1", "function": {"name": "ls", "arguments": "{}"}}]},
    ...     {"role": "tool", "tool_call_id": "call_1", "content": "a.py"},
    ... ]
    >>> mapper = tool_id_strategy("kimi").create_mapper(history)
    >>> mapper.resolve_tool_call_id(history[0]["tool_calls"][0]), mapper.resolve_tool_response_id(history[1])
    ('functions.ls:0', 'functions.ls:0')
    >>> tool_id_strategy("qwen").name
    'standard'
    """
    return _STRATEGIES.get(check_format(format), _STANDARD)
