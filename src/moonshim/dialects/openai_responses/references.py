"""What only whoever holds earlier answers can act on: references to items, and everything else that stays here.

A body may name items instead of repeating them. `resolve_references` puts them in their
place, given a way to look them up; `left_behind` tells what of a request no other dialect
is told of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from moonshim.conversation import Change, Request
from moonshim.dialects.openai_responses.content import Json
from moonshim.dialects.openai_responses.fields import FIELDS
from moonshim.dialects.openai_responses.items import CALLS, OUTPUTS, type_of
from moonshim.dialects.openai_responses.request import kept_fields
from moonshim.dialects.openai_responses.writing import kept_items

__all__ = ["left_behind", "resolve_references"]

_READ: Final = frozenset({"message", "reasoning", *CALLS, *OUTPUTS})
_SAID: Final = frozenset({"model", "instructions", "tools", "tool_choice", "text", "reasoning"}).union(
    *(field.keys for field in FIELDS.values())
)
_IDLE: Final = frozenset({"include", "store", "stream_options"})
"""They are about the answer, and the answer is written in this dialect whatever host gave it."""


def resolve_references(body: Any, lookup: Callable[[str], Mapping[str, Any] | None]) -> Any:
    """The body with every `item_reference` replaced by what `lookup` finds for its identifier.

    References that it does not find stay. A body without any is returned as it is.

    >>> body = {"input": [{"type": "item_reference", "id": "rs_1"}]}
    >>> resolve_references(body, {"rs_1": {"type": "reasoning", "id": "rs_1", "summary": []}}.get)["input"]
    [{'type': 'reasoning', 'id': 'rs_1', 'summary': []}]
    """
    items = body.get("input") if isinstance(body, dict) else None
    if not isinstance(items, list):
        return body
    out = []
    for item in items:
        found = lookup(item["id"]) if _is_reference(item) else None
        out.append(item if found is None else dict(found))
    return body if all(map(_is, out, items)) else {**body, "input": out}


def _is_reference(item: Any) -> bool:
    if not isinstance(item, dict) or not isinstance(item.get("id"), str):
        return False
    return item.get("type") == "item_reference" or (item.get("type") is None and "role" not in item)


def _is(one: object, other: object) -> bool:
    return one is other


def left_behind(request: Request) -> list[Change]:
    """What a request that came in this dialect says, and a host of another dialect is not told.

    >>> from moonshim.dialects.openai_responses.request import parse_request
    >>> from moonshim.seal import Sealer
    >>> request, _ = parse_request({"model": "m", "input": "hi", "truncation": "auto"}, Sealer())
    >>> [change.place for change in left_behind(request)]
    ['truncation']
    """
    changes = []
    for message, place in zip(request.messages, [*request.places, *[""] * len(request.messages)], strict=False):
        for item in kept_items(message):
            kind = type_of(item, place)
            if kind == "item_reference":
                detail = f"the item {item.get('id')!r} is only referred to, and nobody knows it"
                changes.append(Change("unresolved_reference", detail, place or None))
            elif kind not in _READ:
                changes.append(
                    Change("cannot_say", f"an item of type {kind} means nothing to other hosts", place or None)
                )
            else:
                changes += _unread_entries(item, place)
    for key, value in kept_fields(request).items():
        if value is not None and key not in _SAID and key not in _IDLE:
            changes.append(Change("cannot_say", f"{key} is a field of Responses alone", key))
    return changes


def _unread_entries(item: Json, place: str) -> list[Change]:
    entries = item.get("content")
    types = [entry.get("type") for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return [
        Change("cannot_say", f"content of type {kind} by file_id is known to its host alone", place or None)
        for kind, entry in zip(types, entries or (), strict=False)
        if kind in ("input_image", "input_file") and "file_id" in entry and not _has_address(entry)
    ]


def _has_address(entry: Json) -> bool:
    return any(isinstance(entry.get(key), str) for key in ("image_url", "file_data", "file_url"))
