"""The identifiers of a history -> those that the host wants to see in it.

| `history_ids` | what a call gets, and its result with it |
|---|---|
| `k2` | `functions.name:n`, made anew from its position among all calls |
| `unique` | the one it came with; one that repeats gets `_2`, `_3`, in order |
| `anthropic` | the same, if it is legal in Messages, otherwise `toolu_*` |
| `keep` | the one it came with, also where it repeats |

One that came without any gets `call_*`. What a call gets depends on it and on those before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec.structs import replace

from moonshim.conversation import Change, Message, Part, ToolCall, ToolResult
from moonshim.history import CallSeen
from moonshim.hosts.needs import HistoryIds
from moonshim.hosts.placed import Placed
from moonshim.ids.pairing import Pairing, pair
from moonshim.ids.spelling import ANTHROPIC_LIMIT, Distinct, anthropic_id, k2_id, standard_id

__all__ = ["condition_ids"]

_LEGAL: Final = re.compile(r"[a-zA-Z0-9_-]+")


def condition_ids(messages: list[Placed], policy: HistoryIds, changes: list[Change]) -> list[Placed]:
    """Give calls and results the identifiers of this policy. Every result stands behind its call by now."""
    pairing = pair(one.message for one in messages)
    ids = _ASSIGN[policy](_calls(pairing))
    at = {(seen.position, seen.place): ids[slot] for seen, slot in zip(pairing.seen, pairing.slot_of, strict=True)}
    if not at:
        return messages
    return [one.as_message(_named(one, position, at, changes)) for position, one in enumerate(messages)]


def _calls(pairing: Pairing) -> list[ToolCall]:
    """The call of each slot; a result that has lost its call stands for one."""
    found: dict[int, ToolCall] = {}
    for seen, slot in zip(pairing.seen, pairing.slot_of, strict=True):
        if slot not in found:
            value = seen.value
            if isinstance(seen, CallSeen):
                found[slot] = value
            else:
                found[slot] = ToolCall(value.call_id, value.name or "", "", value.wire_id)
    return list(found.values())


def _named(one: Placed, position: int, at: dict[tuple[int, int], str], changes: list[Change]) -> Message:
    parts, told = list[Part](), list[str]()
    for place, part in enumerate(one.message.parts):
        wire_id = at.get((position, place))
        if isinstance(part, (ToolCall, ToolResult)) and wire_id is not None and part.wire_id != wire_id:
            if isinstance(part, ToolCall):
                told.append(f"{part.wire_id} -> {wire_id}" if part.wire_id else f"none -> {wire_id}")
            parts.append(replace(part, wire_id=wire_id))
        else:
            parts.append(part)
    if told:
        changes.append(Change("history_id", f"identifiers as the host wants them: {', '.join(told)}", one.place))
    if all(new is old for new, old in zip(parts, one.message.parts, strict=True)):
        return one.message
    return replace(one.message, parts=tuple(parts))


def _came(call: ToolCall) -> str:
    return call.wire_id or standard_id(call.id)


def _from_position(calls: list[ToolCall]) -> list[str]:
    return [k2_id(call.name, number) for number, call in enumerate(calls)]


def _as_they_came(calls: list[ToolCall]) -> list[str]:
    ids, out = Distinct(), list[str]()
    for call in calls:
        if call.wire_id:
            ids.taken.add(call.wire_id)
            out.append(call.wire_id)
        else:
            out.append(ids.take(partial(standard_id, call.id)))
    return out


def _distinct(spell: Callable[[ToolCall, str], str]) -> Callable[[list[ToolCall]], list[str]]:
    def assign(calls: list[ToolCall]) -> list[str]:
        ids = Distinct()
        return [ids.take(partial(spell, call)) for call in calls]

    return assign


def _marked(call: ToolCall, mark: str) -> str:
    return _came(call) + mark


def _for_messages(call: ToolCall, mark: str) -> str:
    marked = _came(call) + mark if call.wire_id else ""
    if _LEGAL.fullmatch(marked) and len(marked) <= ANTHROPIC_LIMIT:
        return marked
    return anthropic_id(call.wire_id or call.id, mark)


_ASSIGN: Final[dict[HistoryIds, Callable[[list[ToolCall]], list[str]]]] = {
    "k2": _from_position,
    "unique": _distinct(_marked),
    "anthropic": _distinct(_for_messages),
    "keep": _as_they_came,
}
