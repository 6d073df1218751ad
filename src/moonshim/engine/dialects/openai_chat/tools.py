"""Tool definitions of a Chat request <-> canonical tools."""

from __future__ import annotations

from typing import Any, TypeAlias

from moonshim.engine.dialects.openai_chat.extras import DIALECT, ChatToolExtras, definition_of
from moonshim.engine.formats.free_text import FREE_TEXT_SCHEMA
from moonshim.engine.values.conversation import Change, Tool
from moonshim.errors import InvalidInput

__all__ = ["parse_tool", "parse_tools", "render_tool", "render_tools"]

Json: TypeAlias = dict[str, Any]


def parse_tools(body: Json) -> tuple[Tool, ...] | None:
    """The tools of a body; None if it has none."""
    tools, functions = body.get("tools"), body.get("functions")
    if tools is None and isinstance(functions, list):
        # The 2023 protocol: the same without the wrapper with `type`.
        tools = [{"type": "function", "function": function} for function in functions]
    if tools is None:
        return None
    if not isinstance(tools, list):
        raise InvalidInput(f"tools must be a list, not {type(tools).__name__}", field="tools")
    return tuple(parse_tool(tool, f"tools[{place}]") for place, tool in enumerate(tools))


def render_tools(tools: tuple[Tool, ...], changes: list[Change]) -> list[Json]:
    """The definitions; a tool that only another host can run is removed and reported."""
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


def parse_tool(definition: Any, where: str) -> Tool:
    """Parse a tool definition; it is kept, and written again if nothing has changed."""
    if not isinstance(definition, dict):
        raise InvalidInput(f"a tool must be an object, not {type(definition).__name__}", field=where)
    kind, extras = definition.get("type", "function"), {DIALECT: ChatToolExtras(definition)}
    if not isinstance(kind, str):
        raise InvalidInput("the type of a tool must be a string", field=f"{where}.type")
    body = definition.get("function" if kind in ("function", "builtin_function") else kind)
    if kind in ("function", "builtin_function", "custom") and not isinstance(body, dict):
        what = "custom" if kind == "custom" else "function"
        raise InvalidInput(f"a tool of type {kind} needs a {what}", field=f"{where}.{what}")
    body = body if isinstance(body, dict) else {}
    name = body.get("name", kind if kind not in ("function", "builtin_function", "custom") else None)
    if not isinstance(name, str) or not name:
        raise InvalidInput("a tool needs a name", field=f"{where}.{'custom' if kind == 'custom' else 'function'}.name")
    description = body.get("description")
    description = description if isinstance(description, str) else None
    if kind == "custom":
        return Tool(name, _with_format(description, body.get("format")), FREE_TEXT_SCHEMA, extras, kind="custom")
    if kind != "function":
        return Tool(name, description, None, extras, kind="server")
    schema, strict = body.get("parameters"), body.get("strict")
    if schema is not None and not isinstance(schema, dict):
        raise InvalidInput(f"the parameters of tool {name!r} must be an object", field=f"{where}.function.parameters")
    return Tool(name, description, schema, extras, strict=strict if isinstance(strict, bool) else None)


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
