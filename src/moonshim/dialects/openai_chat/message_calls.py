"""The entries of `tool_calls` become canonical calls, and the other way round.

Each entry has a slot: None where the call says it all, `{"call": rest}` with what is left
of the entry without the call's own text, `{"raw": entry}` for what is no call.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeAlias, TypeGuard

from moonshim.conversation import ToolCall
from moonshim.history import read_call
from moonshim.ids.spelling import standard_id
from moonshim.values import copied

__all__ = ["parse_calls", "render_calls"]

Json: TypeAlias = dict[str, Any]


def parse_calls(entries: list[Any], call_ids: dict[int, str]) -> tuple[list[ToolCall], list[Json | None]]:
    """The calls, with the canonical identifiers for their places, and a slot for every entry."""
    calls, slots = list[ToolCall](), list[Json | None]()
    for place, entry in enumerate(entries):
        seen = read_call(entry) if place in call_ids else None
        if seen is None:
            slots.append({"raw": copied(entry)})
            continue
        wire_id, (body, field) = entry.get("id"), _where(entry)
        call = ToolCall(
            call_ids[place],
            seen.name,
            _as_text(body.get(field)),
            wire_id if isinstance(wire_id, str) else None,
        )
        calls.append(call)
        slots.append(_call_slot(entry, call))
    return calls, slots


def render_calls(calls: list[tuple[str | None, ToolCall]], slots: Sequence[Json | None]) -> list[Any]:
    """The entries for these calls under these identifiers, in the order of the slots; calls without one come last."""
    left, out = list(reversed(calls)), list[Any]()
    for slot in slots:
        if slot is not None and "raw" in slot:
            out.append(copied(slot["raw"]))
        elif left:
            wire_id, call = left.pop()
            out.append(_patched_call(call, wire_id, slot) if _fits(slot, call) else _plain_call(call, wire_id))
    return out + [_plain_call(call, wire_id) for wire_id, call in reversed(left)]


def _plain_call(call: ToolCall, wire_id: str | None) -> Json:
    return {
        "id": standard_id(call.id) if wire_id is None else wire_id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def _fits(slot: Json | None, call: ToolCall) -> TypeGuard[Json]:
    """Whether the slot is this call's: calls may have come and gone since, and what one has is not another's."""
    came = None if slot is None else slot["call"].get("id")
    return slot is not None and (came if isinstance(came, str) else None) == call.wire_id


def _patched_call(call: ToolCall, wire_id: str | None, slot: Json) -> Json:
    out: Json = copied(slot["call"])
    if wire_id is not None:
        out["id"] = wire_id
    body, field = _where(out)
    name = body.get("name")
    if call.name != (name if isinstance(name, str) else ""):
        body["name"] = call.name
    if slot.get("text") or _as_text(body.get(field)) != call.arguments:
        body[field] = call.arguments
    return out


def _where(entry: Json) -> tuple[Json, str]:
    """The object of an entry that has the name, and the field of it that has the arguments."""
    for key, field in (("function", "arguments"), ("custom", "input")):
        if isinstance(entry.get(key), dict):
            return entry[key], field
    return entry, "arguments"


def _as_text(arguments: Any) -> str:
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))


def _call_slot(entry: Json, call: ToolCall) -> Json | None:
    """What is left of the entry: the whole, without the text that the call itself has."""
    if entry == _plain_call(call, call.wire_id):
        return None
    rest = copied(entry)
    body, field = _where(rest)
    if not isinstance(body.get(field), str):
        return {"call": rest}
    del body[field]
    return {"call": rest, "text": True}
