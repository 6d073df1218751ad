"""Canonical messages -> Chat messages."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, TypeAlias, cast

from moonshim.engine.dialects.openai_chat.extras import (
    ChatMessageExtras,
    extras_of,
    is_plain,
    reasoning_fields,
)
from moonshim.engine.dialects.openai_chat.messages.calls import render_calls
from moonshim.engine.dialects.openai_chat.messages.content import Content, render_content
from moonshim.engine.dialects.openai_chat.messages.parse import signature_entry
from moonshim.engine.dialects.openai_chat.reasoning import TEXT_KEYS
from moonshim.engine.ids.mapper import ToolIdMapper, tool_id_strategy
from moonshim.engine.ids.spelling import standard_id
from moonshim.engine.signing import is_signed
from moonshim.engine.values.conversation import Media, Message, Part, Reasoning, Text, ToolCall, ToolResult
from moonshim.engine.values.copies import deep_copy
from moonshim.errors import CannotExpress

__all__ = ["render_messages", "single_signature"]

Json: TypeAlias = dict[str, Any]


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

    >>> from moonshim.engine.dialects.openai_chat.messages.parse import parse_messages
    >>> history = parse_messages(
    ...     [{"role": "assistant", "tool_calls": [{"id": "x", "function": {"name": "ls", "arguments": "{}"}}]}]
    ... )
    >>> render_messages(history)[0]["tool_calls"][0]["id"]
    'x'
    >>> render_messages(history, format="kimi")[0]["tool_calls"][0]["id"]
    'functions.ls:0'
    """
    ids = _WireIds(messages, mapper, format, custom, tokens=tokens)
    return [out for position, message in enumerate(messages) for out in _render_message(message, position, ids)]


class _WireIds:
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

    def id_of(self, part: ToolCall | ToolResult, position: int, place: int) -> str | None:
        if self._own is not None:
            # By position, not by lookup: the same message object may occur twice in a history.
            return self._own.id_at(position, place)
        if self._mapper is None:
            return part.wire_id
        if isinstance(part, ToolCall):
            return self._mapper.resolve_tool_call_id(part)
        return self._mapper.resolve_tool_response_id(part)

    def id_of_call(self, result: ToolResult) -> str:
        """The id of its call, for a result received without one."""
        return self._wire.get(result.call_id) or standard_id(result.call_id)


def _render_message(message: Message, position: int, ids: _WireIds) -> list[Json]:
    if message.is_one_text and is_plain(message) and message.role != "tool":
        return [{"role": message.role, "content": cast(Text, message.parts[0]).text}]
    extras = extras_of(message)
    results, body = list[Json](), list[tuple[int, Part]]()
    for place, part in enumerate(message.parts):
        if isinstance(part, ToolResult):
            results.append(_render_result(part, ids.id_of(part, position, place), extras, ids))
        else:
            body.append((place, part))
    if message.role == "tool" and "role" not in extras.fields:
        if body:
            raise CannotExpress(
                "a message with the role tool may contain only tool results", field=f"messages[{position}]"
            )
        return results
    if results and not body:
        return results
    out = _render_body(message, body, extras, position, ids)
    # Results in a user message answer the assistant message before it.
    return [out, *results] if message.role == "assistant" else [*results, out]


def _render_result(result: ToolResult, wire_id: str | None, extras: ChatMessageExtras, ids: _WireIds) -> Json:
    out: Json = {"role": "tool"}
    if wire_id is not None:
        out["tool_call_id"] = wire_id
    elif not extras.lacks("tool_call_id"):
        out["tool_call_id"] = ids.id_of_call(result)
    _put_content(out, result.parts, extras, "")
    return _with_fields(out, extras)


def _render_body(
    message: Message, body: list[tuple[int, Part]], extras: ChatMessageExtras, position: int, ids: _WireIds
) -> Json:
    role = message.role
    out: Json = {"role": role}
    calls = [(ids.id_of(part, position, place), part) for place, part in body if isinstance(part, ToolCall)]
    reasoning = [part for _, part in body if isinstance(part, Reasoning)]
    if role != "assistant" and (calls or reasoning):
        raise CannotExpress(
            "only an assistant message may contain tool calls and reasoning", field=f"messages[{position}]"
        )
    content = [part for _, part in body if isinstance(part, (Text, Media))]
    if role == "assistant" and extras.refusal is not None and content and content[-1] == Text(extras.refusal):
        out["refusal"] = extras.refusal
        content.pop()
    _put_content(out, content, extras, None if calls else "")
    if reasoning:
        # Redacted reasoning has no text.
        text = "\n".join(part.text for part in reasoning if part.text)
        fields = [part.field for part in reasoning if part.field is not None]
        details = [
            deep_copy(entry) for part in reasoning for entry in part.details if ids.tokens or not _has_own_token(entry)
        ]
        for field in fields[:1] or reasoning_fields(message):
            if field == "reasoning_details":
                details = add_reasoning_text(details, text)
            else:
                out[field] = text
        if (signature := single_signature(reasoning)) and (ids.tokens or not is_signed(signature)):
            details.append(signature_entry(signature))
        out |= {"reasoning_details": details} if details else {}
    if calls or extras.calls:
        out["tool_calls"] = render_calls(calls, extras.calls, ids.custom)
    return _with_fields(out, extras)


def _has_own_token(entry: Json) -> bool:
    """Whether an entry of `reasoning_details` contains our own token, which hosts must not see."""
    return any(is_signed(value) for value in entry.values())


def single_signature(reasoning: Sequence[Reasoning]) -> str | None:
    """The signature that the details do not contain; None for merged reasoning, which has no signature."""
    signed = [part for part in reasoning if part.text or part.signature]
    if len(signed) != 1 or any("signature" in entry for part in reasoning for entry in part.details):
        return None
    return signed[0].signature


def add_reasoning_text(details: list[Json], text: str) -> list[Json]:
    """Add this text to `reasoning_details`: to an entry that can hold it and has none, if possible."""
    if not text or any(isinstance(entry.get(key), str) for entry in details for key in ("text", "summary")):
        return details
    for place, entry in enumerate(details):
        if key := TEXT_KEYS.get(str(entry.get("type"))):
            return [*details[:place], {**entry, key: text}, *details[place + 1 :]]
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
