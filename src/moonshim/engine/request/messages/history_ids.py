"""Tool call ids of a history -> ids that the host accepts.

| `history_ids` | the id of a call and its result |
|---|---|
| `k2` | `functions.name:n`, from the position among all calls |
| `k2_repair` | the received id if it is `functions.name:n` and `n` is unused, otherwise with the next unused `n` |
| `k2_messages` | `functions_name_n`, also from the position: legal in Messages, and recognized when K2 imitates it |
| `unique` | the received id; a repeated one gets `_2`, `_3`, in order |
| `standard` | the same if other model families accept it (at most 40 characters), otherwise `call_*` |
| `anthropic` | the same if it is legal in Messages, otherwise `toolu_*` |
| `mistral` | the same if it is nine letters and digits, otherwise nine others |
| `keep` | the received id, even if repeated |

Under the other policies a call without an id gets `call_*`. An id depends only on its call and the calls before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec.structs import replace

from moonshim.engine.hosts.detect import family_of
from moonshim.engine.hosts.profile import HistoryIds, HostProfile
from moonshim.engine.ids.pairing import Pairing, pair
from moonshim.engine.ids.repair import IdRepairer
from moonshim.engine.ids.spelling import (
    ANTHROPIC_LIMIT,
    STANDARD_LIMIT,
    UniqueIds,
    anthropic_id,
    mistral_id,
    standard_id,
)
from moonshim.engine.request.located import LocatedMessage
from moonshim.engine.values.conversation import Change, Message, Part, ToolCall, ToolResult
from moonshim.engine.values.options import KimiOptions
from moonshim.engine.values.tool_calls import FoundCall

__all__ = ["assign_ids", "policy_of"]

# LiteLLM stores Gemini's thought signature in the id, and Gemini refuses a call without it.
_STANDARD: Final = re.compile(rf"[a-zA-Z0-9_-]{{1,{STANDARD_LIMIT}}}|.*__thought__.*", re.DOTALL)
_ANTHROPIC: Final = re.compile(rf"[a-zA-Z0-9_-]{{1,{ANTHROPIC_LIMIT}}}")
_MISTRAL: Final = re.compile(r"[a-zA-Z0-9]{9}")


def policy_of(options: KimiOptions, profile: HostProfile, model: str) -> HistoryIds:
    """The id policy that the options select: their `id_rule`, which responses follow too.

    A host policy wins where Messages, or a model known not to be Kimi, would refuse other ids.
    """
    policy = profile.history_ids
    if policy in _SPELLINGS and not (policy == "standard" and family_of(model) == "other"):
        return policy
    return options.id_rule


def assign_ids(
    messages: list[LocatedMessage], policy: HistoryIds, changes: list[Change], *, prefix: str = "functions"
) -> list[LocatedMessage]:
    """Assign ids to calls and results; `prefix` applies to `k2` and `k2_repair`."""
    pairing = pair(located.message for located in messages)
    calls = _calls_by_slot(pairing)
    if policy == "k2" or policy == "k2_repair":
        repairer = IdRepairer(None, policy=policy, prefix=prefix)
        ids = [repairer.assign(call.name, call.wire_id)[0] for call in calls]
    else:
        ids = _ASSIGN[policy](calls)
    at = {(seen.position, seen.place): ids[slot] for seen, slot in zip(pairing.seen, pairing.slot_of, strict=True)}
    if not at:
        return messages
    return [located.with_message(_set_ids(located, position, at, changes)) for position, located in enumerate(messages)]


def _calls_by_slot(pairing: Pairing) -> list[ToolCall]:
    """The call of each slot; a result without its call stands in for one."""
    calls: dict[int, ToolCall] = {}
    for seen, slot in zip(pairing.seen, pairing.slot_of, strict=True):
        if slot not in calls:
            value = seen.value
            if isinstance(seen, FoundCall):
                calls[slot] = value
            else:
                calls[slot] = ToolCall(value.call_id, value.name or "", "", value.wire_id)
    return list(calls.values())


def _set_ids(located: LocatedMessage, position: int, at: dict[tuple[int, int], str], changes: list[Change]) -> Message:
    parts, renamed = list[Part](), list[str]()
    for place, part in enumerate(located.message.parts):
        wire_id = at.get((position, place))
        if isinstance(part, (ToolCall, ToolResult)) and wire_id is not None and part.wire_id != wire_id:
            if isinstance(part, ToolCall):
                renamed.append(f"{part.wire_id} -> {wire_id}" if part.wire_id else f"none -> {wire_id}")
            parts.append(replace(part, wire_id=wire_id))
        else:
            parts.append(part)
    if renamed:
        changes.append(Change("history_id", f"ids rewritten for the host: {', '.join(renamed)}", located.place))
    if all(new is old for new, old in zip(parts, located.message.parts, strict=True)):
        return located.message
    return replace(located.message, parts=tuple(parts))


def _received_id(call: ToolCall) -> str:
    return call.wire_id or standard_id(call.id)


def _keep_received(calls: list[ToolCall]) -> list[str]:
    ids, out = UniqueIds(), list[str]()
    for call in calls:
        if call.wire_id:
            ids.taken.add(call.wire_id)
            out.append(call.wire_id)
        else:
            out.append(ids.take(partial(standard_id, call.id)))
    return out


def _make_distinct(spell: Callable[[ToolCall, str], str]) -> Callable[[list[ToolCall]], list[str]]:
    def assign(calls: list[ToolCall]) -> list[str]:
        ids = UniqueIds()
        return [ids.take(partial(spell, call)) for call in calls]

    return assign


def _append_suffix(call: ToolCall, suffix: str) -> str:
    return _received_id(call) + suffix


def _keep_legal(legal: re.Pattern[str], spell: Callable[[str, str], str]) -> Callable[[list[ToolCall]], list[str]]:
    """Keep the received id where it is legal, otherwise generate one."""

    def spell_call(call: ToolCall, suffix: str) -> str:
        marked = call.wire_id + suffix if call.wire_id else ""
        return marked if legal.fullmatch(marked) else spell(call.wire_id or call.id, suffix)

    return _make_distinct(spell_call)


def _readable_ids(calls: list[ToolCall]) -> list[str]:
    ids = (f"functions_{call.name}_{number}" for number, call in enumerate(calls))
    return [readable if _ANTHROPIC.fullmatch(readable) else anthropic_id(readable) for readable in ids]


_SPELLINGS: Final[dict[HistoryIds, Callable[[list[ToolCall]], list[str]]]] = {
    "standard": _keep_legal(_STANDARD, standard_id),
    "anthropic": _keep_legal(_ANTHROPIC, anthropic_id),
    "mistral": _keep_legal(_MISTRAL, mistral_id),
    "k2_messages": _readable_ids,
}
_ASSIGN: Final[dict[HistoryIds, Callable[[list[ToolCall]], list[str]]]] = {
    "unique": _make_distinct(_append_suffix),
    "keep": _keep_received,
    **_SPELLINGS,
}
