"""Chat messages -> canonical messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

from moonshim.engine.dialects.openai_chat.extras import (
    DIALECT,
    NO_EXTRAS,
    CallSlot,
    ChatMessageExtras,
    ContentSlot,
)
from moonshim.engine.dialects.openai_chat.messages.calls import parse_calls
from moonshim.engine.dialects.openai_chat.messages.content import Content, parse_content
from moonshim.engine.ids.pairing import canonical_ids, pair
from moonshim.engine.values.conversation import Message, Part, Reasoning, Role, Text, ToolResult
from moonshim.engine.values.copies import deep_copy
from moonshim.engine.wire.json_fields import wrong_type
from moonshim.errors import InvalidInput

__all__ = ["parse_messages", "signature_entry"]

Json: TypeAlias = dict[str, Any]

_ROLE_OF: Final[dict[str, Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",  # the 2023 protocol: its messages have no ids, and keep their fields
}
_PLAIN_ROLES: Final = frozenset({"system", "user", "assistant"})
_REASONING: Final = ("reasoning_content", "reasoning")


def parse_messages(messages: Iterable[Any], *, after: Sequence[Message] = ()) -> list[Message]:
    """Canonical messages, by value. Raises `InvalidInput` for an invalid message.

    Every call gets a unique canonical id, even if two were received under the same id, and every result that of its
    call; received ids are kept as `wire_id`. `after` is the conversation that the messages continue: its calls can be
    answered, and its ids are not reused.

    >>> parse_messages([{"role": "user", "content": "hi"}])
    [Message(role='user', parts=(Text(text='hi'),), extras={})]
    """
    if isinstance(messages, (str, bytes, dict)) or not isinstance(messages, Iterable):
        raise wrong_type("messages", "a list", messages)
    listed = list(messages)
    for position, message in enumerate(listed):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise InvalidInput("a message must be an object with a role", field=f"messages[{position}]")
    pairing, before = pair([*after, *listed]), len(after)
    ids = canonical_ids(pairing, before)
    names = [slot.name for slot in pairing.slots]
    slot_at = {(seen.position - before, seen.place): s for seen, s in zip(pairing.seen, pairing.slot_of, strict=True)}
    out = []
    for position, message in enumerate(listed):
        role, content = message["role"], message.get("content")
        if len(message) == 2 and role in _PLAIN_ROLES and isinstance(content, str):
            out.append(Message(_ROLE_OF[role], (Text(content),)))
        elif role == "tool":
            slot = slot_at[position, 0]
            out.append(_parse_result(message, ids[slot], names[slot]))
        else:
            found = {place: ids[slot_at[position, place]] for place in _places(message, position, slot_at)}
            out.append(_parse_message(message, found))
    return out


def _places(message: Json, position: int, slot_at: dict[tuple[int, int], int]) -> Iterable[int]:
    calls = message.get("tool_calls")
    return (n for n in range(len(calls)) if (position, n) in slot_at) if isinstance(calls, list) else ()


def _parse_message(message: Json, call_ids: dict[int, str]) -> Message:
    received_role, fields = message["role"], dict(message)
    role = _ROLE_OF.get(fields.pop("role"), "user")
    parts: list[Part] = []
    names: tuple[str, ...] | None = None
    refusal: str | None = None
    calls: tuple[CallSlot | None, ...] = ()
    if role == "assistant":
        thoughts, names = _take_reasoning(fields)
        parts += thoughts
    content, slots, omit = _take_content(fields)
    parts += content
    if role == "assistant" and (refusal := _take_refusal(fields, content)) is not None:
        parts.append(Text(refusal))
    if call_ids:
        parsed_calls, entries = parse_calls(fields.pop("tool_calls"), call_ids)
        parts += parsed_calls
        if any(entries):
            calls = tuple(entries)
        # With calls, missing content is what would be written anyway.
        omit = ()
    if received_role != role:
        fields["role"] = received_role
    extras = ChatMessageExtras(deep_copy(fields) if fields else {}, omit, slots, calls, refusal, names)
    return Message(role, tuple(parts), _as_extras(extras))


def _parse_result(message: Json, call_id: str, call_name: str) -> Message:
    fields = dict(message)
    del fields["role"]
    content, slots, omit = _take_content(fields)
    wire_id, name = fields.get("tool_call_id"), fields.get("name")
    if isinstance(wire_id, str):
        del fields["tool_call_id"]
    elif "tool_call_id" not in fields:
        omit = (*omit, "tool_call_id")
    result = ToolResult(
        call_id,
        name if isinstance(name, str) else call_name or None,
        tuple(content),
        wire_id=wire_id if isinstance(wire_id, str) else None,
    )
    return Message("tool", (result,), _as_extras(ChatMessageExtras(deep_copy(fields) if fields else {}, omit, slots)))


def _as_extras(extras: ChatMessageExtras) -> Json:
    return {} if extras == NO_EXTRAS else {DIALECT: extras}


def _take_content(fields: Json) -> tuple[list[Content], tuple[ContentSlot | None, ...] | None, tuple[str, ...]]:
    """The parts of the content, the slots of a list, and the missing fields."""
    content = fields.get("content")
    if isinstance(content, str):
        del fields["content"]
        return [Text(content)], None, ()
    if isinstance(content, list):
        del fields["content"]
        parts, slots = parse_content(content)
        return parts, tuple(slots), ()
    return [], None, () if "content" in fields else ("content",)


def _take_refusal(fields: Json, content: list[Content]) -> str | None:
    """The model's refusal, if the content is empty."""
    refusal = fields.get("refusal")
    if not isinstance(refusal, str) or not refusal or any(isinstance(part, Text) and part.text for part in content):
        return None
    del fields["refusal"]
    return refusal


def _take_reasoning(fields: Json) -> tuple[list[Reasoning], tuple[str, ...] | None]:
    """The reasoning, and the fields in which it was received unless those are the usual ones."""
    texts = {key: fields[key] for key in _REASONING if isinstance(fields.get(key), str)}
    details = fields.get("reasoning_details")
    if not isinstance(details, list) or not all(isinstance(entry, dict) for entry in details):
        details = []
    if not texts and not details:
        return [], None
    text = next(iter(texts.values())) if texts else _text_of_details(details)
    keys = [key for key, value in texts.items() if value == text]
    for key in keys:
        del fields[key]
    if details:
        del fields["reasoning_details"]
    names = None if keys == ["reasoning_content"] else tuple(keys)
    signature = next((entry["signature"] for entry in details if isinstance(entry.get("signature"), str)), None)
    if details and details[-1] == signature_entry(signature):
        # How we pass the signature of another dialect to a Chat client.
        details = details[:-1]
    return [Reasoning(text, signature, tuple(deep_copy(details)))], names


def signature_entry(signature: str | None) -> Json:
    """The entry of `reasoning_details` that carries only a signature."""
    return {"type": "reasoning.text", "signature": signature}


def _text_of_details(details: list[Json]) -> str:
    texts = (entry.get("text", entry.get("summary")) for entry in details)
    return "".join(text for text in texts if isinstance(text, str))
