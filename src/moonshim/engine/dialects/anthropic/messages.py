"""Messages <-> canonical messages.

Parsing and rendering a list of messages gives an equal list, including unknown fields. The parts of the canonical
message always win: `MessagesMessageExtras` only describes how they were written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from moonshim.engine.dialects.anthropic.blocks import BlockRenderer, is_unchanged_part
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
from moonshim.engine.wire.json_fields import OBJECT, STRING, check_value, read_required, wrong_type
from moonshim.errors import InvalidInput

__all__ = [
    "parse_message_list",
    "parse_messages",
    "parse_system",
    "render_message_list",
    "render_messages",
    "render_system",
]

_ROLE_OF: Final[dict[str, Role]] = {
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
    return parse_message_list(messages)[0]


def parse_message_list(messages: Any) -> tuple[list[Message], list[str]]:
    """Canonical messages, and the path of each."""
    if isinstance(messages, (str, bytes, dict)) or not isinstance(messages, Iterable):
        raise wrong_type("messages", "a list", messages)
    parsed, places, paired = list[Message](), list[str](), False
    for position, message in enumerate(messages):
        place = f"messages[{position}]"
        for current in _parse_message(message, place):
            parsed.append(current)
            places.append(place)
            paired = paired or any(isinstance(part, (ToolCall, ToolResult)) for part in current.parts)
    return _with_canonical_ids(parsed) if paired else parsed, places


def parse_system(system: Any) -> list[Message]:
    """The message for the `system` of a request, unless it is empty."""
    if system is None or system == "" or system == []:
        return []
    if isinstance(system, str):
        return [Message("system", (Text(system),), {DIALECT: MessagesMessageExtras(top=system)})]
    if not isinstance(system, list):
        raise wrong_type("system", "a string or a list of text blocks", system)
    parts: list[Part] = []
    for index, block in enumerate(system):
        part = parse_block(block, "system", index)
        if not isinstance(part, Text):
            raise InvalidInput("system may contain only text blocks", field=f"system[{index}]")
        parts.append(part)
    return [Message("system", tuple(parts), {DIALECT: MessagesMessageExtras(top=system)})]


def _parse_message(message: Any, place: str) -> list[Message]:
    check_value(message, OBJECT, place)
    name: str = read_required(message, "role", STRING, f"{place}.")
    role = _ROLE_OF.get(name)
    if role is None:
        raise InvalidInput(f"{place}.role must be user, assistant or system", field=f"{place}.role")
    parts = _parse_content(message.get("content"), place)
    for index, part in enumerate(parts):
        if not isinstance(part, _HELD[role]):
            raise InvalidInput(
                f"a message with the role {name} cannot contain this type of block", field=f"{place}.content[{index}]"
            )
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
    if content is None:
        raise InvalidInput(f"{place}.content is required", field=f"{place}.content")
    raise wrong_type(f"{place}.content", "a string or a list of blocks", content)


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
    return [replace(current, parts=tuple(parts[n])) if n in parts else current for n, current in enumerate(messages)]


# --- canonical -> blocks ----------------------------------------------------------------------------------------


def render_messages(messages: Sequence[Message]) -> list[Json]:
    """Messages for a client: system prompts are messages of that role, and our own signatures stay.

    Ids are returned as received; those of other dialects are converted to valid Messages ids.

    >>> render_messages([Message("user", (Text("hi"),)), Message("user", (Text("there"),))])
    [{'role': 'user', 'content': [{'type': 'text', 'text': 'hi'}, {'type': 'text', 'text': 'there'}]}]
    """
    return render_message_list(messages, for_client=True)[0]


def render_message_list(
    messages: Sequence[Message],
    places: Sequence[str] = (),
    *,
    for_client: bool = False,
) -> tuple[list[Json], list[Change]]:
    """The list of messages, and what could not be expressed.

    A message received in this dialect stays separate; others are merged with a neighbour of the same role. A system
    prompt of another dialect becomes user text, unless the messages are for a client.
    """
    renderer = BlockRenderer(_wire_ids(messages), for_client=for_client)
    rendered, after = list[_RenderedMessage](), False
    for n, message in enumerate(messages):
        if after:
            after = False
            continue
        renderer.place = places[n] if n < len(places) else f"messages[{n}]"
        extras = extras_of(message)
        whole = extras.came if extras.half == 1 and _is_other_half(extras, messages[n + 1 : n + 2]) else None
        if whole is not None and _is_unchanged(whole, [*message.parts, *messages[n + 1].parts], renderer):
            _append_or_merge(rendered, _RenderedMessage(whole["role"], [], whole, was_received=True))
            after = True
        else:
            _append_or_merge(rendered, _render_message(message, extras, renderer, not for_client))
    return [current.body() for current in rendered], renderer.changes


def render_system(messages: Sequence[Message]) -> Any:
    """The `system` of a request: as received if unchanged; None if it is empty."""
    renderer, blocks, listed = BlockRenderer({}, for_client=False), list[Json](), False
    for message in messages:
        top = extras_of(message).top
        if isinstance(top, str):
            blocks += renderer.render(message.parts)
        elif isinstance(top, list):
            if len(messages) == 1 and [parse_block(block) for block in top] == list(message.parts):
                return top
            blocks += renderer.render_like(message.parts, top)
            listed = True
        else:
            blocks += renderer.render(message.parts)
    if len(blocks) == 1 and not listed and blocks[0]["type"] == "text":
        return blocks[0]["text"]
    return blocks or None


class _RenderedMessage:
    """A message being rendered; `exact` is the received message if nothing has changed."""

    __slots__ = ("blocks", "exact", "fields", "is_merged", "listed", "merges", "role", "was_received")

    def __init__(
        self,
        role: str,
        blocks: list[Json],
        exact: Json | None = None,
        *,
        was_received: bool = False,
        merges: bool = False,
    ) -> None:
        self.role = role
        self.blocks = blocks
        self.exact = exact
        self.was_received = was_received
        self.merges = merges
        self.is_merged = False
        self.listed = False
        self.fields: Json = {}

    def body(self) -> Json:
        if self.exact is not None:
            return self.exact
        content: Any = self.blocks
        if self.is_merged:
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


def _append_or_merge(rendered: list[_RenderedMessage], current: _RenderedMessage) -> None:
    """Merge messages of one role, unless they were received as two."""
    before = rendered[-1] if rendered else None
    if current.exact is None and not current.blocks:
        return
    if before is None or before.role != current.role or current.role not in ("user", "assistant"):
        rendered.append(current)
        return
    if before.was_received and current.was_received and not current.merges:
        rendered.append(current)
        return
    before.open()
    current.open()
    # Sorted once, after all are merged: there may be many.
    before.is_merged = True
    before.blocks += current.blocks
    before.fields |= current.fields
    before.was_received |= current.was_received
    before.listed |= current.listed


def _render_message(
    message: Message, extras: MessagesMessageExtras, renderer: BlockRenderer, system_as_user: bool
) -> _RenderedMessage:
    received, half = extras.came, extras.half
    if received is None:
        return _render_foreign(message, renderer, system_as_user)
    if half is None and _is_unchanged(received, message.parts, renderer):
        return _RenderedMessage(received["role"], [], received, was_received=True)
    content = received["content"]
    entries = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if half is not None:
        entries = [entry for entry in entries if (entry["type"] == "tool_result") == (half == 1)]
    # The role may have been changed: then it is not the received message any more.
    role = _ROLES[message.role]
    same = _ROLES[_ROLE_OF[received["role"]]] == role
    blocks = renderer.render_like(message.parts, entries)
    out = _RenderedMessage(received["role"] if same else role, blocks, was_received=same, merges=half == 2)
    out.listed = isinstance(content, list)
    out.fields = {key: value for key, value in received.items() if key not in ("role", "content")}
    return out


def _render_foreign(message: Message, renderer: BlockRenderer, system_as_user: bool) -> _RenderedMessage:
    parts = message.parts
    if message.role == "system" and system_as_user:
        renderer.report("system message sent as user text: Messages supports system prompts only at the top")
        text = "\n".join(part.text for part in parts if isinstance(part, Text))
        return _RenderedMessage("user", [{"type": "text", "text": f"<system>\n{text}\n</system>"}] if text else [])
    if message.role == "assistant":
        parts = tuple(sorted(parts, key=lambda part: not isinstance(part, Reasoning)))
    elif message.role == "user":
        parts = tuple(sorted(parts, key=lambda part: not isinstance(part, ToolResult)))
    return _RenderedMessage(_ROLES[message.role], renderer.render(parts))


def _is_other_half(extras: MessagesMessageExtras, following: Sequence[Message]) -> bool:
    if not following:
        return False
    other = extras_of(following[0])
    return other.half == 2 and (other.came is extras.came or other.came == extras.came)


def _is_unchanged(received: Json, parts: Sequence[Part], renderer: BlockRenderer) -> bool:
    """Whether these parts equal the received message, and it may be sent unchanged."""
    content = received["content"]
    if isinstance(content, str):
        return len(parts) == 1 and parts[0] == Text(content)
    old = [parse_block(block) for block in content]
    if len(old) != len(parts):
        return False
    if any(isinstance(part, ToolResult) for part in old):
        old.sort(key=lambda part: not isinstance(part, ToolResult))
    return all(map(is_unchanged_part, old, parts)) and all(map(renderer.can_pass, content))


def _wire_ids(messages: Sequence[Message]) -> dict[str, str | None]:
    calls = (part for message in messages for part in message.parts if isinstance(part, ToolCall))
    return {call.id: call.wire_id for call in calls}
