"""GLM: what it says and its known faults, at any chunking, come out as speech and calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moonshim.grammar.events import Channel, Found
from moonshim.grammar.glm import GlmGrammar
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

VECTORS: Final = vectors("glm")

OPEN: Final = "<tool_call>put\n<arg_key>{}</arg_key>\n<arg_value>"
SOUP: Final = soups(
    *("<tool_call>", "</tool_call>", "<tool_call>ls", "<tool_call>put\n", "<arg_key>", "</arg_key>", "<arg_value>"),
    *("</arg_value>", "<arg_key>dir</arg_key>", OPEN.format("list"), OPEN.format("Q"), OPEN.format("count")),
    *('["Q', '{"Q": ', "<think>", "</think>"),
)
HALVES: Final = ("<arg_key>", "</arg_value>", "<tool_cal")
WORK: Final[dict[str, Callable[[int], str]]] = {
    "speech": lambda count: "a < b <tool_cal " * count,
    "names": lambda count: "<tool_call>a b " * count,
    "a long string": lambda count: OPEN.format("text") + "<b> </tool_call> " * count,
    "a long value of unknown kind": lambda count: OPEN.format("k") + "[1, " * count,
    "many calls": lambda count: (OPEN.format("count") + "1</arg_value></tool_call>") * count,
    "keys without values": lambda count: "<tool_call>put<arg_key>" + "<arg_key>k</arg_key>" * count,
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("text", "expected", "made"), VECTORS.values(), ids=VECTORS.keys())
def test_vector_at_every_chunk_size(text: str, expected: list[Found], made: dict[str, Any], size: int) -> None:
    assert run(GlmGrammar, by_size(text, size), **made) == merged(expected)


@settings(max_examples=examples(2000))
@given(SOUP, CUTS, st.sampled_from(["text", "reasoning"]), st.booleans())
def test_soup_loses_no_letter_at_any_chunking(text: str, cuts: list[int], channel: Channel, calls: bool) -> None:
    assert_laws(GlmGrammar, text, cuts, channel, calls=calls)


@given(st.lists(st.sampled_from([*FRAGMENTS, *HALVES]), max_size=20).map("".join))
def test_text_is_said_at_once_but_for_the_beginning_of_a_tag(text: str) -> None:
    assert_prompt(GlmGrammar, text, NAME_LIMIT)


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=20).map("".join))
def test_a_string_is_passed_on_as_it_arrives(value: str) -> None:
    assert_streams(GlmGrammar, OPEN.format("text"), value)


@pytest.mark.parametrize("text", WORK.values(), ids=WORK.keys())
def test_work_is_linear(text: Callable[[int], str]) -> None:
    assert_linear_work(GlmGrammar, text, 50)
