"""Without any option, arguments are mended by the declared schema, where it declares more than strings."""

from __future__ import annotations

from typing import Any

import pytest

from moonshim import Mender
from moonshim.engine.values.conversation import ToolCall
from tests.support.streams import chunk, sse


def test_zero_configuration_mends_by_the_schema_and_reads_none_where_there_are_only_strings() -> None:
    def tool(name: str, kind: str) -> dict[str, Any]:
        schema = {"type": "object", "properties": {"a": {"type": kind}}}
        return {"type": "function", "function": {"name": name, "parameters": schema}}

    tools = [tool("plan", "array"), tool("say", "string")]
    calls = [
        {"index": n, "id": f"functions.{name}:{n}", "type": "function", "function": {"name": name, "arguments": given}}
        for n, (name, given) in enumerate([("plan", '{"a": "[1]"}'), ("say", '{"a": "[1]"}')])
    ]
    mender = Mender(model="kimi-k2.5", tools=tools)
    mender.feed(sse([chunk({"tool_calls": calls}), chunk({}, "tool_calls")]))
    assert [part.arguments for part in mender.message.parts if isinstance(part, ToolCall)] == [
        '{"a": [1]}',
        '{"a": "[1]"}',
    ]


_POINT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "came", "output_format"),
    [
        ({"type": "integer"}, '"20"', "20"),
        ({"type": ["integer", "null"]}, '"null"', "null"),
        ({"type": "integer", "maximum": 20}, '"20"', "20"),
        ({"enum": [1, 2]}, '"2"', "2"),
        (_POINT, r'"{\"x\": \"1\"}"', '{"x": 1}'),
        ({"type": "array", "items": _POINT}, r'"[{\"x\": 1}]"', '[{"x": 1}]'),
        # The schema accepts it as it came.
        ({"type": ["integer", "string"]}, '"20"', '"20"'),
        ({}, '"20"', '"20"'),
        ({"type": "string"}, "20", "20"),
        # The schema would not accept the result either.
        ({"type": "integer", "maximum": 19}, '"20"', '"20"'),
        ({"type": "number", "exclusiveMinimum": 20}, '"20"', '"20"'),
        ({"enum": [1, 2]}, '"3"', '"3"'),
        ({"type": "integer"}, '"20.5"', '"20.5"'),
        ({"type": "boolean"}, '"yes"', '"yes"'),
        (_POINT, r'"{\"y\": 1}"', r'"{\"y\": 1}"'),
        (_POINT, r'"{\"x\": 1, \"y\": 1}"', r'"{\"x\": 1, \"y\": 1}"'),
        ({"type": "array", "items": _POINT}, r'"[{\"x\": \"one\"}]"', r'"[{\"x\": \"one\"}]"'),
    ],
)
def test_a_value_is_repaired_only_where_the_schema_rejects_it_and_accepts_the_result(
    schema: dict[str, Any], came: str, output_format: str
) -> None:
    tool = {"name": "put", "parameters": {"type": "object", "properties": {"a": schema}}}
    call = {"index": 0, "id": "functions.put:0", "function": {"name": "put", "arguments": f'{{"a": {came}}}'}}
    mender = Mender(model="kimi-k2.5", tools=[{"type": "function", "function": tool}])
    mender.feed(sse([chunk({"tool_calls": [call]}), chunk({}, "tool_calls")]))
    (part,) = mender.message.parts
    assert isinstance(part, ToolCall)
    assert part.arguments == f'{{"a": {output_format}}}'
    assert [repair.rule for repair in mender.repairs if repair.rule == "arguments_schema"] == (
        [] if came == output_format else ["arguments_schema"] * (2 if "\\" in came and '\\"1' in came else 1)
    )
