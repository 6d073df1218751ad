"""A JSON schema and a value -> whether the schema allows the value: a small checker, for tests.

It reads a level without `type` that requires properties as one of an object, as `moonshot_schema` does.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

__all__ = ["allows"]

_DEEPEST: Final = 40


def allows(schema: Any, value: Any, root: Any = None, depth: int = 0) -> bool:
    """What goes round in circles without an end allows nothing."""
    root = schema if root is None else root
    if isinstance(schema, bool) or depth > _DEEPEST:
        return schema is True

    def fits(below: Any, part: Any = value) -> bool:
        return allows(below, part, root, depth + 1)

    if "$ref" in schema and not fits(_target(root, schema["$ref"])):
        return False
    if not all(fits(part) for part in schema.get("allOf", ())):
        return False
    if "anyOf" in schema and not any(fits(part) for part in schema["anyOf"]):
        return False
    if "oneOf" in schema and sum(fits(part) for part in schema["oneOf"]) != 1:
        return False
    if "not" in schema and fits(schema["not"]):
        return False
    if "if" in schema and not fits(schema.get("then" if fits(schema["if"]) else "else", True)):
        return False
    if "type" in schema and not _typed(value, schema["type"]):
        return False
    if "type" not in schema and schema.get("required") and not isinstance(value, dict):
        return False
    if "enum" in schema and not any(_same(value, entry) for entry in schema["enum"]):
        return False
    if "const" in schema and not _same(value, schema["const"]):
        return False
    if isinstance(value, dict):
        return _object(schema, value, fits)
    if isinstance(value, list):
        return _array(schema, value, fits)
    return _string(schema, value) if isinstance(value, str) else _number(schema, value)


def _target(root: Any, reference: str) -> Any:
    found = root
    for token in reference[2:].split("/") if reference != "#" else ():
        found = found[token.replace("~1", "/").replace("~0", "~")]
    return found


def _same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _typed(value: Any, types: Any) -> bool:
    return any(_is(value, name) for name in (types if isinstance(types, list) else [types]))


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool) or value is None:
        return name == ("null" if value is None else "boolean")
    if isinstance(value, int):
        return name in ("integer", "number")
    if isinstance(value, float):
        return name == "number" or (name == "integer" and value.is_integer())
    return isinstance(value, {"string": str, "array": list, "object": dict}.get(name, ()))


def _object(schema: Any, value: dict[str, Any], fits: Any) -> bool:
    properties, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    if any(name not in value for name in schema.get("required", ())):
        return False
    for name, part in value.items():
        matching = [below for pattern, below in patterns.items() if re.search(pattern, name)]
        if name in properties:
            matching.append(properties[name])
        if not all(fits(below, part) for below in matching or [schema.get("additionalProperties", True)]):
            return False
    return bool(schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", 99))


def _array(schema: Any, value: list[Any], fits: Any) -> bool:
    prefix = schema.get("prefixItems", ())
    if not all(fits(below, part) for below, part in zip(prefix, value, strict=False)):
        return False
    if not all(fits(schema.get("items", True), part) for part in value[len(prefix) :]):
        return False
    if schema.get("uniqueItems") and any(_same(a, b) for at, a in enumerate(value) for b in value[:at]):
        return False
    return bool(schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", 99))


def _string(schema: Any, value: str) -> bool:
    if "pattern" in schema and not re.search(schema["pattern"], value):
        return False
    return bool(schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 99))


def _number(schema: Any, value: Any) -> bool:
    if isinstance(value, bool) or value is None:
        return True
    low, high = schema.get("exclusiveMinimum", -1e9), schema.get("exclusiveMaximum", 1e9)
    if not schema.get("minimum", -1e9) <= value <= schema.get("maximum", 1e9) or not low < value < high:
        return False
    return "multipleOf" not in schema or value % schema["multipleOf"] == 0
