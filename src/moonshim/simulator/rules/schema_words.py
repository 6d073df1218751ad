"""One level of a tool's schema -> the first problem with its keywords that Moonshot refuses."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from msgspec import Struct

__all__ = ["LIMITS", "Path", "SchemaLimits", "SchemaRejected", "check_words"]

Json: TypeAlias = dict[str, Any]
Path: TypeAlias = tuple[str, ...]

NOTES: Final = frozenset({"description", "title"})
ROOT_ONLY: Final = frozenset({"$defs", "$id"})
RESERVED: Final = frozenset({"$defs", "$ref", "anyOf", "required", "additionalProperties"})
_OF_TYPE: Final[dict[str, frozenset[str]]] = {
    "object": frozenset({"properties", "required", "additionalProperties", "$ref", "anyOf"}),
    "array": frozenset({"items", "minItems", "maxItems", "$ref"}),
    "string": frozenset({"minLength", "maxLength", "pattern", "enum"}),
    "number": frozenset({"minimum", "maximum", "enum"}),
    "integer": frozenset({"minimum", "maximum", "enum"}),
    "boolean": frozenset({"enum"}),
    "null": frozenset({"enum"}),
}
_KNOWN: Final = frozenset().union(*_OF_TYPE.values(), NOTES, ROOT_ONLY, {"type", "default"})
LARGEST: Final = 1.7976931348623157e308
_RANGES: Final = {"array": ("minItems", "maxItems"), "string": ("minLength", "maxLength")}


class SchemaLimits(Struct, frozen=True):
    """Moonshot's limits; its own tests run with less depth."""

    depth: int = 30
    size: int = 120_000
    keys: int = 3000
    enum: int = 1000
    any_of: int = 500


LIMITS: Final = SchemaLimits()


class SchemaRejected(Exception):
    """Moonshot's objection to a schema, and its path."""

    def __init__(self, message: str, path: Path) -> None:
        # Alternatives have no number in Moonshot's paths.
        super().__init__(f"At path '{'.'.join(path) or 'root'}': {message}")


def check_words(schema: Json, root: Json, path: Path, limits: SchemaLimits) -> None:
    """Raise for the first problem at this level; nested levels are not checked."""
    _together(schema, path)
    _types(schema, path)
    for word in sorted(schema):
        if rule := _RULES.get(word):
            rule(schema[word], schema, root, path, limits)


def check_known(schema: Json, path: Path) -> None:
    if unknown := sorted(schema.keys() - _KNOWN):
        raise SchemaRejected(f"unsupported keywords: {', '.join(unknown)}", path)


def _together(schema: Json, path: Path) -> None:
    if "type" not in schema:
        return
    if "anyOf" in schema:
        raise SchemaRejected(
            "when using anyOf, type should be defined in anyOf items instead of the parent schema", path
        )
    if "$ref" in schema:
        raise SchemaRejected(
            "when using $ref, type should be defined in the referenced schema instead of the parent schema", path
        )
    types = schema["type"]
    if isinstance(types, list) and len(types) > 1 and "enum" in schema:
        for name in types:
            if name in ("object", "array"):
                raise SchemaRejected(f"type {name} is not allowed in combination with enum", path)


def _types(schema: Json, path: Path) -> None:
    if "type" not in schema:
        return
    given = schema["type"]
    if isinstance(given, str) and given not in _OF_TYPE:
        raise SchemaRejected("invalid type", path)
    if isinstance(given, list):
        if any(not isinstance(name, str) or name not in _OF_TYPE for name in given):
            raise SchemaRejected("invalid type in type array", path)
        if not given:
            raise SchemaRejected("type array cannot be empty", path)
    names = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    if len(names) > 1 and not (len(names) == 2 and schema.get("enum") is not None):
        for word in sorted(schema.keys() - NOTES - {"type"} - (frozenset() if path else ROOT_ONLY)):
            raise SchemaRejected(f"keyword {word} is not allowed in combination with multiple types", path)
    if names:
        _fits(schema, names[0], "integer" in names, path)


def _fits(schema: Json, name: str, whole: bool, path: Path) -> None:
    """Moonshot checks the keywords of several types against the first of them."""
    for word in sorted(schema.keys() & ROOT_ONLY):
        if path:
            raise SchemaRejected(f"keyword {word} must be at root level", path)
    if name in _RANGES:
        _range(schema, *_RANGES[name], path=path)
    elif name in ("number", "integer"):
        _numeric_range(schema, whole, path)
    allowed = _OF_TYPE[name] | NOTES | {"type", "default"} | (frozenset() if path else ROOT_ONLY)
    if wrong := sorted(schema.keys() - allowed):
        raise SchemaRejected(f"invalid keywords: {', '.join(wrong)}", path)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _range(schema: Json, low: str, high: str, *, path: Path) -> None:
    for word in (low, high):
        value = schema.get(word)
        if value is None:
            continue
        if not _is_number(value):
            raise SchemaRejected(f"{word} must be an integer", path)
        if value < 0:
            raise SchemaRejected(f"{word} must be non-negative", path)
        _check_integer(value, path)
    _check_order(schema, low, high, (*path, low))


