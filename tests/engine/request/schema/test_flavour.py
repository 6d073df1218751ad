"""Schemas as clients write them become schemas that Moonshot takes, and each change is told."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from moonshim.engine.request.schema.flavour import moonshot_schema
from moonshim.errors import CannotExpress
from moonshim.simulator.rules.schema_rules import check_schema

Json = dict[str, Any]
NULL = {"type": "null"}
TEXT = {"type": "string"}


def of(schema: Any, **more: Any) -> Json:
    return {"type": "object", "properties": {"p": schema}, **more}


def rewritten(schema: Json) -> tuple[Json, list[str]]:
    before = copy.deepcopy(schema)
    out, changes = moonshot_schema(schema, tool="x")
    assert schema == before
    assert check_schema(out) is None
    return out, changes


PROPERTY = {
    "a format moves into the description": (
        {"type": "string", "format": "date", "description": "When."},
        {"type": "string", "description": "When. [format: date]"},
    ),
    "const becomes an enum": ({"const": "a", "title": "A"}, {"type": "string", "enum": ["a"], "title": "A"}),
    "const null becomes the type": ({"const": None}, NULL),
    "an optional value of pydantic loses its default to the description": (
        {"anyOf": [TEXT, NULL], "default": None, "title": "P"},
        {"anyOf": [TEXT, NULL], "title": "P", "description": "[default: null]"},
    ),
    "oneOf becomes anyOf": ({"oneOf": [TEXT, {"type": "integer"}]}, {"anyOf": [TEXT, {"type": "integer"}]}),
    "several types with keywords are divided": (
        {"type": ["string", "null"], "minLength": 1},
        {"anyOf": [{"type": "string", "minLength": 1}, NULL]},
    ),
    "an enum of several types is divided": (
        {"enum": [1, 2, "a", None]},
        {"anyOf": [{"type": "integer", "enum": [1, 2]}, {"type": "string", "enum": ["a"]}, NULL]},
    ),
    "a type beside anyOf moves into it, and what contradicts it goes": (
        {"type": "string", "anyOf": [{"enum": ["a"]}, {"minLength": 3}, NULL]},
        {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "string", "minLength": 3}]},
    ),
    "exclusive bounds of whole numbers become inclusive ones": (
        {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 9.5},
        {"type": "integer", "minimum": 1, "maximum": 9},
    ),
    "exclusive bounds of other numbers are told": (
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "number", "minimum": 0, "description": "[exclusiveMinimum: 0]"},
    ),
    "what says nothing about a type goes": ({"type": "string", "minimum": 1}, TEXT),
    "a tuple becomes a list of any of its kinds": (
        {"type": "array", "prefixItems": [TEXT, NULL], "items": False},
        {
            "type": "array",
            "items": {"anyOf": [TEXT, NULL]},
            "maxItems": 2,
            "description": '[prefixItems: [{"type": "string"}, {"type": "null"}]]',
        },
    ),
    "a pattern of names leaves what it allowed": (
        {"type": "object", "patternProperties": {"^S_": TEXT}, "additionalProperties": False},
        {
            "type": "object",
            "additionalProperties": {"anyOf": [TEXT]},
            "description": '[patternProperties: {"^S_": {"type": "string"}}]',
        },
    ),
    "not is told": ({"type": "string", "not": {"enum": ["x"]}}, {**TEXT, "description": '[not: {"enum": ["x"]}]'}),
    "alternatives that only require are told": (
        {"type": "object", "properties": {"a": TEXT}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {
            "type": "object",
            "properties": {"a": TEXT},
            "description": '[anyOf: [{"required": ["a"]}, {"required": ["b"]}]]',
        },
    ),
    "a required property that nobody declared is declared": (
        {"type": "object", "required": ["a"]},
        {"type": "object", "required": ["a"], "properties": {"a": {}}},
    ),
    "it is no longer required where it could not be": (
        {"type": "object", "properties": {"b": TEXT}, "required": ["a", "b", "b"], "additionalProperties": False},
        {"type": "object", "properties": {"b": TEXT}, "required": ["b"], "additionalProperties": False},
    ),
    "a reserved name stays possible": (
        {"type": "object", "properties": {"anyOf": NULL}, "additionalProperties": False},
        {"type": "object", "properties": {}, "description": '[also takes the properties: {"anyOf": {"type": "null"}}]'},
    ),
    "true becomes an empty schema": (True, {}),
    "members of allOf are joined": (
        {"allOf": [of(TEXT), {"required": ["p"]}, {"type": "object", "properties": {"p": {"minLength": 2}}}]},
        of({"type": "string", "minLength": 2}, required=["p"]),
    ),
    "a value of an enum that is an object is told": (
        {"enum": [{"a": 1}]},
        {"type": "object", "description": '[enum: [{"a": 1}]]'},
    ),
    "nullable becomes a type": ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
    "bounds that no double can hold go": ({"type": "integer", "maximum": 10**400}, {"type": "integer"}),
    "bounds that are no numbers go": ({"type": "string", "minLength": "5", "maxLength": 2.5}, {**TEXT, "maxLength": 2}),
}


@pytest.mark.parametrize(("schema", "expected"), PROPERTY.values(), ids=PROPERTY.keys())
def test_of_one_property(schema: Any, expected: Json) -> None:
    out, changes = rewritten(of(schema))
    assert out == of(expected)
    assert changes
    assert all(change.startswith("At path 'properties.p") for change in changes)


NODE = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}}
REFERENCES = {
    "a default beside a reference moves into the description, which may stay": (
        of({"$ref": "#/$defs/A", "description": "There.", "default": "x"}, **{"$defs": {"A": TEXT}}),
        of({"$ref": "#/$defs/A", "description": "There. [default: x]"}, **{"$defs": {"A": TEXT}}),
    ),
    "definitions become $defs": (
        of({"$ref": "#/definitions/A"}, definitions={"A": TEXT}),
        of({"$ref": "#/$defs/A"}, **{"$defs": {"A": TEXT}}),
    ),
    "a reference to a property becomes a definition": (
        {"type": "object", "properties": {"a": TEXT, "b": {"$ref": "#/properties/a"}}},
        {
            "type": "object",
            "properties": {"a": TEXT, "b": {"$ref": "#/$defs/properties_a"}},
            "$defs": {"properties_a": TEXT},
        },
    ),
    "a constraint beside a reference is joined with its target": (
        of({"$ref": "#/$defs/A", "minLength": 2}, **{"$defs": {"A": TEXT}}),
        of({"type": "string", "minLength": 2}),
    ),
    "what repeats the target goes": (
        of({"$ref": "#/$defs/A", "type": "string"}, **{"$defs": {"A": TEXT}}),
        of({"$ref": "#/$defs/A"}, **{"$defs": {"A": TEXT}}),
    ),
    "a single allOf around a reference goes": (
        of({"allOf": [{"$ref": "#/$defs/A"}]}, **{"$defs": {"A": TEXT}}),
        of({"$ref": "#/$defs/A"}, **{"$defs": {"A": TEXT}}),
    ),
    "a definition that nobody needs goes": (of(TEXT, **{"$defs": {"A": {"type": "strange"}}}), of(TEXT)),
    "a definition with a slash in a name is written out": (
        of({"$ref": "#/$defs/A"}, **{"$defs": {"A": {"type": "object", "properties": {"a/b": TEXT}}}}),
        of({"type": "object", "properties": {"a/b": TEXT}}),
    ),
    "a definition whose own name has a slash gets another": (
        of({"$ref": "#/$defs/a~1b"}, **{"$defs": {"a/b": TEXT}}),
        of({"$ref": "#/$defs/a_b"}, **{"$defs": {"a_b": TEXT}}),
    ),
    "a tree whose leaves have no children may say so": (
        {"$ref": "#/$defs/Node", "$defs": {"Node": {**NODE, "required": ["children"]}}},
        {
            "$ref": "#/$defs/Node",
            "$defs": {
                "Node": {
                    "type": "object",
                    "properties": {
                        "children": {
                            "anyOf": [
                                {"type": "array", "maxItems": 0},
                                {"type": "array", "items": {"$ref": "#/$defs/Node"}},
                            ]
                        }
                    },
                    "required": ["children"],
                }
            },
        },
    ),
    "the root is an object": ({"$schema": "x", "properties": {"p": TEXT}}, of(TEXT)),
}


@pytest.mark.parametrize(("schema", "expected"), REFERENCES.values(), ids=REFERENCES.keys())
def test_of_references_and_the_root(schema: Json, expected: Json) -> None:
    out, changes = rewritten(schema)
    assert out == expected
    assert changes


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        of({"type": "string", "pattern": "^a", "default": "a"}, additionalProperties=False, required=["p"]),
        of({"anyOf": [TEXT, NULL], "description": "Maybe."}),
        of({"type": ["string", "null"], "enum": ["a", None]}),
        of({"$ref": "#/$defs/Node"}, **{"$defs": {"Node": NODE}}),
        of({"type": "array", "items": {"$ref": "#"}}),
    ],
)
def test_what_needs_nothing_is_returned_as_it_is(schema: Json) -> None:
    out, changes = moonshot_schema(schema, tool="x")
    assert out is schema
    assert changes == []


def nested(levels: int) -> Json:
    schema: Json = TEXT
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (of({"type": "text"}), "tool 'x': At path 'properties.p': invalid type 'text'"),
        (of({"$ref": "https://example.com/a"}), "$ref 'https://example.com/a' does not point to a schema"),
        (of({"$ref": "#/$defs/Gone"}), "At path 'properties.p': $ref '#/$defs/Gone' does not point to a schema"),
        (of({"enum": []}, required=["p"]), "At path 'properties.p': it allows no value"),
        (of({"type": "string", "const": 1}, required=["p"]), "At path 'properties.p': it allows no value"),
        (of({"enum": [10**400]}), "At path 'properties.p': enum contains a number that is too large"),
        (of({"enum": [float("nan")]}), "a number that is too large or not finite"),
        (of(7), "At path 'properties.p': a schema must be an object"),
        ({"type": "object", "properties": []}, "At path 'properties': it must be an object"),
        (of({"$ref": "#"}, required=["p"]), "detected infinite recursion without termination condition"),
        (of({"$ref": "#/$defs/A"}, **{"$defs": {"A": of({"$ref": "#/$defs/A"}) | {"properties": {
            "a/b": {"$ref": "#/$defs/A"}}}}}), "At path '$defs.A': it refers to itself and contains a name"),
        (of(nested(70)), "it is nested more than 64 schemas deep"),
        (of(nested(5000)), "At path 'root': nested deeper than 200 levels"),
        ({"type": "object", "properties": {str(n): {} for n in range(3001)}}, "3001 properties exceed"),
        (of({"type": "string", "pattern": "x" * 120_000}), "schema exceeds the maximum allowed size"),
    ],
)  # fmt: skip
def test_what_cannot_be_said_is_an_error_with_tool_and_place(schema: Json, message: str) -> None:
    with pytest.raises(CannotExpress) as caught:
        moonshot_schema(schema, tool="x")
    assert str(caught.value).startswith("tool 'x': At path '")
    assert message in str(caught.value)
    assert caught.value.status == 400


def test_an_object_that_contains_itself_is_an_error() -> None:
    schema: Json = {"type": "object", "properties": {}}
    schema["properties"]["p"] = schema
    with pytest.raises(CannotExpress):
        moonshot_schema(schema, tool="x")


def test_long_lists_are_divided() -> None:
    values = [f"v{number}" for number in range(2500)]
    out, _ = rewritten(of({"enum": values}))
    assert [len(branch["enum"]) for branch in out["properties"]["p"]["anyOf"]] == [1000, 1000, 500]
    out, _ = rewritten(of({"anyOf": [{"type": "string", "minLength": number} for number in range(1200)]}))
    assert [len(branch["anyOf"]) for branch in out["properties"]["p"]["anyOf"]] == [500, 500, 200]


def entangled(definitions: int) -> Json:
    """Each definition uses the next one twice, joined with something else: written out it doubles every time."""
    two = {"a": {"required": ["x"]}, "b": {"required": ["y"]}}
    defs: Json = {f"D{definitions}": {"type": "object"}}
    for number in range(definitions):
        below = {name: {"allOf": [{"$ref": f"#/$defs/D{number + 1}"}, more]} for name, more in two.items()}
        defs[f"D{number}"] = {"type": "object", "properties": below}
    return of({"$ref": "#/$defs/D0"}, **{"$defs": defs})


def test_references_that_double_are_not_written_out_without_end() -> None:
    out, changes = rewritten(entangled(20))
    assert len(json.dumps(out)) < 120_000
    assert len(changes) < 10_000
    with pytest.raises(CannotExpress):
        moonshot_schema(entangled(200), tool="x")


def test_claude_code_and_an_mcp_server_at_once() -> None:
    """A realistic schema: only what Moonshot does not know is touched."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "file_path": {"type": "string", "description": "The path"},
            "limit": {"type": "integer", "exclusiveMinimum": 0, "maximum": 9007199254740991},
            "url": {"type": "string", "format": "uri"},
        },
        "required": ["file_path"],
        "additionalProperties": False,
    }
    out, changes = rewritten(schema)
    assert out == {
        "type": "object",
        "properties": {
            "file_path": {"type": "string", "description": "The path"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 9007199254740991},
            "url": {"type": "string", "description": "[format: uri]"},
        },
        "required": ["file_path"],
        "additionalProperties": False,
    }
    assert changes == [
        "At path 'root': $schema is not supported and was removed",
        "At path 'properties.limit': exclusiveMinimum became minimum 1",
        "At path 'properties.url': format is not supported and was moved into the description",
    ]
