"""Messages <-> canonical messages.

Parsing and rendering a list of messages gives an equal list, including unknown fields. The parts of the canonical
message always win: `MessagesMessageExtras` only describes how they were written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from moonshim.engine.dialects.anthropic.blocks import Writer, exactly
from moonshim.engine.dialects.anthropic.extras import DIALECT, Json, MessagesMessageExtras, extras_of
from moonshim.engine.dialects.anthropic.parts import parse_block
from moonshim.engine.ids.pairing import canonical_ids, pair
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

__all__ = ["parse_messages", "parse_system", "read_messages", "render_messages", "write_messages", "write_system"]

_SPEAKERS: Final[dict[str, Role]] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}
_ROLES: Final[dict[Role, str]] = {"user": "user", "assistant": "assistant", "tool": "user", "system": "system"}
_HELD: Final[dict[Role, tuple[type[Part], ...]]] = {
    "user": (Text, Media, ToolResult),
    "assistant": (Text, Media, Reasoning, ToolCall),
    "system": (Text, Media),
}


# --- blocks -> canonical ----------------------------------------------------------------------------------------


def parse_messages(messages: Iterable[Any]) -> list[Message]:
    """Canonical messages. Raises `InvalidInput`, which names the field, for an invalid message.

    >>> [message.parts for message in parse_messages([{"role": "user", "content": "hi"}])]
    [(Text(text='hi'),)]
    """
    return read_messages(messages)[0]


def read_messages(messages: Any) -> tuple[list[Message], list[str]]:
    """Canonical messages, and the path of each."""
    if isinstance(messages, (str, bytes, dict)) or not isinstance(messages, Iterable):
        raise InvalidInput(f"messages must be a list, not {type(messages).__name__}", field="messages")
    parsed, places, paired = list[Message](), list[str](), False
    for position, message in enumerate(messages):
        place = f"messages[{position}]"
        for one in _parse_message(message, place):
            parsed.append(one)
            places.append(place)
            paired = paired or any(isinstance(part, (ToolCall, ToolResult)) for part in one.parts)
    return _with_canonical_ids(parsed) if paired else parsed, places


def parse_system(system: Any) -> list[Message]:
    """The message for the `system` of a request, unless it is empty."""
    if system is None or system == "" or system == []:
        return []
    if isinstance(system, str):
        return [Message("system", (Text(system),), {DIALECT: MessagesMessageExtras(top=system)})]
    if not isinstance(system, list):
        raise InvalidInput("system must be a string or a list of text blocks", field="system")
    parts: list[Part] = []
    for index, block in enumerate(system):
        part = parse_block(block, "system", index)
        if not isinstance(part, Text):
            raise InvalidInput("a system prompt is made of text blocks", field=f"system[{index}]")
        parts.append(part)
    return [Message("system", tuple(parts), {DIALECT: MessagesMessageExtras(top=system)})]


def _parse_message(message: Any, place: str) -> list[Message]:
    given = message.get("role") if isinstance(message, dict) else None
    role = _SPEAKERS.get(given) if isinstance(given, str) else None
    if role is None:
        raise InvalidInput("a message must be an object whose role is user, assistant or system", field=place)
    parts = _parse_content(message.get("content"), place)
    for index, part in enumerate(parts):
        if not isinstance(part, _HELD[role]):
            raise InvalidInput(f"a message of role {given} cannot hold this block", field=f"{place}.content[{index}]")
    results = tuple(part for part in parts if isinstance(part, ToolResult))
    if not results:
        return [Message(role, tuple(parts), {DIALECT: MessagesMessageExtras(message)})]
    if len(results) == len(parts):
        return [Message("tool", results, {DIALECT: MessagesMessageExtras(message)})]
    rest = tuple(part for part in parts if not isinstance(part, ToolResult))
    return [
        Message("tool", results, {DIALECT: MessagesMessageExtras(message, 1)}),
        Message("user", rest, {DIALECT: MessagesMessageExtras(message, 2)}),
    ]


def _parse_content(content: Any, place: str) -> list[Part]:
    if isinstance(content, str):
        return [Text(content)]
    if isinstance(content, list):
        where = f"{place}.content"
        return [parse_block(block, where, index) for index, block in enumerate(content)]
    raise InvalidInput("content must be a string or a list of blocks", field=f"{place}.content")


def _with_canonical_ids(messages: list[Message]) -> list[Message]:
    pairing = pair(messages)
    ids, parts = canonical_ids(pairing), dict[int, list[Part]]()
    for seen, slot in zip(pairing.seen, pairing.slot_of, strict=True):
        mine = parts.setdefault(seen.position, list(messages[seen.position].parts))
        old = mine[seen.place]
        if isinstance(old, ToolCall):
            mine[seen.place] = replace(old, id=ids[slot])
        elif isinstance(old, ToolResult):
            mine[seen.place] = replace(old, call_id=ids[slot], name=pairing.slots[slot].name or None)
    return [replace(one, parts=tuple(parts[n])) if n in parts else one for n, one in enumerate(messages)]


# --- canonical -> blocks ----------------------------------------------------------------------------------------


def render_messages(messages: Sequence[Message]) -> list[Json]:
    """Messages for a client: system prompts are messages of that role, and our own signatures stay.

    Ids are returned as received; those of other dialects are converted to valid Messages ids.

    >>> render_messages([Message("user", (Text("hi"),)), Message("user", (Text("there"),))])
    [{'role': 'user', 'content': [{'type': 'text', 'text': 'hi'}, {'type': 'text', 'text': 'there'}]}]
    """
    return write_messages(messages, for_client=True)[0]


def write_messages(
    messages: Sequence[Message],
    places: Sequence[str] = (),
    *,
    for_client: bool = False,
) -> tuple[list[Json], list[Change]]:
    """The list of messages, and what could not be expressed.

    A message received in this dialect stays separate; others are merged with a neighbour of the same role. A system
    prompt of another dialect becomes user text, unless the messages are for a client.
    """
    writer = Writer(_wire_ids(messages), for_client=for_client)
    written, after = list[_Written](), False
    for n, message in enumerate(messages):
        if after:
            after = False
            continue
        writer.place = places[n] if n < len(places) else f"messages[{n}]"
        extras = extras_of(message)
        whole = extras.came if extras.half == 1 and _is_other_half(extras, messages[n + 1 : n + 2]) else None
        if whole is not None and _is_unchanged(whole, [*message.parts, *messages[n + 1].parts], writer):
            _join(written, _Written(whole["role"], [], whole, came=True))
            after = True
        else:
            _join(written, _write(message, extras, writer, not for_client))
    return [one.body() for one in written], writer.changes


def write_system(messages: Sequence[Message]) -> Any:
    """The `system` of a request: as received if unchanged; None if it is empty."""
    writer, blocks, listed = Writer({}, for_client=False), list[Json](), False
    for message in messages:
        top = extras_of(message).top
        if isinstance(top, str):
            blocks += writer.fresh(message.parts)
        elif isinstance(top, list):
            if len(messages) == 1 and [parse_block(block) for block in top] == list(message.parts):
                return top
            blocks += writer.follow(message.parts, top)
            listed = True
        else:
            blocks += writer.fresh(message.parts)
    if len(blocks) == 1 and not listed and blocks[0]["type"] == "text":
        return blocks[0]["text"]
    return blocks or None


class _Written:
    """A message being rendered; `exact` is the received message if nothing has changed."""

    __slots__ = ("blocks", "came", "exact", "fields", "joined", "joins", "listed", "role")

    def __init__(
        self, role: str, blocks: list[Json], exact: Json | None = None, *, came: bool = False, joins: bool = False
    ) -> None:
        self.role = role
        self.blocks = blocks
        self.exact = exact
        self.came = came
        self.joins = joins
        self.joined = False
        self.listed = False
        self.fields: Json = {}

    def body(self) -> Json:
        if self.exact is not None:
            return self.exact
        content: Any = self.blocks
        if self.joined:
            # Results must directly follow their calls, and hosts that validate thinking expect it first.
            first = "tool_result" if self.role == "user" else "thinking"
            content = sorted(content, key=lambda block: first not in block["type"])
        if not self.listed and len(content) == 1 and content[0].keys() == {"type", "text"}:
            content = content[0]["text"]
        return {"role": self.role, "content": content, **self.fields}

    def open(self) -> None:
        """It will not be sent as received."""
        if self.exact is not None:
            content = self.exact["content"]
            self.blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
            self.fields = {key: value for key, value in self.exact.items() if key not in ("role", "content")}
            self.exact = None


def _join(written: list[_Written], one: _Written) -> None:
    """Merge messages of one role, unless they were received as two."""
    before = written[-1] if written else None
    if one.exact is None and not one.blocks:
        return
    if before is None or before.role != one.role or one.role not in ("user", "assistant"):
        written.append(one)
        return
    if before.came and one.came and not one.joins:
        written.append(one)
        return
    before.open()
    one.open()
    # Sorted once, after all are merged: there may be many.
    before.joined = True
    before.blocks += one.blocks
    before.fields |= one.fields
    before.came |= one.came
    before.listed |= one.listed


def _write(message: Message, extras: MessagesMessageExtras, writer: Writer, system_as_user: bool) -> _Written:
    came, half = extras.came, extras.half
    if came is None:
        return _write_fresh(message, writer, system_as_user)
    if half is None and _is_unchanged(came, message.parts, writer):
        return _Written(came["role"], [], came, came=True)
    content = came["content"]
    entries = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if half is not None:
        entries = [entry for entry in entries if (entry["type"] == "tool_result") == (half == 1)]
    # The role may have been changed: then it is not the received message any more.
    role = _ROLES[message.role]
    same = _ROLES[_SPEAKERS[came["role"]]] == role
    blocks = writer.follow(message.parts, entries)
    out = _Written(came["role"] if same else role, blocks, came=same, joins=half == 2)
    out.listed = isinstance(content, list)
    out.fields = {key: value for key, value in came.items() if key not in ("role", "content")}
    return out


def _write_fresh(message: Message, writer: Writer, system_as_user: bool) -> _Written:
    parts = message.parts
    if message.role == "system" and system_as_user:
        writer.cannot_say("a system prompt behind the first message: it is said as text of the user")
        text = "\n".join(part.text for part in parts if isinstance(part, Text))
        return _Written("user", [{"type": "text", "text": f"<system>\n{text}\n</system>"}] if text else [])
    if message.role == "assistant":
        parts = tuple(sorted(parts, key=lambda part: not isinstance(part, Reasoning)))
    elif message.role == "user":
        parts = tuple(sorted(parts, key=lambda part: not isinstance(part, ToolResult)))
    return _Written(_ROLES[message.role], writer.fresh(parts))


def _is_other_half(extras: MessagesMessageExtras, following: Sequence[Message]) -> bool:
    if not following:
        return False
    other = extras_of(following[0])
    return other.half == 2 and (other.came is extras.came or other.came == extras.came)


def _is_unchanged(came: Json, parts: Sequence[Part], writer: Writer) -> bool:
    """Whether these parts equal the received message, and it may be sent unchanged."""
    content = came["content"]
    if isinstance(content, str):
        return len(parts) == 1 and parts[0] == Text(content)
    old = [parse_block(block) for block in content]
    if len(old) != len(parts):
        return False
    if any(isinstance(part, ToolResult) for part in old):
        old.sort(key=lambda part: not isinstance(part, ToolResult))
    return all(map(exactly, old, parts)) and all(map(writer.as_it_came, content))


def _wire_ids(messages: Sequence[Message]) -> dict[str, str | None]:
    calls = (part for message in messages for part in message.parts if isinstance(part, ToolCall))
    return {call.id: call.wire_id for call in calls}
