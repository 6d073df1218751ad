"""The steps of a turn on the screen: each thing is printed once, in order, and nothing that can still change."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from moonshim.agent.events import MessageSaved, RoundStarted, RunEnded, Step, ToolEnded, ToolStarted
from moonshim.chat.render.screen import NoticeItem, ReasoningItem, Screen, ScreenItem, TextItem, ToolCallItem
from moonshim.engine.values.conversation import Message, Text, ToolCall, ToolResult
from moonshim.engine.values.events import BlockClosed, BlockDelta, BlockKind, BlockOpened, Failed, Finished, Repaired

LS = ToolCall("hist_tool_1", "bash", '{"command": "ls"}')
CAT = ToolCall("hist_tool_2", "bash", '{"command": "cat x"}')


def block(index: int, kind: BlockKind, *texts: str, call: ToolCall | None = None, closed: bool = True) -> list[Step]:
    call_id, name = (call.id, call.name) if call else (None, None)
    made: list[Step] = [BlockOpened(index, kind, call_id, name)]
    made += [BlockDelta(index, text) for text in texts]
    return [*made, BlockClosed(index)] if closed else made


def result(call: ToolCall, text: str, *, is_error: bool = False) -> ToolEnded:
    return ToolEnded(call, ToolResult(call.id, parts=(Text(text),), is_error=is_error), 1.5)


def fed(steps: Iterable[Step], *, folded: bool = False) -> tuple[Screen, list[ScreenItem]]:
    """Everything is taken after every step, as somebody who looks all the time would."""
    screen, taken = Screen(folded=folded), list[ScreenItem]()
    for step in steps:
        screen.feed(step)
        taken += screen.take()
    return screen, taken


def test_a_paragraph_is_printed_when_the_next_begins() -> None:
    screen, taken = fed(block(0, "text", "One ", "line.\n", "\nTwo", closed=False))
    assert taken == [TextItem("One line.\n\n")]
    assert screen.open_items() == [TextItem("Two", first=False)]


def test_a_fence_and_a_list_stay_together() -> None:
    screen, taken = fed(block(0, "text", "```py\na\n\nb\n", closed=False))
    assert taken == []
    assert screen.open_items() == [TextItem("```py\na\n\nb\n")]
    screen.feed(BlockDelta(0, "```\n- x\n\n- y\n"))
    assert screen.take() == [TextItem("```py\na\n\nb\n```\n")]
    assert screen.open_items() == [TextItem("- x\n\n- y\n", first=False)]


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_all_text_is_printed_once_however_it_comes(size: int) -> None:
    table = "| a | b |\n|---|---|\n| 1 | 2 |"
    text = f"# Head\n\nTwo\nlines.\r\n\r\n1. one\n2. two\n\n```\ncode\n\n```\n\n{table}\n\nEnd."
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    _, taken = fed(block(0, "text", *pieces))
    assert "".join(item.text for item in taken if isinstance(item, TextItem)) == text
    assert [item.first for item in taken if isinstance(item, TextItem)][:2] == [True, False]


def test_reasoning_is_printed_line_by_line() -> None:
    screen, taken = fed(block(0, "reasoning", "first\nsec", "ond\nth", closed=False))
    assert taken == [ReasoningItem("first\n"), ReasoningItem("second\n", first=False)]
    assert screen.open_items() == [ReasoningItem("th", first=False)]


def test_folded_reasoning_is_a_line_and_can_be_asked_for_later() -> None:
    screen, taken = fed(block(0, "reasoning", "one two\n", "three"), folded=True)
    assert taken == [ReasoningItem("", folded=True, words=3)]
    assert screen.hidden == ["one two\nthree"]


def test_what_is_unfolded_in_the_middle_is_shown_from_its_beginning() -> None:
    screen, taken = fed(block(0, "reasoning", "one\n", "two\n", closed=False), folded=True)
    assert taken == []
    assert screen.open_items() == [ReasoningItem("", folded=True, words=2)]
    screen.folded = False
    assert screen.take() == [ReasoningItem("one\ntwo\n")]


def test_what_is_folded_in_the_middle_goes_on_as_it_began() -> None:
    screen, _ = fed(block(0, "reasoning", "one\n", closed=False))
    screen.folded = True
    screen.feed(BlockDelta(0, "two"))
    screen.feed(BlockClosed(0))
    assert screen.take() == [ReasoningItem("two", first=False)]


def test_a_call_grows_and_is_printed_with_its_result() -> None:
    screen, taken = fed([RoundStarted(1, "kimi"), *block(0, "call", '{"comm', 'and": "ls"}', call=LS)])
    assert taken == []
    assert screen.open_items() == [ToolCallItem("bash", LS.arguments, "whole")]
    screen.feed(ToolStarted(LS))
    assert screen.open_items() == [ToolCallItem("bash", LS.arguments, "running")]
    screen.feed(result(LS, "a b"))
    assert screen.take() == [ToolCallItem("bash", LS.arguments, "done", "a b", False, 1.5)]
    assert screen.open_items() == []


def test_parallel_calls_are_printed_in_their_order_each_with_its_result() -> None:
    steps: list[Step] = [
        RoundStarted(1, "kimi"),
        BlockOpened(0, "call", LS.id, "bash"),
        BlockOpened(1, "call", CAT.id, "bash"),
        BlockDelta(1, CAT.arguments),
        BlockDelta(0, LS.arguments),
        BlockClosed(0),
        BlockClosed(1),
        Finished("tool_calls"),
        MessageSaved(Message("assistant", (LS, CAT))),
        ToolStarted(LS),
        ToolStarted(CAT),
        result(LS, "files"),
        result(CAT, "words", is_error=True),
    ]
    _, taken = fed(steps)
    assert taken == [
        ToolCallItem("bash", LS.arguments, "done", "files", False, 1.5),
        ToolCallItem("bash", CAT.arguments, "done", "words", True, 1.5),
    ]


def test_a_result_without_a_block_is_shown_all_the_same() -> None:
    _, taken = fed([result(LS, "files")])
    assert taken == [ToolCallItem("bash", LS.arguments, "done", "files", False, 1.5)]


def test_the_text_of_the_next_round_comes_behind_the_results_of_this_one() -> None:
    steps = [
        RoundStarted(1, "kimi"),
        *block(0, "text", "I look."),
        *block(1, "call", LS.arguments, call=LS),
        ToolStarted(LS),
        result(LS, "files"),
        RoundStarted(2, "kimi"),
        *block(0, "text", "Done."),
        RunEnded("answered"),
    ]
    _, taken = fed(steps)
    assert [type(item) for item in taken] == [TextItem, ToolCallItem, TextItem]


def test_a_failure_breaks_off_what_came_and_is_told_once() -> None:
    steps = [
        RoundStarted(1, "kimi"),
        *block(0, "text", "Half", closed=False),
        *block(1, "call", '{"comm', call=LS, closed=False),
        Failed("upstream_broke", "the connection was lost"),
        RunEnded("failed", detail="the connection was lost; /retry asks again"),
    ]
    _, taken = fed(steps)
    assert taken == [
        TextItem("Half"),
        ToolCallItem("bash", '{"comm', "broken"),
        NoticeItem("the connection was lost; /retry asks again", "failed"),
    ]


def test_what_was_stopped_in_the_middle_stays_as_it_was() -> None:
    screen, taken = fed([RoundStarted(1, "kimi"), *block(0, "call", LS.arguments, call=LS), ToolStarted(LS)])
    assert taken == []
    screen.end()
    assert screen.take() == [ToolCallItem("bash", LS.arguments, "broken")]
    assert screen.open_items() == []


def test_it_waits_until_something_comes() -> None:
    screen, _ = fed([RoundStarted(1, "kimi")])
    assert screen.is_waiting
    screen.feed(BlockOpened(0, "text"))
    assert not screen.is_waiting


def test_repairs_are_counted() -> None:
    screen, taken = fed([Repaired("markers"), Repaired("ids")])
    assert taken == []
    assert [one.rule for one in screen.repairs] == ["markers", "ids"]
