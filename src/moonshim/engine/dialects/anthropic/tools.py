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
from moonshim.engine.values.conversation import Change, SearchSettings, Tool
from moonshim.engine.wire.json_fields import (
    BOOLEAN,
    INTEGER,
    LIST,
    OBJECT,
    STRING,
    STRINGS,
    check_value,
    object_with,
    read_field,
    read_not_empty,
    read_required,
)

__all__ = ["parse_tool", "parse_tools", "render_tools"]

_FREE_TEXT: Final[Json] = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
_DATED: Final = re.compile(r"_\d{8}\Z")
_RUN_BY_CLIENT: Final = re.compile(r"(bash|text_editor|computer|memory)_\d{8}")
_SEARCH: Final = re.compile(r"web_search_\d{8}")
_SEARCH_FIELDS: Final = {"max_uses": INTEGER, "allowed_domains": STRINGS, "blocked_domains": STRINGS}
_SERVER_TYPES: Final = {
    "web_search": "web_search_20250305",
    "web_fetch": "web_fetch_20250910",
    "code_execution": "code_execution_20250825",
}
_DEFINITION: Final = object_with(
    type=STRING,
    name=STRING,
    description=STRING,
    strict=BOOLEAN,
    defer_loading=BOOLEAN,
    cache_control=OBJECT,
)
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
    check_value(tools, LIST, "tools")
    return tuple(parse_tool(tool, f"tools[{place}]") for place, tool in enumerate(tools))


def render_tools(tools: tuple[Tool, ...], changes: list[Change]) -> list[Json]:
    """The definitions; a tool that only another host can run is removed and reported."""
    out = []
    for place, tool in enumerate(tools):
        rendered = _render_tool(tool)
        if rendered is None:
            detail = f"tool {tool.name!r} dropped: Messages has no hosted tool of this name"
            changes.append(Change("cannot_say", detail, f"tools[{place}]"))
        else:
            out.append(rendered)
    return out


def parse_tool(definition: Any, where: str) -> Tool:
    """One tool. Raises `InvalidInput` with the field."""
    check_value(definition, _DEFINITION, where)
    kind, name, description = definition.get("type") or "custom", definition.get("name"), definition.get("description")
    extras, deferred = {DIALECT: MessagesToolExtras(definition)}, definition.get("defer_loading") is True
    if kind == "function" and isinstance(definition.get("function"), dict):
        # Chat's form, which Kimi's Messages endpoint ignores; the model would then write calls as text.
        return _parse_function(definition["function"], "parameters", f"{where}.function", {})
    if kind == "custom":
        return _parse_function(definition, "input_schema", where, extras)
    name = name or _DATED.sub("", kind)
    if _RUN_BY_CLIENT.fullmatch(kind):
        return Tool(name, description, _CLIENT_SCHEMAS.get(_DATED.sub("", kind)), extras, deferred=deferred)
    search = _parse_search(definition, where) if _SEARCH.fullmatch(kind) else None
    return Tool(name, description, None, extras, kind="server", deferred=deferred, search=search)


def _parse_search(definition: Json, where: str) -> SearchSettings:
    limits = {name: read_field(definition, name, type, f"{where}.") for name, type in _SEARCH_FIELDS.items()}
    uses = limits["max_uses"]
    return SearchSettings(
        None if uses is None else int(uses),
        tuple(limits["allowed_domains"] or ()),
        tuple(limits["blocked_domains"] or ()),
    )


def _parse_function(body: Json, key: str, where: str, extras: Json) -> Tool:
    within = f"{where}."
    read_schema = read_required if key == "input_schema" else read_field
    return Tool(
        read_not_empty(body, "name", STRING, within),
        read_field(body, "description", STRING, within),
        read_schema(body, key, OBJECT, within),
        extras,
        deferred=body.get("defer_loading") is True,
        strict=read_field(body, "strict", BOOLEAN, within),
    )


def _render_tool(tool: Tool) -> Json | None:
    received = definition_of(tool)
    if received and parse_tool(received, "") == tool:
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
