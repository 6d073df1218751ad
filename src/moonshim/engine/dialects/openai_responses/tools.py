"""Tool definitions, tool names and `tool_choice` of a Responses request <-> canonical tools and choice.

| definition | canonical |
|---|---|
| `function` | a function |
| `custom` | `kind="custom"`: a function of one string, whose description includes the format |
| `namespace` | its tools, each under the joined name (`github__search`) |
| `tool_search` that the client runs itself | a function, as the client declared it |
| anything else (`web_search`, `mcp`, …) | `kind="server"`, named by its type |

Each tool keeps its definition, and that of its namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from moonshim.engine.dialects.openai_responses.extras import DIALECT, Json, ResponsesToolExtras, is_loaded, tool_extras
from moonshim.engine.formats.free_text import FREE_TEXT_SCHEMA
from moonshim.engine.values.conversation import Change, SearchSettings, Tool, ToolChoice
from moonshim.engine.wire.json_fields import (
    BOOLEAN,
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
from moonshim.errors import InvalidInput

__all__ = [
    "TOOL_SEARCH",
    "ClientName",
    "ToolNamespaces",
    "flat_name",
    "kind_of",
    "parse_choice",
    "parse_tools",
    "plain_name",
    "render_choice",
    "render_tools",
]

# --- names ------------------------------------------------------------------------------------------------------------

ClientName: TypeAlias = tuple[str | None, str]
"""Namespace, if any, and name, in the client's form."""

_SEPARATOR: Final = "__"


def flat_name(namespace: str | None, name: str) -> str:
    """The name that a model sees, unless another tool has it.

    >>> flat_name("github", "search"), flat_name("mcp__github__", "search"), flat_name(None, "ls")
    ('github__search', 'mcp__github__search', 'ls')
    """
    if not namespace:
        return name
    return f"{namespace}{name}" if namespace.endswith(_SEPARATOR) else f"{namespace}{_SEPARATOR}{name}"


def plain_name(tool: Tool) -> ClientName:
    """Namespace and name of a tool in the client's form; without the namespace if its name has lost that.

    >>> plain_name(Tool("github__search", namespace="github"))
    ('github', 'search')
    """
    if not tool.namespace:
        return None, tool.name
    extras = tool_extras(tool)
    name = None if extras.definition is None else extras.definition.get("name")
    if isinstance(name, str) and extras.flat == tool.name:
        return tool.namespace, name
    start = flat_name(tool.namespace, "")
    return (tool.namespace, tool.name[len(start) :]) if tool.name.startswith(start) else (None, tool.name)


class ToolNamespaces:
    """Resolves namespace and name to a tool, and a model's tool name to the client's form.

    >>> names = ToolNamespaces([Tool("a__b", namespace="a"), Tool("ls")])
    >>> names.flat("a", "b"), names.client_name("a__b"), names.client_name("ls"), names.flat(None, "b")
    ('a__b', ('a', 'b'), (None, 'ls'), 'b')
    """

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        # A function may have the name of a hosted tool; it is the one that can be called.
        listed = sorted(tools, key=lambda tool: tool.kind != "server")
        self.tools = {tool.name: tool for tool in listed}
        self._client_names = {name: plain_name(tool) for name, tool in self.tools.items() if tool.namespace}
        self._flat = {client_name: name for name, client_name in self._client_names.items()}

    def flat(self, namespace: str | None, name: str) -> str:
        return (self._flat.get((namespace, name)) or flat_name(namespace, name)) if namespace else name

    def client_name(self, flat: str) -> ClientName:
        return self._client_names.get(flat, (None, flat))


TOOL_SEARCH: Final = "tool_search"

_HOSTED: Final = {
    "web_search_2025_08_26": "web_search",
    "web_search_preview": "web_search",
    "web_search_preview_2025_03_11": "web_search",
}
"""Types of hosted tools that have another canonical name; the others are named by their type."""
_EQUIVALENT: Final = frozenset({"web_search"})
"""Hosted tools of other dialects with an equivalent definition here."""


_DEFINITION: Final = object_with(
    type=STRING,
    name=STRING,
    description=STRING,
    strict=BOOLEAN,
    defer_loading=BOOLEAN,
    format=object_with(type=STRING, syntax=STRING, definition=STRING),
)


# --- definitions -> canonical -----------------------------------------------------------------------------------


