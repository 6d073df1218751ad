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
from moonshim.engine.formats.limits import invalid_name, unsupported_reason
from moonshim.engine.values.conversation import Tool
from moonshim.engine.values.copies import deep_copy
from moonshim.engine.wire.json_fields import wrong_type
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
    for index, value in enumerate(_as_list(tools)):
        if isinstance(value, Tool):
            _check(value, target, f"tools[{index}]", ".name")
            out.append(deep_copy(_RENDER[_SHAPES[target]](value, target)))
            continue
        definition = _definition(value, index)
        tool = _parse_openai(definition, f"tools[{index}]")
        named = next((f".{key}.name" for key in ("function", "custom") if key in definition), ".name")
        _check(tool, target, f"tools[{index}]", named)
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
    return [parse(_definition(value, i), f"tools[{i}]") for i, value in enumerate(_as_list(definitions))]


def _as_list(tools: Any) -> list[Any]:
    if isinstance(tools, (str, bytes, Mapping)) or not isinstance(tools, Iterable):
        raise wrong_type("tools", "a list", tools)
    return list(tools)


def _definition(value: Any, index: int) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise wrong_type(f"tools[{index}]", "an object", value)
    return deep_copy(dict(value))


def _check(tool: Tool, target: ToolFormat, place: str, name_field: str) -> None:
    named: str | None = None
    if "hosted" in _shape_extras(tool, "anthropic"):
        # The definition belongs to one host and means nothing to others.
        reason = None if target == "anthropic" else "it runs at Anthropic's own host"
    else:
        hosted = _shape_extras(tool, "openai").get("hosted") or _shape_extras(tool, "openai").get("outer", {})
        hosted_type = str(hosted["type"]) if "type" in hosted else None
        reason = unsupported_reason(tool, target, hosted_type)
        named = invalid_name(tool, target, hosted_type) if reason is None else None
    if reason is not None or named is not None:
        raise CannotExpress(
            f"tool {tool.name!r} cannot be converted to the format {target}: {reason or named}",
            field=place if named is None else place + name_field,
        )


def _lacks_schema(tool: Tool, target: ToolFormat) -> bool:
    """Mistral's API refuses a function without `parameters`."""
    return target == "mistral" and tool.parameters is None


def _shape_extras(tool: Tool, shape: Shape) -> dict[str, Any]:
    stored = tool.extras.get(shape)
    return stored if isinstance(stored, dict) else {}


def _parse_body(body: dict[str, Any], shape: Shape, where: str, outer: dict[str, Any]) -> Tool:
    """The tool that a body describes; its other fields become the extras of the shape."""
    inner = dict(body)
    name = inner.pop("name", None)
    if not isinstance(name, str) or not name:
        raise InvalidInput("a tool must have a name", field=f"{where}.name")
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
    stored = {part: fields for part, fields in (("outer", outer), ("inner", inner)) if fields}
    return Tool(name, description, schema, {shape: stored} if stored else {})


def _parse_openai(definition: dict[str, Any], where: str) -> Tool:
    kind, body = definition.get("type", "function"), definition.get("function")
    if isinstance(body, dict):
        outer = {k: v for k, v in definition.items() if k != "function" and (k, v) != ("type", "function")}
        return _parse_body(body, "openai", f"{where}.function", outer)
    if not isinstance(kind, str) or kind == "function":
        raise InvalidInput("a tool must have a function object", field=f"{where}.function")
    inside = definition.get(kind)
    name = (inside if isinstance(inside, dict) else definition).get("name")
    return Tool(name if isinstance(name, str) and name else kind, extras={"openai": {"hosted": definition}})


def _parse_anthropic(definition: dict[str, Any], where: str) -> Tool:
    kind = definition.get("type", "custom")
    if kind != "custom":
        name = definition.get("name")
        return Tool(name if isinstance(name, str) and name else str(kind), extras={"anthropic": {"hosted": definition}})
    if not isinstance(definition.get("input_schema"), dict):
        raise InvalidInput("a tool must have an input_schema object", field=f"{where}.input_schema")
    return _parse_body(definition, "anthropic", where, {})


def _parse_flat(definition: dict[str, Any], where: str) -> Tool:
    # Prompts for Hermes models use the OpenAI wrapper as often as not.
    return _parse_openai(definition, where) if "function" in definition else _parse_body(definition, "flat", where, {})


def _render_openai(tool: Tool, target: ToolFormat) -> dict[str, Any]:
    stored = _shape_extras(tool, "openai")
    if "hosted" in stored:
        return dict(stored["hosted"])
    body: dict[str, Any] = _body(tool, "openai")
    if _lacks_schema(tool, target):
        body["parameters"] = {"type": "object", "properties": {}}
    kind = "builtin_function" if tool.name.startswith("$") else "function"
    return {"type": kind, **stored.get("outer", {}), "function": body}


def _render_anthropic(tool: Tool, target: ToolFormat) -> dict[str, Any]:
    stored = _shape_extras(tool, "anthropic")
    if "hosted" in stored:
        return dict(stored["hosted"])
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
    return body | {key: value for key, value in _shape_extras(tool, shape).get("inner", {}).items() if key not in known}


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
