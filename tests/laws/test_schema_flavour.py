"""A schema in Moonshot's flavour is one that Moonshot takes, and it allows all that the given one allows."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from moonshim.engine.request.schema.flavour import moonshot_schema, rewrite_schema
from moonshim.engine.request.schema.plain import is_plain
from moonshim.errors import CannotExpress
from moonshim.simulator.rules.schema_rules import check_schema
from tests.engine.request.schema.plain_schema import allows
from tests.engine.request.schema.schemas import NAMES, root_schemas, values


@given(root_schemas)
def test_moonshot_takes_every_schema_that_could_be_rewritten(schema: dict[str, Any]) -> None:
    before = copy.deepcopy(schema)
    try:
        out, changes = moonshot_schema(schema, tool="t")
    except CannotExpress:
        return
    finally:
        assert schema == before
    assert check_schema(out) is None
    assert (out is schema) == (changes == [])


@given(root_schemas, st.lists(st.dictionaries(st.sampled_from(NAMES), values, max_size=3), min_size=1, max_size=8))
def test_what_the_given_schema_allows_the_new_one_allows_too(schema: dict[str, Any], arguments: list[Any]) -> None:
    try:
        out, _ = moonshot_schema(schema, tool="t")
    except CannotExpress:
        return
    for value in arguments:
        assert allows(out, value) or not allows(schema, value)


@given(root_schemas)
def test_what_was_rewritten_needs_nothing_more(schema: dict[str, Any]) -> None:
    try:
        out, _ = moonshot_schema(schema, tool="t")
        again, changes = moonshot_schema(out, tool="t")
    except CannotExpress:
        return
    assert again is out, changes


NAMED = st.sampled_from(
    ["a", "path", "type", "items", "required", "anyOf", "file_path", "x y", "$ref", "enum", "const"]
)
LEAVES = st.fixed_dictionaries(
    {"type": st.sampled_from(["string", "number", "integer", "boolean", "null", "object", "array", "any"])},
    optional={
        "description": st.sampled_from(["", "What it is.", "[format: date]"]),
        "enum": st.lists(st.sampled_from(["a", "b", "", 1, None]), max_size=3),
        "default": st.just("a"),
    },
)


def _objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(NAMED, inner, max_size=3)},
        optional={
            "required": st.lists(NAMED, max_size=2),
            "additionalProperties": st.booleans(),
            "description": st.just("An object."),
        },
    ) | st.fixed_dictionaries({"type": st.just("array")}, optional={"items": inner})


@given(st.recursive(LEAVES, _objects, max_leaves=6).flatmap(lambda one: _objects(st.just(one))))
def test_a_schema_that_is_plain_at_a_glance_needs_nothing(schema: dict[str, Any]) -> None:
    if is_plain(schema):
        assert rewrite_schema(schema, tool="t") == (schema, [])
