"""The Python grammar: lists of calls, and the literals in them as JSON."""

from __future__ import annotations

import json

import pytest

from moonshim.engine.grammar.protocol import CallDelta, CallEnded, CallStarted, Notice, TextFound
from moonshim.engine.grammar.pythonic import HEADER_LIMIT
from moonshim.engine.grammar.shared.python_arguments import HOLD_LIMIT
from tests.engine.grammar.family_runs import SIZES, grammar_of, run
from tests.support.looped import looped


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("Hi [", "["),
        ("Hi [read", "[read"),
        ("Hi [reads", ""),
        ("Hi [ls(dir", "[ls(dir"),
        ("Hi [ls(dir=", ""),
        ("list[", ""),
        ("a <|python_st", "<|python_st"),
    ],
)
def test_a_list_is_held_only_while_it_may_be_one_of_calls(text: str, held: str) -> None:
    grammar = grammar_of("pythonic")
    found = grammar.feed(text)
    assert grammar.held == held
    said = "".join(one.text for one in found if isinstance(one, TextFound))
    assert said + held == text or CallStarted("text", "", "ls") in found


def test_strings_and_containers_go_out_as_they_come() -> None:
    grammar = grammar_of("pythonic")
    assert grammar.feed("[ls(a='x") == [CallStarted("text", "", "ls"), CallDelta('{"a": "x')]
    assert grammar.feed(" y") == [CallDelta(" y")]
    assert grammar.feed("', b=[1, 'z") == [CallDelta('", "b": [1, "z')]
    assert grammar.feed("'], c=12") == [CallDelta('"], "c": ')]
    assert grammar.feed("3)") == [CallDelta("123}"), CallEnded(True)]


@looped("size", SIZES)
def test_a_word_over_the_limit_is_a_string(size: int) -> None:
    word = "x" * (HOLD_LIMIT + 500)
    found = run(grammar_of("pythonic"), f"[ls(a={word}, b=1)]", size)
    assert found[1:4] == [
        CallDelta('{"a": '),
        Notice("value_as_string", word[:HOLD_LIMIT]),
        CallDelta(f'"{word}", "b": 1}}'),
    ]


@looped("size", SIZES)
def test_a_list_over_the_limit_is_text(size: int) -> None:
    text = "[" + " " * HEADER_LIMIT + "ls()]"
    assert run(grammar_of("pythonic"), text, size) == [TextFound("text", text)]


VALUES: dict[str, object] = {
    "1": 1,
    "-2.5": -2.5,
    "'a'": "a",
    "[1, 'b', None]": [1, "b", None],
    "{'a': {'b': (True, False)}}": {"a": {"b": [True, False]}},
    "{1: 2, 'x': []}": {"1": 2, "x": []},
    "{'a', 'b'}": ["a", "b"],
    "{(1, 2)}": [[1, 2]],
    '"""a"b"""': 'a"b',
    "''": "",
    "'a' 'b'": "ab",
    r"'\n\t\'\x41\u00e9\N'": "\n\t'Aé\\N",
    r"r'\n'": r"\n",
    "'a\\\nb'": "ab",
    "0b101": 5,
    "1e5": 1e5,
}


@looped("size", SIZES)
@pytest.mark.parametrize("value", VALUES)
def test_a_literal_is_the_same_in_json(value: str, size: int) -> None:
    found = run(grammar_of("pythonic"), f"[ls(a={value})]", size)
    (arguments,) = [one.text for one in found if isinstance(one, CallDelta)]
    assert json.loads(arguments) == {"a": VALUES[value]}
