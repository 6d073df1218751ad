"""The Hermes grammar: JSON between `<tool_call>` tags, and every known way to get it wrong."""

from __future__ import annotations

import pytest

from moonshim.engine.grammar.protocol import CallDelta, CallEnded, CallStarted, Notice, TextFound
from moonshim.engine.grammar.shared.named_object import EXTRA_LIMIT, HOLD_LIMIT
from tests.engine.grammar.family_runs import SIZES, grammar_of, run, vectors
from tests.support.looped import looped


@pytest.mark.parametrize(
    ("text", "said", "held"),
    [
        ("Hello", "Hello", ""),
        ("Hello <", "Hello ", "<"),
        ("a </tool_call", "a ", "</tool_call"),
        ("a <tool_cats", "a <tool_cats", ""),
        ('a <tool_call>{"name": "ls', "a ", ""),
    ],
)
def test_only_what_may_become_a_marker_is_held(text: str, said: str, held: str) -> None:
    grammar = grammar_of("hermes")
    assert grammar.feed(text) == [TextFound("text", said)]
    assert grammar.held == held


def test_a_call_begins_with_its_arguments_and_they_go_out_as_they_come() -> None:
    grammar = grammar_of("hermes")
    assert grammar.feed('<tool_call>{"name": "ls"') == []
    assert grammar.feed(', "arguments":') == []
    assert grammar.feed(" {") == [CallStarted("text", "", "ls"), CallDelta("{")]
    assert grammar.feed('"a": "x') == [CallDelta('"a": "x')]
    assert grammar.feed(" y") == [CallDelta(" y")]
    assert grammar.feed('"}') == [CallDelta('"}')]
    assert grammar.feed("}") == [CallEnded(True)]
    assert grammar.feed("</tool_call>") == []


@looped("size", [7, 1000, 1_000_000])
def test_an_object_waits_for_its_name_no_longer_than_its_limit(size: int) -> None:
    body = '{"arguments": {"a": "' + "x" * HOLD_LIMIT + '"}, "name": "ls"}'
    first, said = run(grammar_of("hermes"), f"<tool_call>{body}</tool_call>", size)
    assert first == Notice("unreadable_call", "<tool_call>" + body[:HOLD_LIMIT])
    assert said == TextFound("text", body)


@looped("size", SIZES)
def test_a_long_field_that_means_nothing_is_told_in_pieces(size: int) -> None:
    text = '<tool_call>{"name": "ls", "arguments": {}, "x": "' + "y" * 3000 + '"}</tool_call>'
    told = [one.detail for one in run(grammar_of("hermes"), text, size) if isinstance(one, Notice)]
    assert "".join(told) == '"x": "' + "y" * 3000 + '"'
    assert max(map(len, told)) == EXTRA_LIMIT


def test_where_reasoning_has_a_field_of_its_own_think_tags_are_words() -> None:
    grammar = grammar_of("hermes")
    grammar.tags_are_text = True
    assert run(grammar, "Write <think>so</think>.</think>") == [
        TextFound("text", "Write <think>so</think>."),
        Notice("stray_marker", "</think>"),
    ]


def test_after_a_flush_the_grammar_reads_on_as_new() -> None:
    grammar = grammar_of("hermes")
    grammar.feed('<tool_call>{"name": "ls", "arguments": {"a')
    grammar.flush()
    vector = vectors("hermes")["one call"]
    assert run(grammar, vector.text) == vector.found
