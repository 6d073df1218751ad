"""Tool definitions of a Chat request <-> canonical tools."""

from __future__ import annotations

from typing import Any, TypeAlias

from moonshim.engine.dialects.openai_chat.extras import DIALECT, ChatToolExtras, definition_of
from moonshim.engine.formats.free_text import FREE_TEXT_SCHEMA
from moonshim.engine.values.conversation import Tool
from moonshim.errors import InvalidInput

__all__ = ["parse_tool", "render_tool"]

Json: TypeAlias = dict[str, Any]


def parse_tool(given: Any, where: str) -> Tool:
    """Parse a tool definition; it is kept, and written again if nothing has changed."""
    if not isinstance(given, dict):
        raise InvalidInput(f"a tool must be an object, not {type(given).__name__}", field=where)
    kind, extras = given.get("type", "function"), {DIALECT: ChatToolExtras(given)}
    if not isinstance(kind, str):
        raise InvalidInput("the type of a tool must be a string", field=f"{where}.type")
    body = given.get("function" if kind in ("function", "builtin_function") else kind)
    if kind in ("function", "builtin_function", "custom") and not isinstance(body, dict):
        what = "custom" if kind == "custom" else "function"
        raise InvalidInput(f"a tool of type {kind} needs a {what}", field=f"{where}.{what}")
    body = body if isinstance(body, dict) else {}
    name = body.get("name", kind if kind not in ("function", "builtin_function", "custom") else None)
    if not isinstance(name, str) or not name:
        raise InvalidInput("a tool needs a name", field=f"{where}.{'custom' if kind == 'custom' else 'function'}.name")
    about = body.get("description")
    about = about if isinstance(about, str) else None
    if kind == "custom":
        return Tool(name, _with_format(about, body.get("format")), FREE_TEXT_SCHEMA, extras, kind="custom")
    if kind != "function":
        return Tool(name, about, None, extras, kind="server")
    schema, strict = body.get("parameters"), body.get("strict")
    if schema is not None and not isinstance(schema, dict):
        raise InvalidInput(f"the parameters of tool {name!r} must be an object", field=f"{where}.function.parameters")
    return Tool(name, about, schema, extras, strict=strict if isinstance(strict, bool) else None)


def render_tool(tool: Tool) -> Json | None:
    """The definition of a tool; None for one that only another host can run."""
    came = definition_of(tool)
    if came and parse_tool(came, "") == tool:
        return came if "type" in came else {"type": "function", **came}
    if tool.kind == "server":
        return {"type": "builtin_function", "function": {"name": tool.name}} if tool.name.startswith("$") else None
    if tool.kind == "custom":
        about = {"description": tool.description} if tool.description else {}
        return {"type": "custom", "custom": {"name": tool.name, **about}}
    inner = came.get("function") if came.get("type", "function") == "function" else None
    rest = dict(inner) if isinstance(inner, dict) else {}
    said: Json = {"description": tool.description, "parameters": tool.parameters, "strict": tool.strict}
    body: Json = {"name": tool.name} | {key: value for key, value in said.items() if value is not None}
    rest = {key: value for key, value in rest.items() if key not in said}
    return {**(came if inner else {}), "type": "function", "function": {**rest, **body}}


def _with_format(about: str | None, format: Any) -> str | None:
    """Describe the input format to the model in words."""
    if not isinstance(format, dict) or format.get("type") in (None, "text"):
        return about
    grammar = format.get("grammar")
    inner: Json = grammar if isinstance(grammar, dict) else format
    syntax, definition = inner.get("syntax", format["type"]), inner.get("definition")
    if not isinstance(definition, str):
        return about
    told = f"The input must follow this {syntax} grammar:\n{definition}"
    return f"{about}\n\n{told}" if about else told
