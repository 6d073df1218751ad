"""The laws of the families whose values are raw text: chunking, nothing lost, promptness, linear work."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moonshim.engine.grammar.protocol import CallDelta, Channel, TextFound
from moonshim.engine.grammar.shared.raw_values import escape
from moonshim.engine.grammar.shared.tag_patterns import NAME_LIMIT
from moonshim.engine.grammar.shared.text_buffer import GAP_LIMIT
from tests.engine.grammar.family_runs import CUTS, SIZES, assert_laws, by_size, found_in, run
from tests.engine.grammar.raw_text import RAW_FAMILIES, SPEECH, raw_grammar
from tests.laws.test_linear import assert_linear, calls_made
from tests.support.looped import looped
from tests.support.profiles import examples

WORK = [(family, kind) for family, known in RAW_FAMILIES.items() for kind in known.work]


@pytest.mark.parametrize("family", RAW_FAMILIES)
@settings(max_examples=examples(2000))
@given(st.data(), CUTS, st.sampled_from(["text", "reasoning"]), st.booleans())
def test_soup_loses_no_letter_at_any_chunking(
    family: str, data: st.DataObject, cuts: list[int], channel: Channel, calls: bool
) -> None:
    text = data.draw(RAW_FAMILIES[family].soup)
    assert_laws(lambda: raw_grammar(family, channel, calls=calls), text, cuts)


@pytest.mark.parametrize("family", RAW_FAMILIES)
@given(st.data())
def test_text_is_said_at_once_but_for_the_beginning_of_a_tag(family: str, data: st.DataObject) -> None:
    """Of text that is only text, at most so many characters are kept back, and they are the end of it."""
    text, grammar = data.draw(RAW_FAMILIES[family].speech), raw_grammar(family)
    said = ""
    for at, char in enumerate(text, 1):
        for one in grammar.feed(char):
            assert isinstance(one, TextFound)
            said += one.text
        assert said + grammar.held == text[:at]
        assert len(grammar.held) <= NAME_LIMIT


@pytest.mark.parametrize("family", RAW_FAMILIES)
@given(SPEECH)
def test_a_string_is_passed_on_as_it_arrives(family: str, value: str) -> None:
    """But for what may be the beginning of its end."""
    grammar = raw_grammar(family)
    grammar.feed(RAW_FAMILIES[family].string)
    written = ""
    for at, char in enumerate(value, 1):
        written += "".join(one.text for one in grammar.feed(char) if isinstance(one, CallDelta))
        # The first line break may be the format's.
        assert any(
            written == escape(text[:stop])
            for text in (value, value.removeprefix("\n"))
            for stop in range(max(0, at - 4), at + 1)
        )
        assert not grammar.held


@pytest.mark.parametrize("step", [1, 7])
@pytest.mark.parametrize(("family", "kind"), WORK)
def test_work_is_linear(family: str, kind: str, step: int) -> None:
    """How often anything is called grows like the text, at one character at a time and at seven."""

    def measure(count: int) -> int:
        pieces = by_size(RAW_FAMILIES[family].work[kind](count), step)
        return calls_made(lambda: found_in(raw_grammar(family), pieces))

    assert_linear(measure, 50)


@looped("size", SIZES)
@pytest.mark.parametrize(
    ("family", "section", "call"),
    [
        ("minimax", "<minimax:tool_call>", '<invoke name="ls"></invoke>'),
        ("deepseek_dsml", "<｜DSML｜tool_calls>", '<｜DSML｜invoke name="ls"></｜DSML｜invoke>'),
    ],
)
def test_too_much_white_space_behind_a_section_is_told_the_same_at_any_chunking(
    family: str, section: str, call: str, size: int
) -> None:
    for count in (GAP_LIMIT, GAP_LIMIT + 1, 2 * GAP_LIMIT):
        text = section + " " * count + call
        assert run(raw_grammar(family), text, size) == run(raw_grammar(family), text)
