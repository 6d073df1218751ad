"""The DeepSeek grammar: calls of V3 and of V3.1, and every known way to lose a part of one."""

from __future__ import annotations

import pytest

from moonshim.engine.grammar.deepseek import HEADER_LIMIT
from moonshim.engine.grammar.protocol import CallDelta, CallEnded, CallStarted, Notice, TextFound
from tests.engine.grammar.family_runs import SIZES, grammar_of, run
from tests.support.looped import looped


@pytest.mark.parametrize(
    ("text", "said", "held"),
    [
        ("Hello", "Hello", ""),
        ("Hello <", "Hello ", "<"),
        ("a <｜tool▁calls▁begin｜", "a ", "<｜tool▁calls▁begin｜"),
        ("a <｜tool▁cats", "a <｜tool▁cats", ""),
    ],
)
def test_only_what_may_become_a_marker_is_held(text: str, said: str, held: str) -> None:
    grammar = grammar_of("deepseek")
    assert grammar.feed(text) == [TextFound("text", said)]
    assert grammar.held == held


def test_the_name_goes_out_when_it_is_certain_and_arguments_as_they_come() -> None:
    grammar = grammar_of("deepseek")
    assert grammar.feed("<｜tool▁call▁begin｜>ls") == []
    assert grammar.feed("<｜tool▁sep｜>") == [CallStarted("text", "", "ls")]
    assert grammar.feed('{"a": "x') == [CallDelta('{"a": "x')]
    assert grammar.feed(' y"}') == [CallDelta(' y"}'), CallEnded(True)]
    assert grammar.feed("<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>ls") == []
    assert grammar.feed("\n```js") == [CallStarted("text", "", "ls")]
    assert grammar.feed("on\n{") == [CallDelta("{")]


@looped("size", SIZES)
def test_a_header_over_the_limit_is_text(size: int) -> None:
    text = "x" * (HEADER_LIMIT + 100)
    assert run(grammar_of("deepseek"), f"<｜tool▁call▁begin｜>{text}", size) == [
        Notice("unreadable_call", text[: HEADER_LIMIT + 1]),
        TextFound("text", text),
    ]