def _numeric_range(schema: Json, whole: bool, path: Path) -> None:
    for word in ("minimum", "maximum"):
        value = schema.get(word)
        if value is None:
            continue
        if not _is_number(value):
            raise SchemaRejected(f"{word} must be {'an integer' if whole else 'a number'}", path)
        if whole:
            _check_integer(value, path)
        else:
            _check_finite(value, path)
    _check_order(schema, "minimum", "maximum", path)


def _check_order(schema: Json, low: str, high: str, path: Path) -> None:
    least, most = schema.get(low), schema.get(high)
    if least is not None and most is not None and least > most:
        raise SchemaRejected(f"{low} ({least}) cannot be greater than {high} ({most})", path)


def _check_integer(value: float, path: Path) -> None:
    if not abs(value) <= LARGEST or math.floor(value) != value:
        raise SchemaRejected("not a valid integer", path)


def _check_finite(value: float, path: Path) -> None:
    if not abs(value) <= LARGEST:
        raise SchemaRejected("invalid number: NaN or Infinity not allowed", path)


def _type(value: Any, schema: Json, root: Json, path: Path, limits: SchemaLimits) -> None:
    if not isinstance(value, str | list):
        raise SchemaRejected("type must be string or array of strings", path)
    if isinstance(value, list) and len({*value}) < len(value):
        raise SchemaRejected("duplicate types in type array", (*path, "type"))


def _properties(value: Any, schema: Json, root: Json, path: Path, limits: SchemaLimits) -> None:
    here = (*path, "properties")
    if not isinstance(value, dict):
        raise SchemaRejected("properties must be an object", here)
    for name, below in value.items():
        if name == "":
            raise SchemaRejected("property name cannot be empty", here)
        if name in RESERVED:
            raise SchemaRejected(f"property name '{name}' is reserved for JSON Schema keywords", here)
        if not isinstance(below, dict):
            raise SchemaRejected(f"property schema for '{name}' must be an object", here)


def _required(value: Any, schema: Json, root: Json, path: Path, limits: SchemaLimits) -> None:
    here = (*path, "required")
    if not isinstance(value, list):
        raise SchemaRejected("required must be an array", here)
    if not value:
        return
    if not all(isinstance(name, str) for name in value):
        raise SchemaRejected("items in required array must be strings", here)
    if "" in value:
        raise SchemaRejected("property names in required array cannot be empty", here)
    if (twice := _first_duplicate(value)) is not None:
        raise SchemaRejected(f"duplicate items in required array: {twice}", here)
    if schema.get("type") not in ("object", ["object"]):
        raise SchemaRejected("required keyword must be used with object", here)
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        raise SchemaRejected("required specified but 'properties' keyword is missing", here)
    for name in value:
        if name not in properties:
            raise SchemaRejected(f"required property '{name}' is not defined in properties", here)


def _first_duplicate(names: list[str]) -> str | None:
    """The first duplicate."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _enum(value: Any, schema: Json, root: Json, path: Path, limits: SchemaLimits) -> None:
    here = (*path, "enum")
    if not isinstance(value, list):
        raise SchemaRejected("enum must be an array", here)
    if not value:
        raise SchemaRejected("enum array cannot be empty", here)
    if len(value) > limits.enum:
        raise SchemaRejected(f"enum array cannot have more than {limits.enum} items", here)
    if "type" not in schema:
        raise SchemaRejected("type is not defined", path)
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if len(types) > 2 or (len(types) == 2 and "null" not in types):
        raise SchemaRejected(
            "when type is array and enum is specified, currently only 2 types are supported, "
            "one must be null, and the other can be string/integer/number/boolean",
            path,
        )
    for entry in value:
        if not any(_of_type(entry, name, here) for name in types):
            raise SchemaRejected(f"enum value ({_go(entry)}) does not match any type in [{' '.join(types)}]", here)


def _of_type(entry: Any, name: str, here: Path) -> bool:
    """Moonshot gives up at the first numeric type that does not fit, so `["number", "null"]` never accepts null."""
    match name:
        case "number" | "integer":
            if not _is_number(entry):
                raise SchemaRejected(f"not a valid {name}", here)
            (_check_integer if name == "integer" else _check_finite)(entry, here)
            return True
        case "string":
            return isinstance(entry, str)
        case "boolean":
            return isinstance(entry, bool)
        case _:
            return entry is None


def _go(value: Any) -> str:
    """A value as Go prints it."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return str(value).lower()
        case list():
            return f"[{' '.join(map(_go, value))}]"
        case dict():
            return f"map[{' '.join(f'{key}:{_go(value[key])}' for key in sorted(value))}]"
        case _:
            return str(value)


