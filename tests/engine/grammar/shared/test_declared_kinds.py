"""Whatever a schema looks like, what it says about the kinds of an argument is read, and nothing else is made up."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.engine.grammar.shared.declared_kinds import ANYTHING, DeclaredKinds
from moonshim.engine.values.conversation import Tool

SCHEMAS: dict[str, tuple[Any, str]] = {
    "a type": ({"type": "string"}, "string"),
    "an integer is a number": ({"type": "integer"}, "number"),
    "several types": ({"type": ["boolean", "null"]}, "boolean null"),
    "nullable": ({"type": "array", "nullable": True}, "array null"),
    "an enum": ({"enum": ["a", 1]}, "string number"),
    "an enum narrows the types": ({"type": ["string", "null"], "enum": ["a"]}, "string"),
    "a constant": ({"const": True}, "boolean"),
    "any of": ({"anyOf": [{"type": "string"}, {"type": "array"}]}, "string array"),
    "one of, and a type": ({"type": ["string", "object"], "oneOf": [{"type": "string"}]}, "string"),
    "all of": ({"allOf": [{"type": ["string", "number"]}, {"type": ["number", "null"]}]}, "number"),
    "a reference": ({"$ref": "#/$defs/a~1b"}, "boolean"),
    "a reference to a reference": ({"$ref": "#/$defs/again"}, "boolean"),
    "an unknown type": ({"type": "date"}, " ".join(ANYTHING)),
    "no type": ({}, " ".join(ANYTHING)),
    "no schema": (True, " ".join(ANYTHING)),
    "contradictions": ({"type": "string", "const": 1}, " ".join(ANYTHING)),
    "a reference to nothing": ({"$ref": "#/nothing/here"}, " ".join(ANYTHING)),
    "a reference to elsewhere": ({"$ref": "https://example.com"}, " ".join(ANYTHING)),
    "a reference to itself": ({"$ref": "#/properties/x"}, " ".join(ANYTHING)),
    "a schema without end": ({"$ref": "#/$defs/loop"}, " ".join(ANYTHING)),
}
DEFINITIONS = {
    "a/b": {"type": "boolean"},
    "again": {"$ref": "#/$defs/a~1b"},
    "loop": {"anyOf": [{"$ref": "#/$defs/loop"}, {"$ref": "#/$defs/loop"}]},
}


def kinds(schema: Any) -> frozenset[str]:
    tool = Tool("go", parameters={"properties": {"x": schema}, "$defs": DEFINITIONS})
    return DeclaredKinds([tool]).kinds_of("go", "x")


@pytest.mark.parametrize(("schema", "expected"), SCHEMAS.values(), ids=SCHEMAS.keys())
def test_kinds(schema: Any, expected: str) -> None:
    assert kinds(schema) == set(expected.split())


def test_what_is_not_declared_may_be_anything() -> None:
    declared = DeclaredKinds(
        [Tool("go", parameters={"properties": {}}), Tool("bare"), Tool("odd", parameters={"properties": 1})]
    )
    assert declared.kinds_of("go", "x") == declared.kinds_of("bare", "x") == declared.kinds_of("odd", "x") == ANYTHING
    assert declared.kinds_of("unknown", "x") == DeclaredKinds(None).kinds_of("go", "x") == ANYTHING


NAMES = ["type", "anyOf", "oneOf", "allOf", "enum", "const", "$ref", "nullable", "properties"]
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["string", "object", "#", "#/$defs/loop", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
)


@given(JSON)
def test_no_schema_is_an_error(schema: Any) -> None:
    assert kinds(schema) <= ANYTHING
    assert kinds(schema)
