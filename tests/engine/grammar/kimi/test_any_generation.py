"""A Kimi model of unknown generation: the first marker decides, and nothing before it is lost."""

from __future__ import annotations

import pytest

from moonshim.engine.grammar.kimi.any_generation import KimiGrammar
from moonshim.engine.grammar.protocol import CallDelta, CallEnded, CallStarted, GrammarEvent, Notice, TextFound
from moonshim.engine.values.options import ToolTokens
from tests.engine.grammar.family_runs import merged, run
from tests.support.looped import looped

SEP = "<|sep|>"
K2_CALL = "<|tool_call_begin|>functions.ls:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
K2_FOUND: list[GrammarEvent] = [CallStarted("text", "functions.ls:0"), CallDelta("{}"), CallEnded(True)]
K3_CALL = (
    f'<|open|>tools{SEP}<|open|>call tool="ls" index="1"{SEP}'
    f'<|open|>argument key="dir" type="string"{SEP}/tmp<|close|>argument{SEP}<|close|>call{SEP}<|close|>tools{SEP}'
)
K3_FOUND: list[GrammarEvent] = [CallStarted("text", "", "ls"), CallDelta('{"dir": "/tmp"}'), CallEnded(True)]
SIZES = (1, 2, 3, 7, 19, 100_000)


FOUND: dict[str, tuple[str, list[GrammarEvent]]] = {
    "text without markers": ("Hello.", [TextFound("text", "Hello.")]),
    "nothing at all": ("", []),
    "a call of K2": (f"a {K2_CALL} b", [TextFound("text", "a "), *K2_FOUND, TextFound("text", " b")]),
    "a call of K3": (f"a {K3_CALL}b", [TextFound("text", "a "), *K3_FOUND, TextFound("text", "b")]),
    "a think tag of K2": ("<think>Hm.</think>Yes", [TextFound("reasoning", "Hm."), TextFound("text", "Yes")]),
    "think and response of K3": (
        f"<|open|>think{SEP}Hm.<|close|>think{SEP}<|open|>response{SEP}Yes<|close|>response{SEP}",
        [TextFound("reasoning", "Hm."), TextFound("text", "Yes")],
    ),
    "after a marker of K2, those of K3 are text": (
        f"{K2_CALL}a <|open|> b",
        [*K2_FOUND, TextFound("text", "a <|open|> b")],
    ),
    "after a marker of K3, those of K2 are text": (
        f"{K3_CALL}a <|tool_call_begin|> b",
        [*K3_FOUND, TextFound("text", "a <|tool_call_begin|> b")],
    ),
    "an unfinished marker at the end is text": ("Hi <|op", [TextFound("text", "Hi <|op")]),
    "an unknown token is text": ("a <|im_end|> b", [TextFound("text", "a <|im_end|> b")]),
    "a stray marker": (
        "a</think>b",
        [TextFound("text", "a"), Notice("stray_marker", "</think>"), TextFound("text", "b")],
    ),
}


@looped("size", SIZES)
@pytest.mark.parametrize("case", FOUND)
def test_the_first_marker_tells_the_generation_whatever_the_chunking(case: str, size: int) -> None:
    text, found = FOUND[case]
    assert run(KimiGrammar("text"), text, size) == found


@looped("size", SIZES)
def test_a_bare_header_of_a_declared_tool_is_a_call_of_k2(size: int) -> None:
    text = "I run ls:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
    found = run(KimiGrammar("text", names=frozenset({"ls"})), text, size)
    assert found == [TextFound("text", "I run "), CallStarted("text", "ls:0"), CallDelta("{}"), CallEnded(True)]


@looped("size", SIZES)
def test_a_bare_header_that_k3_follows_was_text(size: int) -> None:
    found = run(KimiGrammar("text", names=frozenset({"ls"})), f"I run ls:0{K3_CALL}", size)
    assert found == [TextFound("text", "I run ls:0"), *K3_FOUND]


@looped("size", SIZES)
def test_without_calls_the_wrappers_of_k3_are_still_taken_off(size: int) -> None:
    text = f"<|open|>response{SEP}Yes {K3_CALL}<|close|>response{SEP}"
    assert run(KimiGrammar("text", calls=False), text, size) == [TextFound("text", f"Yes {K3_CALL}")]


@looped("size", SIZES)
def test_without_calls_markers_of_k2_are_text(size: int) -> None:
    assert run(KimiGrammar("text", calls=False), f"a {K2_CALL}", size) == [TextFound("text", f"a {K2_CALL}")]


@looped("size", SIZES)
def test_own_markers_are_those_of_k2(size: int) -> None:
    grammar = KimiGrammar("text", tokens=ToolTokens(call_begin="[[", arg_begin="((", call_end="~~"))
    assert run(grammar, "a [[functions.ls:0(({}~~", size) == [TextFound("text", "a "), *K2_FOUND]


def test_where_reasoning_has_a_field_of_its_own_think_tags_are_words() -> None:
    grammar = KimiGrammar("text")
    assert grammar.tags_are_text is False
    grammar.tags_are_text = True
    assert grammar.tags_are_text is True
    assert run(grammar, "<think>so</think>") == [TextFound("text", "<think>so</think>")]


@looped("size", SIZES)
def test_the_end_of_a_word_stays_when_a_marker_of_k3_stands_before_it(size: int) -> None:
    grammar = KimiGrammar("text")
    grammar.tags_are_text = True
    found = run(grammar, f"<think>a{K3_CALL}b</think>c</think>", size)
    assert found == [
        TextFound("text", "<think>a"),
        *K3_FOUND,
        TextFound("text", "b</think>c"),
        Notice("stray_marker", "</think>"),
    ]


@pytest.mark.parametrize(
    ("text", "said", "held"),
    [
        ("Hello", "Hello", ""),
        ("Hello <|", "Hello ", "<|"),
        ("Hello <|close|", "Hello ", "<|close|"),
        ("run ls", "run ", "ls"),
        ("run ls:0<|", "run ", "ls:0<|"),
    ],
)
def test_only_what_may_become_a_marker_or_a_bare_header_is_held(text: str, said: str, held: str) -> None:
    grammar = KimiGrammar("text", names=frozenset({"ls"}))
    assert merged(grammar.feed(text)) == [TextFound("text", said)]
    assert grammar.held == held


def test_once_the_generation_is_known_its_grammar_tells_what_is_held() -> None:
    k2, k3 = KimiGrammar("text"), KimiGrammar("text")
    k2.feed(K2_CALL + "x<|tool")
    k3.feed(K3_CALL + "x<|ope")
    assert (k2.held, k3.held) == ("<|tool", "<|ope")