def _items(value: Any, schema: Json, root: Json, path: Path, limits: SchemaLimits) -> None:
    if not isinstance(value, dict):
        raise SchemaRejected("items must be an object", (*path, "items"))


def _description(value: Any, schema: Json, root: Json, path: Path, limits: SchemaLimits) -> None:
    if not isinstance(value, str):
        raise SchemaRejected("description must be a string", (*path, "description"))


def _title(value: Any, schema: Json, root: Json, path: Path, limits: SchemaLimits) -> None:
    if not isinstance(value, str):
        raise SchemaRejected("title must be a string", (*path, "title"))


def _id(value: Any, schema: Json, root: Json, path: Path, limits: SchemaLimits) -> None:
    if value is not None and not isinstance(value, str):
        raise SchemaRejected("$id must be a string", (*path, "$id"))


def _pattern(value: Any, schema: Json, root: Json, path: Path, limits: SchemaLimits) -> None:
    if value is not None and not isinstance(value, str):
        raise SchemaRejected("pattern must be a string", (*path, "pattern"))


def _additional(value: Any, schema: Json, root: Json, path: Path, limits: SchemaLimits) -> None:
    if not isinstance(value, bool | dict):
        raise SchemaRejected("additionalProperties must be a boolean or an object", (*path, "additionalProperties"))


def _ref(value: Any, schema: Json, root: Json, path: Path, limits: SchemaLimits) -> None:
    here = (*path, "$ref")
    if not isinstance(value, str):
        raise SchemaRejected("$ref must be a string", here)
    if value != "#":
        if not value.startswith("#/$defs/"):
            raise SchemaRejected("references must start with #/$defs/", here)
        if value == "#/$defs/":
            raise SchemaRejected("definition name cannot be empty", here)
        if "$defs" not in root:
            raise SchemaRejected(f"$defs not found for reference: {value}", here)
    for word in sorted(schema.keys() - {"$ref"} - NOTES - (frozenset() if path else ROOT_ONLY)):
        raise SchemaRejected(f"keyword '{word}' is not allowed at the same level as $ref", path)


def _any_of(value: Any, schema: Json, root: Json, path: Path, limits: SchemaLimits) -> None:
    here = (*path, "anyOf")
    if not isinstance(value, list):
        raise SchemaRejected("anyOf must be an array", here)
    if not 1 <= len(value) <= limits.any_of:
        raise SchemaRejected(f"anyOf must have 1-{limits.any_of} items", here)
    if not all(isinstance(branch, dict) for branch in value):
        raise SchemaRejected("schema in anyOf must be an object", here)
    for word in sorted(schema.keys() - {"anyOf"} - NOTES - (frozenset() if path else ROOT_ONLY)):
        raise SchemaRejected(f"keyword '{word}' is not allowed at the same level as anyOf", path)


def _defs(value: Any, schema: Json, root: Json, path: Path, limits: SchemaLimits) -> None:
    here = (*path, "$defs")
    if path:
        raise SchemaRejected("keyword $defs must be at root level", path)
    if not isinstance(value, dict):
        raise SchemaRejected("$defs must be an object", here)
    for name, below in value.items():
        if name == "":
            raise SchemaRejected("$defs property name cannot be empty", here)
        if not isinstance(below, dict):
            raise SchemaRejected(f"$defs schema must be object: {name}", here)
        for key in (name, *_keys(below)):
            if "/" in key:
                raise SchemaRejected(f"$defs property name '{key}' cannot contain '/' character", here)


def _keys(value: Any) -> list[str]:
    """Every key of every object below, including values of `default`: Moonshot does not tell these apart."""
    found: list[str] = []
    waiting = [value]
    while waiting:
        match waiting.pop():
            case dict() as below:
                found += below
                waiting += below.values()
            case list() as below:
                waiting += [item for item in below if isinstance(item, dict)]
    return found


_Rule: TypeAlias = Callable[[Any, Json, Json, Path, SchemaLimits], None]
_RULES: Final[dict[str, _Rule]] = {
    "$defs": _defs,
    "$id": _id,
    "$ref": _ref,
    "additionalProperties": _additional,
    "anyOf": _any_of,
    "description": _description,
    "enum": _enum,
    "items": _items,
    "pattern": _pattern,
    "properties": _properties,
    "required": _required,
    "title": _title,
    "type": _type,
}
