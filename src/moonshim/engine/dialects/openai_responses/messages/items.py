"""One input or output item -> canonical parts: calls, results and reasoning, and the item types.

There are several types of call items, each with its own type of result:

| call | arguments | result | content |
|---|---|---|---|
| `function_call` | `arguments`, JSON text | `function_call_output` | `output`, text or content |
| `custom_tool_call` | `input`, free text | `custom_tool_call_output` | the same |
| `local_shell_call` | `action`, an object | `local_shell_call_output` | `output`, text |
| `shell_call` | `action` | `shell_call_output` | `output`, an object for each command |
| `apply_patch_call` | `operation`, an object | `apply_patch_call_output` | `output`, text; a `status` |
| `tool_search_call` | `arguments`, an object | `tool_search_output` | `tools`, definitions |

All become function calls: free text as `{"input": …}`, objects as JSON.
"""

from __future__ import annotations

import json
from typing import Any, Final

from msgspec import Struct

from moonshim.engine.dialects.openai_responses.extras import Json
from moonshim.engine.dialects.openai_responses.messages.content import parse_content
from moonshim.engine.dialects.openai_responses.tools import ToolNamespaces
from moonshim.engine.values.conversation import Reasoning, Text, ToolCall, ToolResult
from moonshim.engine.wire.json_codec import encode
from moonshim.engine.wire.json_fields import (
    LENIENT_ARGUMENTS,
    OBJECT,
    STRING,
    JsonType,
    check_value,
    object_with,
    read_field,
    read_not_empty,
    read_required,
    wrong_type,
)
from moonshim.errors import InvalidInput

__all__ = [
    "CALLS",
    "OUTPUTS",
    "CallItem",
    "OutputItem",
    "call_payload",
    "parse_call",
    "parse_reasoning",
    "parse_result",
    "type_of",
    "wrap_input",
]


class CallItem(Struct, frozen=True):
    """How one type of item represents a call."""

    type: str
    payload: str
    """The field with the arguments."""
    output: str
    """The type of its result."""
    name: str | None = None
    """The tool, if the item type determines it."""


class OutputItem(Struct, frozen=True):
    """How one type of item represents a result."""

    type: str
    payload: str
    is_content: bool = True
    """Whether the payload is a string or content; otherwise it is JSON."""


_CALLS: Final = (
    CallItem("function_call", "arguments", "function_call_output"),
    CallItem("custom_tool_call", "input", "custom_tool_call_output"),
    CallItem("local_shell_call", "action", "local_shell_call_output", "local_shell"),
    CallItem("shell_call", "action", "shell_call_output", "shell"),
    CallItem("apply_patch_call", "operation", "apply_patch_call_output", "apply_patch"),
    CallItem("tool_search_call", "arguments", "tool_search_output", "tool_search"),
)
_OUTPUTS: Final = (
    OutputItem("function_call_output", "output"),
    OutputItem("custom_tool_call_output", "output"),
    OutputItem("local_shell_call_output", "output"),
    OutputItem("shell_call_output", "output", is_content=False),
    OutputItem("apply_patch_call_output", "output"),
    OutputItem("tool_search_output", "tools", is_content=False),
)
_TEXT_LIST: Final = JsonType((list,), "a list", object_with(type=STRING, text=STRING))
CALLS: Final = {call.type: call for call in _CALLS}
OUTPUTS: Final = {output.type: output for output in _OUTPUTS}


def type_of(item: Any, where: str) -> str:
    """The type of an item; short messages and references may lack it."""
    check_value(item, OBJECT, where)
    kind = item.get("type")
    if kind is None:
        kind = "message" if "role" in item else "item_reference" if isinstance(item.get("id"), str) else None
    if kind is None:
        raise InvalidInput("an item must have a type or a role", field=where)
    if not isinstance(kind, str):
        raise wrong_type(f"{where}.type", "a string", kind)
    if kind == "tool_search_call" and not isinstance(item.get("call_id"), str):
        return "tool_search"  # run by the host itself: it needs no result
    return kind


# --- calls ------------------------------------------------------------------------------------------------------


def parse_call(item: Json, names: ToolNamespaces, where: str) -> ToolCall:
    """Parse a call item; its canonical id is still the wire id."""
    how = CALLS[item["type"]]
    within = f"{where}."
    name = how.name or read_not_empty(item, "name", STRING, within)
    namespace, wire_id = read_field(item, "namespace", STRING, within), read_field(item, "call_id", STRING, within)
    if how.name is None and namespace is not None:
        name = names.flat(namespace, name)
    if how.payload == "input":
        text = read_required(item, how.payload, STRING, within)
        return ToolCall(wire_id or "", name, wrap_input(text), wire_id)
    payload = read_field(item, how.payload, LENIENT_ARGUMENTS, within)
    return ToolCall(wire_id or "", name, call_payload(payload, within + how.payload), wire_id)


def call_payload(payload: Any, where: str | None = None) -> str:
    """The payload of a call as a string; objects in place of a string are encoded."""
    if payload is None or isinstance(payload, str):
        return payload or ""
    try:
        return json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        raise InvalidInput("the value is nested too deeply", field=where) from None


def wrap_input(text: str) -> str:
    """Free-form text as the arguments of a function.

    >>> wrap_input('a "b"')
    '{"input":"a \\\\"b\\\\""}'
    """
    return '{"input":' + encode(text).decode() + "}"


# --- results ----------------------------------------------------------------------------------------------------


def parse_result(item: Json, where: str) -> ToolResult:
    """Parse a result item, for the call with its id."""
    how = OUTPUTS[item["type"]]
    payload, wire_id, name = item.get(how.payload), item.get("call_id"), item.get("name")
    if wire_id is None and how.type == "local_shell_call_output":
        wire_id = item.get("id")
    if wire_id is not None:
        check_value(wire_id, STRING, f"{where}.call_id")
    if how.is_content:
        parts = parse_content(payload, f"{where}.{how.payload}")
    else:
        parts = [] if payload is None else [Text(call_payload(payload, f"{where}.{how.payload}"))]
    is_error = how.type == "apply_patch_call_output" and item.get("status") == "failed"
    return ToolResult(wire_id or "", name if isinstance(name, str) else None, tuple(parts), is_error, wire_id)


# --- reasoning --------------------------------------------------------------------------------------------------


def parse_reasoning(item: Json, where: str) -> Reasoning:
    """Parse a reasoning item: its text or else its summary, and the content that its host encrypted."""
    text = _texts(item, "content", "", where)
    summary = _texts(item, "summary", "\n\n", where)
    return Reasoning(text or summary, read_field(item, "encrypted_content", STRING, f"{where}.") or None)


def _texts(item: Json, key: str, between: str, where: str) -> str:
    entries = read_field(item, key, _TEXT_LIST, f"{where}.") or ()
    return between.join(text for entry in entries if (text := entry.get("text")) is not None)
