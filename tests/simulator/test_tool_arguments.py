"""Arguments that are made from a schema: the schema allows them, and they make sense where that can be known."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moonshim.simulator.model.known_tools import KnownFacts
from moonshim.simulator.model.tool_arguments import arguments_for, sample
from moonshim.simulator.request import OfferedTool
from tests.simulator.schema_judge import faults_of

PATTERNS = [
    "^[a-z]+$",
    "^[A-Z]{3}-\\d{2,4}$",
    "\\d",
    "^(foo|bar)_[^\\s/]+$",
    "^#(?:[0-9a-f]{3}){1,2}$",
    "^\\S+@\\S+\\.\\S+$",
    "^\\d{4}-\\d\\d-\\d\\d$",
    "(a)(b)\\2\\1$",
    "^.{5,}$",
]
SCALARS = st.one_of(st.integers(-9, 9), st.booleans(), st.none(), st.text("abc", max_size=3))


@st.composite
def numbers(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["integer", "number"]))
    low = draw(st.integers(-50, 50))
    bounds: list[dict[str, Any]] = [
        {},
        {"minimum": low},
        {"maximum": low},
        {"minimum": low, "maximum": low + draw(st.integers(0, 9))},
        {"exclusiveMinimum": low, "exclusiveMaximum": low + 2},
        {"multipleOf": draw(st.integers(1, 7)), "minimum": low},
        {"multipleOf": draw(st.integers(1, 7)), "maximum": low},
        {"multipleOf": 0.5, "exclusiveMinimum": low},
    ]
    if kind == "number":
        bounds.append({"exclusiveMinimum": low, "maximum": low + 0.25})
    return {"type": kind, **draw(st.sampled_from(bounds))}


@st.composite
def texts(draw: st.DrawFn) -> dict[str, Any]:
    least = draw(st.integers(0, 30))
    rules: list[dict[str, Any]] = [
        {},
        {"minLength": least},
        {"maxLength": least},
        {"minLength": least, "maxLength": least + draw(st.integers(0, 5))},
        {"pattern": draw(st.sampled_from(PATTERNS))},
        {"format": draw(st.sampled_from(["date", "email", "uri", "uuid", "unheard-of"]))},
    ]
    return {"type": "string", **draw(st.sampled_from(rules))}


def lists(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    bounded = st.builds(
        lambda items, least, more: {"type": "array", "items": items, "minItems": least, "maxItems": least + more},
        inner,
        st.integers(0, 3),
        st.integers(0, 3),
    )
    unique = st.builds(
        lambda kind, least: {"type": "array", "items": {"type": kind}, "minItems": least, "uniqueItems": True},
        st.sampled_from(["string", "integer", "number"]),
        st.integers(0, 4),
    )
    first = st.builds(lambda one, other: {"type": "array", "prefixItems": [one, other], "minItems": 2}, inner, inner)
    return bounded | unique | first


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    properties = draw(st.dictionaries(st.sampled_from(["path", "n", "é", "url", "items"]), inner, max_size=4))
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if properties:
        schema["required"] = draw(st.lists(st.sampled_from(sorted(properties)), unique=True))
        if draw(st.booleans()):
            schema["minProperties"] = draw(st.integers(0, len(properties)))
    if draw(st.booleans()):
        schema["additionalProperties"] = draw(st.sampled_from([True, False, {"type": "string"}]))
    return schema


@st.composite
def together(draw: st.DrawFn, inner: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    """Choices, and demands that hold at once."""
    one, other = draw(inner), draw(inner)
    tagged = [
        {"type": "object", "properties": {"kind": {"const": tag}, "of": part}, "required": ["kind", "of"]}
        for tag, part in (("a", one), ("b", other))
    ]
    both = [
        {"type": "object", "properties": {"a": one}, "required": ["a"]},
        {"properties": {"b": other}, "required": ["b"]},
    ]
    tight: list[dict[str, Any]] = [{"type": "integer", "minimum": 3}, {"type": "number", "minimum": 5, "maximum": 6}]
    shapes: list[dict[str, Any]] = [
        {"anyOf": [one, other]},
        {"oneOf": tagged},
        {"allOf": both},
        {"allOf": tight},
        {"type": "object", "properties": {"a": one}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 2}]},
    ]
    return draw(st.sampled_from(shapes))


REFERENCES = st.sampled_from(["#/$defs/tree", "#/$defs/word", "#/$defs/maybe"]).map(lambda ref: {"$ref": ref})
DEFS: dict[str, Any] = {
    "word": {"type": "string", "minLength": 2},
    "tree": {
        "type": "object",
        "properties": {"left": {"$ref": "#/$defs/maybe"}, "all": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
        "required": ["left", "all"],
    },
    "maybe": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]},
}
LEAVES = st.one_of(
    numbers(),
    texts(),
    st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"type": ["integer", "null"]}, {}]),
    st.lists(SCALARS, min_size=1, max_size=3).map(lambda values: {"enum": values}),
    SCALARS.map(lambda value: {"const": value}),
    SCALARS.map(lambda value: {"type": "string", "default": value}),
    REFERENCES,
)
SCHEMAS = st.recursive(LEAVES, lambda inner: lists(inner) | objects(inner) | together(inner), max_leaves=8)


@settings(max_examples=200, deadline=None)
@given(schema=SCHEMAS, optional=st.booleans())
def test_what_is_made_is_allowed(schema: dict[str, Any], optional: bool) -> None:
    whole = {"type": "object", "properties": {"it": schema}, "required": ["it"], "$defs": DEFS}
    made = sample(whole, optional=optional)
    assert faults_of(made, whole) == []
    assert sample(whole, optional=optional) == made


KEYWORDS = [
    *(
        "$ref",
        "type",
        "enum",
        "const",
        "default",
        "examples",
        "anyOf",
        "oneOf",
        "allOf",
        "not",
        "properties",
        "required",
    ),
    *("additionalProperties", "patternProperties", "minProperties", "items", "prefixItems", "contains", "minItems"),
    *("maxItems", "uniqueItems", "minLength", "maxLength", "pattern", "format", "minimum", "maximum"),
    *("exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
]
WORDS = st.sampled_from(["object", "array", "string", "integer", "number", "null", "#", "#/properties/a", "[", "a", ""])
ANYTHING = st.recursive(
    SCALARS | WORDS | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*KEYWORDS, "a", "b"]), inner, max_size=5)
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(schema=st.dictionaries(st.sampled_from(KEYWORDS), ANYTHING, max_size=6), name=st.sampled_from(["Bash", "mine"]))
def test_a_schema_that_is_none_does_no_harm(schema: dict[str, Any], name: str) -> None:
    made = arguments_for(OfferedTool(name, "", schema), KnownFacts("moonshim-1", "In Paris"), optional=True)
    assert isinstance(made, dict)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (None, {}),
        ({}, {}),
        ({"type": "object", "properties": {"a": {}}}, {}),
        ({"type": "object", "required": ["a"]}, {"a": "moonshim"}),
        ({"required": ["a"], "properties": {"a": {"anyOf": [{"type": "boolean"}, {"type": "null"}]}}}, {"a": True}),
        (
            {"required": ["a"], "properties": {"a": {"type": "array", "minItems": 2, "items": {"type": "number"}}}},
            {"a": [1.5, 1.5]},
        ),
        ({"required": [1, "a"], "properties": {"a": {"const": 5}}}, {"a": 5}),
        ({"required": ["a"], "properties": {"a": {"type": "string", "default": None}}}, {"a": "moonshim"}),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"n": {"type": "integer"}}, "required": ["n"]}}},
            {"n": 1},
        ),
        ({"required": ["a"], "properties": {"a": {"$ref": "http://elsewhere/schema"}}}, {"a": "moonshim"}),
        ({"required": ["a"], "properties": {"a": {"type": "string", "pattern": "(["}}}, {"a": "moonshim"}),
    ],
)
def test_arguments_are_as_plain_as_the_schema_allows(schema: Any, value: Any) -> None:
    assert sample(schema) == value


def test_a_schema_that_can_never_end_ends() -> None:
    endless: dict[str, Any] = {"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}}
    made = sample({**endless, "required": ["a", "b"]})
    assert set(made) == {"a", "b"}
    circle = {"properties": {"a": {"$ref": "#/$defs/a"}}, "required": ["a"], "$defs": {"a": {"$ref": "#/$defs/a"}}}
    assert "a" in sample(circle)


def tool(name: str, /, required: tuple[str, ...] = (), **properties: Any) -> OfferedTool:
    return OfferedTool(name, "", {"type": "object", "properties": properties, "required": list(required)})


TEXT = {"type": "string"}


class TestSense:
    def test_names_come_from_the_users_words_one_for_each_call(self) -> None:
        weather = tool("get_weather", ("city",), city=TEXT)
        received = KnownFacts("moonshim-1", "How is the weather in Paris, New York and Tokyo?")
        made = [arguments_for(weather, received, number=number)["city"] for number in (1, 2, 3, 4)]
        assert made == ["Paris", "New York", "Tokyo", "moonshim-1"]

    def test_a_tool_that_requires_nothing_gets_the_name_too(self) -> None:
        received = KnownFacts("moonshim-1", "How is it in Paris?")
        assert arguments_for(tool("get_weather", days={"type": "integer"}, city=TEXT), received) == {"city": "Paris"}
        assert arguments_for(tool("get_weather", city=TEXT), KnownFacts("moonshim-1", "hello")) == {}

    @pytest.mark.parametrize(
        ("offered", "made"),
        [
            (
                tool("Bash", ("command",), command=TEXT, timeout={"type": "number"}, description=TEXT),
                {"command": "echo moonshim-1", "description": "Print a word"},
            ),
            (tool("shell", ("command",), command={"type": "array", "items": TEXT}, workdir=TEXT),
             {"command": ["bash", "-lc", "echo moonshim-1"]}),
            (tool("exec_command", ("cmd",), cmd=TEXT, yield_time_ms={"type": "number"}), {"cmd": "echo moonshim-1"}),
            (tool("run_shell_command", ("command", "is_background"), command=TEXT, is_background={"type": "boolean"}),
             {"command": "echo moonshim-1", "is_background": False}),
            (tool("list_directory", ("path",), path=TEXT, ignore={"type": "array"}), {"path": "."}),
            (tool("Glob", ("pattern",), pattern=TEXT, path=TEXT), {"pattern": "*.md"}),
            (tool("bash", ("line",), line=TEXT), {"line": "moonshim-1"}),
            (OfferedTool("bash"), {"command": "echo moonshim-1"}),
        ],
    )  # fmt: skip
    def test_known_tools_are_called_for_what_they_are_good_for(self, offered: OfferedTool, made: Any) -> None:
        assert arguments_for(offered, KnownFacts("moonshim-1", "Hello")) == made

    def test_a_file_is_read_that_the_user_names(self) -> None:
        read = tool("Read", ("file_path",), file_path=TEXT, limit={"type": "integer"})
        assert arguments_for(read, KnownFacts("m", "Read ./docs/notes.md for me."))["file_path"] == "./docs/notes.md"
        assert arguments_for(read, KnownFacts("m", "Read something."))["file_path"] == "README.md"

    def test_lists_of_things_to_do_have_what_their_schema_knows_and_no_more(self) -> None:
        status = {"type": "string", "enum": ["pending", "in_progress", "completed"]}
        item = {
            "type": "object",
            "properties": {"content": TEXT, "status": status, "activeForm": TEXT},
            "required": ["content", "status", "activeForm"],
            "additionalProperties": False,
        }
        todo = tool("TodoWrite", ("todos",), todos={"type": "array", "items": item})
        made = arguments_for(todo, KnownFacts("moonshim-1"))
        assert faults_of(made, todo.schema) == []
        assert made["todos"][0]["content"] == "Look at moonshim-1"

    def test_a_shell_gets_any_text_as_one_word(self) -> None:
        text = 'it\'s; rm -rf / && "$HOME"\n`ls`'
        made = arguments_for(tool("Bash", ("command",), command=TEXT), KnownFacts("moonshim-1"), text=text)
        assert made == {"command": "echo 'it'\"'\"'s; rm -rf / && \"$HOME\"\n`ls`'"}

    def test_optional_arguments_come_when_they_are_wanted_but_never_for_known_tools(self) -> None:
        flag = {"type": "boolean"}
        assert arguments_for(
            tool("deploy", force=flag, note={"type": ["string", "null"]}), KnownFacts("m"), optional=True
        ) == {
            "force": True,
            "note": None,
        }
        bash = tool("Bash", ("command",), command=TEXT, dangerouslyDisableSandbox=flag)
        assert arguments_for(bash, KnownFacts("m"), optional=True) == {"command": "echo m"}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "number", "multipleOf": 5e-324, "minimum": 1e308},
        {"type": "integer", "minimum": 10**400},
        {"type": "number", "multipleOf": 0.5, "minimum": 10**400},
        {"type": "array", "items": {"type": "number", "multipleOf": 5e-324}, "minItems": 3, "uniqueItems": True},
        {"$ref": "#/anyOf/²", "anyOf": [{"type": "integer"}]},
        {"$ref": "#/anyOf/" + "9" * 5000, "anyOf": [{"type": "integer"}]},
    ],
)
def test_numbers_that_python_cannot_count_with_break_nothing(schema: dict[str, Any]) -> None:
    tool = OfferedTool("count", schema={"type": "object", "properties": {"n": schema}, "required": ["n"]} | schema)
    assert isinstance(arguments_for(tool, KnownFacts("moonshim", "Hi")), dict)
    sample(schema)
