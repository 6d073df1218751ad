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
    read_call,
    read_reasoning,
    read_result,
    type_of,
)
from moonshim.engine.dialects.openai_responses.messages.parse import ROLES
from moonshim.engine.dialects.openai_responses.messages.render_item import write_call, write_reasoning, write_result
from moonshim.engine.dialects.openai_responses.tools import Names
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

__all__ = ["Writing", "render_messages"]

Pair: TypeAlias = tuple[int | None, Part | None]
"""A place in the content of an item, and the part that is there now."""


def render_messages(messages: Sequence[Message]) -> list[Json]:
    """The items of these messages; those parsed here and unchanged are as received.

    >>> render_messages([Message("user", (Text("hi"),))])
    [{'type': 'message', 'role': 'user', 'content': [{'type': 'input_text', 'text': 'hi'}]}]
    """
    writing = Writing(messages, Names(), Names())
    return [item for message in messages for item in writing.items(message, "")]


class _Group(Struct):
    """Parts that form one item."""

    at: int | None
    """The index of that item in the message."""
    item: Json | None
    pairs: list[Pair]

    def takes(self, part: Part | None) -> bool:
        """Whether a part without its own item belongs here: text with text."""
        if not isinstance(part, (Text, Media)):
            return False
        if self.item is not None:
            return self.item.get("type", "message") == "message" and "role" in self.item
        # Without an item, it holds only what joined its first part.
        return isinstance(self.pairs[0][1], (Text, Media))


