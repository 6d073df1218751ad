"""Functions that become tools: what a model is told of them, and what becomes of what it writes."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import functools
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, TypedDict

import msgspec
import pydantic
import pytest

from moonshim.agent.tools import AgentTool, ArgumentsInvalid, tool, tools_by_name
from moonshim.engine.values.conversation import Tool
from moonshim.errors import InvalidInput


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Place(TypedDict, total=False):
    city: str
    street: str


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Row(msgspec.Struct):
    name: str
    point: Point | None = None


class Inner(pydantic.BaseModel):
    text: str


class Model(pydantic.BaseModel):
    count: int = pydantic.Field(description="How many", ge=1)
    inner: Inner | None = None
    children: list[Model] = []


def test_hints_and_docstring_become_a_schema() -> None:
    @tool
    async def search(query: str, limit: int = 10, exact: bool = False, tags: list[str] | None = None) -> str:
        """Search.

        Args:
            query: What to look for.
            tags: Only with these.
        """
        return query

    assert search.declared == Tool(
        "search",
        "Search.",
        {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What to look for."},
                "limit": {"type": "integer", "default": 10},
                "exact": {"type": "boolean", "default": False},
                "tags": {
                    "anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}],
                    "description": "Only with these.",
                },
            },
            "required": ["query"],
            "additionalProperties": False,
        },
    )


@pytest.mark.parametrize(
    ("hint", "schema", "written", "value"),
    [
        (str, {"type": "string"}, '"a"', "a"),
        (int, {"type": "integer"}, "3", 3),
        (int, {"type": "integer"}, '"3"', 3),
        (int, {"type": "integer"}, "3.0", 3),
        (float, {"type": "number"}, "3", 3.0),
        (bool, {"type": "boolean"}, '"true"', True),
        (Optional[str], {"anyOf": [{"type": "string"}, {"type": "null"}]}, "null", None),  # noqa: UP045 - people do
        (str | None, {"anyOf": [{"type": "string"}, {"type": "null"}]}, '"null"', "null"),
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}, '"3"', "3"),
        (Literal["a", "b"], {"enum": ["a", "b"]}, '"a"', "a"),
        (Colour, {"$ref": "#/$defs/Colour"}, '"red"', Colour.RED),
        (list[Colour], {"type": "array", "items": {"$ref": "#/$defs/Colour"}}, '["green"]', [Colour.GREEN]),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}, '{"a": 1}', {"a": 1}),
        (Place, {"$ref": "#/$defs/Place"}, '{"city": "Rome"}', {"city": "Rome"}),
        (Point, {"$ref": "#/$defs/Point"}, '{"x": 1}', Point(1)),
        (Row, {"$ref": "#/$defs/Row"}, '{"name": "a", "point": {"x": 1}}', Row("a", Point(1))),
        (Path, {"type": "string", "format": "path"}, '"a/b"', Path("a/b")),
        (Any, {}, '{"a": [1]}', {"a": [1]}),
        (
            Annotated[int, msgspec.Meta(ge=1, description="Few")],
            {"type": "integer", "minimum": 1, "description": "Few"},
            "2",
            2,
        ),
        (Annotated[str, "A word"], {"type": "string", "description": "A word"}, '"x"', "x"),
        (Annotated[str, pydantic.Field(description="A word")], {"type": "string", "description": "A word"}, '"x"', "x"),
    ],
)
def test_each_kind_of_hint(hint: Any, schema: dict[str, Any], written: str, value: Any) -> None:
    def take(given):  # type: ignore[no-untyped-def]
        """Take."""

    take.__annotations__ = {"given": hint}
    made = tool(take)
    assert made.parameters["properties"]["given"] == schema
    assert made.read(f'{{"given": {written}}}') == ([], {"given": value})


def test_pydantic_models_are_told_and_made() -> None:
    @tool
    def take(model: Model, more: list[Inner]) -> None: ...

    properties = take.parameters["properties"]
    assert properties["model"] == {"$ref": "#/$defs/Model.Model"}
    told = take.parameters["$defs"]["Model.Model"]["properties"]
    assert told["count"] == {"type": "integer", "description": "How many", "minimum": 1}
    assert told["inner"]["anyOf"][0] == {"$ref": "#/$defs/Model.Inner"}
    _, named = take.read('{"model": {"count": 2, "children": [{"count": 1}]}, "more": [{"text": "a"}]}')
    assert named == {"model": Model(count=2, children=[Model(count=1)]), "more": [Inner(text="a")]}
    with pytest.raises(ArgumentsInvalid, match=r"count: Input should be greater than or equal to 1"):
        take.read('{"model": {"count": 0}, "more": []}')


def test_titles_are_left_out_but_not_a_parameter_of_that_name() -> None:
    class Book(msgspec.Struct):
        title: str

    @tool
    def take(title: str, book: Book) -> None: ...

    assert take.parameters["properties"]["title"] == {"type": "string"}
    assert take.parameters["$defs"]["Book"] == {
        "type": "object",
        "properties": {"title": {"type": "string"}},
        "required": ["title"],
    }


def test_defaults_of_the_function_hold() -> None:
    marker = object()

    @tool
    def take(a: int = 1, b: Any = marker, c: list[int] = [1], d: int = None, e: Path = Path("a")) -> Any:  # type: ignore[assignment]  # noqa: B006, RUF013
        return a, b, c, d, e

    properties = take.parameters["properties"]
    assert [properties[name].get("default") for name in "abcde"] == [1, None, [1], None, "a"]
    assert take.read("{}") == ([], {})
    assert take.read('{"d": null}') == ([], {"d": None})
    assert "required" not in take.parameters or take.parameters["required"] == []


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("{", "must be a JSON object: Input data was truncated"),
        ("[1]", "must be a JSON object, not list"),
        ('"text"', "must be a JSON object, not str"),
        ("{}", "missing required field `path`. Parameters: required: path; optional: limit"),
        ('{"path": 1}', "Expected `str`, got `int` - at `$.path`"),
        ('{"path": "a", "limit": "many"}', "Expected `int`, got `str` - at `$.limit`"),
        ('{"path": "a", "mode": 1}', "unknown field `mode`. Parameters: required: path; optional: limit"),
        ('{"path": null}', "Expected `str`, got `null`"),
    ],
)
def test_what_is_wrong_with_arguments_is_said(arguments: str, why: str) -> None:
    @tool
    def read(path: str, limit: int = 1) -> None: ...

    with pytest.raises(ArgumentsInvalid) as caught:
        read.read(arguments)
    assert why in str(caught.value)


@pytest.mark.parametrize("arguments", ["", "  ", "{}"])
def test_a_tool_that_takes_nothing_needs_no_arguments(arguments: str) -> None:
    @tool
    def now() -> None: ...

    assert now.parameters["properties"] == {}
    assert now.read(arguments) == ([], {})


def test_half_a_character_in_arguments_is_read() -> None:
    @tool
    def say(text: str) -> None: ...

    assert say.read('{"text": "\\ud83d"}') == ([], {"text": "\ud83d"})


def test_parameters_that_have_only_a_place() -> None:
    @tool
    def take(a: int, b: int = 2, c: int = 3, /, *, d: int = 4) -> Any:
        return a, b, c, d

    by_place, named = take.read('{"a": 1, "c": 5, "d": 6}')
    assert take.function(*by_place, **named) == (1, 2, 5, 6)


def test_methods_partials_and_objects_can_be_tools() -> None:
    class Shop:
        def buy(self, item: str) -> str:
            """Buy something."""
            return f"bought {item}"

        async def __call__(self, item: str) -> str:
            """Look at something."""
            return f"looked at {item}"

    shop = Shop()
    made = tool(shop.buy)
    assert (made.name, made.description, made("a")) == ("buy", "Buy something.", "bought a")
    assert tool(name="look")(shop).description == "Look at something."
    half = functools.partial(shop.buy)
    assert tool(half).name == "buy"
    assert tool(half).parameters["required"] == ["item"]


def test_a_tool_is_still_a_function() -> None:
    @tool(name="add_up", timeout=3, asks=True, description="Sum")
    async def add(a: int, b: int) -> int:
        return a + b

    assert (add.name, add.timeout, add.asks, add.description) == ("add_up", 3, True, "Sum")
    assert asyncio.run(add(1, b=2)) == 3


def test_a_tool_by_hand_takes_what_the_model_writes() -> None:
    made = AgentTool(name="x", parameters={"type": "object"}, function=lambda **given: given)
    assert made.read('{"a": {"b": 1}}') == ([], {"a": {"b": 1}})
    assert AgentTool(name="y", function=print).parameters == {"type": "object", "properties": {}}


def test_hints_may_name_what_is_defined_beside_the_function() -> None:
    class Local(msgspec.Struct):
        a: int

    @tool
    def take(local: Local) -> None: ...

    assert take.read('{"local": {"a": 1}}') == ([], {"local": Local(1)})


class Unknown:
    """Something that JSON knows nothing of."""


def _star(*paths: str) -> None: ...


def _stars(**paths: str) -> None: ...


def _unknown(given: list[Unknown]) -> None: ...


def _undefined(given: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def _several(given: Point | Row) -> None: ...


def _generator() -> Any:
    yield 1


async def _async_generator() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (_star, r"\*paths is not supported; declare each parameter"),
        (_stars, r"\*\*paths is not supported; declare each parameter"),
        (_unknown, "Unknown"),
        (_undefined, "Missing"),
        (_several, "dict-like"),
        (_generator, "generator"),
        (_async_generator, "generator"),
        (lambda: 1, "invalid tool name"),
    ],
)
def test_what_cannot_be_a_tool_says_why(function: Any, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        tool(function)


def test_a_method_without_instance_says_what_to_do() -> None:
    class Shop:
        def buy(self, item: str) -> None: ...

    with pytest.raises(InvalidInput, match=r"tool\(instance\.buy\)"):
        tool(Shop.buy)


@pytest.mark.parametrize("name", ["", "a b", "1a", "a.b", "a" * 65, "ä"])
def test_names_that_hosts_refuse_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="invalid tool name"):
        tool(name=name)(_star)


def test_functions_become_tools_by_themselves() -> None:
    def look(path: str) -> str:
        return path

    assert list(tools_by_name([look, tool(name="see")(look)])) == ["look", "see"]