def parse_tools(definitions: Any, where: str = "tools", taken: set[str] | None = None) -> list[Tool]:
    """Canonical tools, in order, with unique joined names. Raises `InvalidInput` for an invalid definition.

    `taken`: names already in use; new ones are added to it.

    >>> [tool.name for tool in parse_tools([{"type": "namespace", "name": "a", "tools": [
    ...     {"type": "function", "name": "b"}]}, {"type": "web_search"}])]
    ['a__b', 'web_search']
    """
    check_value(definitions, LIST, where)
    taken, out = set() if taken is None else taken, list[Tool]()
    # A tool without a namespace keeps its name, wherever it is.
    taken |= {name for one in definitions if isinstance(name := _top_level_name(one), str)}
    for number, definition in enumerate(definitions):
        here = f"{where}[{number}]"
        kind = _type(definition, here)
        if kind != "namespace":
            out.append(_parse_tool(definition, kind, None, here, taken))
            continue
        inner = read_required(definition, "tools", LIST, f"{here}.")
        namespace = {key: value for key, value in definition.items() if key != "tools"}
        _name(definition, here)
        for place, one in enumerate(inner):
            inside = f"{here}.tools[{place}]"
            out.append(_parse_tool(one, _type(one, inside), namespace, inside, taken))
    return out


def _top_level_name(definition: Any) -> Any:
    return definition.get("name") if isinstance(definition, dict) and definition.get("type") != "namespace" else None


def _type(definition: Any, where: str) -> str:
    check_value(definition, _DEFINITION, where)
    kind: str = read_required({"type": "function", **definition}, "type", STRING, f"{where}.")
    return kind


def _name(definition: Json, where: str) -> str:
    name: str = read_not_empty(definition, "name", STRING, f"{where}.")
    return name


def _parse_tool(definition: Json, kind: str, namespace: Json | None, where: str, taken: set[str]) -> Tool:
    description = definition.get("description")
    extras = ResponsesToolExtras(definition, namespace)
    if kind in ("function", "custom"):
        own_name, within = _name(definition, where), namespace["name"] if namespace is not None else None
        name = _free_name(flat_name(within, own_name), taken) if namespace is not None else own_name
        taken.add(name)
        if namespace is not None:
            extras = replace(extras, flat=name)
        deferred = definition.get("defer_loading") is True
        if kind == "custom":
            format_note = _with_format(description, definition.get("format"))
            return Tool(name, format_note, FREE_TEXT_SCHEMA, {DIALECT: extras}, "custom", within, deferred)
        schema, strict = _schema(definition, where), definition.get("strict")
        return Tool(name, description, schema, {DIALECT: extras}, "function", within, deferred, strict)
    if kind == TOOL_SEARCH and definition.get("execution") == "client":
        taken.add(kind)
        return Tool(kind, description, _schema(definition, where), {DIALECT: extras})
    name = _HOSTED.get(kind, kind)
    search = _parse_search(definition, where) if name == "web_search" else None
    return Tool(name, description, None, {DIALECT: extras}, "server", search=search)


def _parse_search(definition: Json, where: str) -> SearchSettings:
    filters = read_field(definition, "filters", OBJECT, f"{where}.") or {}
    allowed, blocked = (
        tuple(read_field(filters, name, STRINGS, f"{where}.filters.") or ())
        for name in ("allowed_domains", "blocked_domains")
    )
    is_live = read_field(definition, "external_web_access", BOOLEAN, f"{where}.") is not False
    return SearchSettings(allowed=allowed, blocked=blocked, is_live=is_live)


def _schema(definition: Json, where: str) -> Json | None:
    schema: Json | None = read_field(definition, "parameters", OBJECT, f"{where}.")
    return schema


def _free_name(name: str, taken: set[str]) -> str:
    """`a` + `b__c` and `a__b` + `c` are two tools."""
    number, found = 2, name
    while found in taken:
        number, found = number + 1, f"{name}_{number}"
    return found


def _with_format(description: str | None, format: Any) -> str | None:
    """Describe the input format to the model in words."""
    match format:
        case {"definition": str(definition)}:
            syntax = format.get("syntax")
            syntax = f"{syntax} " if isinstance(syntax, str) else ""
            format_note = f"`input` is free text and must follow this {syntax}grammar:\n{definition}"
            return f"{description}\n\n{format_note}" if description else format_note
    return description


# --- canonical -> definitions -----------------------------------------------------------------------------------


def kind_of(tool: Tool) -> str:
    """The type of the definition that a tool was received in, or would get."""
    received = (tool_extras(tool).definition or {}).get("type")
    if isinstance(received, str):
        return received
    return tool.name if tool.kind == "server" else tool.kind


