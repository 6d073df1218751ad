"""One property of a tool -> its line of TypeScript, or none where the converter of K2.5 has no form for it."""

from __future__ import annotations

from typing import Any

import pytest

from moonshim.simulator.render.typescript import typescript_of


def declared(schema: Any, **more: Any) -> str:
    parameters = {"type": "object", "properties": {"a": schema}, **more}
    return typescript_of([{"type": "function", "function": {"name": "f", "parameters": parameters}}])


@pytest.mark.parametrize(
    ("schema", "line"),
    [
        ({"type": "integer"}, "  a?: number\n"),
        ({"type": ["string", "null"]}, "  a?: string | null\n"),
        ({"type": ["object", "array"]}, "  a?: {} | Array<any>\n"),
        ({"type": "array"}, "  a?: Array<any>\n"),
        (
            {"type": "array", "items": {"type": "string", "maxLength": 3}},
            "Array<\n    // maxLength: 3\n    string\n  >\n",
        ),
        ({"type": "object"}, "  a?: {}\n"),
        ({}, "  a?: any\n"),
        (True, "  a?: any\n"),
        (False, "  a?: null\n"),
        ({"enum": ["x", 1, True, None]}, '  a?: "x" | 1 | True | None\n'),
        ({"type": ["string", "null"], "enum": ["x", None]}, '  a?: "x" | None\n'),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "  a?: string | null\n"),
        ({"type": "string", "default": "ü"}, '  // Default: "ü"\n  a?: string\n'),
        ({"type": "object", "default": {"b": 1, "a": 2}}, '  // Default: {"a": 2, "b": 1}\n  a?: {}\n'),
        ({"type": "string", "description": "One\n\nTwo"}, "  // One\n\n  // Two\n  a?: string\n"),
        ({"type": "string", "minLength": 1, "pattern": "^a"}, "  // minLength: 1, pattern: ^a\n  a?: string\n"),
        ({"type": "object", "additionalProperties": True}, "  a?: {\n    [k: string]: any\n  }\n"),
    ],
)
def test_a_schema_has_this_form(schema: Any, line: str) -> None:
    assert line in declared(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"description": "of no type"},
        {"oneOf": [{"type": "string"}]},
        {"type": "string", "enum": [1]},
        {"type": ["string", "number", "null"], "enum": ["x"]},
        {"type": ["string", "file"]},
        {"$ref": "#/definitions/x"},
        {"$ref": "#/$defs/missing"},
        {"type": "array", "items": [{"type": "string"}]},
        {"type": "object", "additionalProperties": 7},
        7,
    ],
)
def test_a_schema_has_no_form(schema: Any) -> None:
    assert declared(schema) == ""


def test_one_that_has_none_takes_it_from_all() -> None:
    good: dict[str, Any] = {"type": "function", "function": {"name": "good"}}
    parameters = {"properties": {"a": {"description": "of no type"}}}
    bad: dict[str, Any] = {"type": "function", "function": {"name": "bad", "parameters": parameters}}
    assert typescript_of([good])
    assert typescript_of([good, bad]) == ""


def test_what_is_no_function_is_left_out_and_alone_it_is_nothing() -> None:
    built_in = {"type": "builtin_function", "function": {"name": "$web_search"}}
    assert typescript_of([built_in]) == ""
    assert "web_search" not in typescript_of([built_in, {"type": "function", "function": {"name": "f"}}])
