"""A schema that is too large gets shorter: nothing is lost while that is possible, and the validator accepts it."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from moonshim.engine.request.schema.flavour import moonshot_schema
from moonshim.engine.request.schema.weight import size_of
from moonshim.errors import CannotExpress
from moonshim.simulator.rules.schema_rules import check_schema

Json = dict[str, Any]


def step(about: str = "The agent. ") -> Json:
    properties: Json = {
        "agent": {"type": "string", "title": "Agent", "description": about * 10},
        "mode": {"type": "string", "enum": ["fast", "careful"]},
        "limits": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "integer"}}}},
    }
    return {"type": "object", "properties": properties, "required": ["agent"]}


def many(count: int, about: str = "The agent. ", own: str = "") -> Json:
    steps = {f"step_{n}": step(about) | {"description": f"Step {n}. {own}"} for n in range(count)}
    return {"type": "object", "properties": steps}


def different(count: int, text: str) -> Json:
    """Nothing in it repeats."""
    leaf = {"type": "string", "title": "Q" * 20, "description": text}
    named = {f"p{n}": {"type": "object", "properties": {f"q{n}": leaf}} for n in range(count)}
    return {"type": "object", "properties": named}


def shortened(schema: Json, limit: int) -> tuple[Json, list[str]]:
    out, changes = moonshot_schema(schema, tool="t", limit=limit)
    assert size_of(out) <= limit
    assert check_schema(out) is None
    return out, changes


def test_what_fits_is_sent_as_it_is() -> None:
    schema = many(5)
    assert moonshot_schema(schema, tool="t", limit=15_000) == (schema, [])


def test_what_repeats_becomes_a_definition_and_loses_nothing() -> None:
    schema = many(60)
    assert size_of(schema) > 15_000
    out, changes = shortened(schema, 15_000)
    assert changes == ["At path 'root': repeated schemas were moved into $defs, because it is too large"]
    assert out["properties"]["step_7"] == {"$ref": "#/$defs/shared_1", "description": "Step 7. "}
    assert out["$defs"] == {"shared_1": step()}
    for good in ({"step_3": {"agent": "a", "mode": "fast"}}, {}):
        jsonschema.validate(good, out)
    wrong: list[Json] = [{"step_3": {}}, {"step_3": {"agent": "a", "mode": "slow"}}]
    for bad in wrong:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(bad, out)


def test_a_part_that_only_repeats_inside_what_repeats_stays_there() -> None:
    out, _ = shortened(many(60), 15_000)
    assert list(out["$defs"]) == ["shared_1"]


def test_own_definitions_keep_their_names() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/shared_1"}, "step": step()}}
    schema = many(60) | {"$defs": {"shared_1": node}}
    schema["properties"]["first"] = {"$ref": "#/$defs/shared_1"}
    out, _ = shortened(schema, 15_000)
    assert out["properties"]["first"] == {"$ref": "#/$defs/shared_1"}
    assert out["$defs"]["shared_1"]["properties"]["step"] == {"$ref": "#/$defs/shared_2"}


def test_names_with_a_slash_are_not_moved_into_definitions() -> None:
    slashed = {"type": "object", "properties": {"a/b": {"type": "string", "description": "x" * 100}}}
    schema = {"type": "object", "properties": {f"p{n}": slashed for n in range(200)}}
    out, changes = shortened(schema, 15_000)
    assert "$defs" not in out
    assert "descriptions were cut" in changes[-1]


def test_titles_go_before_descriptions() -> None:
    schema = different(100, "Short.")
    out, changes = shortened(schema, size_of(schema) - 500)
    assert changes == ["At path 'root': titles were removed, because it is too large"]
    assert out["properties"]["p3"]["properties"]["q3"] == {"type": "string", "description": "Short."}


def test_descriptions_are_cut_no_more_than_needed() -> None:
    text = "A sentence about it. " * 50
    mild, first = shortened(different(20, text), 15_000)
    hard, second = shortened(different(100, text), 15_000)
    assert "to 1000 characters for parameters, to 400 below them" in first[-1]
    assert "to 200 characters for parameters, to 50 below them" in second[-1]
    cut = mild["properties"]["p3"]["properties"]["q3"]["description"]
    assert cut.endswith("…")
    assert text.startswith(cut[:-1])
    assert len(hard["properties"]["p3"]["properties"]["q3"]["description"]) <= 50


def test_the_descriptions_of_parameters_outlive_those_below_them() -> None:
    schema = different(20, "below " * 200)
    for name, below in schema["properties"].items():
        below["description"] = f"The parameter {name}."
    out, _ = shortened(schema, 2_500)
    assert out["properties"]["p3"] == {
        "type": "object",
        "properties": {"q3": {"type": "string"}},
        "description": "The parameter p3.",
    }


def test_what_still_does_not_fit_is_refused() -> None:
    with pytest.raises(CannotExpress, match="schema exceeds the maximum allowed size of 1000 bytes"):
        moonshot_schema(different(100, ""), tool="t", limit=1_000)


def test_the_same_tool_gives_the_same_bytes_and_the_input_stays() -> None:
    schema = many(60, own="x" * 500)
    before = json.dumps(schema)
    outs = {json.dumps(moonshot_schema(json.loads(before), tool="t", limit=15_000)[0]) for _ in range(3)}
    outs.add(json.dumps(moonshot_schema(schema, tool="t", limit=15_000)[0]))
    assert len(outs) == 1
    assert json.dumps(schema) == before


def test_a_result_is_left_alone_the_second_time() -> None:
    out, _ = shortened(many(60, own="x" * 500), 15_000)
    assert moonshot_schema(out, tool="t", limit=15_000) == (out, [])


def test_recursion_that_has_no_end_of_its_own_is_still_ended() -> None:
    tree = {
        "type": "object",
        "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/T"}}},
        "required": ["kids"],
    }
    schema = many(60) | {"$defs": {"T": tree}}
    schema["properties"]["tree"] = {"$ref": "#/$defs/T"}
    shortened(schema, 15_000)
