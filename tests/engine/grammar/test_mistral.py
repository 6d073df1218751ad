"""The Mistral grammar: the list of objects, the name before its arguments, and reasoning."""

from __future__ import annotations

import pytest

from moonshim.engine.grammar.mistral import HEADER_LIMIT
from moonshim.engine.grammar.protocol import CallDelta, CallEnded, CallStarted, Notice, TextFound
from tests.engine.grammar.family_runs import SIZES, grammar_of, run
from tests.support.looped import looped


@pytest.mark.parametrize(
    ("text", "said", "held"),
    [
        ("Hello", "Hello", ""),
        ("Hello [", "Hello ", "["),
        ("a [TOOL_CALLS", "a ", "[TOOL_CALLS"),
        ("a [TOOLS", "a [TOOLS", ""),
    ],
)
def test_only_what_may_become_a_marker_is_held(text: str, said: str, held: str) -> None:
    grammar = grammar_of("mistral")
    assert grammar.feed(text) == [TextFound("text", said)]
    assert grammar.held == held


def test_the_name_goes_out_when_it_is_certain_and_arguments_as_they_come() -> None:
    grammar = grammar_of("mistral")
    assert grammar.feed("[TOOL_CALLS]ls[CALL_ID]abc") == []
    assert grammar.feed("[ARGS]") == [CallStarted("text", "abc", "ls")]
    assert grammar.feed('{"a": "x') == [CallDelta('{"a": "x')]
    assert grammar.feed(" y") == [CallDelta(" y")]
    assert grammar.feed('"}') == [CallDelta('"}'), CallEnded(True)]


@looped("size", SIZES)
def test_a_header_over_the_limit_is_text(size: int) -> None:
    text = "x" * (HEADER_LIMIT + 100)
    assert run(grammar_of("mistral"), f"[TOOL_CALLS]{text}", size) == [
        Notice("unreadable_call", "[TOOL_CALLS]" + text[: HEADER_LIMIT + 1]),
        TextFound("text", text),
    ]
