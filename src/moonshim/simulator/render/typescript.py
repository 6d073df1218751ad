"""Tools -> the TypeScript declarations that K2.5 and its successors are given, if their schemas can be expressed so.

Written after the converter that comes with K2.5's tokenizer. It is not TypeScript that a compiler would accept: enum
values are not escaped, and True, False and None are Python's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from moonshim.simulator.request import Json

__all__ = ["typescript_of"]

_INDENT: Final = "  "
_UNION: Final = {
    "string": "string",
    "number": "number",
    "integer": "number",
    "boolean": "boolean",
    "null": "null",
    "object": "{}",
    "array": "Array<any>",
}
_CONSTRAINTS: Final = {
    "string": ("maxLength", "minLength", "pattern"),
    "number": ("maximum", "minimum"),
    "integer": ("maximum", "minimum"),
    "array": ("maxItems", "minItems"),
}
_KINDS: Final[dict[str, type | tuple[type, ...]]] = {
    "string": str,
    "number": (int, float),
    "integer": int,
    "boolean": bool,
}


class _NoSuchForm(Exception):
    """A schema that the converter refuses."""


def typescript_of(tools: Iterable[Json]) -> str:
    """Empty if one of them cannot be expressed, or none is a function: then all of them are declared as JSON.

    >>> city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    >>> ask = {"name": "weather", "description": "How it is", "parameters": city}
    >>> print(typescript_of([{"type": "function", "function": ask}]))
    # Tools
    <BLANKLINE>
    ## functions
    namespace functions {
    // How it is
    type weather = (_: {
      city: string
    }) => any;
    }
    <BLANKLINE>
    """
    try:
        functions = [tool.get("function") for tool in tools if tool.get("type") == "function"]
        text = [_Function(function).text() for function in functions if function]
    except (_NoSuchForm, LookupError, TypeError, AttributeError, ValueError, RecursionError):
        return ""
    return "# Tools\n\n## functions\nnamespace functions {\n" + "\n".join(text) + "\n}\n" if text else ""


class _Function:
    """One function, with the definitions that its schema refers to."""

    def __init__(self, function: Json) -> None:
        self._function = function
        self._parameters: Json = function.get("parameters") or {}
        self._definitions: Json = {}
        self._names_itself = False

    def text(self) -> str:
        root, interfaces = self._object(self._parameters, ""), list[str]()
        if self._names_itself:
            fields = ",\n".join(self._fields(self._parameters, _INDENT, required_first=False))
            root = "parameters"
            interfaces.append("interface parameters {" + (f"\n{fields}\n" if fields else "") + "}")
        interfaces += [self._definition(name, schema) for name, schema in list(self._definitions.items())]
        name = self._function.get("name", "function")
        described = _comment(self._function.get("description") or "", "")
        return "\n".join(filter(None, [*interfaces, described, f"type {name} = (_: {root}) => any;"]))

    def _definition(self, name: str, schema: Any) -> str:
        described = _comment(schema.get("description") or "", "")
        return (f"{described}\n" if described else "") + f"interface {name} {self._type(schema, '')}"

    def _object(self, schema: Json, indent: str) -> str:
        fields = list(self._fields(schema, indent + _INDENT))
        others = schema.get("additionalProperties")
        if others is not None:
            kind = self._others(others, indent + _INDENT)
            fields.append(f"{indent}{_INDENT}[k: string]: {kind}")
        return "{\n" + ",\n".join(fields) + f"\n{indent}}}" if fields else "{}"

    def _others(self, schema: Any, indent: str) -> str:
        if isinstance(schema, bool):
            return "any" if schema else "never"
        if not isinstance(schema, dict):
            raise _NoSuchForm
        return self._type(schema, indent)

    def _fields(self, schema: Json, indent: str, *, required_first: bool = True) -> Iterator[str]:
        """Alphabetically, as all keys are sorted before; required ones come first."""
        if "$defs" in schema:
            self._definitions.update(sorted((schema["$defs"] or {}).items()))
        properties: Json = schema.get("properties", {})
        required = set(schema.get("required", []))
        names = sorted(properties)
        if required_first:
            names.sort(key=lambda name: name not in required)
        for name in names:
            inner = properties[name]
            default = inner.get("default") if isinstance(inner, dict) else None
            docs = self._docs(inner, indent) + _default(default, indent)
            yield f"{docs}{indent}{name}{'' if name in required else '?'}: {self._type(inner, indent)}"

    def _type(self, schema: Any, indent: str) -> str:
        if isinstance(schema, bool):
            return "any" if schema else "null"
        if "$ref" in schema:
            return self._reference(schema["$ref"])
        if "anyOf" in schema:
            return " | ".join(self._type(each, indent) for each in schema["anyOf"])
        if "enum" in schema:
            return _enum(schema)
        if not schema:
            return "any"
        if "type" not in schema:
            raise _NoSuchForm
        match schema["type"]:
            case list() as kinds:
                return " | ".join(_UNION[kind] for kind in kinds)
            case "object":
                return self._object(schema, indent)
            case "array":
                return self._array(schema.get("items") or {}, indent)
            case "integer":
                return "number"
            case str() as kind:
                return kind
        raise _NoSuchForm

    def _array(self, items: Any, indent: str) -> str:
        inner = indent + _INDENT
        docs = self._docs(items, inner)
        if docs:
            return f"Array<\n{docs}{inner}{self._type(items, inner)}\n{indent}>"
        return f"Array<{self._type(items, indent)}>"

    def _reference(self, reference: str) -> str:
        if reference == "#":
            self._names_itself = True
            return "parameters"
        name = reference.rpartition("/")[2]
        if not reference.startswith("#/$defs/") or name not in self._definitions:
            raise _NoSuchForm
        return name

    def _docs(self, schema: Any, indent: str) -> str:
        if not isinstance(schema, dict):
            return ""
        lines = [_comment(schema.get("description") or "", indent)]
        kind = schema.get("type")
        plain = isinstance(kind, str) and not {"$ref", "anyOf", "enum"} & schema.keys()
        limits = [key for key in _CONSTRAINTS.get(kind, ()) if key in schema] if plain and kind is not None else []
        if limits:
            lines.append(f"{indent}// " + ", ".join(f"{key}: {schema[key]}" for key in limits))
        return "".join(f"{line}\n" for line in lines if line)


def _comment(text: str, indent: str) -> str:
    """An empty line within a comment stays empty."""
    return "\n".join(f"{indent}// {line}" if line else "" for line in text.split("\n")) if text else ""


def _default(value: Any, indent: str) -> str:
    if value is None:
        return ""
    text = repr(value) if isinstance(value, int | float) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return f"{indent}// Default: {text}\n"


def _enum(schema: Json) -> str:
    """Enum values of another type than the schema's have no form."""
    kind = schema.get("type")
    if isinstance(kind, list):
        if len(kind) > 2 or (len(kind) == 2 and "null" not in kind):
            raise _NoSuchForm
        kind = next((each for each in kind if each != "null"), "null")
    expected_type = _KINDS.get(kind) if isinstance(kind, str) else None
    words = schema["enum"]
    if expected_type is not None and not all(word is None or isinstance(word, expected_type) for word in words):
        raise _NoSuchForm
    return " | ".join(f'"{word}"' if isinstance(word, str) else str(word) for word in words)
