"""The validator of tool schemas refuses what Moonshot refuses, in its words, and takes the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from moonshim.simulator.rules.schema_rules import SchemaLimits, check_schema


def of(schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"p": schema}}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = of(schema)
    return schema


NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}

ACCEPTED = {
    "notes beside a reference": {
        "$defs": {"A": {"type": "string"}},
        **of({"$ref": "#/$defs/A", "title": "A", "description": "Where."}),
    },
    "nothing said": {},
    "an object without properties": {"type": "object"},
    "a level without a type": of({"description": "Anything."}),
    "additional properties as a schema": {"type": "object", "additionalProperties": {"type": "string"}},
    "several types alone": of({"type": ["string", "null"], "description": "Maybe."}),
    "an enum with null": of({"type": ["string", "null"], "enum": ["a", None]}),
    "a numeric enum with null first": of({"type": ["null", "integer"], "enum": [1, None]}),
    "a pattern and lengths": of({"type": "string", "pattern": "^a", "minLength": 1, "maxLength": 2, "default": "a"}),
    "alternatives with a description": of({"anyOf": [{"type": "string"}, {"type": "null"}], "description": "Maybe."}),
    "a definition and an id at the root": {"$id": "x", "$defs": {"A": {"type": "string"}}, **of({"$ref": "#/$defs/A"})},
    "a list that may end": {"$defs": {"Node": NODE}, **of({"$ref": "#/$defs/Node"})},
    "a slash in a property": {"type": "object", "properties": {"a/b": {"type": "string"}}},
    "thirty levels": nested(30),
}

REFUSED = [
    ({"$schema": "x", "type": "object"}, "At path 'root': unsupported keywords: $schema"),
    (of({"type": "string", "format": "date"}), "At path 'properties.p': unsupported keywords: format"),
    (of({"oneOf": [{"type": "string"}]}), "At path 'properties.p': unsupported keywords: oneOf"),
    (of({"type": "text"}), "At path 'properties.p': invalid type"),
    (of({"type": "string", "minimum": 1}), "At path 'properties.p': invalid keywords: minimum"),
    (of({"type": ["string", "null"], "minLength": 1}), "keyword minLength is not allowed in combination with multiple"),
    (of({"type": "string", "enum": ["a", 1]}), "At path 'properties.p.enum': enum value (1) does not match any type"),
    (of({"type": ["integer", "null"], "enum": [1, None]}), "At path 'properties.p.enum': not a valid integer"),
    (of({"enum": ["a"]}), "At path 'properties.p': type is not defined"),
    (of({"type": "integer", "minimum": 0.5}), "not a valid integer"),
    (of({"type": "array", "minItems": 3, "maxItems": 2}), "minItems (3) cannot be greater than maxItems (2)"),
    (of({"type": "string", "anyOf": [{"type": "string"}]}), "type should be defined in anyOf items"),
    (
        of({"anyOf": [{"type": "string"}], "default": "a"}),
        "keyword 'default' is not allowed at the same level as anyOf",
    ),
    (of({"anyOf": []}), "At path 'properties.p.anyOf': anyOf must have 1-500 items"),
    (of({"anyOf": [{"type": "no"}]}), "At path 'properties.p.anyOf': invalid type"),
    (of({"$ref": "#/definitions/A"}), "references must start with #/$defs/"),
    ({"$defs": {}, **of({"$ref": "#/$defs/A"})}, "invalid $ref path: #/$defs/A"),
    (
        {"$defs": {"A": {}}, **of({"$ref": "#/$defs/A", "description": "x", "default": 1})},
        "At path 'properties.p': keyword 'default' is not allowed at the same level as $ref",
    ),
    (
        {"type": "object", "required": ["a"]},
        "At path 'required': required specified but 'properties' keyword is missing",
    ),
    ({**of({}), "required": ["q"]}, "required property 'q' is not defined in properties"),
    ({**of({}), "required": ["p", "p"]}, "duplicate items in required array: p"),
    ({"type": "object", "properties": {"anyOf": {}}}, "property name 'anyOf' is reserved for JSON Schema keywords"),
    ({"type": "object", "properties": {"p": True}}, "property schema for 'p' must be an object"),
    (of({"$defs": {}}), "keyword $defs must be at root level"),
    ({"$defs": {"A": of({"properties": {"a/b": {}}})}}, "$defs property name 'a/b' cannot contain '/' character"),
    (
        {"$defs": {"Node": {**NODE, "required": ["next"]}}, **of({"$ref": "#/$defs/Node"}), "required": ["p"]},
        "detected infinite recursion without termination condition",
    ),
    (nested(31), "schema depth exceeds maximum limit of 30"),
    (nested(2000), "schema depth exceeds maximum limit of 30"),
    ({"type": "object", "description": "<" * 21_000}, "schema exceeds maximum allowed size"),
    ({"type": "object", "properties": {str(n): {} for n in range(3001)}}, "total number of properties keys(3001)"),
    (of({"type": "integer", "enum": [*range(1001)]}), "enum array cannot have more than 1000 items"),
    (None, "schema must be a dict"),
    ("[1]", "JSON schema parsing error"),
    ('{"type": "number", "enum": [1e999]}', "JSON schema parsing error"),
    ("{1: 2}", "JSON schema parsing error"),
    ("[" * 100_000, "schema depth exceeds maximum limit of 30"),
]


@pytest.mark.parametrize("schema", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_takes(schema: dict[str, Any]) -> None:
    assert check_schema(schema) is None
    assert check_schema(json.dumps(schema)) is None


@pytest.mark.parametrize(("schema", "message"), REFUSED, ids=[message[:60] for _, message in REFUSED])
def test_refuses(schema: Any, message: str) -> None:
    reply = check_schema(schema)
    assert reply is not None
    assert message in reply


def test_the_limits_can_be_set() -> None:
    assert check_schema(nested(6), limits=SchemaLimits(depth=5)) == (
        f"At path '{'.'.join(['properties.p'] * 6)}': schema depth exceeds maximum limit of 5"
    )
