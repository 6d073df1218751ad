"""Events of one choice become as few deltas as keep their order."""

from __future__ import annotations

import pytest

from moonshim.engine.dialects.openai_chat.segments import Segment, SegmentBuilder
from moonshim.engine.values.events import (
    BlockClosed,
    BlockDelta,
    BlockOpened,
    CallPiece,
    Event,
    Failed,
    Finished,
    Repaired,
)

NUMBERS = {2: 0, 3: 1}
"""Blocks 2 and 3 are calls."""
STOP, FAILED = Finished("stop", "stop"), Failed("overloaded", "Try again.")


def called(block: int, name: str, *, native: bool = False) -> BlockOpened:
    return BlockOpened(block, "call", f"functions.{name}:0", name, {} if native else None)


def piece(number: int, name: str, arguments: str = "", *, native: bool = False) -> CallPiece:
    return CallPiece(number, f"functions.{name}:0", name, arguments, {}, "" if native else "read from markers")


def only(number: int, arguments: str) -> CallPiece:
    return CallPiece(number, None, None, arguments)


TEXT, REASONING = BlockOpened(1, "text"), BlockOpened(0, "reasoning")

BUILT: dict[str, tuple[list[Event], list[Segment]]] = {
    "nothing": ([], []),
    "what no client sees": ([Repaired("framing"), BlockClosed(0)], []),
    "text": ([TEXT, BlockDelta(1, "a"), BlockDelta(1, "b")], [Segment("", "ab")]),
    "reasoning, then text": ([REASONING, BlockDelta(0, "a"), TEXT, BlockDelta(1, "b")], [Segment("a", "b")]),
    "text, then reasoning": (
        [TEXT, BlockDelta(1, "b"), REASONING, BlockDelta(0, "a")],
        [Segment("", "b"), Segment("a")],
    ),
    "a native call whole in one delta": (
        [called(2, "ls", native=True), BlockDelta(2, "{"), BlockDelta(2, "}")],
        [Segment(calls=[piece(0, "ls", "{}", native=True)])],
    ),
    "two native calls in one delta": (
        [called(2, "ls", native=True), BlockDelta(2, "{}"), called(3, "rm", native=True), BlockDelta(3, "{")],
        [Segment(calls=[piece(0, "ls", "{}", native=True), piece(1, "rm", "{", native=True)])],
    ),
    "text, then a native call": (
        [TEXT, BlockDelta(1, "a"), called(2, "ls", native=True)],
        [Segment("", "a", [piece(0, "ls", native=True)])],
    ),
    "a call from markers gets a header of its own": (
        [TEXT, BlockDelta(1, "a"), called(2, "ls"), BlockDelta(2, "{}")],
        [Segment("", "a"), Segment(calls=[piece(0, "ls")]), Segment(calls=[only(0, "{}")])],
    ),
    "two calls from markers": (
        [called(2, "ls"), BlockDelta(2, "{}"), called(3, "rm"), BlockDelta(3, "{"), BlockDelta(3, "}")],
        [
            Segment(calls=[piece(0, "ls")]),
            Segment(calls=[only(0, "{}")]),
            Segment(calls=[piece(1, "rm")]),
            Segment(calls=[only(1, "{}")]),
        ],
    ),
    "text behind a call": (
        [BlockDelta(2, "}"), TEXT, BlockDelta(1, "a")],
        [Segment(calls=[only(0, "}")]), Segment("", "a")],
    ),
    "arguments of two calls": ([BlockDelta(2, "a"), BlockDelta(3, "b")], [Segment(calls=[only(0, "a"), only(1, "b")])]),
    "the end goes with the last": ([TEXT, BlockDelta(1, "a"), STOP], [Segment("", "a", [], STOP)]),
    "the end alone": ([STOP], [Segment(ending=STOP)]),
    "an error": ([BlockDelta(2, "{"), FAILED], [Segment(calls=[only(0, "{")], ending=FAILED)]),
}


@pytest.mark.parametrize("case", BUILT)
def test_events_become_as_few_deltas_as_keep_the_order(case: str) -> None:
    events, segments = BUILT[case]
    assert SegmentBuilder(NUMBERS).build(events) == segments


def test_the_channel_that_speaks_is_remembered_from_frame_to_frame() -> None:
    builder = SegmentBuilder(NUMBERS)
    builder.build([REASONING])
    assert builder.build([BlockDelta(0, "a")]) == [Segment("a")]
    assert builder.build([BlockClosed(0), TEXT, BlockDelta(1, "b")]) == [Segment("", "b")]
    assert builder.build([BlockDelta(1, "c")]) == [Segment("", "c")]


@pytest.mark.parametrize(
    ("segment", "nothing"),
    [
        (Segment(), True),
        (Segment(ending=STOP), True),
        (Segment("a"), False),
        (Segment("", "a"), False),
        (Segment(calls=[only(0, "")]), False),
    ],
)
def test_a_segment_with_nothing_but_an_end_says_nothing(segment: Segment, nothing: bool) -> None:
    assert segment.says_nothing is nothing
