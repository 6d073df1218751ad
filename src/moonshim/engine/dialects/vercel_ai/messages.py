"""AI SDK model messages <-> canonical messages.

Parsing and rendering a list of messages gives an equal list: `VercelMessageExtras` describes how they were written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

from msgspec import UNSET
from msgspec.structs import replace

from moonshim.engine.dialects.vercel_ai.extras import (
    DIALECT,
    Json,
    UiContentSlot,
    VercelMessageExtras,
    extras_of,
)
from moonshim.engine.dialects.vercel_ai.outputs import parse_output, render_media, render_output
from moonshim.engine.ids.pairing import canonical_ids, pair
from moonshim.engine.ids.spelling import standard_id
from moonshim.engine.values.conversation import Media, Message, Part, Reasoning, Role, Text, ToolCall, ToolResult
from moonshim.engine.values.copies import deep_copy
from moonshim.engine.wire.json_fields import wrong_type
from moonshim.errors import InvalidInput

__all__ = ["parse_messages", "render_messages"]

Resolve: TypeAlias = Callable[[str, str], str]

_ROLE_OF: Final[dict[str, Role]] = {"system": "system", "user": "user", "assistant": "assistant", "tool": "tool"}


# --- model messages -> canonical --------------------------------------------------------------------------------


def parse_messages(messages: Iterable[Any], *, after: Sequence[Message] = ()) -> list[Message]:
    """Canonical messages, by value. Raises `InvalidInput` for an invalid model message.

    `after` is the conversation that the messages continue: its calls can be answered, and its ids are not reused.

    >>> parse_messages([{"role": "user", "content": "hi"}])
    [Message(role='user', parts=(Text(text='hi'),), extras={})]
    """
    if isinstance(messages, (str, bytes, dict)) or not isinstance(messages, Iterable):
        raise wrong_type("messages", "a list", messages)
    parsed = [_parse_message(message, position) for position, message in enumerate(messages)]
    return _with_canonical_ids(parsed, after)


def _parse_message(message: Any, position: int) -> Message:
    name = message.get("role") if isinstance(message, dict) else None
    if not isinstance(name, str) or name not in _ROLE_OF:
        raise InvalidInput(
            f"a message must be an object with one of the roles {', '.join(_ROLE_OF)}", field=f"messages[{position}]"
        )
    content, parts = message.get("content"), list[Part]()
    fields = {key: deep_copy(value) for key, value in message.items() if key not in ("role", "content")}
    slots: list[UiContentSlot | None] | None = None
    if isinstance(content, str):
        parts.append(Text(content))
    elif isinstance(content, list):
        slots = []
        for entry in content:
            part = _parse_entry(entry)
            if part is None:
                slots.append(UiContentSlot(raw=deep_copy(entry)))
                continue
            parts.append(part)
            slots.append(None if _render_part(part) == entry else UiContentSlot(deep_copy(entry)))
    else:
        raise wrong_type(f"messages[{position}].content", "a string or a list", content)
    role = _ROLE_OF[name]
    if slots is not None and not any(slots) and _plain_content(role, parts) == content:
        slots = None
    if not fields and slots is None:
        return Message(role, tuple(parts))
    extras = VercelMessageExtras(fields, None if slots is None else tuple(slots))
    return Message(role, tuple(parts), {DIALECT: extras})


def _parse_entry(entry: Any) -> Part | None:
    if not isinstance(entry, dict):
        return None
    match entry:
        case {"type": "text", "text": str(text)}:
            return Text(text)
        case {"type": "reasoning", "text": str(text)}:
            return Reasoning(text, signature=_signature(entry))
        case {"type": "tool-call", "toolCallId": str(wire_id), "toolName": str(name)}:
            return ToolCall(wire_id, name, _arguments(entry.get("input", {})), wire_id)
        case {"type": "tool-result", "toolCallId": str(wire_id), "toolName": str(name), "output": dict(output)}:
            parts, is_error = parse_output(output)
            return ToolResult(wire_id, name, parts, is_error, wire_id)
        case {"type": "image", "image": str(image)}:
            return _media("image", image, entry)
        case {"type": "file", "data": str(data)}:
            return _media("file", data, entry)
    return None


def _signature(entry: Json) -> str | None:
    match entry.get("providerOptions"):
        case {"anthropic": {"signature": str(signature)}}:
            return signature
    return None


def _arguments(value: Any) -> str:
    """The SDK passes a string that is not JSON when a model wrote invalid arguments."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _input(arguments: str) -> Any:
    try:
        return json.loads(arguments) if arguments else {}
    except (ValueError, RecursionError):
        return arguments


def _media(kind: Any, where: str, entry: Json) -> Media:
    media_type = entry.get("mediaType")
    is_url = where.startswith(("http://", "https://", "data:"))
    return Media(
        kind,
        url=where if is_url else None,
        data=None if is_url else where,
        media_type=media_type if isinstance(media_type, str) else None,
    )


def _with_canonical_ids(messages: list[Message], after: Sequence[Message]) -> list[Message]:
    pairing, before = pair([*after, *messages]), len(after)
    ids = canonical_ids(pairing, before)
    parts = [list(message.parts) for message in messages]
    for seen, slot in zip(pairing.seen, pairing.slot_of, strict=True):
        if seen.position < before:
            continue
        mine = parts[seen.position - before]
        old = mine[seen.place]
        if isinstance(old, ToolCall):
            mine[seen.place] = replace(old, id=ids[slot])
        elif isinstance(old, ToolResult):
            mine[seen.place] = replace(old, call_id=ids[slot])
    return [replace(old, parts=tuple(new)) for old, new in zip(messages, parts, strict=True)]