def render_tools(tools: Sequence[Tool], received: Any, before: Sequence[Tool], changes: list[Change]) -> list[Json]:
    """The definitions of these tools: the received list, while it still equals them.

    `before`: the tools that were parsed from that list.
    """
    declared = [tool for tool in tools if not is_loaded(tool)]
    if isinstance(received, list) and before == declared:
        return received
    out, last = list[Json](), None
    for number, tool in enumerate(declared):
        definition = _render_tool(tool)
        if definition is None:
            changes.append(
                Change(
                    "cannot_say",
                    f"tool {tool.name!r} dropped: Responses has no hosted tool of this name",
                    f"tools[{number}]",
                )
            )
            continue
        namespace = plain_name(tool)[0]
        if namespace is None:
            out.append(definition)
        elif namespace == last:
            out[-1]["tools"].append(definition)
        else:
            description: Json = {"type": "namespace", "name": namespace, "description": f"Tools of {namespace}."}
            out.append({**(tool_extras(tool).namespace or description), "tools": [definition]})
        last = namespace
    return out


def _render_tool(tool: Tool) -> Json | None:
    received = tool_extras(tool).definition
    name = plain_name(tool)[1]
    if received is not None:
        return _patch_definition(tool, received, name)
    match tool.kind:
        case "server":
            return {"type": tool.name} if tool.name in _EQUIVALENT else None
        case "custom":
            description = {"description": tool.description} if tool.description is not None else {}
            return {"type": "custom", "name": name, **description}
        case "function":
            values: Json = {"description": tool.description, "parameters": tool.parameters, "strict": tool.strict}
            values["defer_loading"] = tool.deferred or None
            fields = {key: value for key, value in values.items() if value is not None}
            return {"type": "function", "name": name, **fields}


def _patch_definition(tool: Tool, received: Json, name: str) -> Json:
    """The received definition, with what has changed since."""
    was = _parse_tool(received, _type(received, ""), None, "", set())
    now: Json = {}
    if tool.kind != "server" and received.get("name", name) != name:
        now["name"] = name
    if tool.description != was.description:
        now["description"] = tool.description
    if tool.kind == "function":
        pairs = (("parameters", tool.parameters, was.parameters), ("strict", tool.strict, was.strict))
        now |= {key: value for key, value, before in pairs if value != before}
    return {**received, **now} if now else received


# --- tool choice ------------------------------------------------------------------------------------------------------


_NAMED: Final = frozenset({"function", "custom"})


def parse_choice(choice: Any, names: ToolNamespaces) -> ToolChoice | None:
    """The client's choice; None if it made none.

    >>> parse_choice({"type": "function", "name": "ls"}, ToolNamespaces())
    ToolChoice(mode='tool', name='ls', allowed=None)
    """
    match choice:
        case None:
            return None
        case "auto" | "none" | "required":
            return ToolChoice(choice)
        case {"type": "allowed_tools", "mode": "auto" | "required" as mode, "tools": list(tools)}:
            return ToolChoice(mode, allowed=tuple(_resolve_entry(tool, names) for tool in tools))
        case {"type": str()}:
            return ToolChoice("tool", _resolve_entry(choice, names))
    raise InvalidInput("tool_choice must be auto, none, required, or an object with a type", field="tool_choice")


def _resolve_entry(entry: Any, names: ToolNamespaces) -> str:
    """The name of the tool that an entry refers to: by name, or by type if there is only one of that type."""
    kind, name = (entry.get("type"), entry.get("name")) if isinstance(entry, dict) else (None, None)
    if not isinstance(kind, str):
        raise InvalidInput("a tool in tool_choice must have a type", field="tool_choice")
    if kind in _NAMED:
        if not isinstance(name, str) or not name:
            raise InvalidInput("a function in tool_choice must have a name", field="tool_choice.name")
        namespace = entry.get("namespace")
        flat = names.flat(namespace if isinstance(namespace, str) else None, name)
        if flat in names.tools:
            return flat
        inside = [tool.name for tool in names.tools.values() if names.client_name(tool.name)[1] == name]
        return inside[0] if len(inside) == 1 else flat
    return next((tool.name for tool in names.tools.values() if kind_of(tool) == kind), kind)


def render_choice(choice: ToolChoice, names: ToolNamespaces) -> Any:
    """The choice in the form of Responses.

    >>> render_choice(ToolChoice("auto", allowed=("ls",)), ToolNamespaces())
    {'type': 'allowed_tools', 'mode': 'auto', 'tools': [{'type': 'function', 'name': 'ls'}]}
    """
    if choice.mode == "tool":
        return _render_entry(choice.name or "", names)
    if choice.allowed is None or choice.mode == "none":
        return choice.mode
    return {
        "type": "allowed_tools",
        "mode": choice.mode,
        "tools": [_render_entry(name, names) for name in choice.allowed],
    }


def _render_entry(flat: str, names: ToolNamespaces) -> Json:
    tool = names.tools.get(flat)
    kind = kind_of(tool) if tool is not None else "function"
    if kind not in _NAMED:
        return {"type": kind}
    namespace, name = names.client_name(flat)
    return {"type": kind, "name": name} | ({"namespace": namespace} if namespace else {})
