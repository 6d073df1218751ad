"""The laws for each marker family by itself: chunking, nothing lost, promptness, linear work."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.engine.grammar.protocol import (
    CallDelta,
    CallEnded,
    CallLost,
    CallResumed,
    CallStarted,
    Grammar,
    GrammarEvent,
    Notice,
    OrphanStarted,
    TextFound,
)
from tests.engine.grammar.family_runs import SIZES, TOOLS, Vector, grammar_of, run
from tests.laws.test_linear import assert_linear, calls_made

COMMON: Final = (
    *'"\\{}[]:,() \n<`=;é',
    '"name": "ls"',
    '"name": "rm", ',
    '"arguments": ',
    '"parameters": {"a": ',
    '"id": "c1"',
    '"type": "function"',
    '"function": ',
    '{"name": "ls", "arguments": {"a": "b"}}',
    '{"arguments": {"x": [1]}, "name": "read_file"}',
    "<think>",
    "</think>",
    "null",
    "hello",
    "ls",
)
FAMILIES: Final = {
    "hermes": ("<tool_call>", "</tool_call>", '<tool_call>{"name": "ls", "arguments": '),
    "deepseek": (
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁end｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁call▁end｜>",
        "<｜tool▁sep｜>",
        "<｜tool▁call▁begin｜>ls<｜tool▁sep｜>",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>ls\n```json\n",
        "function",
        "```",
    ),
    "llama_json": ("<|python_tag|>", '{"name": "ls", "parameters": {"a": 1}}', "; "),
    "mistral": (
        "[TOOL_CALLS]",
        "[ARGS]",
        "[CALL_ID]",
        "[THINK]",
        "[/THINK]",
        "[TOOL_CALLS]ls[ARGS]",
        '[TOOL_CALLS][{"name": "ls", "arguments": ',
    ),
    "pythonic": (
        "<|python_start|>",
        "<|python_end|>",
        "[ls(",
        "a=",
        ", b='x'",
        "'",
        '"""',
        "\\x4",
        "\\u00e9",
        "\\12",
        "True",
        "-1.",
        'r"',
        "{1, 2}",
        "{'k': 1, 2: 'x'}",
        "(1,)",
        '[ls(a="x", b=[1, 2])]',
    ),
}
"""What the texts of each family are made of, besides `COMMON`."""
LONGEST: Final = {
    family: max(map(len, (*_tags, "</think>")))
    for family, _tags in {
        "hermes": ("</tool_call>",),
        "deepseek": ("<｜tool▁calls▁begin｜>",),
        "llama_json": ("<|python_tag|>",),
        "mistral": ("[TOOL_CALLS]",),
        "pythonic": ("<|python_start|>",),
    }.items()
}
"""The longest marker of each family."""
CALLS: Final = {
    "hermes": ('<tool_call>{"name": "ls", "arguments": ', "}</tool_call>"),
    "deepseek": ("<｜tool▁call▁begin｜>ls<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
    "llama_json": ('{"name": "ls", "parameters": ', "}"),
    "mistral": ("[TOOL_CALLS]ls[ARGS]", ""),
}
"""What stands before and behind the arguments of a call."""

families = st.sampled_from(sorted(FAMILIES))
ways = st.lists(st.integers(1, 9), min_size=1, max_size=5)


@st.composite
def texts(draw: st.DrawFn) -> tuple[str, str]:
    family = draw(families)
    pieces = st.one_of(st.sampled_from(FAMILIES[family]), st.sampled_from(COMMON))
    return family, "".join(draw(st.lists(pieces, max_size=14)))


def vectors() -> st.SearchStrategy[Vector]:
    return st.builds(
        Vector,
        name=st.just(""),
        text=st.just(""),
        found=st.just([]),
        tools=st.sampled_from([TOOLS, None]),
        channel=st.sampled_from(["text", "reasoning"]),
        calls=st.sampled_from([True, True, True, False]),
    )


@given(texts(), ways, vectors())
def test_chunking_is_invisible(made: tuple[str, str], sizes: list[int], asked: Vector) -> None:
    family, text = made
    assert run(grammar_of(family, asked), text, sizes) == run(grammar_of(family, asked), text)


@given(texts(), ways, vectors())
def test_calls_are_balanced_and_nothing_is_said_inside_of_one(
    made: tuple[str, str], sizes: list[int], asked: Vector
) -> None:
    family, text = made
    is_open = False
    for one in run(grammar_of(family, asked), text, sizes):
        match one:
            case CallStarted():
                assert not is_open
                is_open = True
            case CallDelta():
                assert is_open
            case CallEnded():
                assert is_open
                is_open = False
            case TextFound():
                assert not is_open
                assert one.text
            case Notice():
                pass
    assert not is_open


@given(families, st.lists(st.sampled_from(COMMON), max_size=12), ways)
def test_without_calls_everything_but_the_tags_is_said(family: str, pieces: list[str], sizes: list[int]) -> None:
    text = "".join(piece for piece in pieces if "think" not in piece)
    found = run(grammar_of(family, Vector("", "", [], calls=False)), text, sizes)
    assert found == ([TextFound("text", text)] if text else [])


# -- nothing lost ----------------------------------------------------------------------------------------------

_WORD: Final = re.compile(r"w[0-9]+w")


@given(texts(), st.data(), vectors())
def test_every_word_comes_out_somewhere(made: tuple[str, str], data: st.DataObject, asked: Vector) -> None:
    """Words are strewn over a text: each is said, in the arguments, in a name, or told."""
    family, text = made
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)), reverse=True)
    for number, place in enumerate(places):
        text = text[:place] + f"w{number}w" + text[place:]
    words = set(_WORD.findall(text))
    assert words <= set(_WORD.findall(" ".join(map(_told, run(grammar_of(family, asked), text)))))


