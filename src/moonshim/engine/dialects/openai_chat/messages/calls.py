"""Entries of `tool_calls` <-> canonical calls.

Each entry has a slot: None where the call describes it fully, otherwise the entry without the data of the call, or
the whole entry if it is not a call.

A call of a custom tool has one free-form string. Its canonical form is `{"input": text}`, which is what a model that
only knows functions writes.
"""

from __future__ import annotations

import json
from collections.abc import Container, Sequence
from typing import Any, TypeAlias

from msgspec import UNSET

from moonshim.engine.dialects.openai_chat.extras import CallSlot
from moonshim.engine.formats.free_text import extract_input
from moonshim.engine.ids.spelling import standard_id
from moonshim.engine.values.conversation import ToolCall
from moonshim.engine.values.copies import deep_copy
from moonshim.engine.values.tool_calls import read_call

__all__ = ["parse_calls", "render_calls"]

Json: TypeAlias = dict[str, Any]


def parse_calls(entries: list[Any], call_ids: dict[int, str]) -> tuple[list[ToolCall], list[CallSlot | None]]:
    """The calls, with the canonical ids for their positions, and a slot for every entry."""
    calls, slots = list[ToolCall](), list[CallSlot | None]()
    for place, entry in enumerate(entries):
        seen = read_call(entry) if place in call_ids else None
        if seen is None:
            slots.append(CallSlot(raw=deep_copy(entry)))
            continue
        wire_id = entry.get("id")
        call = ToolCall(
            call_ids[place], seen.name, _arguments_text(entry), wire_id if isinstance(wire_id, str) else None
        )
        calls.append(call)
        slots.append(_call_slot(entry, call))
    return calls, slots


def render_calls(
    calls: list[tuple[str | None, ToolCall]], slots: Sequence[CallSlot | None], custom: Container[str] | None = None
) -> list[Any]:
    """The entries for these calls under these ids, in the order of the slots; calls without a slot come last.

    `custom`: the tools that take a free-form string; None: those whose calls were received that way.
    """
    left, out = list(reversed(calls)), list[Any]()
    for slot in slots:
        if slot is not None and slot.raw is not UNSET:
            out.append(deep_copy(slot.raw))
        elif left:
            wire_id, call = left.pop()
            matching = _matching_slot(slot, call, custom)
            if matching is None or matching.call is None:
                out.append(_render_call(call, wire_id, custom))
            else:
                out.append(_patch_call(call, wire_id, matching.call, was_text=matching.text))
    return out + [_render_call(call, wire_id, custom) for wire_id, call in reversed(left)]


def _render_call(call: ToolCall, wire_id: str | None, custom: Container[str] | None = None) -> Json:
    entry: Json = {"id": standard_id(call.id) if wire_id is None else wire_id}
    if custom is not None and call.name in custom:
        return entry | {"type": "custom", "custom": {"name": call.name, "input": extract_input(call.arguments)}}
    # Calls of Kimi's built-in tools have a name that starts with a dollar sign, and a type of their own.
    kind = "builtin_function" if call.name.startswith("$") else "function"
    return entry | {"type": kind, "function": {"name": call.name, "arguments": call.arguments}}


def _matching_slot(slot: CallSlot | None, call: ToolCall, custom: Container[str] | None) -> CallSlot | None:
    """The slot, if it belongs to this call and its kind: calls may have been added or removed since."""
    if slot is None or slot.call is None or slot.of != call.id:
        return None
    return slot if custom is None or ("custom" in slot.call) == (call.name in custom) else None


def _patch_call(call: ToolCall, wire_id: str | None, rest: Json, *, was_text: bool) -> Json:
    out = deep_copy(rest)
    if wire_id is not None:
        out["id"] = wire_id
    body, field = _call_body(out)
    name = body.get("name")
    if call.name != (name if isinstance(name, str) else ""):
        body["name"] = call.name
    if was_text or _arguments_text(out) != call.arguments:
        body[field] = extract_input(call.arguments) if field == "input" else call.arguments
    return out


def _arguments_text(entry: Json) -> str:
    """The arguments of a call as a string."""
    body, field = _call_body(entry)
    value = body.get(field)
    return _to_json_text({"input": value} if field == "input" and isinstance(value, str) else value)


def _call_body(entry: Json) -> tuple[Json, str]:
    """The object of an entry with the name, and its field for the arguments."""
    for key, field in (("function", "arguments"), ("custom", "input")):
        if isinstance(entry.get(key), dict):
            return entry[key], field
    return entry, "arguments"


def _to_json_text(arguments: Any) -> str:
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))


def _call_slot(entry: Json, call: ToolCall) -> CallSlot | None:
    """The entry without the data that the call itself has."""
    if entry == _render_call(call, call.wire_id):
        return None
    rest = deep_copy(entry)
    body, field = _call_body(rest)
    if not isinstance(body.get(field), str):
        return CallSlot(rest, call.id)
    del body[field]
    return CallSlot(rest, call.id, text=True)
