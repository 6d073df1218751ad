"""Schemas that were made to cost much, or to come out differently, cost what they say and come out the same."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from moonshim.engine.request.schema.flavour import moonshot_schema
from moonshim.engine.request.schema.merge import is_same_json
from moonshim.errors import CannotExpress
from moonshim.simulator.rules.schema_rules import check_schema

Json = dict[str, Any]
SIZE = "schema exceeds the maximum allowed size of 120000 bytes"


def rewritten(schema: Json) -> Json:
    out, _ = moonshot_schema(schema, tool="x")
    assert check_schema(out) is None
    return out


def doubled(levels: int) -> Json:
    """Each level says the next one twice, almost the same."""
    schema: Json = {"type": "object"}
    for level in range(levels):
        schema = {"properties": {"a": schema}, "allOf": [{"properties": {"a": {**schema, "title": str(level)}}}]}
    return schema


def test_a_property_that_many_schemas_of_all_of_narrow_is_joined_in_one_step() -> None:
    parts = [{"properties": {"a": {"type": "string", "minLength": number}}} for number in range(3000)]
    out = rewritten({"type": "object", "allOf": parts})
    assert out == {"type": "object", "properties": {"a": {"type": "string", "minLength": 2999}}}


def test_items_that_many_schemas_of_all_of_narrow_are_joined_in_one_step() -> None:
    parts = [{"items": {"type": "string", "maxLength": 3000 - number}} for number in range(2000)]
    out = rewritten({"type": "object", "properties": {"a": {"type": "array", "allOf": parts}}})
    assert out["properties"]["a"] == {"type": "array", "items": {"type": "string", "maxLength": 1001}}


def test_levels_that_are_said_twice_do_not_double() -> None:
    out = rewritten(doubled(9))
    depth = 0
    while "properties" in out:
        out, depth = out["properties"]["a"], depth + 1
    assert depth == 9


def test_a_stack_that_ends_is_told_as_too_deep() -> None:
    def below(frames: int, act: Callable[[], object]) -> object:
        return below(frames - 1, act) if frames else act()

    schema: Json = {"type": "string"}
    for _ in range(50):
        schema = {"type": "object", "properties": {"a": {"type": "array", "items": schema}}}
    room = sys.getrecursionlimit() - len(inspect.stack(0)) - 60
    with pytest.raises(CannotExpress, match=r"nested (too deep|deeper than)"):
        below(room, lambda: moonshot_schema(schema, tool="x"))


def slashed() -> Json:
    """Each use of a definition whose name has a slash would be written out."""
    below = {"properties": {"a/b": {"type": "string", "description": "z" * 30_000}}}
    uses = {f"p{number}": {"$ref": "#/$defs/a"} for number in range(2000)}
    return {"type": "object", "properties": uses, "$defs": {"a": below}}


HEAVY: dict[str, Json] = {
    "many required names beside many alternatives": {
        "type": "object",
        "required": [f"r{number}" for number in range(3000)],
        "anyOf": [{"properties": {"a": {"type": "string"}}}] * 3000,
    },
    "a long pattern beside many alternatives": {
        "type": "object",
        "properties": {"a": {"type": "string", "pattern": "x" * 400_000, "anyOf": [{"minLength": 1}] * 1900}},
    },
    "a long enum beside many alternatives": {
        "type": "object",
        "properties": {"a": {"enum": ["x" * 400] * 900, "anyOf": [{"minLength": 1}] * 1900}},
    },
    "many undeclared names, each with a long schema": {
        "type": "object",
        "required": [f"r{number}" for number in range(2900)],
        "additionalProperties": {"type": "string", "description": "y" * 50_000},
    },
    "a long name above many changes": {
        "type": "object",
        "properties": {"x" * 200_000: {"type": "object", "properties": {f"p{n}": {"title": 1} for n in range(9000)}}},
    },
    "a definition that is written out often": slashed(),
    "one object in many places": {"type": "object", "properties": {f"p{n}": {"enum": ["x"] * 3000} for n in range(99)}},
}


@pytest.mark.parametrize("schema", HEAVY.values(), ids=HEAVY.keys())
def test_copies_stay_within_what_could_ever_be_sent(schema: Json) -> None:
    tracemalloc.start()
    try:
        moonshot_schema(schema, tool="x")
    except CannotExpress:
        pass
    finally:
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert most < 40_000_000


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "description": "x" * 500_000},
        {"type": "object", "x" * 500_000: 1},
        {"type": "object", "properties": {"a": {"enum": [0] * 500_000}}},
    ],
    ids=["a long text", "a long key", "a long list"],
)
def test_what_is_far_too_large_is_refused_before_it_is_read(schema: Json) -> None:
    with pytest.raises(CannotExpress, match=SIZE):
        moonshot_schema(schema, tool="x")


@pytest.mark.parametrize("text", ["x" * 1900, "<" * 200, "\ud800" * 1900], ids=["long", "escaped", "half a character"])
def test_a_plain_schema_that_is_too_large_is_shortened_too(text: str) -> None:
    properties = {f"p{number}": {"type": "string", "description": text} for number in range(200)}
    out, changes = moonshot_schema({"type": "object", "properties": properties}, tool="x")
    assert check_schema(out) is None
    assert changes


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "z" * 300_000},
        {"type": ["z" * 300_000]},
        {"$ref": "#/" + "z" * 300_000},
        {"properties": {"z" * 300_000: {"type": 1}}},
        {"type": "object", "$ref": "#/allOf/" + "9" * 5000, "allOf": [{}]},
        {"type": "object", "properties": {"a": {"default": 10**5000}}},
    ],
)
def test_a_message_repeats_no_long_input(schema: Json) -> None:
    with pytest.raises(CannotExpress) as caught:
        moonshot_schema(schema, tool="x")
    assert len(str(caught.value)) < 500


class Counted(str):
    """A name that counts how often it is compared or looked up."""

    uses = 0

    def __eq__(self, other: object) -> bool:
        Counted.uses += 1
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        Counted.uses += 1
        return str.__hash__(self)


@pytest.mark.parametrize(
    "part",
    [lambda name: {"properties": {name: {"type": "string"}}}, lambda name: {"required": [name]}],
    ids=["properties", "required"],
)
def test_many_schemas_of_all_of_cost_no_more_than_each_alone(part: Callable[[str], Json]) -> None:
    def uses(count: int) -> int:
        Counted.uses = 0
        schema = {"type": "object", "allOf": [part(Counted(f"p{number}")) for number in range(count)]}
        moonshot_schema(schema, tool="x")
        return Counted.uses

    assert uses(1600) < 6 * uses(400)


def test_the_same_json_is_the_same_however_deep() -> None:
    one: Any = 1
    other: Any = 1
    for _ in range(5000):
        one, other = [{"a": one}], [{"a": other}]
    assert is_same_json(one, other)
    assert not is_same_json([one], [[other]])
    assert not is_same_json(1, True)
    assert not is_same_json({"a": 1}, {"a": 1.0})


def test_any_beside_a_type_allows_that_type() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "any", "allOf": [{"type": "string"}]}}, "required": ["a"]}
    assert rewritten(schema)["properties"] == {"a": {"type": "string"}}


UNSTEADY: dict[str, Json] = {
    "types": {
        "properties": {"a": {"type": ["string", "number", "null"], "maxLength": 3, "minLength": 1, "pattern": "a",
                             "maximum": 4, "minimum": 2}}
    },
    "enum": {"properties": {"a": {"enum": ["a", 1, None], "maxLength": 3, "minLength": 1, "maximum": 4, "minimum": 0}}},
    "notes": {"properties": {"a": {"type": ["string", "null"], "minimum": 1, "maximum": 2, "minItems": 3}}},
    "lost": {
        "properties": {"a": {"type": "string", "pattern": "a", "minLength": 1, "anyOf": [{"pattern": "b"}],
                             "allOf": [{"pattern": "c", "minLength": 2, "maxLength": 9, "title": "t"}]}}
    },
    "slashes": {
        "properties": {name: {"$ref": f"#/$defs/{name}"} for name in "abcde"},
        "$defs": {name: {"type": "object", "properties": {"x/y": {"type": "string"}}} for name in "edcba"},
    },
    "beside a reference": {
        "properties": {"a": {"$ref": "#/$defs/A", "minLength": 1, "maxLength": 3, "pattern": "a"}},
        "$defs": {"A": {"type": "string", "format": "date", "minimum": 1}},
    },
}  # fmt: skip
_SCRIPT = """
import json, sys
from moonshim.engine.request.schema.flavour import moonshot_schema
for schema in json.load(sys.stdin):
    print(json.dumps(moonshot_schema(schema, tool="x")))
"""


def test_the_result_does_not_depend_on_the_seed_of_hashing() -> None:
    given = json.dumps([{"type": "object", **schema} for schema in UNSTEADY.values()])
    written = {
        subprocess.run(
            [sys.executable, "-c", _SCRIPT],
            input=given,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "01234"
    }
    assert len(written) == 1


def test_all_of_that_is_null_does_not_reach_the_host() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "allOf": None}}}
    out, changes = moonshot_schema(schema, tool="x")
    assert out == {"type": "object", "properties": {"a": {"type": "string"}}}
    assert changes == ["At path 'properties.a': allOf was removed, because it is null"]


@pytest.mark.parametrize(
    "below", [{"foo": 1}, {"type": "any"}, {"allOf": [{}]}, {"allOf": None}, {"items": {"foo": 1}}]
)
def test_items_of_which_nothing_remains_are_left_out_at_once(below: Json) -> None:
    out = rewritten({"type": "object", "properties": {"c": {"items": below}}})
    assert out["properties"] == {"c": {}}
    assert moonshot_schema(out, tool="x") == (out, [])
