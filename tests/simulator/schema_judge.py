"""A JSON Schema and a value -> what is wrong with the value: written for the tests alone, from the specification."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}


def faults_of(value: Any, schema: Any, root: Any = None, at: str = "$") -> list[str]:
    """Every rule that the value breaks, with its place."""
    root = schema if root is None else root
    if isinstance(schema, bool):
        return [] if schema else [f"{at}: nothing is allowed"]
    broken: list[str] = []

    def rule(holds: bool, name: str) -> None:
        if not holds:
            broken.append(f"{at}: {name} {schema.get(name)!r}, but {value!r}")

    if "$ref" in schema:
        target = root
        for step in schema["$ref"].removeprefix("#").split("/")[1:]:
            target = target[step]
        broken += faults_of(value, target, root, at)
    if "type" in schema:
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        rule(any(_is(value, kind) for kind in kinds), "type")
    if "enum" in schema:
        rule(_text(value) in map(_text, schema["enum"]), "enum")
    if "const" in schema:
        rule(_text(value) == _text(schema["const"]), "const")
    if "allOf" in schema:
        broken += [fault for part in schema["allOf"] for fault in faults_of(value, part, root, at)]
    if "anyOf" in schema:
        rule(any(not faults_of(value, part, root) for part in schema["anyOf"]), "anyOf")
    if "oneOf" in schema:
        rule(sum(not faults_of(value, part, root) for part in schema["oneOf"]) == 1, "oneOf")
    if _is(value, "number"):
        rule(value >= schema.get("minimum", value), "minimum")
        rule(value <= schema.get("maximum", value), "maximum")
        rule("exclusiveMinimum" not in schema or value > schema["exclusiveMinimum"], "exclusiveMinimum")
        rule("exclusiveMaximum" not in schema or value < schema["exclusiveMaximum"], "exclusiveMaximum")
        if "multipleOf" in schema:
            rule((Fraction(str(value)) / Fraction(str(schema["multipleOf"]))).denominator == 1, "multipleOf")
    if isinstance(value, str):
        rule(len(value) >= schema.get("minLength", 0), "minLength")
        rule(len(value) <= schema.get("maxLength", len(value)), "maxLength")
        rule("pattern" not in schema or re.search(schema["pattern"], value) is not None, "pattern")
    if isinstance(value, list):
        rule(len(value) >= schema.get("minItems", 0), "minItems")
        rule(len(value) <= schema.get("maxItems", len(value)), "maxItems")
        rule(not schema.get("uniqueItems") or len(set(map(_text, value))) == len(value), "uniqueItems")
        first = schema.get("prefixItems", [])
        for place, one in enumerate(value):
            part = first[place] if place < len(first) else schema.get("items", True)
            broken += faults_of(one, part, root, f"{at}[{place}]")
    if isinstance(value, dict):
        rule(set(schema.get("required", ())) <= set(value), "required")
        rule(len(value) >= schema.get("minProperties", 0), "minProperties")
        for name, one in value.items():
            part = schema.get("properties", {}).get(name, schema.get("additionalProperties", True))
            broken += faults_of(one, part, root, f"{at}.{name}")
    return broken


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, TYPES[kind]) or (kind == "integer" and isinstance(value, float) and value == int(value))


def _text(value: Any) -> str:
    """Equal texts for what JSON takes for equal."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key!r}:{_text(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    return repr(int(value)) if isinstance(value, float) and value == int(value) else repr(value)
