"""Gemma: what it says and its known faults, at any chunking, come out as speech and calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moonshim.grammar.events import Channel, Found
from moonshim.grammar.gemma import GemmaGrammar
from moonshim.grammar.tag_patterns import NAME_LIMIT
from tests.grammar.raw_text import (
    CUTS,
    FRAGMENTS,
    SIZES,
    assert_laws,
    assert_linear_work,
    assert_prompt,
    by_size,
    merged,
    run,
    soups,
    vectors,
)
from tests.profiles import examples

VECTORS: Final = vectors("gemma")

OPEN: Final = "<|tool_call>call:put"
QUOTE: Final = '<|"|>'
SOUP: Final = soups(
    *(
        "<|tool_call>",
        "<tool_call|>",
        OPEN,
        "<start_function_call>",
        "<end_function_call>",
        "call:",
        "call:ls{",
        "put{",
    ),
    *(QUOTE, "<escape>", f"{OPEN}{{text:{QUOTE}", "Q:", "list:[", "null", "-1.5", ",Q:{", "<|channel>", "thought\n"),
    *("<channel|>", "</tool_call>", "<|", "cal"),
)
HALVES: Final = ("<|tool_cal", "call:", "call:lst", "cal", "<|chan")
WORK: Final[dict[str, Callable[[int], str]]] = {
    "speech": lambda count: "a < b <|tool_cal call:l c " * count,
    "a long string": lambda count: f"{OPEN}{{a:{QUOTE}" + '<|"| x' * count,
    "a long scalar": lambda count: f"{OPEN}{{a:" + "x < y " * count,
    "a long key": lambda count: f"{OPEN}{{" + "x < y " * count,
    "many values": lambda count: f"{OPEN}{{a:[" + "1, {b:2}, " * count,
    "depth": lambda count: f"{OPEN}{{a:" + "[{b:" * count,
    "many calls": lambda count: f"{OPEN}{{}}<tool_call|>\n" * count,
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("text", "expected", "made"), VECTORS.values(), ids=VECTORS.keys())
def test_vector_at_every_chunk_size(text: str, expected: list[Found], made: dict[str, Any], size: int) -> None:
    assert run(GemmaGrammar, by_size(text, size), **made) == merged(expected)


@settings(max_examples=examples(2000))
@given(SOUP, CUTS, st.sampled_from(["text", "reasoning"]), st.booleans())
def test_soup_loses_no_letter_at_any_chunking(text: str, cuts: list[int], channel: Channel, calls: bool) -> None:
    assert_laws(GemmaGrammar, text, cuts, channel, calls=calls)


@given(st.lists(st.sampled_from([*FRAGMENTS, *HALVES]), max_size=20).map("".join))
def test_text_is_said_at_once_but_for_the_beginning_of_a_tag(text: str) -> None:
    assert_prompt(GemmaGrammar, text, NAME_LIMIT)


@pytest.mark.parametrize("text", WORK.values(), ids=WORK.keys())
def test_work_is_linear(text: Callable[[int], str]) -> None:
    assert_linear_work(GemmaGrammar, text, 50)
