"""Tool definitions of a Messages request <-> canonical tools.

| definition | tool |
|---|---|
| `{name, description, input_schema}`, with `type: custom` or without | a function |
| `{type: "bash_20250124", name}` and other client tools | a function with Anthropic's schema |
| any other `type` | a tool that the host runs; `web_search_20250305` is named `web_search` |

The definition is kept, and written again if nothing has changed.
"""

from __future__ import annotations

import re
from typing import Any, Final

from moonshim.engine.dialects.anthropic.extras import DIALECT, Json, MessagesToolExtras, definition_of
from moonshim.engine.values.conversation import Change, Tool
from moonshim.errors import InvalidInput

__all__ = ["parse_tools", "render_tools"]

_FREE_TEXT: Final[Json] = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
_DATED: Final = re.compile(r"_\d{8}\Z")
_RUN_BY_CLIENT: Final = re.compile(r"(bash|text_editor|computer|memory)_\d{8}")
_SERVER_TYPES: Final = {
    "web_search": "web_search_20250305",
    "web_fetch": "web_fetch_20250910",
    "code_execution": "code_execution_20250825",
}
_TOOL_FIELDS: Final = frozenset({"name", "description", "input_schema", "strict", "defer_loading"})


def _properties(required: tuple[str, ...], **kinds: str) -> Json:
    properties = {name: {"type": kind} for name, kind in kinds.items()}
    return {"type": "object", "properties": properties, "required": list(required)}


_EDITOR: Final = _properties(
    ("command", "path"),
    command="string",
    path="string",
    file_text="string",
    old_str="string",
    new_str="string",
    insert_line="integer",
    insert_text="string",
    view_range="array",
)
_CLIENT_SCHEMAS: Final[dict[str, Json]] = {
    "bash": _properties((), command="string", restart="boolean"),
    "text_editor": _EDITOR,
}
"""Anthropic's models know these tools by training; other models need a definition."""


def parse_tools(tools: Any) -> tuple[Tool, ...] | None:
    """The tools of a body; None if it has no `tools`."""
    if tools is None:
        return None
    if not isinstance(tools, list):
        raise InvalidInput(f"tools must be a list, not {type(tools).__name__}", field="tools")
    return tuple(_parse_tool(tool, f"tools[{place}]") for place, tool in enumerate(tools))


def render_tools(tools: tuple[Tool, ...], changes: list[Change]) -> list[Json]:
    """The definitions; a tool that only another host can run is removed and reported."""
    out = []
    for place, tool in enumerate(tools):
        rendered = _render_tool(tool)
        if rendered is None:
            detail = f"Messages has no tool that is run by the host under the name {tool.name}"
            changes.append(Change("cannot_say", detail, f"tools[{place}]"))
        else:
            out.append(rendered)
    return out


def _parse_tool(definition: Any, where: str) -> Tool:
    if not isinstance(definition, dict):
        raise InvalidInput(f"a tool must be an object, not {type(definition).__name__}", field=where)
    kind, name, description = definition.get("type") or "custom", definition.get("name"), definition.get("description")
    if not isinstance(kind, str):
        raise InvalidInput("the type of a tool must be a string", field=f"{where}.type")
    extras, description = (
        {DIALECT: MessagesToolExtras(definition)},
        description if isinstance(description, str) else None,
    )
    deferred = definition.get("defer_loading") is True
    if kind == "function" and isinstance(definition.get("function"), dict):
        # Chat's form, which Kimi's Messages endpoint ignores; the model would then write calls as text.
        return _parse_function(definition["function"], "parameters", f"{where}.function", {})
    if kind == "custom":
        return _parse_function(definition, "input_schema", where, extras)
    if not isinstance(name, str) or not name:
        name = _DATED.sub("", kind)
    if _RUN_BY_CLIENT.fullmatch(kind):
        return Tool(name, description, _CLIENT_SCHEMAS.get(_DATED.sub("", kind)), extras, deferred=deferred)
    return Tool(name, description, None, extras, kind="server", deferred=deferred)


def _parse_function(body: Json, key: str, where: str, extras: Json) -> Tool:
    name, description, schema, strict = body.get("name"), body.get("description"), body.get(key), body.get("strict")
    if not isinstance(name, str) or not name:
        raise InvalidInput("a tool needs a name", field=f"{where}.name")
    if description is not None and not isinstance(description, str):
        raise InvalidInput(f"the description of tool {name!r} must be a string", field=f"{where}.description")
    if not isinstance(schema, dict) and (schema is not None or key == "input_schema"):
        raise InvalidInput(f"tool {name!r} needs an {key}, which is an object", field=f"{where}.{key}")
    return Tool(
        name,
        description,
        schema,
        extras,
        deferred=body.get("defer_loading") is True,
        strict=strict if isinstance(strict, bool) else None,
    )


def _render_tool(tool: Tool) -> Json | None:
    received = definition_of(tool)
    if received and _parse_tool(received, "") == tool:
        return received
    if tool.kind == "server":
        kind = _SERVER_TYPES.get(tool.name)
        return None if kind is None else {"type": kind, "name": tool.name}
    schema = tool.parameters
    if schema is None:
        schema = _FREE_TEXT if tool.kind == "custom" else {"type": "object", "properties": {}}
    out: Json = {"name": tool.name}
    if tool.description is not None:
        out["description"] = tool.description
    out["input_schema"] = schema if "type" in schema else {"type": "object", **schema}
    if tool.strict is not None:
        out["strict"] = tool.strict
    if tool.deferred:
        out["defer_loading"] = True
    hosted = received.get("type") not in (None, "custom")
    return out if hosted else out | {key: value for key, value in received.items() if key not in _TOOL_FIELDS}