class Writing:
    """Renders the messages of one request.

    `before`: the tool names as declared, with which the kept items were parsed; `now`: the current names.
    """

    def __init__(self, messages: Sequence[Message], before: Names, now: Names, *, for_host: bool = False) -> None:
        self.changes: list[Change] = []
        self._before = before
        self._now = now
        self._for_host = for_host
        calls = [part for message in messages for part in message.parts if isinstance(part, ToolCall)]
        self._wire = {call.id: standard_id(call.id) if call.wire_id is None else call.wire_id for call in calls}
        self._types: dict[str, str] = {}
        """The item types that calls were written as, by canonical id."""

    def items(self, message: Message, place: str) -> list[Json]:
        """The items of one message."""
        kept = extras_of(message).items
        if not kept:
            # Results in a user message answer the assistant message before it.
            first = sorted(message.parts, key=lambda part: message.role == "user" and not isinstance(part, ToolResult))
            pairs: list[Pair] = [(None, part) for part in first]
            return self._grouped(_groups(pairs, [], []), message.role, place)
        spots = [(at, number, part) for at, item in enumerate(kept) for number, part in self._read(item)]
        spoken = [(at, part) for at, _, part in spots if part is not None]
        if len(spoken) == len(message.parts) and all(map(_is_same, spoken, message.parts)):
            for (at, _), part in zip(spoken, message.parts, strict=True):
                if isinstance(part, ToolCall):
                    self._types[part.id] = kept[at]["type"]
            return self._unsealed(kept)
        pairs = list(align([part for _, _, part in spots], message.parts))
        return self._grouped(_groups(pairs, spots, kept), message.role, place)

    def _read(self, item: Json) -> list[Pair]:
        """The parts that an item was parsed as, each with its place in the content; None where there is no part."""
        try:
            kind = type_of(item, "")
            if kind == "message":
                return list(enumerate(parse_entries(item.get("content"), ""))) or [(None, None)]
            if kind in CALLS:
                return [(None, read_call(item, self._before, ""))]
            if kind in OUTPUTS:
                return [(None, read_result(item, ""))]
            if kind == "reasoning":
                part = read_reasoning(item, "")
                return [(None, Reasoning(part.text) if is_signed(part.signature) else part)]
        except InvalidInput:
            pass  # it was not parsed in the first place, and stays unchanged
        return [(None, None)]

    def _unsealed(self, items: Sequence[Json]) -> list[Json]:
        if not self._for_host or not any(is_signed(item.get("encrypted_content")) for item in items):
            return list(items)
        return [{k: v for k, v in item.items() if k != "encrypted_content" or not is_signed(v)} for item in items]

    def _grouped(self, groups: list[_Group], role: Role, place: str) -> list[Json]:
        return [item for group in groups if (item := self._write(group, role, place)) is not None]

    def _write(self, group: _Group, role: Role, place: str) -> Json | None:
        part = group.pairs[0][1]
        match part:
            case Text() | Media():
                return self._message(group, role, place)
            case None:
                return self._message(group, role, place) if len(group.pairs) > 1 else group.item
            case ToolCall():
                item = write_call(part, self._wire[part.id], group.item, self._before, self._now)
                self._types[part.id] = item["type"]
                return item
            case ToolResult():
                return self._result(part, group.item, place)
            case Reasoning():
                if part.details and not group.item:
                    self._unsaid("no place for reasoning_details", place)
                return write_reasoning(part, group.item, for_host=self._for_host)
            case _:
                assert_never(part)

    def _result(self, part: ToolResult, came: Json | None, place: str) -> Json:
        wire_id = part.wire_id or self._wire.get(part.call_id) or standard_id(part.call_id)
        item, unsaid = write_result(part, wire_id, came, self._types.get(part.call_id))
        for media in unsaid:
            self._unsaid(f"no {media.kind} in the output of a tool", place)
        if part.is_error and item["type"] != "apply_patch_call_output":
            self._unsaid("no mark for a failed tool; its text tells", place)
        return item

    def _message(self, group: _Group, role: Role, place: str) -> Json | None:
        came = group.item
        content = None if came is None else came.get("content")
        if isinstance(content, str) and len(group.pairs) == 1 and isinstance(said := group.pairs[0][1], Text):
            assert came is not None
            return came if content == said.text else {**came, "content": said.text}
        entries = content if isinstance(content, list) else []
        written, text_type = list[Json](), TEXT_TYPES[role]
        for number, part in group.pairs:
            old = entries[number] if number is not None and number < len(entries) else None
            entry = old if part is None else render_entry(part, old, text_type)
            if entry is not None:
                written.append(entry)
            elif isinstance(part, Media):
                self._unsaid(f"no {part.kind} in a message of the {ROLES[role]}", place)
        if came is None:
            return {"type": "message", "role": ROLES[role], "content": written} if written else None
        same = len(written) == len(entries) and all(map(_is, written, entries))
        return came if same else {**came, "content": written}

    def _unsaid(self, what: str, place: str) -> None:
        self.changes.append(Change("cannot_say", f"Responses has {what}", place or None))


def _is_same(spoken: tuple[int, Part], part: Part) -> bool:
    """Whether a part is still what was parsed. Canonical ids were assigned later, and are not on the wire."""
    said = spoken[1]
    match said:
        case ToolCall() if isinstance(part, ToolCall):
            return said.arguments == part.arguments and said.name == part.name and said.wire_id == part.wire_id
        case ToolResult() if isinstance(part, ToolResult):
            return said.parts == part.parts and said.wire_id == part.wire_id and said.is_error == part.is_error
        case Reasoning() if isinstance(part, Reasoning):
            return said.text == part.text and said.signature == part.signature
    return said == part


def _is(one: object, other: object) -> bool:
    return one is other


def _groups(pairs: list[Pair], spots: list[tuple[int, int | None, Part | None]], kept: Sequence[Json]) -> list[_Group]:
    """Group parts that were, or may be, in one item."""
    groups: list[_Group] = []
    for spot, part in pairs:
        at, number, _ = spots[spot] if spot is not None else (None, None, None)
        last = groups[-1] if groups else None
        if last is not None and (last.at == at if at is not None else last.takes(part)):
            last.pairs.append((number, part))
        else:
            groups.append(_Group(at, None if at is None else kept[at], [(number, part)]))
    return groups
