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
from moonshim.engine.dialects.openai_chat.fields import FIELDS, Json, fields_said, values_of
from moonshim.engine.dialects.openai_chat.messages import (
    check_messages,
    parse_messages,
    render_messages,
    sole_signature,
)
from moonshim.engine.dialects.openai_chat.tools import parse_tool, render_tool
from moonshim.engine.dialects.protocol import with_overrides
from moonshim.engine.signing import Signer, UnknownSigningKey, is_signed
from moonshim.engine.values.conversation import Change, Message, Reasoning, Request, Sampling, Tool, ToolResult
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
        raise InvalidInput(f"a request must be an object, not {type(body).__name__}")
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise InvalidInput("model must be a string", field="model")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InvalidInput("messages must be a list of at least one message", field="messages")
    check_messages(messages)
    changes: list[Change] = []
    said = fields_said(body)
    values = {name: FIELDS[name].read(body) for name in FIELDS if name in said}
    sampling = Sampling(**{name[9:]: values.pop(name) for name in said if name.startswith("sampling.")})
    fields = {key: value for key, value in body.items() if key not in ("messages", "tools")}
    request = Request(
        model=model,
        messages=tuple(_opened(one, place, signer, changes) for place, one in enumerate(parse_messages(messages))),
        tools=_parse_tools(body),
        sampling=sampling,
        locations=tuple(f"messages[{place}]" for place in range(len(messages))),
        extras={DIALECT: ChatRequestExtras(fields, "tools" in body)},
        **values,
    )
    return request, changes


def _opened(message: Message, place: int, signer: Signer, changes: list[Change]) -> Message:
    """Replace our own signature with its content; clients have one when a history comes from another dialect."""
    part = message.parts[0] if message.parts else None
    if not isinstance(part, Reasoning) or not is_signed(part.signature):
        return message
    where = f"messages[{place}].reasoning_details"
    try:
        sealed = signer.open(part.signature or "", field=where)
    except UnknownSigningKey:
        changes.append(Change("seal_unknown", "a signature made under another key says nothing here: left out", where))
        return replace(message, parts=(replace(part, signature=None), *message.parts[1:]))
    opened = Reasoning(part.text or sealed.text or "", sealed.signature, sealed.details, sealed.field)
    return replace(message, parts=(opened, *message.parts[1:]))


def render_request(request: Request) -> tuple[Json, list[Change]]:
    """The body of this request, and what Chat cannot express."""
    extras = request_extras(request)
    came = extras.fields
    changes: list[Change] = []
    body: Json = {"model": request.model}
    body |= {key: value for key, value in came.items() if key not in _KNOWN}
    came_in = fields_said(came)
    for (name, field), value in zip(FIELDS.items(), values_of(request), strict=True):
        if name not in came_in and value == field.empty:
            continue
        said = {key: came[key] for key in field.keys if key in came}
        if said and field.read(came) == value:
            body |= said
        elif name == "sampling.top_k" and value is not None:
            changes.append(Change("cannot_say", "Chat has no top_k", "top_k"))
        else:
            body |= _rewritten(field.write(value), said)
    custom = frozenset(tool.name for tool in request.tools or () if tool.kind == "custom")
    body["messages"] = render_messages(
        request.messages, custom=custom if request.tools is not None else None, tokens=False
    )
    if request.tools is not None and ("functions" not in came or _parse_tools(came) != request.tools):
        body["tools"] = _render_tools(request.tools, changes)
    elif extras.has_tools:
        body["tools"] = None
    changes += _unsaid(request) + _unsaid_thinking(request, body)
    return with_overrides(body, request.body_overrides), changes


def _rewritten(fresh: Json, said: Json) -> Json:
    """Write a field from scratch; other keys of an object stay (`stream_options`)."""
    key = next(iter(fresh), None)
    if key == "stream_options" and isinstance(said.get(key), dict):
        return {key: said[key] | fresh[key]}
    if key == "max_tokens" and "max_completion_tokens" in said:
        return {"max_completion_tokens": fresh[key]}
    return fresh


def _parse_tools(body: Json) -> tuple[Tool, ...] | None:
    tools, functions = body.get("tools"), body.get("functions")
    if tools is None and isinstance(functions, list):
        # The 2023 protocol: the same without the wrapper with `type`.
        tools = [{"type": "function", "function": function} for function in functions]
    if tools is None:
        return None
    if not isinstance(tools, list):
        raise InvalidInput(f"tools must be a list, not {type(tools).__name__}", field="tools")
    return tuple(parse_tool(tool, f"tools[{place}]") for place, tool in enumerate(tools))


def _render_tools(tools: tuple[Tool, ...], changes: list[Change]) -> list[Json]:
    out = []
    for place, tool in enumerate(tools):
        rendered = render_tool(tool)
        if rendered is None:
            changes.append(
                Change("cannot_say", f"Chat has no tool that is run by the host: {tool.name}", f"tools[{place}]")
            )
        else:
            out.append(rendered)
    return out


def _unsaid(request: Request) -> list[Change]:
    changes = []
    for place, message in enumerate(request.messages):
        if message.is_one_text:
            continue
        where = request.locations[place] if place < len(request.locations) else f"messages[{place}]"
        thoughts = [part for part in message.parts if isinstance(part, Reasoning)]
        unsigned = [part for part in thoughts if not any("signature" in one for one in part.details)]
        if any(part.signature for part in unsigned) and sole_signature(thoughts) is None:
            changes.append(Change("cannot_say", "Chat has no place for the signature of reasoning", where))
        failed = [part for part in message.parts if isinstance(part, ToolResult) and part.is_error]
        changes += [Change("cannot_say", "Chat has no mark for a failed tool; its text tells", where) for _ in failed]
    return changes


def _unsaid_thinking(request: Request, body: Json) -> list[Change]:
    """Chat can set an effort, but neither thinking itself nor a token budget."""
    wanted, keys = request.thinking, FIELDS["thinking"].keys
    if (wanted.enabled is not True and wanted.budget is None) or any(
        key in body or key in request.body_overrides for key in keys
    ):
        return []
    return [Change("cannot_say", "Chat has no word for thinking itself, or for a budget of it", "thinking")]


def drop_unsupported(request: Request) -> tuple[Request, list[Change]]:
    """The request for a host of another dialect, and what was removed."""
    changes = [
        Change("cannot_say", f"{key} is a field of Chat alone", key)
        for key, value in body_fields(request).items()
        if key not in _KNOWN and key != "functions" and value is not None
    ]
    for place, message in enumerate(request.messages):
        extras, where = extras_of(message), f"messages[{place}]"
        for slot in extras.content or ():
            if slot is not None and isinstance(entry := slot.raw, dict):
                if entry.get("type") == "file":
                    raise CannotExpress("a file that only its host knows cannot be sent to another", field=where)
                changes.append(Change("cannot_say", f"a part of type {entry.get('type')} is Chat's alone", where))
        said = _ELSEWHERE | {"name"} if message.role == "tool" else _ELSEWHERE
        alone = [key for key, value in extras.fields.items() if value is not None and key not in said]
        changes += [Change("cannot_say", f"{key} of a message is a field of Chat alone", where) for key in alone]
    return request, changes


_ELSEWHERE: Final = frozenset({"role", "content", "partial", "function_call", "tool_calls", "refusal", "annotations"})
"""Message fields without a meaning of their own, or that other dialects express differently."""
