"""The stages of a chain: what goes in balanced comes out balanced, whatever they do."""

from __future__ import annotations

from typing import Any, Final

import pytest

from moonshim.engine.stages import Stage, StageChain
from moonshim.engine.values.events import (
    BlockClosed,
    BlockDelta,
    BlockOpened,
    BlockSigned,
    Event,
    Failed,
    Finished,
    Repaired,
    Started,
)
from tests.transformers.plugged import Each, Passing

ANSWER: Final[list[Event]] = [
    Started("x"),
    BlockOpened(0, "reasoning"),
    BlockDelta(0, "hm"),
    BlockSigned(0, "sig"),
    BlockClosed(0),
    Repaired("id_form", "x"),
    BlockOpened(1, "call", "functions.ls:0", "ls"),
    BlockDelta(1, "{}"),
    BlockClosed(1),
    Finished("tool_calls"),
]


def run(*stages: Stage, events: list[Event] = ANSWER) -> tuple[list[Event], StageChain]:
    chain = StageChain((f"T{n}", stage) for n, stage in enumerate(stages))
    return [told for event in events for told in chain.feed(event)], chain


def test_no_stages_are_no_chain() -> None:
    told, chain = run()
    assert told == ANSWER
    assert not chain


def test_stages_that_pass_everything_change_nothing() -> None:
    told, chain = run(Passing(), Passing())
    assert told == ANSWER
    assert chain
    assert chain.failure is None


def test_each_stage_sees_what_the_one_before_it_told() -> None:
    def adding(letter: str) -> Each:
        return Each(lambda e: [BlockDelta(e.index, e.text + letter)] if isinstance(e, BlockDelta) else [e])

    told, _ = run(adding("a"), adding("b"))
    assert [event.text for event in told if isinstance(event, BlockDelta)] == ["hmab", "{}ab"]


class Keeping(Passing):
    """Keeps everything back until the answer is over."""

    def __init__(self) -> None:
        self.kept: list[Event] = []

    def feed(self, event: Event) -> list[Event]:
        if isinstance(event, Finished):
            return [event]
        self.kept.append(event)
        return []

    def flush(self) -> list[Event]:
        return self.kept


def test_what_was_kept_back_is_told_before_the_ending() -> None:
    told, _ = run(Keeping(), Passing(), Keeping())
    assert told == ANSWER


def test_an_ending_that_was_swallowed_comes_all_the_same() -> None:
    told, _ = run(Each(lambda e: [] if isinstance(e, Finished) else [e]))
    assert told == ANSWER


def test_a_stage_may_say_otherwise_how_an_answer_ends() -> None:
    told, _ = run(Each(lambda e: [Finished("stop")] if isinstance(e, Finished) else [e]))
    assert told[-1] == Finished("stop")


def test_a_failure_stays_one() -> None:
    broke = Failed("upstream_broke", "gone")
    told, chain = run(Each(lambda e: [Finished("stop")] if isinstance(e, Failed) else [e]), events=[Started(), broke])
    assert told == [Started(), broke]
    assert chain.failure is None


def test_a_block_may_be_left_out_put_in_or_given_another_number() -> None:
    def work(event: Event) -> list[Event]:
        if isinstance(event, Started):
            return [event, BlockOpened(7, "text"), BlockDelta(7, "First."), BlockClosed(7)]
        return [] if getattr(event, "index", None) == 0 else [event]

    told, chain = run(Each(work))
    assert chain.failure is None
    assert [event.index for event in told if isinstance(event, BlockOpened)] == [7, 1]


def raising(event: Event) -> list[Event]:
    raise KeyError("words of a conversation")


def at(kind: type[Event], index: int | None, given: Any) -> Each:
    """Gives something odd for the first event of this kind and block."""

    def work(event: Event) -> Any:
        if isinstance(event, kind) and (index is None or getattr(event, "index", None) == index):
            return given(event)
        return [event]

    return Each(work)


def last_words() -> list[Event]:
    raise ValueError("words of a conversation")


FAULTS: Final = {
    "it raises": (lambda: at(BlockDelta, 1, raising), "it raised KeyError"),
    "it raises at the end": (lambda: Each(lambda e: [e], last_words), "it raised ValueError"),
    "it raises at the ending": (lambda: at(Finished, None, raising), "it raised KeyError"),
    "it gives no list": (lambda: at(BlockDelta, 1, lambda e: e), "it returned BlockDelta, not a list of events"),
    "it gives nothing": (lambda: at(BlockDelta, 1, lambda e: None), "it returned NoneType, not a list of events"),
    "it gives a generator": (lambda: at(BlockDelta, 1, lambda e: (x for x in [e])), "it returned generator"),
    "it gives what is no event": (
        lambda: at(BlockDelta, 1, lambda e: ["hm"]),
        "it returned str, which is not an event",
    ),
    "it tells of a block that is not open": (
        lambda: at(BlockDelta, 1, lambda e: [BlockDelta(9, "x")]),
        "it sent an event for block 9, which is not open",
    ),
    "it closes a block twice": (lambda: at(BlockClosed, 1, lambda e: [e, e]), "for block 1, which is not open"),
    "it opens a block twice": (lambda: at(BlockDelta, 1, lambda e: [BlockOpened(1, "text")]), "opened block 1 twice"),
    "it leaves a block open": (lambda: at(BlockClosed, 1, lambda e: []), "it left a block open"),
    "it ends the answer itself": (
        lambda: at(BlockDelta, 1, lambda e: [Finished("stop")]),
        "it ended the response before the host did",
    ),
}


@pytest.mark.parametrize(("make", "why"), FAULTS.values(), ids=FAULTS.keys())
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_stage_that_fails_ends_the_answer_and_is_named(make: Any, why: str, place: int) -> None:
    stages: list[Stage] = [Passing(), Passing()]
    stages.insert(place, make())
    told, chain = run(*stages)
    assert chain.failure is not None
    assert why in str(chain.failure)
    assert chain.failure.name == f"T{place}"
    assert "words of a conversation" not in str(chain.failure)
    # Balanced, and the ending is a failure: whatever was open is not whole.
    ending = told[-1]
    assert isinstance(ending, Failed)
    assert (ending.code, ending.retryable) == ("transformer_failed", False)
    opened = [event.index for event in told if isinstance(event, BlockOpened)]
    closed = {event.index: event.complete for event in told if isinstance(event, BlockClosed)}
    assert sorted(opened) == sorted(closed) == [0, 1]
    assert closed[0] is True
    assert sum(isinstance(event, (Finished, Failed)) for event in told) == 1


def test_a_call_that_was_open_when_a_stage_failed_is_not_whole() -> None:
    told, _ = run(at(BlockDelta, 1, raising))
    assert BlockClosed(1, complete=False) in told


def test_behind_a_failure_only_the_ending_counts_and_it_may_say_why() -> None:
    chain = StageChain([("T", Each(raising))])
    assert chain.feed(Started()) == []
    assert chain.feed(BlockOpened(0, "text")) == []
    assert chain.failure is not None
    assert isinstance(chain.failure.__cause__, KeyError)
    broke = Failed("upstream_broke", "gone")
    assert chain.feed(broke) == [broke]