# --- canonical -> model messages --------------------------------------------------------------------------------


def render_messages(
    messages: Sequence[Message],
    *,
    resolve_tool_call_id: Resolve | None = None,
    resolve_tool_response_id: Resolve | None = None,
) -> list[Json]:
    """Model messages, by value. A message without content is left out.

    Ids are returned as received; those without a wire id become `call_*`. A resolver is called with the canonical id
    and the tool name, in the order of the history, and returns the id to write.

    >>> from moonshim.engine.ids import tool_id_strategy
    >>> history = [Message("assistant", (ToolCall("hist_tool_xyz", "read_file", "{}"),))]
    >>> mapper = tool_id_strategy("kimi").create_mapper(history)
    >>> out = render_messages(
    ...     history, resolve_tool_call_id=lambda id, name: mapper.resolve_tool_call_id({"id": id, "name": name})
    ... )
    >>> out[0]["content"]
    [{'type': 'tool-call', 'toolCallId': 'functions.read_file:0', 'toolName': 'read_file', 'input': {}}]
    """
    names, wire = dict[str, str](), dict[str, str]()
    out = []
    for message in messages:
        resolved: list[Part] = []
        for part in message.parts:
            if isinstance(part, ToolCall):
                names[part.id] = part.name
                wire[part.id] = standard_id(part.id) if part.wire_id is None else part.wire_id
                if resolve_tool_call_id is not None:
                    wire[part.id] = resolve_tool_call_id(part.id, part.name)
                resolved.append(replace(part, wire_id=wire[part.id]))
            elif isinstance(part, ToolResult):
                name = part.name or names.get(part.call_id, "")
                if resolve_tool_response_id is not None:
                    wire_id = resolve_tool_response_id(part.call_id, name)
                elif part.wire_id is not None and resolve_tool_call_id is None:
                    wire_id = part.wire_id
                else:
                    wire_id = wire.get(part.call_id) or standard_id(part.call_id)
                resolved.append(replace(part, name=name, wire_id=wire_id))
            else:
                resolved.append(part)
        out += _render_message(message, resolved)
    return out


def _render_message(message: Message, parts: list[Part]) -> list[Json]:
    extras = extras_of(message)
    out = list[Json]()
    if message.role != "tool" and message.role != "assistant":
        # Results that another protocol puts into a user message have a message of their own here.
        results = [part for part in parts if isinstance(part, ToolResult)]
        parts = [part for part in parts if not isinstance(part, ToolResult)]
        if results:
            out.append({"role": "tool", "content": [_render_part(result) for result in results]})
    content: Any
    if extras.content is not None:
        content = _render_like(parts, extras.content)
    elif parts:
        content = _plain_content(message.role, parts)
    else:
        return out
    if content == [] and DIALECT not in message.extras:
        return out
    return [*out, {"role": message.role, "content": content} | deep_copy(extras.fields)]


def _plain_content(role: Role, parts: list[Part]) -> Any:
    texts = [part.text for part in parts if isinstance(part, Text)]
    if len(texts) == len(parts) and (role in ("system", "user") or len(parts) == 1):
        return "\n".join(texts)
    # Some providers of the SDK refuse an empty text with a call.
    return [_render_part(part) for part in parts if part != Text("")]


def _render_like(parts: list[Part], slots: Sequence[UiContentSlot | None]) -> list[Any]:
    left, out = list(reversed(parts)), list[Any]()
    for slot in slots:
        if slot is not None and slot.raw is not UNSET:
            out.append(deep_copy(slot.raw))
        elif left:
            part = left.pop()
            out.append(_render_part(part) if slot is None or slot.part is None else _patch_entry(part, slot.part))
    return out + [_render_part(part) for part in reversed(left)]


def _patch_entry(part: Part, entry: Json) -> Json:
    """The entry as received, with its current id; a new one if the part has changed."""
    before = _parse_entry(entry)
    if isinstance(part, ToolCall) and isinstance(before, ToolCall):
        if (before.name, before.arguments) == (part.name, part.arguments):
            return deep_copy(entry) | {"toolCallId": part.wire_id}
    elif isinstance(part, ToolResult) and isinstance(before, ToolResult):
        if (before.name, before.parts, before.is_error) == (part.name, part.parts, part.is_error):
            return deep_copy(entry) | {"toolCallId": part.wire_id}
    elif before == part:
        return deep_copy(entry)
    options = entry.get("providerOptions")
    return _render_part(part) | ({} if options is None else {"providerOptions": deep_copy(options)})


def _render_part(part: Part) -> Json:
    match part:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Reasoning(text=text, signature=None):
            return {"type": "reasoning", "text": text}
        case Reasoning(text=text, signature=signature):
            options = {"anthropic": {"signature": signature}}
            return {"type": "reasoning", "text": text, "providerOptions": options}
        case ToolCall():
            call = {"type": "tool-call", "toolCallId": part.wire_id, "toolName": part.name}
            return call | {"input": _input(part.arguments)}
        case ToolResult():
            result = {"type": "tool-result", "toolCallId": part.wire_id, "toolName": part.name}
            return result | {"output": render_output(part.parts, part.is_error)}
        case Media():
            return render_media(part)
