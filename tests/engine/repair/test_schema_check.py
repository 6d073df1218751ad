"""Answers are checked against a client's schema as `jsonschema` would, in bounded time, whatever the schema is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.engine.repair.schema_check import MAX_STEPS, find_mismatches
from tests.simulator.schema_judge import faults_of

Json = dict[str, Any]

FORECAST: Json = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 2, "pattern": "^[A-Z]"},
        "days": {"type": "array", "items": {"$ref": "#/$defs/day"}, "minItems": 1, "maxItems": 2, "uniqueItems": True},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "unit": {"enum": ["C", "F"]},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
    "$defs": {"day": {"type": "integer", "minimum": 1, "exclusiveMaximum": 32}},
}
RIGHT: Json = {"city": "Paris", "days": [1, 2], "note": None, "unit": "C"}

WRONG: dict[str, tuple[Any, str]] = {
    "another type": ([], "$: must be of type object, not array"),
    "a missing property": ({"city": "Paris"}, "$: the property 'days' is missing"),
    "an unknown property": (RIGHT | {"wind": 3}, "$: the property 'wind' is not allowed"),
    "an item of another type": (RIGHT | {"days": [1, "two"]}, "$.days[1]: must be of type integer, not string"),
    "a fraction": (RIGHT | {"days": [1.5]}, "$.days[0]: must be of type integer, not number"),
    "a boolean is not a number": (RIGHT | {"days": [True]}, "$.days[0]: must be of type integer, not boolean"),
    "too small": (RIGHT | {"days": [0]}, "$.days[0]: must be at least 1"),
    "too large": (RIGHT | {"days": [32]}, "$.days[0]: must be less than 32"),
    "too few": (RIGHT | {"days": []}, "$.days: must have at least 1 items"),
    "too many": (RIGHT | {"days": [1, 2, 3]}, "$.days: must have at most 2 items"),
    "twice": (RIGHT | {"days": [1, 1.0]}, "$.days[1]: must not be equal to another item"),
    "too short": (RIGHT | {"city": "P"}, "$.city: must have at least 2 characters"),
    "a pattern": (RIGHT | {"city": "paris"}, "$.city: must match the pattern ^[A-Z]"),
    "none of the choices": (RIGHT | {"unit": "K"}, '$.unit: must be one of ["C","F"]'),
    "none of the alternatives": (RIGHT | {"note": 3}, "$.note: must be of type string or null"),
}


@pytest.mark.parametrize(("value", "expected"), WRONG.values(), ids=WRONG.keys())
def test_a_mismatch_is_named_with_its_place(value: Any, expected: str) -> None:
    assert expected in find_mismatches(FORECAST, value)


def test_a_value_that_matches_has_none() -> None:
    assert find_mismatches(FORECAST, RIGHT) == []


def test_the_alternative_that_fits_best_is_the_one_that_is_named() -> None:
    schema = {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"n": {"type": "integer"}}}]}
    assert find_mismatches(schema, {"n": "one"}) == ["$.n: must be of type integer, not string"]


def test_only_the_first_mismatches_are_named() -> None:
    assert len(find_mismatches({"items": {"type": "string"}}, list(range(100)), most=3)) == 3


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.5, 1.0, 0.3])
    | st.sampled_from(["", "a", "Ab"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
_types = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
_leaves = st.fixed_dictionaries(
    {},
    optional={
        "type": _types | st.lists(_types, min_size=1, max_size=3, unique=True),
        "enum": st.lists(_values, min_size=1, max_size=3),
        "const": _values,
        "minimum": st.integers(-3, 3),
        "exclusiveMaximum": st.integers(-3, 3),
        "multipleOf": st.sampled_from([1, 2, 0.1, 0.5]),
        "minLength": st.integers(0, 2),
        "maxLength": st.integers(0, 2),
        "pattern": st.sampled_from(["^a", "[A-Z]", "b?$"]),
        "minItems": st.integers(0, 2),
        "maxItems": st.integers(0, 2),
        "uniqueItems": st.booleans(),
        "minProperties": st.integers(0, 2),
        "required": st.lists(st.sampled_from("abc"), max_size=2, unique=True),
        "dependentRequired": st.dictionaries(st.sampled_from("abc"), st.lists(st.sampled_from("abc"), max_size=1)),
    },
)


def _combine(inner: Any) -> Any:
    schemas = st.lists(inner, min_size=1, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "[bc]"]), inner, max_size=2),
            "additionalProperties": inner | st.booleans(),
            "items": inner | st.booleans(),
            "prefixItems": schemas,
            "allOf": schemas,
            "anyOf": schemas,
            "oneOf": schemas,
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
            "$ref": st.sampled_from(["#/$defs/one", "#/$defs/two"]),
            "type": _types,
        },
    )


_schemas = st.recursive(_leaves, _combine, max_leaves=6)


@given(schema=_schemas, one=_leaves, two=_leaves, value=_values)
def test_a_value_matches_exactly_where_jsonschema_says_so(schema: Json, one: Json, two: Json, value: Any) -> None:
    whole = schema | {"$defs": {"one": one, "two": two}}
    assert bool(find_mismatches(whole, value)) == bool(faults_of(value, whole)), (whole, value)


ABUSE: dict[str, tuple[Any, Any]] = {
    "a schema that is itself": ({"$ref": "#"}, 1),
    "choices that double": (
        {"$ref": "#/$defs/n0", "$defs": {f"n{i}": {"anyOf": [{"$ref": f"#/$defs/n{i + 1}"}] * 2} for i in range(60)}},
        1,
    ),
    "a pattern that takes forever": ({"pattern": "^(a+)+$"}, "a" * 60 + "b"),
    "branches that take forever": ({"pattern": "(a|aa)" * 30 + "$"}, "a" * 60 + "b"),
    "options that take forever": ({"pattern": "a?" * 30 + "a" * 30}, "a" * 29 + "b"),
    "a pattern that is none": ({"pattern": "("}, "a"),
    "a reference to nothing": ({"$ref": "#/$defs/none"}, 1),
    "a reference into a list": ({"$ref": "#/anyOf/9", "anyOf": [{}]}, 1),
    "a foreign reference": ({"$ref": "https://example.com/schema"}, 1),
    "keywords of wrong types": (
        {"type": 3, "enum": "a", "required": "a", "properties": [], "items": 3, "anyOf": {}, "minLength": "x"},
        {"a": [1]},
    ),
    "a number with too many digits": ({"multipleOf": 0.01}, 10**300),
    "a schema that is a list": ([], 1),
}


@pytest.mark.parametrize(("schema", "value"), ABUSE.values(), ids=ABUSE.keys())
def test_a_schema_that_cannot_be_applied_forbids_nothing(schema: Any, value: Any) -> None:
    assert find_mismatches(schema, value) == []


def test_a_long_value_is_checked_up_to_a_number_of_steps() -> None:
    wrong = [*([1] * (MAX_STEPS + 10)), "one"]
    assert find_mismatches({"items": {"type": "integer"}}, wrong) == []
    assert find_mismatches({"items": {"type": "integer"}}, wrong[-5:]) != []


def test_a_deep_value_is_checked_up_to_a_depth() -> None:
    value: Any = "deep"
    for _ in range(500):
        value = [value]
    assert find_mismatches({"$ref": "#", "type": "array", "items": {"$ref": "#"}}, value) == []
