"""Tool definitions of any format <-> canonical tools.

| formats | shape of one definition |
|---|---|
| openai, kimi, qwen, deepseek | `{"type": "function", "function": {name, description, parameters}}`: the API's own |
| mistral, llama, gemma | the same: their chat templates take it and write `[AVAILABLE_TOOLS]`, indented JSON, \
and `declaration:name{…}` out of it |
| hermes, xml | `{name, description, parameters}`: what their templates unwrap and write into `<tools>` |
| anthropic | `{name, description, input_schema}` |

Schemas are passed on unchanged, except for what a format requires: `"type": "function"` where it is missing, an empty
object schema for anthropic and mistral when a tool has none, and `"type": "object"` at the top of an `input_schema`.
Unknown fields of a shape are kept in `Tool.extras` under the name of the shape, and are written in that shape only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

from moonshim.engine.formats.detect import ToolFormat, check_format
from moonshim.engine.formats.limits import why_not
from moonshim.engine.values.conversation import Tool
from moonshim.engine.values.copies import deep_copy
from moonshim.errors import CannotExpress, InvalidInput

__all__ = ["format_tools", "parse_tools"]

Shape: TypeAlias = Literal["openai", "anthropic", "flat"]

_SHAPES: Final[dict[ToolFormat, Shape]] = {
    "openai": "openai",
    "kimi": "openai",
    "qwen": "openai",
    "deepseek": "openai",
    "mistral": "openai",
    "llama": "openai",
    "gemma": "openai",
    "hermes": "flat",
    "xml": "flat",
    "anthropic": "anthropic",
}
_SCHEMA_KEY: Final[dict[Shape, str]] = {"openai": "parameters", "flat": "parameters", "anthropic": "input_schema"}


def format_tools(tools: Iterable[Tool | Mapping[str, Any]], format: str) -> list[Any]:
    """Definitions in a format, from canonical tools or OpenAI definitions, in the same order.

    Raises `CannotExpress`, naming the tool and the reason, for what the format cannot represent, and `InvalidInput`
    for an unreadable definition. The input is never modified and shares nothing with the output.

    >>> ls = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}
    >>> format_tools([ls], "anthropic")
    [{'name': 'ls', 'input_schema': {'type': 'object'}}]
    >>> format_tools([ls], "kimi") == [ls]
    True
    """
    target = check_format(format)
    out = []
    for index, given in enumerate(_listed(tools)):
        if isinstance(given, Tool):
            _check(given, target, index)
            out.append(deep_copy(_RENDER[_SHAPES[target]](given, target)))
            continue
        definition = _definition(given, index)
        tool = _parse_openai(definition, f"tools[{index}]")
        _check(tool, target, index)
        if _SHAPES[target] == "openai" and not _lacks_schema(tool, target):
            # Keep the order of keys, so that prompt caches still match.
            out.append(definition if "type" in definition else {"type": "function", **definition})
        else:
            out.append(_RENDER[_SHAPES[target]](tool, target))
    return out


def parse_tools(definitions: Iterable[Mapping[str, Any]], format: str) -> list[Tool]:
    """Canonical tools from the definitions of a format. Raises `InvalidInput` for unreadable ones.

    >>> (tool,) = parse_tools([{"name": "ls", "input_schema": {"type": "object"}}], "anthropic")
    >>> tool.name, tool.parameters
    ('ls', {'type': 'object'})
    """
    parse = _PARSE[_SHAPES[check_format(format)]]
    return [parse(_definition(given, i), f"tools[{i}]") for i, given in enumerate(_listed(definitions))]


def _listed(tools: Any) -> list[Any]:
    if isinstance(tools, (str, bytes, Mapping)) or not isinstance(tools, Iterable):
        raise InvalidInput(f"tools must be a list, not {type(tools).__name__}", field="tools")
    return list(tools)


def _definition(value: Any, index: int) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"a tool must be an object, not {type(value).__name__}", field=f"tools[{index}]")
    return deep_copy(dict(value))


def _check(tool: Tool, target: ToolFormat, index: int) -> None:
    if "hosted" in _kept(tool, "anthropic"):
        # The definition belongs to one host and means nothing to others.
        reason = None if target == "anthropic" else "it is run by Anthropic's own host"
    else:
        hosted = _kept(tool, "openai").get("hosted") or _kept(tool, "openai").get("outer", {})
        reason = why_not(tool, target, str(hosted["type"]) if "type" in hosted else None)
    if reason is not None:
        raise CannotExpress(f"tool {tool.name!r} has no form in {target}: {reason}", field=f"tools[{index}]")


def _lacks_schema(tool: Tool, target: ToolFormat) -> bool:
    """Mistral's API refuses a function without `parameters`."""
    return target == "mistral" and tool.parameters is None


