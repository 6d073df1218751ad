"""Canonical messages -> input items.

An item that still equals its parts is written as received. One whose parts changed is written with them and all its
other fields. Anything from another dialect is written from scratch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, assert_never

from msgspec import Struct

from moonshim.engine.dialects.openai_responses.extras import Json, extras_of
from moonshim.engine.dialects.openai_responses.messages.content import TEXT_TYPES, align, parse_entries, render_entry
from moonshim.engine.dialects.openai_responses.messages.items import (
    CALLS,
    OUTPUTS,
    parse_call,
    parse_reasoning,
    parse_result,
    type_of,
)
from moonshim.engine.dialects.openai_responses.messages.parse import ROLES
from moonshim.engine.dialects.openai_responses.messages.render_item import render_call, render_reasoning, render_result
from moonshim.engine.dialects.openai_responses.tools import ToolNamespaces
from moonshim.engine.ids.spelling import standard_id
from moonshim.engine.signing import is_signed
from moonshim.engine.values.conversation import (
    Change,
    Media,
    Message,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from moonshim.errors import InvalidInput

__all__ = ["ItemRenderer", "render_messages"]

Pair: TypeAlias = tuple[int | None, Part | None]
"""A place in the content of an item, and the part that is there now."""


def render_messages(messages: Sequence[Message]) -> list[Json]:
    """The items of these messages; those parsed here and unchanged are as received.

    >>> render_messages([Message("user", (Text("hi"),))])
    [{'type': 'message', 'role': 'user', 'content': [{'type': 'input_text', 'text': 'hi'}]}]
    """
    writing = ItemRenderer(messages, ToolNamespaces(), ToolNamespaces())
    return [item for message in messages for item in writing.render(message, "")]


class _Group(Struct):
    """Parts that form one item."""

    at: int | None
    """The index of that item in the message."""
    item: Json | None
    pairs: list[Pair]

    def accepts(self, part: Part | None) -> bool:
        """Whether a part without its own item belongs here: text with text."""
        if not isinstance(part, (Text, Media)):
            return False
        if self.item is not None:
            return self.item.get("type", "message") == "message" and "role" in self.item
        # Without an item, it holds only what joined its first part.
        return isinstance(self.pairs[0][1], (Text, Media))


class ItemRenderer:
    """Renders the messages of one request.

    `before`: the tool names as declared, with which the kept items were parsed; `now`: the current names.
    """

    def __init__(
        self, messages: Sequence[Message], before: ToolNamespaces, now: ToolNamespaces, *, for_host: bool = False
    ) -> None:
        self.changes: list[Change] = []
        self._before = before
        self._now = now
        self._for_host = for_host
        calls = [part for message in messages for part in message.parts if isinstance(part, ToolCall)]
        self._wire = {call.id: standard_id(call.id) if call.wire_id is None else call.wire_id for call in calls}
        self._types: dict[str, str] = {}
        """The item types that calls were written as, by canonical id."""

    def render(self, message: Message, place: str) -> list[Json]:
        """The items of one message."""
        received_items = extras_of(message).items
        if not received_items:
            # Results in a user message answer the assistant message before it.
            first = sorted(message.parts, key=lambda part: message.role == "user" and not isinstance(part, ToolResult))
            pairs: list[Pair] = [(None, part) for part in first]
            return self._render_groups(_groups(pairs, [], []), message.role, place)
        spots = [
            (at, number, part) for at, item in enumerate(received_items) for number, part in self._parse_item(item)
        ]
        parsed = [(at, part) for at, _, part in spots if part is not None]
        if len(parsed) == len(message.parts) and all(map(_is_same, parsed, message.parts)):
            for (at, _), part in zip(parsed, message.parts, strict=True):
                if isinstance(part, ToolCall):
                    self._types[part.id] = received_items[at]["type"]
            return self._without_tokens(received_items)
        pairs = list(align([part for _, _, part in spots], message.parts))
        return self._render_groups(_groups(pairs, spots, received_items), message.role, place)

    def _parse_item(self, item: Json) -> list[Pair]:
        """The parts that an item was parsed as, each with its place in the content; None where there is no part."""
        try:
            kind = type_of(item, "")
            if kind == "message":
                return list(enumerate(parse_entries(item.get("content"), ""))) or [(None, None)]
            if kind in CALLS:
                return [(None, parse_call(item, self._before, ""))]
            if kind in OUTPUTS:
                return [(None, parse_result(item, ""))]
            if kind == "reasoning":
                part = parse_reasoning(item, "")
                return [(None, Reasoning(part.text) if is_signed(part.signature) else part)]
        except InvalidInput:
            pass  # it was not parsed in the first place, and stays unchanged
        return [(None, None)]

    def _without_tokens(self, render: Sequence[Json]) -> list[Json]:
        if not self._for_host or not any(is_signed(item.get("encrypted_content")) for item in render):
            return list(render)
        return [{k: v for k, v in item.items() if k != "encrypted_content" or not is_signed(v)} for item in render]

    def _render_groups(self, groups: list[_Group], role: Role, place: str) -> list[Json]:
        return [item for group in groups if (item := self._render_group(group, role, place)) is not None]

    def _render_group(self, group: _Group, role: Role, place: str) -> Json | None:
        part = group.pairs[0][1]
        match part:
            case Text() | Media():
                return self._render_message(group, role, place)
            case None:
                return self._render_message(group, role, place) if len(group.pairs) > 1 else group.item
            case ToolCall():
                item = render_call(part, self._wire[part.id], group.item, self._before, self._now)
                self._types[part.id] = item["type"]
                return item
            case ToolResult():
                return self._render_result(part, group.item, place)
            case Reasoning():
                if part.details and not group.item:
                    self._report_unsupported("reasoning_details dropped: Responses has no field for them", place)
                return render_reasoning(part, group.item, for_host=self._for_host)
            case _:
                assert_never(part)

    def _render_result(self, part: ToolResult, received: Json | None, place: str) -> Json:
        wire_id = part.wire_id or self._wire.get(part.call_id) or standard_id(part.call_id)
        item, unsupported = render_result(part, wire_id, received, self._types.get(part.call_id))
        for media in unsupported:
            self._report_unsupported(
                f"{media.kind} dropped: Responses does not support it in the output of a tool", place
            )
        if part.is_error and item["type"] != "apply_patch_call_output":
            self._report_unsupported("is_error dropped: Responses cannot mark a tool result as failed", place)
        return item

    def _render_message(self, group: _Group, role: Role, place: str) -> Json | None:
        received = group.item
        content = None if received is None else received.get("content")
        if isinstance(content, str) and len(group.pairs) == 1 and isinstance(text := group.pairs[0][1], Text):
            assert received is not None
            return received if content == text.text else {**received, "content": text.text}
        entries = content if isinstance(content, list) else []
        written, text_type = list[Json](), TEXT_TYPES[role]
        for number, part in group.pairs:
            old = entries[number] if number is not None and number < len(entries) else None
            entry = old if part is None else render_entry(part, old, text_type)
            if entry is not None:
                written.append(entry)
            elif isinstance(part, Media):
                self._report_unsupported(
                    f"{part.kind} dropped: Responses does not support it in {ROLES[role]} messages", place
                )
        if received is None:
            return {"type": "message", "role": ROLES[role], "content": written} if written else None
        same = len(written) == len(entries) and all(map(_is_identical, written, entries))
        return received if same else {**received, "content": written}

    def _report_unsupported(self, what: str, place: str) -> None:
        self.changes.append(Change("cannot_say", what, place or None))


def _is_same(parsed: tuple[int, Part], part: Part) -> bool:
    """Whether a part is still what was parsed. Canonical ids were assigned later, and are not on the wire."""
    old = parsed[1]
    match old:
        case ToolCall() if isinstance(part, ToolCall):
            return old.arguments == part.arguments and old.name == part.name and old.wire_id == part.wire_id
        case ToolResult() if isinstance(part, ToolResult):
            return old.parts == part.parts and old.wire_id == part.wire_id and old.is_error == part.is_error
        case Reasoning() if isinstance(part, Reasoning):
            return old.text == part.text and old.signature == part.signature
    return old == part


def _is_identical(one: object, other: object) -> bool:
    return one is other


def _groups(
    pairs: list[Pair], spots: list[tuple[int, int | None, Part | None]], received_items: Sequence[Json]
) -> list[_Group]:
    """Group parts that were, or may be, in one item."""
    groups: list[_Group] = []
    for spot, part in pairs:
        at, number, _ = spots[spot] if spot is not None else (None, None, None)
        last = groups[-1] if groups else None
        if last is not None and (last.at == at if at is not None else last.accepts(part)):
            last.pairs.append((number, part))
        else:
            groups.append(_Group(at, None if at is None else received_items[at], [(number, part)]))
    return groups
