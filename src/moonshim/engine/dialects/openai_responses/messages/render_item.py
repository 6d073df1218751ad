"""One canonical call, result or reasoning -> one item: as received, or with its changes."""

from __future__ import annotations

from typing import Any, Final

from moonshim.engine.dialects.openai_responses.extras import Json
from moonshim.engine.dialects.openai_responses.messages.content import render_content
from moonshim.engine.dialects.openai_responses.messages.items import (
    CALLS,
    OUTPUTS,
    call_payload,
    read_call,
    read_reasoning,
    read_result,
)
from moonshim.engine.dialects.openai_responses.tools import Names, kind_of
from moonshim.engine.formats.free_text import input_of
from moonshim.engine.signing import is_signed
from moonshim.engine.values.conversation import Media, Reasoning, ToolCall, ToolResult
from moonshim.engine.wire.json_codec import decode_object

__all__ = ["write_call", "write_reasoning", "write_result"]

_CALL_TYPES: Final = {"custom": "custom_tool_call", "tool_search": "tool_search_call"}
"""By the type of the tool's definition; all others are called as functions."""


def write_call(call: ToolCall, wire_id: str, came: Json | None, before: Names, now: Names) -> Json:
    """The item of a call. `before`: the names when the kept item was parsed; `now`: the current names."""
    if came is None:
        tool = now.tools.get(call.name)
        kind = _CALL_TYPES.get(kind_of(tool) if tool is not None else "", "function_call")
        return {"type": kind, "call_id": wire_id, **_named(call, kind, now), **_asked(call, kind)}
    was, kind, new = read_call(came, before, ""), came["type"], Json()
    if call.wire_id is not None and call.wire_id != was.wire_id:
        new["call_id"] = call.wire_id
    if call.name != was.name:
        new |= _named(call, kind, now)
        came = {key: value for key, value in came.items() if key != "namespace"}
    if call.arguments != was.arguments:
        new |= _asked(call, kind)
    return {**came, **new} if new else came


def _named(call: ToolCall, kind: str, now: Names) -> Json:
    if CALLS[kind].name is not None:
        return {}
    namespace, name = now.said(call.name)
    return {"name": name} if namespace is None else {"namespace": namespace, "name": name}


def _asked(call: ToolCall, kind: str) -> Json:
    how = CALLS[kind]
    if how.payload == "input":
        return {"input": input_of(call.arguments)}
    if how.name is None:
        return {"arguments": call.arguments}
    asked: Any = decode_object(_bytes(call.arguments))
    client = {"execution": "client"} if kind == "tool_search_call" else {}
    return {how.payload: call.arguments if asked is None else asked, **client}


def _bytes(text: str) -> bytes:
    """Encode text that may contain lone surrogates."""
    return text.encode("utf-8", "surrogatepass")


def write_result(
    result: ToolResult, wire_id: str, came: Json | None, call_type: str | None
) -> tuple[Json, list[Media]]:
    """The item of a result, for a call written as an item of that type; and the media that it cannot represent."""
    if came is None:
        kind = CALLS[call_type].output if call_type is not None else "function_call_output"
        output, unsaid = _gave(result, None, kind)
        return {"type": kind, "call_id": wire_id, **output}, unsaid
    was, kind, new = read_result(came, ""), came["type"], Json()
    unsaid = list[Media]()
    if result.wire_id is not None and result.wire_id != was.wire_id:
        is_old = kind == "local_shell_call_output" and "call_id" not in came
        new["id" if is_old else "call_id"] = result.wire_id
    if result.parts != was.parts:
        output, unsaid = _gave(result, came, kind)
        new |= output
    if kind == "apply_patch_call_output" and result.is_error != was.is_error:
        new["status"] = "failed" if result.is_error else "completed"
    return ({**came, **new} if new else came), unsaid


def _gave(result: ToolResult, came: Json | None, kind: str) -> tuple[Json, list[Media]]:
    how = OUTPUTS[kind]
    before = "" if came is None and len(result.parts) <= 1 else (came or {}).get(how.payload)
    if not result.parts:
        return {how.payload: "" if how.is_content else []}, []
    content, unsaid = render_content(result.parts, before, "input_text")
    if how.is_content:
        return {how.payload: content}, unsaid
    text = content if isinstance(content, str) else call_payload(content)
    listed = decode_object(b'{"it":' + _bytes(text) + b"}")
    return {how.payload: [{"stdout": text}] if listed is None else listed["it"]}, unsaid


def write_reasoning(part: Reasoning, came: Json | None, *, for_host: bool) -> Json:
    """The item of a reasoning part. Our own token is not sent to a host."""
    if came is None:
        item: Json = {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": part.text}] if part.text else [],
        }
        return item | ({"encrypted_content": part.signature} if part.signature is not None else {})
    was, new = read_reasoning(came, ""), Json()
    if part.text != was.text:
        shown = ("content", "reasoning_text") if came.get("content") else ("summary", "summary_text")
        new[shown[0]] = [{"type": shown[1], "text": part.text}] if part.text else []
    ours = is_signed(was.signature)
    if part.signature != was.signature and not (ours and part.signature is None):
        new["encrypted_content"] = part.signature
    elif ours and for_host:
        came = {key: value for key, value in came.items() if key != "encrypted_content"}
    return {**came, **new} if new else came
