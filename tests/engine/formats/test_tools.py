"""Tool definitions to and from all ten formats."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.engine.formats import TOOL_FORMATS, ToolFormat, format_tools, parse_tools
from moonshim.engine.values.conversation import Tool
from moonshim.errors import CannotExpress, InvalidInput, UnknownFormat
from tests.support.looped import looped

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "where"}, "days": {"type": "integer"}},
    "required": ["city"],
}
WRAPPED = {"type": "function", "function": {"name": "weather", "description": "Tells it.", "parameters": SCHEMA}}
FLAT = {"name": "weather", "description": "Tells it.", "parameters": SCHEMA}
ANTHROPIC = {"name": "weather", "description": "Tells it.", "input_schema": SCHEMA}
SHAPES = dict.fromkeys(TOOL_FORMATS, WRAPPED) | {"hermes": FLAT, "xml": FLAT, "anthropic": ANTHROPIC}
API = ["openai", "kimi", "qwen", "deepseek"]


def fn(name: str = "f", parameters: Any = SCHEMA, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


@pytest.mark.parametrize(("format", "shape"), SHAPES.items())
def test_each_format_has_its_shape(format: ToolFormat, shape: dict[str, Any]) -> None:
    assert format_tools([WRAPPED], format) == [shape]
    assert format_tools([Tool("weather", "Tells it.", SCHEMA)], format) == [shape]
    assert parse_tools([shape], format) == [Tool("weather", "Tells it.", SCHEMA)]


@pytest.mark.parametrize("one", TOOL_FORMATS)
@looped("other", TOOL_FORMATS)
def test_a_definition_survives_the_way_through_any_two_formats(one: ToolFormat, other: ToolFormat) -> None:
    there = parse_tools(format_tools([WRAPPED], one), one)
    back = parse_tools(format_tools(there, other), other)
    assert format_tools(back, "openai") == [WRAPPED]


@pytest.mark.parametrize("format", API)
@pytest.mark.parametrize(
    "definition",
    [
        fn(parameters={}),
        fn(parameters={"type": "OBJECT", "properties": {"a": {"type": "STRING", "enum": [1], "minLength": "3"}}}),
        fn(strict=True, parameters={"$ref": "#/$defs/x", "$defs": {"x": {"anyOf": [{"type": "object"}]}}}),
        fn(name="mcp-server_tool-7"),
        {"type": "function", "function": {"name": "bare"}},
        {"type": "function", "function": {"name": "nulls", "description": None, "parameters": None}},
        {"type": "function", "cache_control": {"type": "ephemeral"}, "function": {"name": "f", "x-future": [1]}},
        {"function": {"parameters": {}, "name": "odd_order"}, "type": "function"},
    ],
)
def test_what_goes_to_an_openai_api_is_what_came(format: ToolFormat, definition: dict[str, Any]) -> None:
    out = format_tools([definition], format)
    assert out == [definition]
    assert repr(out) == repr([definition]), "the order of the keys too"
    assert format_tools(parse_tools([definition], format), format) == [definition]


def test_a_missing_type_is_put_in_since_hosts_refuse_without_it() -> None:
    assert format_tools([{"function": {"name": "f"}}], "kimi") == [{"type": "function", "function": {"name": "f"}}]


EXTRAS: dict[ToolFormat, dict[str, Any]] = {
    "openai": {"type": "function", "x": 1, "function": {"name": "f", "parameters": SCHEMA, "strict": True}},
    "anthropic": {"type": "custom", "name": "f", "input_schema": SCHEMA, "cache_control": {"type": "ephemeral"}},
    "hermes": {"name": "f", "parameters": SCHEMA, "returns": {"type": "string"}},
}


@pytest.mark.parametrize(("format", "definition"), EXTRAS.items())
def test_unknown_fields_survive_in_their_own_shape_and_stay_out_of_others(
    format: ToolFormat, definition: dict[str, Any]
) -> None:
    tools = parse_tools([definition], format)
    assert format_tools(tools, format) == [definition]
    for other, shape in SHAPES.items():
        if shape.keys() != SHAPES[format].keys():
            assert parse_tools(format_tools(tools, other), other) == [Tool("f", None, SCHEMA)]


def test_a_format_that_demands_a_schema_gets_an_empty_one() -> None:
    empty = {"type": "object", "properties": {}}
    bare = [{"type": "function", "function": {"name": "f"}}]
    assert format_tools(bare, "anthropic") == [{"name": "f", "input_schema": empty}]
    assert format_tools(bare, "mistral") == [{"type": "function", "function": {"name": "f", "parameters": empty}}]
    assert format_tools(bare, "hermes") == [{"name": "f"}]
    assert format_tools([fn(parameters={})], "anthropic") == [{"name": "f", "input_schema": {"type": "object"}}]


def test_hermes_definitions_may_be_wrapped() -> None:
    assert parse_tools([WRAPPED], "hermes") == parse_tools([WRAPPED], "openai")


BUILTIN = {"type": "builtin_function", "function": {"name": "$web_search"}}
CUSTOM = {"type": "custom", "custom": {"name": "sh", "format": {"type": "text"}}}
HOSTED = {"type": "web_search", "web_search": {"enable": True}}
SERVER = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}


@pytest.mark.parametrize(
    ("definition", "own", "homes"),
    [(BUILTIN, "kimi", ["kimi"]), (CUSTOM, "openai", ["openai"]), (HOSTED, "qwen", API), (SERVER, "anthropic", [])],
    ids=["builtin", "custom", "hosted", "server"],
)
def test_a_tool_that_a_host_runs_has_a_form_only_where_it_is_known(
    definition: dict[str, Any], own: ToolFormat, homes: list[str]
) -> None:
    tools = parse_tools([definition], own)
    assert format_tools(tools, own) == [definition]
    for format in TOOL_FORMATS:
        if format in (own, *homes):
            assert format_tools(tools, format) == [definition]
        else:
            with pytest.raises(CannotExpress) as refused:
                format_tools(tools, format)
            assert repr(tools[0].name) in str(refused.value)
            assert format in str(refused.value)


def test_a_canonical_built_in_function_gets_its_type() -> None:
    assert format_tools([Tool("$web_search")], "kimi") == [BUILTIN]
    with pytest.raises(CannotExpress, match="built-in"):
        format_tools([Tool("$web_search")], "openai")


def prop(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "anthropic: dots": ("anthropic", fn("a.b"), "letters, digits"),
    "anthropic: too long": ("anthropic", fn("a" * 129), "at most 128"),
    "anthropic: a union at the top": ("anthropic", fn(parameters={"type": "object", "anyOf": []}), "anyOf"),
    "anthropic: no object": ("anthropic", fn(parameters={"type": "string"}), "must be 'object'"),
    "anthropic: capitals": ("anthropic", fn(parameters={"type": "OBJECT"}), "must be 'object'"),
    "kimi: a digit first": ("kimi", fn("7zip"), r"its name may contain only letters, digits, _ and -, .*letter first"),
    "kimi: too long": ("kimi", fn("a" * 257), "at most 256"),
    "openai: dots": ("openai", fn("mcp.server/tool"), "letters, digits"),
    "openai: too long": ("openai", fn("a" * 65), "at most 64"),
    "qwen: a space": ("qwen", fn("tool name"), "letters, digits"),
    "deepseek: a letter that is not ASCII": ("deepseek", fn("läuft"), "letters, digits"),
    "mistral: dots": ("mistral", fn("a.b"), "letters, digits"),
    "mistral: too long": ("mistral", fn("a" * 65), "at most 64"),
    "hermes: no object": ("hermes", fn(parameters={"type": "array"}), "must be 'object'"),
    "llama: no object": ("llama", fn(parameters={"type": ["object", "null"]}), "must be 'object'"),
    "xml: a bracket": ("xml", fn("a>b"), "whitespace"),
    "xml: a bracket in a parameter": ("xml", fn(parameters=prop(**{"a>b": {"type": "string"}})), "'a>b'"),
    "gemma: a brace": ("gemma", fn("a{"), "letters, digits"),
    "gemma: a colon in a parameter": ("gemma", fn(parameters=prop(**{"a:b": {"type": "string"}})), "'a:b'"),
    "gemma: a keyword": ("gemma", fn(parameters=prop(type={"type": "string"})), "schema keyword"),
    "gemma: a union": ("gemma", fn(parameters=prop(a={"anyOf": [{"type": "string"}]})), "'a' must have a single type"),
    "gemma: two types": ("gemma", fn(parameters=prop(a={"type": ["string", "integer"]})), "must have a single type"),
    "gemma: deep down": (
        "gemma",
        fn(parameters=prop(a={"type": "array", "items": prop(b=prop(c={"$ref": "#"}))})),
        r"'a\[\]\.b\.c' must have a single type",
    ),
}


@pytest.mark.parametrize(("format", "definition", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_what_a_format_cannot_hold_is_a_clear_error(format: str, definition: dict[str, Any], reason: str) -> None:
    with pytest.raises(CannotExpress, match=reason) as refused:
        format_tools([WRAPPED, definition], format)
    assert repr(definition["function"]["name"]) in str(refused.value)
    field = "tools[1].function.name" if "name may contain" in str(refused.value) else "tools[1]"
    assert refused.value.field == field
    assert refused.value.status == 400


@pytest.mark.parametrize("format", TOOL_FORMATS)
def test_a_name_is_refused_for_every_format_whose_rule_it_breaks(format: ToolFormat) -> None:
    for tools, field in (([fn("a b!")], "tools[0].function.name"), ([Tool("a b!")], "tools[0].name")):
        if format in ("hermes", "llama"):  # JSON, where any string is a name
            assert "a b!" in repr(format_tools(tools, format))
            continue
        with pytest.raises(CannotExpress, match=r"tool 'a b!' cannot .*: its name may contain only ") as refused:
            format_tools(tools, format)
        assert refused.value.field == field


HELD: dict[str, tuple[str, dict[str, Any]]] = {
    "anthropic: a union below the top": ("anthropic", fn(parameters=prop(a={"anyOf": []}))),
    "gemma: an optional type": ("gemma", fn(parameters=prop(a={"type": ["string", "null"]}))),
    "gemma: nested": ("gemma", fn(parameters=prop(a=prop(b={"type": "array", "items": {"type": "string"}})))),
    "xml: nested": ("xml", fn("mcp.x-y", parameters=prop(a=prop(b={"anyOf": []})))),
    "llama: any name": ("llama", fn("läuft überall")),
}


@pytest.mark.parametrize(("format", "definition"), HELD.values(), ids=HELD.keys())
def test_what_a_format_can_hold_is_not_refused(format: str, definition: dict[str, Any]) -> None:
    assert parse_tools(format_tools([definition], format), format) == parse_tools([definition], "openai")


UNREADABLE: dict[str, tuple[str, Any, str]] = {
    "no list": ("openai", {"type": "function"}, "tools"),
    "a string": ("openai", "ls", "tools"),
    "no object": ("openai", ["ls"], "tools[0]"),
    "no function": ("openai", [{"type": "function"}], "tools[0].function"),
    "no name": ("openai", [WRAPPED, {"type": "function", "function": {}}], "tools[1].function.name"),
    "an empty name": ("openai", [fn("")], "tools[0].function.name"),
    "a schema that is no object": ("openai", [fn(parameters=[])], "tools[0].function.parameters"),
    "anthropic, no schema": ("anthropic", [{"name": "f"}], "tools[0].input_schema"),
    "anthropic, no name": ("anthropic", [{"input_schema": {}}], "tools[0].name"),
    "flat, no name": ("xml", [{}], "tools[0].name"),
}


@pytest.mark.parametrize(("format", "definitions", "field"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_what_cannot_be_read_says_where(format: str, definitions: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_tools(definitions, format)
    assert refused.value.field == field


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(UnknownFormat):
        format_tools([], "auto")
    with pytest.raises(UnknownFormat):
        parse_tools([], "gpt")


SCHEMAS = st.recursive(
    st.fixed_dictionaries({"type": st.sampled_from(["string", "integer", "boolean", "null"])}),
    lambda inner: st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3)},
        optional={"required": st.lists(st.sampled_from("abc"), max_size=2), "additionalProperties": st.booleans()},
    ),
    max_leaves=6,
).map(lambda inner: {"type": "object", "properties": {"p": inner}})
DEFINITIONS = st.builds(
    lambda name, description, schema, more: {
        "type": "function",
        "function": {"name": name, **description, "parameters": schema, **more},
    },
    st.from_regex(r"[a-zA-Z][a-zA-Z0-9_-]{0,20}", fullmatch=True),
    st.just({}) | st.builds(lambda text: {"description": text}, st.text(max_size=8)),
    SCHEMAS,
    st.dictionaries(st.sampled_from(["strict", "x-new"]), st.booleans() | st.none(), max_size=2),
)


@given(st.lists(DEFINITIONS, max_size=3), st.sampled_from(TOOL_FORMATS))
def test_conversion_is_by_value_and_loses_nothing_that_the_format_can_say(
    definitions: list[dict[str, Any]], format: ToolFormat
) -> None:
    before = copy.deepcopy(definitions)
    out = format_tools(definitions, format)
    canonical = parse_tools(out, format)
    expected = [(t.name, t.description, t.parameters) for t in parse_tools(definitions, "openai")]
    assert [(t.name, t.description, t.parameters) for t in canonical] == expected
    assert format_tools(canonical, format) == out
    for one in out:
        (one.get("function") or one).clear()
    assert definitions == before
    assert [(t.name, t.description, t.parameters) for t in canonical] == expected