def _kept(tool: Tool, shape: Shape) -> dict[str, Any]:
    kept = tool.extras.get(shape)
    return kept if isinstance(kept, dict) else {}


def _named(body: dict[str, Any], shape: Shape, where: str, outer: dict[str, Any]) -> Tool:
    """The tool that a body describes; its other fields become the extras of the shape."""
    inner = dict(body)
    name = inner.pop("name", None)
    if not isinstance(name, str) or not name:
        raise InvalidInput("a tool needs a name", field=f"{where}.name")
    key = _SCHEMA_KEY[shape]
    schema = inner.get(key)
    if schema is not None and not isinstance(schema, dict):
        raise InvalidInput(f"the schema of tool {name!r} must be an object", field=f"{where}.{key}")
    if schema is not None:
        del inner[key]
    description = inner.get("description")
    if isinstance(description, str):
        del inner["description"]
    else:
        description = None
    kept = {part: fields for part, fields in (("outer", outer), ("inner", inner)) if fields}
    return Tool(name, description, schema, {shape: kept} if kept else {})


def _parse_openai(given: dict[str, Any], where: str) -> Tool:
    kind, body = given.get("type", "function"), given.get("function")
    if isinstance(body, dict):
        outer = {k: v for k, v in given.items() if k != "function" and (k, v) != ("type", "function")}
        return _named(body, "openai", f"{where}.function", outer)
    if not isinstance(kind, str) or kind == "function":
        raise InvalidInput("a tool needs a function", field=f"{where}.function")
    inside = given.get(kind)
    name = (inside if isinstance(inside, dict) else given).get("name")
    return Tool(name if isinstance(name, str) and name else kind, extras={"openai": {"hosted": given}})


def _parse_anthropic(given: dict[str, Any], where: str) -> Tool:
    kind = given.get("type", "custom")
    if kind != "custom":
        name = given.get("name")
        return Tool(name if isinstance(name, str) and name else str(kind), extras={"anthropic": {"hosted": given}})
    if not isinstance(given.get("input_schema"), dict):
        raise InvalidInput("a tool needs an input_schema", field=f"{where}.input_schema")
    return _named(given, "anthropic", where, {})


def _parse_flat(given: dict[str, Any], where: str) -> Tool:
    # Prompts for Hermes models use the OpenAI wrapper as often as not.
    return _parse_openai(given, where) if "function" in given else _named(given, "flat", where, {})


def _render_openai(tool: Tool, target: ToolFormat) -> dict[str, Any]:
    kept = _kept(tool, "openai")
    if "hosted" in kept:
        return dict(kept["hosted"])
    body: dict[str, Any] = _body(tool, "openai")
    if _lacks_schema(tool, target):
        body["parameters"] = {"type": "object", "properties": {}}
    kind = "builtin_function" if tool.name.startswith("$") else "function"
    return {"type": kind, **kept.get("outer", {}), "function": body}


def _render_anthropic(tool: Tool, target: ToolFormat) -> dict[str, Any]:
    kept = _kept(tool, "anthropic")
    if "hosted" in kept:
        return dict(kept["hosted"])
    body = _body(tool, "anthropic")
    schema = tool.parameters
    if schema is None:
        schema = {"type": "object", "properties": {}}
    body["input_schema"] = schema if "type" in schema else {"type": "object", **schema}
    return body


def _render_flat(tool: Tool, target: ToolFormat) -> dict[str, Any]:
    return _body(tool, "flat")


def _body(tool: Tool, shape: Shape) -> dict[str, Any]:
    body: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        body["description"] = tool.description
    if tool.parameters is not None:
        body[_SCHEMA_KEY[shape]] = tool.parameters
    known = body.keys()
    return body | {key: value for key, value in _kept(tool, shape).get("inner", {}).items() if key not in known}


_PARSE: Final[dict[Shape, Callable[[dict[str, Any], str], Tool]]] = {
    "openai": _parse_openai,
    "anthropic": _parse_anthropic,
    "flat": _parse_flat,
}
_RENDER: Final[dict[Shape, Callable[[Tool, ToolFormat], dict[str, Any]]]] = {
    "openai": _render_openai,
    "anthropic": _render_anthropic,
    "flat": _render_flat,
}
