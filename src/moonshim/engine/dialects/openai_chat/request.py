"""Chat request <-> canonical request, lossless for everything that Chat can express."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from moonshim.engine.dialects.openai_chat.extras import (
    DIALECT,
    ChatRequestExtras,
    body_fields,
    extras_of,
    request_extras,
)
from moonshim.engine.dialects.openai_chat.fields import FIELDS, OTHER_TYPES, Json, field_values, present_fields
from moonshim.engine.dialects.openai_chat.messages import (
    check_messages,
    parse_messages,
    render_messages,
    single_signature,
)
from moonshim.engine.dialects.openai_chat.tools import parse_tools, render_tools
from moonshim.engine.dialects.protocol import with_overrides
from moonshim.engine.signing import Signer, UnknownSigningKey, is_signed
from moonshim.engine.values.conversation import Change, Message, Reasoning, Request, Sampling, ToolResult
from moonshim.engine.values.type_names import describe_type
from moonshim.engine.wire.json_fields import LIST, STRING, check_fields, read_not_empty
from moonshim.errors import CannotExpress, InvalidInput

__all__ = ["drop_unsupported", "parse_request", "render_request"]

_KNOWN: Final = frozenset({"model", "messages", "tools", *(key for field in FIELDS.values() for key in field.keys)})


def parse_request(body: Any, signer: Signer) -> tuple[Request, list[Change]]:
    """Parse a body. Raises `InvalidInput` with the invalid field.

    >>> request, _ = parse_request({"model": "kimi-k3", "messages": [{"role": "user", "content": "hi"}]}, Signer())
    >>> request.model, request.messages[0].role
    ('kimi-k3', 'user')
    """
    if not isinstance(body, dict):
        raise InvalidInput(f"expected a request body that is an object, got {describe_type(body)}")
    model, messages = read_not_empty(body, "model", STRING), read_not_empty(body, "messages", LIST)
    check_messages(messages)
    check_fields(body, OTHER_TYPES)
    changes: list[Change] = []
    received = present_fields(body)
    values = {name: FIELDS[name].read(body) for name in FIELDS if name in received}
    sampling = Sampling(**{name[9:]: values.pop(name) for name in received if name.startswith("sampling.")})
    fields = {key: value for key, value in body.items() if key not in ("messages", "tools")}
    request = Request(
        model=model,
        messages=tuple(
            _open_signature(message, place, signer, changes) for place, message in enumerate(parse_messages(messages))
        ),
        tools=parse_tools(body),
        sampling=sampling,
        locations=tuple(f"messages[{place}]" for place in range(len(messages))),
        extras={DIALECT: ChatRequestExtras(fields, "tools" in body)},
        **values,
    )
    return request, changes


def _open_signature(message: Message, place: int, signer: Signer, changes: list[Change]) -> Message:
    """Replace our own signature with its content; clients have one when a history comes from another dialect."""
    part = message.parts[0] if message.parts else None
    if not isinstance(part, Reasoning) or not is_signed(part.signature):
        return message
    where = f"messages[{place}].reasoning_details"
    try:
        payload = signer.open(part.signature or "", field=where)
    except UnknownSigningKey:
        changes.append(Change("seal_unknown", "signature dropped: it was signed with a different key", where))
        return replace(message, parts=(replace(part, signature=None), *message.parts[1:]))
    reasoning = Reasoning(part.text or payload.text or "", payload.signature, payload.details, payload.field)
    return replace(message, parts=(reasoning, *message.parts[1:]))


def render_request(request: Request) -> tuple[Json, list[Change]]:
    """The body of this request, and what Chat cannot express."""
    extras = request_extras(request)
    received = extras.fields
    changes: list[Change] = []
    body: Json = {"model": request.model}
    body |= {key: value for key, value in received.items() if key not in _KNOWN}
    received_names = present_fields(received)
    for (name, field), value in zip(FIELDS.items(), field_values(request), strict=True):
        if name not in received_names and value == field.empty:
            continue
        current = {key: received[key] for key in field.keys if key in received}
        if current and field.read(received) == value:
            body |= current
        elif name == "sampling.top_k" and value is not None:
            changes.append(Change("cannot_say", "Chat does not support top_k", "top_k"))
        else:
            body |= _merge_field(field.write(value), current)
    custom = frozenset(tool.name for tool in request.tools or () if tool.kind == "custom")
    body["messages"] = render_messages(
        request.messages, custom=custom if request.tools is not None else None, tokens=False
    )
    if request.tools is not None and ("functions" not in received or parse_tools(received) != request.tools):
        body["tools"] = render_tools(request.tools, changes)
    elif extras.has_tools:
        body["tools"] = None
    changes += _report_unsupported(request) + _report_thinking(request, body)
    return with_overrides(body, request.body_overrides), changes


def _merge_field(rendered: Json, received: Json) -> Json:
    """Write a field from scratch; other keys of an object stay (`stream_options`)."""
    key = next(iter(rendered), None)
    if key == "stream_options" and isinstance(received.get(key), dict):
        return {key: received[key] | rendered[key]}
    if key == "max_tokens" and "max_completion_tokens" in received:
        return {"max_completion_tokens": rendered[key]}
    return rendered


def _report_unsupported(request: Request) -> list[Change]:
    changes = []
    for place, message in enumerate(request.messages):
        if message.is_one_text:
            continue
        where = request.locations[place] if place < len(request.locations) else f"messages[{place}]"
        thoughts = [part for part in message.parts if isinstance(part, Reasoning)]
        unsigned = [part for part in thoughts if not any("signature" in entry for entry in part.details)]
        if any(part.signature for part in unsigned) and single_signature(thoughts) is None:
            changes.append(Change("cannot_say", "reasoning signature dropped: Chat has no field for it", where))
        failed = [part for part in message.parts if isinstance(part, ToolResult) and part.is_error]
        changes += [
            Change("cannot_say", "is_error dropped: Chat cannot mark a tool result as failed", where) for _ in failed
        ]
    return changes


def _report_thinking(request: Request, body: Json) -> list[Change]:
    """Chat can set an effort, but neither thinking itself nor a token budget."""
    wanted, keys = request.thinking, FIELDS["thinking"].keys
    if (wanted.enabled is not True and wanted.budget is None) or any(
        key in body or key in request.body_overrides for key in keys
    ):
        return []
    return [
        Change(
            "cannot_say",
            "thinking dropped: Chat can set an effort, but neither thinking itself nor a token budget",
            "thinking",
        )
    ]


def drop_unsupported(request: Request) -> tuple[Request, list[Change]]:
    """The request for a host of another dialect, and what was removed."""
    if (count := request.sampling.n) is not None and count > 1:
        raise CannotExpress(
            f"n is {count}, but the API of this model's host returns a single choice: send n=1, or a request for each",
            field="n",
        )
    changes = [
        Change("cannot_say", f"{key} dropped: only Chat hosts support it", key)
        for key, value in body_fields(request).items()
        if key not in _KNOWN and key != "functions" and value is not None
    ]
    for place, message in enumerate(request.messages):
        extras, where = extras_of(message), f"messages[{place}]"
        entries = [slot.raw for slot in extras.content or () if slot is not None and isinstance(slot.raw, dict)]
        changes += [
            Change("cannot_say", f"content part of type {entry.get('type')} dropped: only Chat hosts support it", where)
            for entry in entries
        ]
        received = _OTHER_DIALECTS | {"name"} if message.role == "tool" else _OTHER_DIALECTS
        alone = [key for key, value in extras.fields.items() if value is not None and key not in received]
        changes += [
            Change("cannot_say", f"message field {key} dropped: only Chat hosts support it", where) for key in alone
        ]
    return request, changes


_OTHER_DIALECTS: Final = frozenset(
    {"role", "content", "partial", "function_call", "tool_calls", "refusal", "annotations"}
)
"""Message fields without a meaning of their own, or that other dialects express differently."""
