"""One canonical call, result or reasoning -> one item: as received, or with its changes."""

from __future__ import annotations

from typing import Any, Final

from moonshim.engine.dialects.openai_responses.extras import Json
from moonshim.engine.dialects.openai_responses.messages.content import render_content
from moonshim.engine.dialects.openai_responses.messages.items import (
    CALLS,
    OUTPUTS,
    call_payload,
    parse_call,
    parse_reasoning,
    parse_result,
)
from moonshim.engine.dialects.openai_responses.tools import ToolNamespaces, kind_of
from moonshim.engine.formats.free_text import extract_input
from moonshim.engine.signing import is_signed
from moonshim.engine.values.conversation import Media, Reasoning, ToolCall, ToolResult
from moonshim.engine.wire.json_codec import decode_object

__all__ = ["render_call", "render_reasoning", "render_result"]

_CALL_TYPES: Final = {"custom": "custom_tool_call", "tool_search": "tool_search_call"}
"""By the type of the tool's definition; all others are called as functions."""


def render_call(
    call: ToolCall, wire_id: str, received: Json | None, before: ToolNamespaces, now: ToolNamespaces
) -> Json:
    """The item of a call. `before`: the names when the kept item was parsed; `now`: the current names."""
    if received is None:
        tool = now.tools.get(call.name)
        kind = _CALL_TYPES.get(kind_of(tool) if tool is not None else "", "function_call")
        return {"type": kind, "call_id": wire_id, **_name_fields(call, kind, now), **_payload_fields(call, kind)}
    was, kind, new = parse_call(received, before, ""), received["type"], Json()
    if call.wire_id is not None and call.wire_id != was.wire_id:
        new["call_id"] = call.wire_id
    if call.name != was.name:
        new |= _name_fields(call, kind, now)
        received = {key: value for key, value in received.items() if key != "namespace"}
    if call.arguments != was.arguments:
        new |= _payload_fields(call, kind)
    return {**received, **new} if new else received


def _name_fields(call: ToolCall, kind: str, now: ToolNamespaces) -> Json:
    if CALLS[kind].name is not None:
        return {}
    namespace, name = now.client_name(call.name)
    return {"name": name} if namespace is None else {"namespace": namespace, "name": name}


def _payload_fields(call: ToolCall, kind: str) -> Json:
    how = CALLS[kind]
    if how.payload == "input":
        return {"input": extract_input(call.arguments)}
    if how.name is None:
        return {"arguments": call.arguments}
    asked: Any = decode_object(_bytes(call.arguments))
    client = {"execution": "client"} if kind == "tool_search_call" else {}
    return {how.payload: call.arguments if asked is None else asked, **client}


def _bytes(text: str) -> bytes:
    """Encode text that may contain lone surrogates."""
    return text.encode("utf-8", "surrogatepass")


def render_result(
    result: ToolResult, wire_id: str, received: Json | None, call_type: str | None
) -> tuple[Json, list[Media]]:
    """The item of a result, for a call written as an item of that type; and the media that it cannot represent."""
    if received is None:
        kind = CALLS[call_type].output if call_type is not None else "function_call_output"
        output, unsupported = _output_fields(result, None, kind)
        return {"type": kind, "call_id": wire_id, **output}, unsupported
    was, kind, new = parse_result(received, ""), received["type"], Json()
    unsupported = list[Media]()
    if result.wire_id is not None and result.wire_id != was.wire_id:
        is_old = kind == "local_shell_call_output" and "call_id" not in received
        new["id" if is_old else "call_id"] = result.wire_id
    if result.parts != was.parts:
        output, unsupported = _output_fields(result, received, kind)
        new |= output
    if kind == "apply_patch_call_output" and result.is_error != was.is_error:
        new["status"] = "failed" if result.is_error else "completed"
    return ({**received, **new} if new else received), unsupported


def _output_fields(result: ToolResult, received: Json | None, kind: str) -> tuple[Json, list[Media]]:
    how = OUTPUTS[kind]
    before = "" if received is None and len(result.parts) <= 1 else (received or {}).get(how.payload)
    if not result.parts:
        return {how.payload: "" if how.is_content else []}, []
    content, unsupported = render_content(result.parts, before, "input_text")
    if how.is_content:
        return {how.payload: content}, unsupported
    text = content if isinstance(content, str) else call_payload(content)
    listed = decode_object(b'{"it":' + _bytes(text) + b"}")
    return {how.payload: [{"stdout": text}] if listed is None else listed["it"]}, unsupported


def render_reasoning(part: Reasoning, received: Json | None, *, for_host: bool) -> Json:
    """The item of a reasoning part. Our own token is not sent to a host."""
    if received is None:
        item: Json = {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": part.text}] if part.text else [],
        }
        return item | ({"encrypted_content": part.signature} if part.signature is not None else {})
    was, new = parse_reasoning(received, ""), Json()
    if part.text != was.text:
        shown = ("content", "reasoning_text") if received.get("content") else ("summary", "summary_text")
        new[shown[0]] = [{"type": shown[1], "text": part.text}] if part.text else []
    ours = is_signed(was.signature)
    if part.signature != was.signature and not (ours and part.signature is None):
        new["encrypted_content"] = part.signature
    elif ours and for_host:
        received = {key: value for key, value in received.items() if key != "encrypted_content"}
    return {**received, **new} if new else received
