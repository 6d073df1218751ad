"""A response is held back until it is what the client demands; reasoning is not, nor what a call makes right."""

from __future__ import annotations

from typing import Any

import pytest

from moonshim.engine.repair.answer_check import AnswerCheck
from moonshim.engine.values.events import BlockClosed, BlockDelta, BlockOpened, Event, Finished, Repaired, Started
from moonshim.engine.values.expected import ExpectedAnswer

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
JSON = ExpectedAnswer(schema=SCHEMA)
REASONING: list[Event] = [BlockOpened(0, "reasoning"), BlockDelta(0, "Hm."), BlockClosed(0)]


def text(*pieces: str, index: int = 1) -> list[Event]:
    return [BlockOpened(index, "text"), *(BlockDelta(index, piece) for piece in pieces), BlockClosed(index)]


def call(name: str, *pieces: str, index: int = 2) -> list[Event]:
    opened = BlockOpened(index, "call", f"functions.{name}:0", name)
    return [opened, *(BlockDelta(index, piece) for piece in pieces), BlockClosed(index)]


def play(check: AnswerCheck, events: list[Event], reason: str = "stop") -> tuple[list[Event], list[Event]]:
    """What passes while the response comes, and what its end releases."""
    passed = [one for event in events for one in check.feed(event)]
    return passed, check.end(Finished(reason))


def test_reasoning_passes_and_the_answer_waits() -> None:
    events = [Started(), *REASONING, *text('{"n"', ": 1}")]
    check = AnswerCheck(JSON)
    assert play(check, events) == ([Started(), *REASONING], text('{"n"', ": 1}"))
    assert check.wrong == ()
    assert check.text is None


def test_what_is_around_the_json_is_removed_and_reported() -> None:
    check = AnswerCheck(JSON)
    _, released = play(check, [*REASONING, *text("Here: ", '{"n": 1}')])
    assert released == [*text('{"n": 1}'), Repaired("structured_output", "text around the JSON removed")]
    assert check.text == '{"n": 1}'


def test_a_wrong_answer_stays_and_can_be_released_as_it_is() -> None:
    check, events = AnswerCheck(JSON), text("One", ".")
    assert play(check, events) == ([], [])
    assert check.wrong == ("the answer is not JSON",)
    assert not check.is_cut_off
    assert check.release() == [*events, Repaired("structured_output_invalid", "the answer is not JSON")]


def test_an_answer_that_was_cut_off_is_not_worth_asking_again() -> None:
    check = AnswerCheck(JSON)
    play(check, text('{"n": '), "length")
    assert check.is_cut_off
    assert check.wrong == ("the response was cut off (length)",)


def test_a_call_is_not_the_answer_yet_and_streams() -> None:
    events = [*text("Let me look."), *call("ls", "{", "}")]
    assert play(AnswerCheck(JSON), events, "tool_calls") == (events, [])


def test_a_forced_call_releases_what_came_before_it() -> None:
    events = [*text("Let me look."), *call("ls", "{", "}")]
    assert play(AnswerCheck(ExpectedAnswer(tool="ls")), events, "tool_calls") == (events, [])
    assert play(AnswerCheck(ExpectedAnswer(tool="")), events, "tool_calls") == (events, [])


@pytest.mark.parametrize("tool", ["get_weather", "", "ls"])
def test_a_forced_call_that_is_missing(tool: str) -> None:
    check = AnswerCheck(ExpectedAnswer(tool=tool))
    assert play(check, text("Sunny.")) == ([], [])
    assert check.wrong == (f"the tool {tool} was not called" if tool else "no tool was called",)
    assert check.release()[-1] == Repaired("forced_call_missing", check.wrong[0])


def test_another_tool_than_the_forced_one_was_called() -> None:
    check = AnswerCheck(ExpectedAnswer(tool="get_weather"))
    assert play(check, call("ls", "{}"), "tool_calls") == ([], [])
    assert check.wrong == ("the tool get_weather was not called",)


def test_the_arguments_of_a_forced_call_are_checked() -> None:
    expected = ExpectedAnswer(tool="pick", arguments=SCHEMA)
    right = call("pick", '{"n"', ": 1}")
    assert play(AnswerCheck(expected), right, "tool_calls") == ([], right)
    check = AnswerCheck(expected)
    assert play(check, call("pick", "{}"), "tool_calls") == ([], [])
    assert check.wrong == ("$: the property 'n' is missing",)
    broken = AnswerCheck(expected)
    play(broken, call("pick", '{"n": '), "tool_calls")
    assert broken.wrong == ("the arguments are not valid JSON",)
