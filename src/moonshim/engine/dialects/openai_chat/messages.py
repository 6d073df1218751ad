"""Chat messages <-> canonical messages.

Parsing and rendering a list of messages gives an equal list, including unknown fields. The parts of the canonical
message always win: `ChatMessageExtras` only describes how they were written.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any, Final, TypeAlias, cast

from moonshim.engine.dialects.openai_chat.delta import TEXT_KEYS
from moonshim.engine.dialects.openai_chat.extras import (
    DIALECT,
    NOTHING,
    CallSlot,
    ChatMessageExtras,
    ContentSlot,
    extras_of,
    is_plain,
    reasoning_fields,
)
from moonshim.engine.dialects.openai_chat.message_calls import parse_calls, render_calls
from moonshim.engine.dialects.openai_chat.message_parts import Content, parse_content, render_content
from moonshim.engine.ids.mapper import ToolIdMapper, tool_id_strategy
from moonshim.engine.ids.pairing import canonical_ids, pair
from moonshim.engine.ids.spelling import standard_id
from moonshim.engine.signing import is_signed
from moonshim.engine.values.conversation import Media, Message, Part, Reasoning, Role, Text, ToolCall, ToolResult
from moonshim.engine.values.copies import deep_copy
from moonshim.errors import CannotExpress, InvalidInput

__all__ = ["parse_messages", "render_messages", "sole_signature"]

Json: TypeAlias = dict[str, Any]

_SPEAKERS: Final[dict[str, Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",  # the 2023 protocol: its messages have no ids, and keep their fields
}
_PLAIN_ROLES: Final = frozenset({"system", "user", "assistant"})
_REASONING: Final = ("reasoning_content", "reasoning")


# --- dicts -> canonical -----------------------------------------------------------------------------------------


def parse_messages(messages: Iterable[Any], *, after: Sequence[Message] = ()) -> list[Message]:
    """Canonical messages, by value. Raises `InvalidInput` for an invalid message.

    Every call gets a unique canonical id, even if two were received under the same id, and every result that of its
    call; received ids are kept as `wire_id`. `after` is the conversation that the messages continue: its calls can be
    answered, and its ids are not reused.

    >>> parse_messages([{"role": "user", "content": "hi"}])
    [Message(role='user', parts=(Text(text='hi'),), extras={})]
    """
    if isinstance(messages, (str, bytes, dict)) or not isinstance(messages, Iterable):
        raise InvalidInput(f"messages must be a list, not {type(messages).__name__}", field="messages")
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
            out.append(Message(_SPEAKERS[role], (Text(content),)))
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
    given, fields = message["role"], dict(message)
    role = _SPEAKERS.get(fields.pop("role"), "user")
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
        made, entries = parse_calls(fields.pop("tool_calls"), call_ids)
        parts += made
        if any(entries):
            calls = tuple(entries)
        # With calls, missing content is what would be written anyway.
        omit = ()
    if given != role:
        fields["role"] = given
    extras = ChatMessageExtras(deep_copy(fields) if fields else {}, omit, slots, calls, refusal, names)
    return Message(role, tuple(parts), _held(extras))


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
    return Message("tool", (result,), _held(ChatMessageExtras(deep_copy(fields) if fields else {}, omit, slots)))


def _held(extras: ChatMessageExtras) -> Json:
    return {} if extras == NOTHING else {DIALECT: extras}


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
    if not isinstance(details, list) or not all(isinstance(one, dict) for one in details):
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
    signature = next((one["signature"] for one in details if isinstance(one.get("signature"), str)), None)
    if details and details[-1] == _signed(signature):
        # How we pass the signature of another dialect to a Chat client.
        details = details[:-1]
    return [Reasoning(text, signature, tuple(deep_copy(details)))], names


def _signed(signature: str | None) -> Json:
    """The entry of `reasoning_details` that carries only a signature."""
    return {"type": "reasoning.text", "signature": signature}


def _text_of_details(details: list[Json]) -> str:
    texts = (one.get("text", one.get("summary")) for one in details)
    return "".join(text for text in texts if isinstance(text, str))


# --- canonical -> dicts -----------------------------------------------------------------------------------------


def render_messages(
    messages: Sequence[Message],
    *,
    mapper: ToolIdMapper | None = None,
    format: str | None = None,
    custom: Container[str] | None = None,
    tokens: bool = True,
) -> list[Json]:
    """Chat messages, by value.

    Ids are returned as received; those without a wire id become `call_*`. With a `mapper`, it decides; with a
    `format`, the mapper of that tool format does. `custom` names the tools that take a free-form string (None: those
    whose calls were received that way); `tokens`: whether our own signatures may be included. Raises `CannotExpress`
    for what the protocol cannot represent.

    >>> history = parse_messages(
    ...     [{"role": "assistant", "tool_calls": [{"id": "x", "function": {"name": "ls", "arguments": "{}"}}]}]
    ... )
    >>> render_messages(history)[0]["tool_calls"][0]["id"]
    'x'
    >>> render_messages(history, format="kimi")[0]["tool_calls"][0]["id"]
    'functions.ls:0'
    """
    ids = _Identifiers(messages, mapper, format, custom, tokens=tokens)
    return [out for position, message in enumerate(messages) for out in _render_message(message, position, ids)]


class _Identifiers:
    """Decides which id to write where; None for one that was missing and has not been assigned since."""

    def __init__(
        self,
        messages: Sequence[Message],
        mapper: ToolIdMapper | None,
        format: str | None,
        custom: Container[str] | None = None,
        *,
        tokens: bool = True,
    ) -> None:
        self.custom = custom
        self.tokens = tokens
        self._mapper = mapper
        self._own = None if mapper is not None or format is None else tool_id_strategy(format).create_mapper(messages)
        calls = [part for message in messages for part in message.parts if isinstance(part, ToolCall)]
        self._wire = {call.id: call.wire_id for call in calls if call.wire_id is not None}

    def of(self, part: ToolCall | ToolResult, position: int, place: int) -> str | None:
        if self._own is not None:
            # By position, not by lookup: the same message object may occur twice in a history.
            return self._own.at(position, place)
        if self._mapper is None:
            return part.wire_id
        if isinstance(part, ToolCall):
            return self._mapper.resolve_tool_call_id(part)
        return self._mapper.resolve_tool_response_id(part)

    def made(self, result: ToolResult) -> str:
        """The id of its call, for a result received without one."""
        return self._wire.get(result.call_id) or standard_id(result.call_id)


def _render_message(message: Message, position: int, ids: _Identifiers) -> list[Json]:
    if message.is_one_text and is_plain(message) and message.role != "tool":
        return [{"role": message.role, "content": cast(Text, message.parts[0]).text}]
    extras = extras_of(message)
    results, body = list[Json](), list[tuple[int, Part]]()
    for place, part in enumerate(message.parts):
        if isinstance(part, ToolResult):
            results.append(_render_result(part, ids.of(part, position, place), extras, ids))
        else:
            body.append((place, part))
    if message.role == "tool" and "role" not in extras.fields:
        if body:
            raise CannotExpress("only results may stand in a message of role tool", field=f"messages[{position}]")
        return results
    if results and not body:
        return results
    out = _render_body(message, body, extras, position, ids)
    # Results in a user message answer the assistant message before it.
    return [out, *results] if message.role == "assistant" else [*results, out]


def _render_result(result: ToolResult, wire_id: str | None, extras: ChatMessageExtras, ids: _Identifiers) -> Json:
    out: Json = {"role": "tool"}
    if wire_id is not None:
        out["tool_call_id"] = wire_id
    elif not extras.lacks("tool_call_id"):
        out["tool_call_id"] = ids.made(result)
    _put_content(out, result.parts, extras, "")
    return _with_fields(out, extras)


def _render_body(
    message: Message, body: list[tuple[int, Part]], extras: ChatMessageExtras, position: int, ids: _Identifiers
) -> Json:
    role = message.role
    out: Json = {"role": role}
    calls = [(ids.of(part, position, place), part) for place, part in body if isinstance(part, ToolCall)]
    reasoning = [part for _, part in body if isinstance(part, Reasoning)]
    if role != "assistant" and (calls or reasoning):
        raise CannotExpress("only an assistant's message may have calls and reasoning", field=f"messages[{position}]")
    content = [part for _, part in body if isinstance(part, (Text, Media))]
    if role == "assistant" and extras.refusal is not None and content and content[-1] == Text(extras.refusal):
        out["refusal"] = extras.refusal
        content.pop()
    _put_content(out, content, extras, None if calls else "")
    if reasoning:
        # Redacted reasoning has no text.
        text = "\n".join(part.text for part in reasoning if part.text)
        fields = [part.field for part in reasoning if part.field is not None]
        details = [deep_copy(one) for part in reasoning for one in part.details if ids.tokens or not _holds_token(one)]
        for field in fields[:1] or reasoning_fields(message):
            if field == "reasoning_details":
                details = with_text(details, text)
            else:
                out[field] = text
        if (signature := sole_signature(reasoning)) and (ids.tokens or not is_signed(signature)):
            details.append(_signed(signature))
        out |= {"reasoning_details": details} if details else {}
    if calls or extras.calls:
        out["tool_calls"] = render_calls(calls, extras.calls, ids.custom)
    return _with_fields(out, extras)


def _holds_token(entry: Json) -> bool:
    """Whether an entry of `reasoning_details` contains our own token, which hosts must not see."""
    return any(is_signed(value) for value in entry.values())


def sole_signature(reasoning: Sequence[Reasoning]) -> str | None:
    """The signature that the details do not contain; None for merged reasoning, which nobody signed."""
    said = [part for part in reasoning if part.text or part.signature]
    if len(said) != 1 or any("signature" in one for part in reasoning for one in part.details):
        return None
    return said[0].signature


def with_text(details: list[Json], text: str) -> list[Json]:
    """Add this text to `reasoning_details`: to an entry that can hold it and has none, if possible."""
    if not text or any(isinstance(one.get(key), str) for one in details for key in ("text", "summary")):
        return details
    for place, one in enumerate(details):
        if key := TEXT_KEYS.get(str(one.get("type"))):
            return [*details[:place], {**one, key: text}, *details[place + 1 :]]
    return [{"type": "reasoning.text", "text": text}, *details]


def _put_content(out: Json, parts: Sequence[Content], extras: ChatMessageExtras, empty: str | None) -> None:
    if extras.content is not None:
        out["content"] = render_content(parts, extras.content)
    elif len(parts) == 1 and isinstance(parts[0], Text):
        out["content"] = parts[0].text
    elif parts:
        out["content"] = render_content(parts)
    elif empty is not None and not extras.lacks("content"):
        # A message with calls may omit content; hosts refuse an empty string there.
        out["content"] = empty


def _with_fields(out: Json, extras: ChatMessageExtras) -> Json:
    """Add the received fields, except where a part now determines the value."""
    return out | {key: deep_copy(value) for key, value in extras.fields.items() if key == "role" or key not in out}