def _told(one: GrammarEvent) -> str:
    match one:
        case CallStarted():
            return f"{one.header} {one.name}"
        case Notice():
            return one.detail
        case CallEnded() | CallResumed():
            return ""
        case OrphanStarted():
            return one.line
        case CallLost():
            return one.raw
        case _:
            return one.text


# -- promptness ------------------------------------------------------------------------------------------------


@given(families, st.text(alphabet='ab <[|｜{"\n_T', max_size=60))
def test_speech_is_held_only_while_it_may_become_a_marker(family: str, text: str) -> None:
    grammar = grammar_of(family, Vector("", "", [], tools=None))
    said = ""
    for place, letter in enumerate("x" + text):
        said += "".join(one.text for one in grammar.feed(letter) if isinstance(one, TextFound))
        assert said + grammar.held == ("x" + text)[: place + 1]
        assert len(grammar.held) < LONGEST[family]


values = st.recursive(
    st.sampled_from(["1", "true", '"a\\\\b"', '"</tool_call> [ARGS]"', '""']),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.lists(inner, max_size=3).map(lambda items: "{" + ", ".join(f'"k": {item}' for item in items) + "}"),
    ),
    max_leaves=6,
)


@given(st.sampled_from(sorted(CALLS)), values.map(lambda value: f'{{"v": {value}}}'))
def test_arguments_go_out_letter_by_letter(family: str, arguments: str) -> None:
    before, behind = CALLS[family]
    grammar = grammar_of(family)
    grammar.feed(before)
    grown = ""
    for place, letter in enumerate(arguments):
        grown += "".join(one.text for one in grammar.feed(letter) if isinstance(one, CallDelta))
        assert grown == arguments[: place + 1]
    rest = [*grammar.feed(behind), *grammar.flush()]
    assert [one for one in rest if isinstance(one, TextFound | Notice | CallDelta)] == []


@given(st.text(alphabet="ab \n,)]}é", min_size=1, max_size=40))
def test_a_python_string_goes_out_letter_by_letter(text: str) -> None:
    grammar = grammar_of("pythonic")
    grammar.feed('[ls(a=["x')
    for letter in text:
        (grew,) = grammar.feed(letter)
        assert grew == CallDelta("\\n" if letter == "\n" else letter)


# -- linear work -----------------------------------------------------------------------------------------------

GROWING: Final[dict[str, Callable[[int], str]]] = {
    "speech": lambda size: "word <b> [x] " * size,
    "starts": lambda size: "<" * size + "[" * size,
    "space": lambda size: " \n" * size,
    "a long string": lambda size: '{"a": "' + "x\\n" * size,
    "a deep value": lambda size: '{"a": ' + "[" * size,
    "many values": lambda size: '{"a": [' + '"x", <, ' * size,
    "half a key": lambda size: '{"' + "x" * size,
    "many fields": lambda size: "{" + '"x": "y", ' * size,
    "arguments without a name": lambda size: '{"arguments": {"a": "' + "x" * size,
}


def feed_all(grammar: Grammar, text: str, step: int) -> None:
    for at in range(0, len(text), step):
        grammar.feed(text[at : at + step])
    grammar.flush()


@pytest.mark.parametrize("step", [1, 1_000_000], ids=["by letters", "at once"])
@pytest.mark.parametrize("kind", GROWING)
@pytest.mark.parametrize("family", FAMILIES)
def test_work_grows_with_the_text_and_no_faster(family: str, kind: str, step: int) -> None:
    lead = FAMILIES[family][0] if kind != "speech" else ""

    def work(size: int) -> int:
        text = lead + GROWING[kind](size)
        return calls_made(lambda: feed_all(grammar_of(family), text, step))

    assert_linear(work, 400)


@pytest.mark.parametrize("family", FAMILIES)
def test_many_markers_are_read_once(family: str) -> None:
    def work(size: int) -> int:
        text = "".join(FAMILIES[family]) * size
        return calls_made(lambda: feed_all(grammar_of(family), text, SIZES[3]))

    assert_linear(work, 60)
