"""Tool definitions of a Chat request <-> canonical tools."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from moonshim.engine.dialects.openai_chat.extras import DIALECT, ChatToolExtras, definition_of
from moonshim.engine.formats.free_text import FREE_TEXT_SCHEMA
from moonshim.engine.values.conversation import Change, Tool
from moonshim.engine.wire.json_fields import (
    BOOLEAN,
    LIST,
    OBJECT,
    STRING,
    check_value,
    read_field,
    read_not_empty,
    read_required,
)

__all__ = ["parse_tool", "parse_tools", "render_tool", "render_tools"]

Json: TypeAlias = dict[str, Any]

_BODIES: Final = {"function": "function", "builtin_function": "function", "custom": "custom"}
"""The key with the name and the rest of a definition, by its type."""


def parse_tools(body: Json) -> tuple[Tool, ...] | None:
    """The tools of a body; None if it has none."""
    tools, functions = body.get("tools"), body.get("functions")
    if tools is None and isinstance(functions, list):
        # The 2023 protocol: the same without the wrapper with `type`.
        tools = [{"type": "function", "function": function} for function in functions]
    if tools is None:
        return None
    check_value(tools, LIST, "tools")
    return tuple(parse_tool(tool, f"tools[{place}]") for place, tool in enumerate(tools))


def render_tools(tools: tuple[Tool, ...], changes: list[Change]) -> list[Json]:
    """The definitions; a tool that only another host can run is removed and reported."""
    out = []
    for place, tool in enumerate(tools):
        rendered = render_tool(tool)
        if rendered is None:
            changes.append(
                Change(
                    "cannot_say", f"tool {tool.name!r} dropped: Chat has no hosted tool of this name", f"tools[{place}]"
                )
            )
        else:
            out.append(rendered)
    return out


def parse_tool(definition: Any, where: str) -> Tool:
    """Parse a tool definition; it is kept, and written again if nothing has changed."""
    check_value(definition, OBJECT, where)
    kind, extras = definition.get("type", "function"), {DIALECT: ChatToolExtras(definition)}
    check_value(kind, STRING, f"{where}.type")
    key = _BODIES.get(kind, kind)
    within = f"{where}.{key}."
    if kind in _BODIES:
        body: Json = read_required(definition, key, OBJECT, f"{where}.")
    else:
        # A type that only its host knows; it is the name too.
        body = {"name": kind} | (inner if isinstance(inner := definition.get(key), dict) else {})
    name: str = read_not_empty(body, "name", STRING, within)
    description: str | None = read_field(body, "description", STRING, within)
    if kind == "custom":
        return Tool(name, _with_format(description, body.get("format")), FREE_TEXT_SCHEMA, extras, kind="custom")
    if kind != "function":
        return Tool(name, description, None, extras, kind="server")
    schema, strict = read_field(body, "parameters", OBJECT, within), read_field(body, "strict", BOOLEAN, within)
    return Tool(name, description, schema, extras, strict=strict)


def render_tool(tool: Tool) -> Json | None:
    """The definition of a tool; None for one that only another host can run."""
    received = definition_of(tool)
    if received and parse_tool(received, "") == tool:
        return received if "type" in received else {"type": "function", **received}
    if tool.kind == "server":
        return {"type": "builtin_function", "function": {"name": tool.name}} if tool.name.startswith("$") else None
    if tool.kind == "custom":
        description = {"description": tool.description} if tool.description else {}
        return {"type": "custom", "custom": {"name": tool.name, **description}}
    inner = received.get("function") if received.get("type", "function") == "function" else None
    rest = dict(inner) if isinstance(inner, dict) else {}
    values: Json = {"description": tool.description, "parameters": tool.parameters, "strict": tool.strict}
    body: Json = {"name": tool.name} | {key: value for key, value in values.items() if value is not None}
    rest = {key: value for key, value in rest.items() if key not in values}
    return {**(received if inner else {}), "type": "function", "function": {**rest, **body}}


def _with_format(description: str | None, format: Any) -> str | None:
    """Describe the input format to the model in words."""
    if not isinstance(format, dict) or format.get("type") in (None, "text"):
        return description
    grammar = format.get("grammar")
    inner: Json = grammar if isinstance(grammar, dict) else format
    syntax, definition = inner.get("syntax", format["type"]), inner.get("definition")
    if not isinstance(definition, str):
        return description
    format_note = f"The input must follow this {syntax} grammar:\n{definition}"
    return f"{description}\n\n{format_note}" if description else format_note
