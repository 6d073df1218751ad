"""A history -> the tool call ids that a provider expects in it.

A strategy builds a mapper from the whole history, for one request. The mapper decides everything on creation and then
only looks things up, so that no result depends on the order of the lookups.

How a lookup is resolved:

- a call or result that is an object of the history is found by identity, so equal ones at different positions have
  different ids;
- any other is found by value: its id, then its name, then its arguments or content. If several entries of the history
  are equal in all of these, the first such object looked up stands for the first entry, the next object for the second,
  and so on; looking up the same object again gives the same id;
- one that is not in the history gets its own id, computed only from its received id and the history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
    UniqueIds,
    anthropic_id,
    digest,
    k2_id,
    mistral_id,
    standard_id,
)
from moonshim.engine.values.conversation import Message, ToolCall, ToolResult
from moonshim.engine.values.tool_calls import FoundCall, FoundResult, read_call, read_result
from moonshim.engine.wire.json_fields import wrong_type
from moonshim.errors import InvalidInput

__all__ = ["HistoryMapper", "Strategy", "ToolIdMapper", "tool_id_strategy"]

_MESSAGE_KEYS: Final = ("role", "speaker", "blocks", "tool_calls", "tool_call_id")
"""One of them is in every message; a message with calls or a result may lack its role."""
AnyCall: TypeAlias = ToolCall | dict[str, Any]
AnyResult: TypeAlias = ToolResult | dict[str, Any]


class ToolIdMapper(Protocol):
    """The ids of one request."""

    def resolve_tool_call_id(self, call: AnyCall) -> str:
        """The id to send for this call."""

    def resolve_tool_response_id(self, result: AnyResult) -> str:
        """The id to send for this result: that of its call."""


class Strategy(Struct, frozen=True):
    """How a family of providers writes ids.

    Guaranteed for every strategy: the mapper is deterministic; different calls have different ids, and so do
    different orphans; a result has the id of its call; a longer history does not change the ids of a shorter one.
    """

    name: str
    assign: Callable[[list[Slot]], list[str]]
    """Ids for the slots of a history, in order."""
    unknown_id: Callable[[str, str, int, AbstractSet[str]], str]
    """The id of a call that is not in the history, from its id and name, the number of slots, and the ids in use."""

    def create_mapper(self, messages: Iterable[Any]) -> HistoryMapper:
        """The mapper for this history: OpenAI dicts, canonical messages, `{speaker, blocks}`, or a mix of them."""
        return HistoryMapper(self, messages)


class HistoryMapper:
    """The ids of one history. The module docstring describes how lookups are resolved."""

    def __init__(self, strategy: Strategy, messages: Iterable[Any]) -> None:
        pairing = pair(_check_messages(messages))
        ids = strategy.assign(pairing.slots)
        self._unknown_id = strategy.unknown_id
        self._slots = len(ids)
        self._taken = frozenset(ids)
        self._ids = [ids[slot] for slot in pairing.slot_of]
        self._calls, self._results = Lookup(), Lookup()
        self._at: dict[tuple[int, int], str] = {}
        for number, seen in enumerate(pairing.seen):
            (self._calls if isinstance(seen, FoundCall) else self._results).add(number, seen)
            self._at[seen.position, seen.place] = self._ids[number]

    def resolve_tool_call_id(self, call: AnyCall) -> str:
        """The id to send for this call."""
        seen = read_call(call)
        if seen is None:
            raise InvalidInput("not a tool call: it has neither an id nor a name", field="call")
        return self._resolve(self._calls.find(call, seen), seen)

    def resolve_tool_response_id(self, result: AnyResult) -> str:
        """The id to send for this result: that of its call."""
        seen = read_result(result)
        if seen is None:
            raise InvalidInput("not a tool result: it has neither tool_call_id nor callId", field="result")
        return self._resolve(self._results.find(result, seen), seen)

    def id_at(self, position: int, place: int) -> str | None:
        """The id of the call or result at this position of the history."""
        return self._at.get((position, place))

    def _resolve(self, number: int | None, seen: FoundCall | FoundResult) -> str:
        if number is None and isinstance(seen, FoundResult):
            # A result created after the mapper: its call may still be in the history.
            number = self._calls.last(seen)
        if number is not None:
            return self._ids[number]
        return self._unknown_id(seen.id, seen.name or "", self._slots, self._taken)


def _check_messages(messages: Iterable[Any]) -> list[Any]:
    """The messages as a list. Raises `InvalidInput` for an entry that is not a message."""
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise wrong_type("messages", "a list of messages", messages)
    listed = list(messages)
    for number, message in enumerate(listed):
        if isinstance(message, dict):
            if not any(key in message for key in _MESSAGE_KEYS):
                raise InvalidInput("not a message: it has no role", field=f"messages[{number}]")
        elif not isinstance(message, Message):
            raise InvalidInput(f"not a message: {type(message).__name__}", field=f"messages[{number}]")
    return listed


def _kimi_assign(slots: list[Slot]) -> list[str]:
    # Every slot counts, including those without an id: skipping them would leave them without an index, or with one
    # that changes as the conversation grows. An orphan counts for the call that it lost.
    return [k2_id(slot.name, index) for index, slot in enumerate(slots)]


def _kimi_unknown_id(wire_id: str, name: str, slots: int, taken: AbstractSet[str]) -> str:
    # Not simply the next index: then two unknown calls would be told apart by the order of the lookups.
    room = K2_MAX_INDEX + 1 - slots
    return k2_id(name, slots + int(digest(wire_id), 16) % room)


def _assign_by(spell: Callable[[str, str], str]) -> Callable[[list[Slot]], list[str]]:
    def assign(slots: list[Slot]) -> list[str]:
        ids = UniqueIds()
        return [ids.take(partial(spell, slot.id)) for slot in slots]

    return assign


def _unknown_id_by(spell: Callable[[str, str], str]) -> Callable[[str, str, int, AbstractSet[str]], str]:
    def unknown_id(wire_id: str, name: str, slots: int, taken: AbstractSet[str]) -> str:
        candidate = spell(wire_id, "")
        # The plain spelling is reserved for the id that it represents without loss.
        faithful = candidate == wire_id or wire_id == CANONICAL + candidate.partition("_")[2]
        salt = 0
        while not faithful or candidate in taken:
            candidate, faithful = spell(wire_id, f"_{digest(wire_id, str(salt))}"), True
            salt += 1
        return candidate

    return unknown_id


def _spelling_strategy(name: str, spell: Callable[[str, str], str]) -> Strategy:
    return Strategy(name, _assign_by(spell), _unknown_id_by(spell))


_STANDARD: Final = _spelling_strategy("standard", standard_id)
_STRATEGIES: Final[dict[ToolFormat, Strategy]] = {
    "kimi": Strategy("kimi", _kimi_assign, _kimi_unknown_id),
    "anthropic": _spelling_strategy("anthropic", anthropic_id),
    "mistral": _spelling_strategy("mistral", mistral_id),
}


def tool_id_strategy(format: str) -> Strategy:
    """The strategy for a tool format: kimi, anthropic and mistral have their own, the others use the standard one.

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
