"""Gemma: what it says and its known faults, at any chunking, come out as speech and calls."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moonshim.grammar.events import CallGrew, Channel, Found, Noticed
from moonshim.grammar.gemma import GemmaGrammar
from moonshim.grammar.raw_values import HOLD_LIMIT
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


@pytest.mark.parametrize("size", [5, 1000, 1_000_000])
class TestLimits:
    def test_a_text_without_quotes_that_is_too_long_is_a_string_all_the_same(self, size: int) -> None:
        value = "x" * (HOLD_LIMIT + 30)
        found = run(GemmaGrammar, by_size(f"{OPEN}{{text:{value},count:1}}", size))
        assert Noticed("value_as_string", value[:HOLD_LIMIT]) in found
        written = "".join(one.text for one in found if isinstance(one, CallGrew))
        assert json.loads(written) == {"text": value, "count": 1}

    @pytest.mark.parametrize("lead", ["", QUOTE])
    def test_a_key_without_end_is_reported_in_pieces(self, size: int, lead: str) -> None:
        found = run(GemmaGrammar, by_size(f"{OPEN}{{{lead}" + "x" * (HOLD_LIMIT + 3) + f"{lead},count:1}}", size))
        assert [one.detail for one in found if isinstance(one, Noticed)] == ["x" * HOLD_LIMIT, "xxx"]


@settings(max_examples=examples(2000))
@given(SOUP, CUTS, st.sampled_from(["text", "reasoning"]), st.booleans())
def test_soup_loses_no_letter_at_any_chunking(text: str, cuts: list[int], channel: Channel, calls: bool) -> None:
    assert_laws(GemmaGrammar, text, cuts, channel, calls=calls)


@given(st.lists(st.sampled_from([*FRAGMENTS, *HALVES]), max_size=20).map("".join))
def test_text_is_said_at_once_but_for_the_beginning_of_a_tag(text: str) -> None:
    assert_prompt(GemmaGrammar, text, NAME_LIMIT)


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=20).map("".join))
def test_a_string_is_passed_on_as_it_arrives(value: str) -> None:
    assert_streams(GemmaGrammar, f"{OPEN}{{a:{QUOTE}", value)


@pytest.mark.parametrize("text", WORK.values(), ids=WORK.keys())
def test_work_is_linear(text: Callable[[int], str]) -> None:
    assert_linear_work(GemmaGrammar, text, 50)
