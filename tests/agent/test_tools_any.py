"""Whatever the hints: a value that fits them fits the schema and comes through, and the platform takes the schema."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import inspect
import json
from types import GenericAlias
from typing import Any, Literal

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from moonshim.agent.tools import AgentTool, ArgumentsInvalid, tool
from moonshim.engine.prepare import prepare_request
from moonshim.simulator.model.schema_check import allows
from moonshim.simulator.rules.request_rules import check_chat

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
NAMES = st.sampled_from(["a", "b", "path", "title", "type", "items", "properties", "default", "from_", "ümlaut"])


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


@dataclasses.dataclass
class Box:
    size: Size
    label: str = ""


class Item(msgspec.Struct):
    box: Box | None
    tags: list[str] = []


Pair = tuple[Any, st.SearchStrategy[Any]]
"""A hint, and what fits it."""

SIMPLE: list[Pair] = [
    (str, TEXTS),
    (int, st.integers(-(2**53), 2**53)),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (bool, st.booleans()),
    (Literal["x", "y", 3], st.sampled_from(["x", "y", 3])),
    (Size, st.sampled_from(Size)),
    (Box, st.builds(Box, st.sampled_from(Size), TEXTS)),
    (Item, st.builds(Item, st.none() | st.builds(Box, st.sampled_from(Size)), st.lists(TEXTS, max_size=2))),
]


def _grown(inner: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    return inner.flatmap(_with_more)


def _with_more(pair: Pair) -> st.SearchStrategy[Pair]:
    hint, values = pair
    return st.sampled_from(
        [
            (GenericAlias(list, (hint,)), st.lists(values, max_size=3)),
            (GenericAlias(dict, (str, hint)), st.dictionaries(TEXTS, values, max_size=3)),
            (hint | None, st.none() | values),
        ]
    )


PAIRS = st.recursive(st.sampled_from(SIMPLE), _grown, max_leaves=4)


def _made(hints: dict[str, Any], optional: set[str]) -> AgentTool:
    def take(**given: Any) -> Any:
        """Take."""
        return given

    keyword = inspect.Parameter.KEYWORD_ONLY
    take.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, keyword, default=None if name in optional else inspect.Parameter.empty)
            for name in hints
        ]
    )
    take.__annotations__ = hints
    return tool(take)


@given(st.data())
def test_a_value_that_fits_the_hints_fits_the_schema_and_comes_through(data: st.DataObject) -> None:
    pairs = data.draw(st.dictionaries(NAMES, PAIRS, max_size=3))
    optional = data.draw(st.sets(st.sampled_from(sorted(pairs)))) if pairs else set()
    made = _made({name: hint for name, (hint, _) in pairs.items()}, optional)
    left_out = data.draw(st.sets(st.sampled_from(sorted(optional)))) if optional else set()
    value = {name: data.draw(values) for name, (_, values) in pairs.items() if name not in left_out}
    written = msgspec.json.encode(value)
    assert allows(made.parameters, json.loads(written), made.parameters)
    assert made.read(written.decode()) == ([], value)


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 10) | st.sampled_from(["x", "small", "", "3", "true"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["size", "label", "box", "tags", "a"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(PAIRS, JSON)
def test_what_the_schema_allows_can_be_read(pair: Pair, value: Any) -> None:
    made = _made({"a": pair[0]}, set())
    given_ = {"a": value}
    try:
        _, named = made.read(json.dumps(given_))
    except ArgumentsInvalid:
        assert not allows(made.parameters, given_, made.parameters)
    else:  # perhaps written otherwise, with one meaning only: "3" for 3
        assert allows(made.parameters, json.loads(msgspec.json.encode(named)), made.parameters)


@given(st.dictionaries(NAMES, PAIRS, max_size=3), st.text(max_size=20))
def test_any_text_of_a_model_is_read_or_answered(pairs: dict[str, Pair], text: str) -> None:
    made = _made({name: hint for name, (hint, _) in pairs.items()}, set())
    with contextlib.suppress(ArgumentsInvalid):
        made.read(text)


@given(st.dictionaries(NAMES.filter(str.isascii), PAIRS, min_size=1, max_size=3))
def test_the_platform_takes_every_schema_that_is_made(pairs: dict[str, Pair]) -> None:
    made = _made({name: hint for name, (hint, _) in pairs.items()}, set())
    body = {
        "model": "kimi-k2.5",
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"type": "function", "function": {"name": made.name, "parameters": made.parameters}}],
    }
    prepared = prepare_request(body, dialect="openai_chat", host="moonshot")
    assert check_chat(prepared.body, generation="k2.5") == []
