"""Whatever two conversations say, neither gets the thoughts of the other, unless all that they say is the same."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.engine.reasoning_cache.clients import DIALECTS, Memory, Step, Style
from tests.support.profiles import examples

_words: Final = st.sampled_from(("a", "b"))
_calls: Final = st.lists(st.tuples(st.sampled_from(("ls", "cat")), st.sampled_from(("{}", '{"p": 1}'))), max_size=2)


@st.composite
def _step(draw: st.DrawFn) -> Step:
    """Few words, so that conversations are often alike. Every other step is a round of calls."""
    calls = tuple(draw(_calls))
    return Step(draw(_words), draw(_words), calls, tuple(draw(_words) for _ in calls))


_steps: Final = st.lists(_step(), min_size=1, max_size=5)


@st.composite
def _pairs(draw: st.DrawFn) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """Two conversations that often have a beginning, an end, or all but one step in common."""
    one = draw(_steps)
    other = list(one)
    match draw(st.sampled_from(("edited", "cut", "unlike", "same"))):
        case "edited":
            place = draw(st.integers(0, len(one) - 1))
            other[place] = draw(_step())
        case "cut":
            other = [*draw(st.lists(_step(), max_size=2)), *one[draw(st.integers(0, len(one) - 1)) :]]
        case "unlike":
            other = draw(_steps)
    return _thinking(one, "one"), _thinking(other, "other")


def _thinking(steps: list[Step], name: str) -> tuple[Step, ...]:
    return tuple(replace(step, thought=f"{name} {n}") for n, step in enumerate(steps))


def _messages(steps: tuple[Step, ...]) -> list[tuple[str, object]]:
    """What is said, message by message, nearest first."""
    out: list[tuple[str, object]] = []
    for step in steps:
        out += [("text", ("user", step.user)), ("calls" if step.calls else "text", ("model", step.text, step.calls))]
        out += [("results", step.results)] if step.calls else []
        # Of a step, the results come before the words of the next one; they are part of the next question.
    return out[::-1]


def _could_be(mine: tuple[Step, ...], theirs: tuple[Step, ...]) -> bool:
    """Whether the last answer of one conversation may be taken for that of the other, by the words of the issue."""
    one, other = _messages(mine), _messages(theirs)
    if one == other:
        return True
    equal = 0
    while equal < min(len(one), len(other)) and one[equal] == other[equal]:
        equal += 1
    before = one[equal:]
    turns = sum(message[1][0] == "model" for message in one[:equal] if isinstance(message[1], tuple) and message[1])
    is_summary = 1 <= len(before) <= 2 and all(kind == "text" for kind, _ in before)
    # The answer itself, and two turns before it.
    return is_summary and turns >= 3 and len(other) > len(one)


def _without_results(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Up to the last answer: what its calls gave came later."""
    return (*steps[:-1], replace(steps[-1], results=()))


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=examples(60))
@given(pair=_pairs())
def test_two_conversations_that_were_both_heard_keep_their_own(
    dialect: str, pair: tuple[tuple[Step, ...], tuple[Step, ...]]
) -> None:
    memory = Memory()
    for steps in pair:
        memory.hear(dialect, steps)
    one, other = pair
    for mine, theirs in ((one, other), (other, one)):
        found = memory.thoughts(dialect, mine, style=Style(ids="x{}"))
        for n, thought in enumerate(found):
            same = _bare(mine[: n + 1]) == _bare(theirs[: n + 1])
            assert thought == (None if same else mine[n].thought)


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=examples(60))
@given(pair=_pairs())
def test_a_conversation_that_nobody_heard_gets_nothing_but_what_it_said_itself(
    dialect: str, pair: tuple[tuple[Step, ...], tuple[Step, ...]]
) -> None:
    heard, strange = pair
    memory = Memory()
    memory.hear(dialect, heard)
    for n, thought in enumerate(memory.thoughts(dialect, strange)):
        possible = [
            heard[place].thought
            for place in range(len(heard))
            if _could_be(_without_results(strange[: n + 1]), _without_results(heard[: place + 1]))
        ]
        assert thought in (None, *possible)
        if _bare(heard[: n + 1]) == _bare(strange[: n + 1]):
            assert thought == heard[n].thought


def _bare(steps: tuple[Step, ...]) -> list[Step]:
    return [replace(step, thought="") for step in _without_results(steps)]
