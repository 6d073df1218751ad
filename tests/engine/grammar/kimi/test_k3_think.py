"""Think tags of K2 in the text of K3, at any chunking: orphan ends are taken away, pairs are words."""

from __future__ import annotations

import pytest

from moonshim.engine.grammar.kimi.k3 import KimiK3Grammar
from moonshim.engine.grammar.protocol import CallDelta, CallEnded, CallStarted, Channel, GrammarEvent, Notice, TextFound
from tests.engine.grammar.family_runs import by_size
from tests.engine.grammar.kimi.test_k3 import (
    CALL,
    END_CALL,
    END_THINK,
    END_TOOLS,
    RESPONSE,
    THINK,
    TOOLS,
    argument,
    run,
    said,
    stray,
    thought,
)
from tests.support.looped import looped

ORPHAN = stray("</think>")
NO_CALL: list[GrammarEvent] = [CallStarted("text", "", "ls"), CallDelta("{}"), CallEnded(closed=True)]

CASES: dict[str, tuple[str, list[GrammarEvent]]] = {
    "an orphan": ("a</think> b", [said("a"), ORPHAN, said(" b")]),
    "two orphans": ("</think></think>b", [ORPHAN, ORPHAN, said("b")]),
    "an orphan does not change the channel": (
        f"{THINK}hm</think>so{END_THINK}{RESPONSE}Hi",
        [thought("hm"), ORPHAN, thought("so"), said("Hi")],
    ),
    "a pair is two words": ("<think>a</think>b</think>", [said("<think>a</think>b"), ORPHAN]),
    "white space around an orphan between tags is nobody's": (
        f"{TOOLS}\n</think>\n{CALL}{END_CALL}{END_TOOLS}",
        [ORPHAN, *NO_CALL],
    ),
    "an end in a value is its text": (
        CALL + argument("s", "</think>") + END_CALL,
        [CallStarted("text", "", "ls"), CallDelta('{"s": "</think>"}'), CallEnded(closed=True)],
    ),
    "what only begins like an end is text": ("a </thin</ <t <|</thinks>", [said("a </thin</ <t <|</thinks>")]),
}


@looped("size", [1, 2, 3, 5, 8, 1000])
@pytest.mark.parametrize("case", CASES)
def test_think_tags_at_any_chunking(case: str, size: int) -> None:
    text, found = CASES[case]
    assert run(by_size(text, size)) == found


@pytest.mark.parametrize("channel", ["text", "reasoning"])
@pytest.mark.parametrize("calls", [True, False])
def test_an_orphan_goes_from_every_field_with_calls_and_without(channel: Channel, calls: bool) -> None:
    found = run("a</think>b", channel, calls=calls)
    assert found == [TextFound(channel, "a"), Notice("stray_marker", "</think>"), TextFound(channel, "b")]


@looped("size", range(1, len("</think>")))
def test_only_what_may_become_the_end_is_held(size: int) -> None:
    grammar = KimiK3Grammar("text")
    assert grammar.feed("a " + "</think>"[:size]) == [said("a ")]
    assert grammar.held == "</think>"[:size]
    assert grammar.feed("!") == [said("</think>"[:size] + "!")]
