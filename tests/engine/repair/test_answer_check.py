"""A response is held back until there is the call that the client demands; reasoning is not."""

from __future__ import annotations

import pytest

from moonshim.engine.repair.answer_check import AnswerCheck
from moonshim.engine.values.events import BlockClosed, BlockDelta, BlockOpened, Event, Finished, Repaired, Started
from moonshim.engine.values.expected import ExpectedAnswer

REASONING: list[Event] = [BlockOpened(0, "reasoning"), BlockDelta(0, "Hm."), BlockClosed(0)]


def text(*pieces: str, index: int = 1) -> list[Event]:
    return [BlockOpened(index, "text"), *(BlockDelta(index, piece) for piece in pieces), BlockClosed(index)]


def call(name: str, *pieces: str, index: int = 2) -> list[Event]:
    opened = BlockOpened(index, "call", f"functions.{name}:0", name)
    return [opened, *(BlockDelta(index, piece) for piece in pieces), BlockClosed(index)]


def play(check: AnswerCheck, events: list[Event], reason: str = "stop") -> list[Event]:
    """What passes while the response comes."""
    passed = [one for event in events for one in check.feed(event)]
    check.end(Finished(reason))
    return passed


def test_reasoning_passes_and_the_answer_waits() -> None:
    events = [Started(), *REASONING, *text("It rains", ".")]
    assert play(AnswerCheck(ExpectedAnswer(tool="ls")), events) == [Started(), *REASONING]


def test_an_answer_that_was_cut_off_is_not_worth_asking_again() -> None:
    check = AnswerCheck(ExpectedAnswer(tool="ls"))
    play(check, text("It rai"), "length")
    assert check.is_cut_off
    assert check.wrong == ("the response was cut off (length)",)


@pytest.mark.parametrize("arguments", ['{"n": 1}', "{}", '{"n": '])
def test_a_forced_call_releases_what_came_before_it_whatever_its_arguments_are(arguments: str) -> None:
    events = [*text("Let me look."), *call("ls", arguments)]
    for tool in ("ls", ""):
        check = AnswerCheck(ExpectedAnswer(tool=tool))
        assert play(check, events, "tool_calls") == events
        assert not check.wrong


@pytest.mark.parametrize("tool", ["get_weather", "", "ls"])
def test_a_forced_call_that_is_missing(tool: str) -> None:
    check, events = AnswerCheck(ExpectedAnswer(tool=tool)), text("Sunny.")
    assert play(check, events) == []
    wrong = f"the tool {tool} was not called" if tool else "no tool was called"
    assert check.wrong == (wrong,)
    assert check.release() == [*events, Repaired("forced_call_missing", wrong)]


def test_another_tool_than_the_forced_one_was_called() -> None:
    check = AnswerCheck(ExpectedAnswer(tool="get_weather"))
    assert play(check, call("ls", "{}"), "tool_calls") == []
    assert check.wrong == ("the tool get_weather was not called",)
