"""Qwen's XML: what it says and its known faults, at any chunking, come out as speech and calls."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moonshim.grammar.events import CallBegan, CallEnded, CallGrew, Channel, Found, Said
from moonshim.grammar.qwen_xml import QwenXmlGrammar
from moonshim.grammar.raw_values import HOLD_LIMIT, SPACE_LIMIT
from moonshim.grammar.tag_patterns import NAME_LIMIT
from tests.grammar.raw_text import (
    CUTS,
    FRAGMENTS,
    SIZES,
    TOOLS,
    assert_laws,
    assert_linear_work,
    assert_prompt,
    assert_streams,
    by_cuts,
    by_size,
    merged,
    run,
    soups,
    vectors,
)
from tests.profiles import examples

VECTORS = vectors("qwen_xml")
OPEN, CLOSE = "<tool_call>\n<function=put>\n", "</function>\n</tool_call>"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("text", "expected", "made"), VECTORS.values(), ids=VECTORS.keys())
def test_vector_at_every_chunk_size(text: str, expected: list[Found], made: dict[str, Any], size: int) -> None:
    assert run(QwenXmlGrammar, by_size(text, size), **made) == merged(expected)


def test_tags_are_words_where_reasoning_has_its_own_field() -> None:
    grammar = QwenXmlGrammar("text")
    grammar.tags_are_text = True
    assert grammar.tags_are_text
    found = grammar.feed("a <think>b</think> c</think>")
    assert "".join(one.text for one in found if isinstance(one, Said)) == "a <think>b</think> c"


PROMPT: dict[str, tuple[str, list[Found], str]] = {
    "half a tag": ("Hi <tool_c", [Said("text", "Hi ")], "<tool_c"),
    "a tag that is none": ("Hi <tool_x", [Said("text", "Hi <tool_x")], ""),
    "a name": (OPEN, [CallBegan("text", "", "put")], ""),
    "half a string": (
        f"{OPEN}<parameter=text>\na\n",
        [CallBegan("text", "", "put"), CallGrew('{"text": "a')],
        "",
    ),
    "half an array": (f"{OPEN}<parameter=list>\n[1, ", [CallBegan("text", "", "put"), CallGrew('{"list": [1, ')], ""),
    "a value that is over": (
        f"{OPEN}<parameter=count>\n1\n</parameter>\n</function>",
        [CallBegan("text", "", "put"), CallGrew('{"count": 1}'), CallEnded(closed=True)],
        "",
    ),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("text", "expected", "held"), PROMPT.values(), ids=PROMPT.keys())
def test_what_is_decided_goes_out_at_once(text: str, expected: list[Found], held: str, size: int) -> None:
    grammar = QwenXmlGrammar("text", tools=TOOLS)
    assert merged(one for piece in by_size(text, size) for one in grammar.feed(piece)) == expected
    assert grammar.held == held


@pytest.mark.parametrize("size", [5, 1000, 1_000_000])
class TestLimits:
    def test_a_name_that_is_too_long_is_text(self, size: int) -> None:
        for length, is_call in ((NAME_LIMIT, True), (NAME_LIMIT + 1, False)):
            found = run(QwenXmlGrammar, by_size(f"<tool_call><function={'x' * length}></function></tool_call>", size))
            assert (CallBegan("text", "", "x" * length) in found) is is_call

    def test_a_value_that_is_held_too_long_is_a_string(self, size: int) -> None:
        for key in ("count", "undeclared"):
            value = "[" + "1," * (HOLD_LIMIT // 2) + "1]" if key == "undeclared" else "7" * (HOLD_LIMIT + 1)
            found = run(QwenXmlGrammar, by_size(f"{OPEN}<parameter={key}>{value}</parameter>{CLOSE}", size))
            written = "".join(one.text for one in found if isinstance(one, CallGrew))
            assert json.loads(written) == {key: value}

    def test_too_much_white_space_is_text(self, size: int) -> None:
        space = " " * (SPACE_LIMIT + 1)
        text = f"<tool_call>{{}}<function=put>{CLOSE}"
        assert Said("text", space) not in run(QwenXmlGrammar, by_size(text.format(space[1:]), size))
        assert Said("text", space) in run(QwenXmlGrammar, by_size(text.format(space), size))


# -- properties --------------------------------------------------------------------------

SPEECH = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=4), max_size=8).map("".join)
ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "text": SPEECH,
        "count": st.integers() | st.floats(allow_nan=False, allow_infinity=False),
        "flag": st.booleans(),
        "none": st.none(),
        "box": st.dictionaries(SPEECH, SPEECH | st.integers(), max_size=3),
        "list": st.lists(SPEECH | st.sampled_from(["</parameter>", "</function>", CLOSE]), max_size=3),
    },
)


def rendered(arguments: dict[str, Any]) -> str:
    inner = "".join(
        f"<parameter={key}>\n{value if isinstance(value, str) else json.dumps(value)}\n</parameter>\n"
        for key, value in arguments.items()
    )
    return f"{OPEN}{inner}{CLOSE}"


@given(SPEECH, st.lists(ARGUMENTS, max_size=3), CUTS)
def test_what_was_rendered_is_read_back(speech: str, calls: list[dict[str, Any]], cuts: list[int]) -> None:
    found = run(QwenXmlGrammar, by_cuts(speech + "\n".join(map(rendered, calls)), cuts))
    assert found[: bool(speech)] == [Said("text", speech)] * bool(speech)
    read = found[bool(speech) :]
    assert [type(one) for one in read] == [CallBegan, CallGrew, CallEnded] * len(calls)
    assert [json.loads(one.text) for one in read if isinstance(one, CallGrew)] == calls


SOUP = soups(
    *("<tool_call>", "</tool_call>", "<function=ls>", "<function=put>", "<function=Q>", "</function>", "</parameter>"),
    *(
        "<parameter=dir>",
        "<parameter=most>",
        "<parameter=list>",
        "<parameter=k>",
        "\n<parameter=text>",
        '["Q',
        '{"Q": ',
    ),
    *("<think>", "</think>", "<parameter=", "</tool_call>\n<tool_call>"),
)


@settings(max_examples=examples(2000))
@given(SOUP, CUTS, st.sampled_from(["text", "reasoning"]), st.booleans())
def test_soup_loses_no_letter_at_any_chunking(text: str, cuts: list[int], channel: Channel, calls: bool) -> None:
    assert_laws(QwenXmlGrammar, text, cuts, channel, calls=calls)


@given(st.lists(st.sampled_from([*FRAGMENTS, "<tool_cal", "<function", "=x>"]), max_size=20).map("".join))
def test_text_is_said_at_once_but_for_the_beginning_of_a_tag(text: str) -> None:
    assert_prompt(QwenXmlGrammar, text, NAME_LIMIT)


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=20).map("".join))
def test_a_string_is_passed_on_as_it_arrives(value: str) -> None:
    assert_streams(QwenXmlGrammar, f"{OPEN}<parameter=text>", value)


WORK = {
    "speech": lambda count: "a < b <tool_cal " * count,
    "bare names": lambda count: "<function=x> <function=y>\n" * count,
    "a long string": lambda count: f"{OPEN}<parameter=text>" + "<b>\n</parameter> " * count,
    "a long array": lambda count: f"{OPEN}<parameter=list>[" + '1, "<b>", <' * count,
    "a long value of unknown kind": lambda count: f"{OPEN}<parameter=k>[" + "1, " * count,
    "a long number": lambda count: f"{OPEN}<parameter=count>" + "1234" * count,
    "many params": lambda count: OPEN + "<parameter=k>1</parameter>\n" * count,
    "many calls": lambda count: (OPEN + CLOSE) * count,
    "white space": lambda count: OPEN + " \n" * count,
}


@pytest.mark.parametrize("kind", WORK)
def test_work_is_linear(kind: str) -> None:
    assert_linear_work(QwenXmlGrammar, WORK[kind], 50)
