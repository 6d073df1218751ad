"""The grammar of Llama 3: objects that are calls by the tag, or by their place and their name."""

from __future__ import annotations

import pytest

from moonshim.engine.grammar.protocol import CallDelta, CallEnded, CallStarted, TextFound
from moonshim.engine.grammar.shared.text_buffer import GAP_LIMIT
from tests.engine.grammar.family_runs import SIZES, grammar_of, run
from tests.support.looped import looped


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ('{"na', '{"na'),
        ('{"name": "read', '{"name": "read'),
        ('{"name": "reads', ""),
        ('{"nb', ""),
        ('{"name": "ls", "parameters": ', '{"name": "ls", "parameters": '),
        ('{"name": "ls", "parameters": {', ""),
        ("a <|python_t", "<|python_t"),
        ("a {", ""),
    ],
)
def test_a_bare_object_is_held_only_while_it_may_be_a_call(text: str, held: str) -> None:
    grammar = grammar_of("llama_json")
    found = grammar.feed(text)
    assert grammar.held == held
    said = "".join(one.text for one in found if isinstance(one, TextFound))
    assert said + held == text or CallStarted("text", "", "ls") in found


def test_arguments_go_out_as_they_come() -> None:
    grammar = grammar_of("llama_json")
    assert grammar.feed('{"name": "ls", "parameters": {"a') == [CallStarted("text", "", "ls"), CallDelta('{"a')]
    assert grammar.feed('": "x') == [CallDelta('": "x')]
    assert grammar.feed('"}') == [CallDelta('"}')]
    assert grammar.feed("}") == [CallEnded(True)]


@looped("size", SIZES)
def test_separators_wait_no_longer_than_their_limit(size: int) -> None:
    text = " ;" * GAP_LIMIT
    found = run(grammar_of("llama_json"), '{"name": "ls", "parameters": {}}' + text, size)
    assert found[2:] == [CallEnded(True), TextFound("text", text)]
