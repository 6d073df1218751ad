"""DSML: what it says and its known faults, at any chunking, come out as speech and calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moonshim.grammar.deepseek_dsml import DeepseekDsmlGrammar
from moonshim.grammar.events import Channel, Found
from moonshim.grammar.tag_patterns import NAME_LIMIT
from tests.grammar.raw_text import (
    CUTS,
    FRAGMENTS,
    SIZES,
    assert_laws,
    assert_linear_work,
    assert_prompt,
    assert_streams,
    by_size,
    merged,
    run,
    soups,
    vectors,
)
from tests.profiles import examples

VECTORS: Final = vectors("deepseek_dsml")

OPEN: Final = '<｜DSML｜invoke name="put">'
SOUP: Final = soups(
    *(
        "<｜DSML｜tool_calls>",
        "</｜DSML｜tool_calls>",
        "<｜DSML｜ calls>",
        "<｜DSML｜function_calls>",
        OPEN,
        "<｜DSML｜ invoke name=Q>",
    ),
    *(
        "</｜DSML｜invoke>",
        "</｜DSML｜ invoke>",
        "</｜DSML｜parameter>",
        '<｜DSML｜parameter name="text" string="true">',
    ),
    *('<｜DSML｜parameter name="Q" string="false">', '<|DSML|parameter name="list">', "<｜DSML｜", '{"Q": 1}', '["Q'),
    *("<think>", "</think>"),
)
# A whole name could be completed by the other pieces.
HALVES: Final = ("<｜DSML｜", "<｜DSML｜invok", "</｜DSML｜param")
WORK: Final[dict[str, Callable[[int], str]]] = {
    "speech": lambda count: "a < b <｜DSML｜ " * count,
    "half a tag": lambda count: '<｜DSML｜invoke name="x' * count,
    "a long string": lambda count: OPEN + '<｜DSML｜parameter name="a" string="true">' + "<b></｜DSML｜x " * count,
    "a long object": lambda count: OPEN + "{" + '"a": "<", < ' * count,
    "many calls": lambda count: (OPEN + "</｜DSML｜invoke>\n") * count,
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("text", "expected", "made"), VECTORS.values(), ids=VECTORS.keys())
def test_vector_at_every_chunk_size(text: str, expected: list[Found], made: dict[str, Any], size: int) -> None:
    assert run(DeepseekDsmlGrammar, by_size(text, size), **made) == merged(expected)


@settings(max_examples=examples(2000))
@given(SOUP, CUTS, st.sampled_from(["text", "reasoning"]), st.booleans())
def test_soup_loses_no_letter_at_any_chunking(text: str, cuts: list[int], channel: Channel, calls: bool) -> None:
    assert_laws(DeepseekDsmlGrammar, text, cuts, channel, calls=calls)


@given(st.lists(st.sampled_from([*FRAGMENTS, *HALVES]), max_size=20).map("".join))
def test_text_is_said_at_once_but_for_the_beginning_of_a_tag(text: str) -> None:
    assert_prompt(DeepseekDsmlGrammar, text, NAME_LIMIT)


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=20).map("".join))
def test_a_string_is_passed_on_as_it_arrives(value: str) -> None:
    assert_streams(DeepseekDsmlGrammar, OPEN + '<｜DSML｜parameter name="a" string="true">', value)


@pytest.mark.parametrize("text", WORK.values(), ids=WORK.keys())
def test_work_is_linear(text: Callable[[int], str]) -> None:
    assert_linear_work(DeepseekDsmlGrammar, text, 50)
