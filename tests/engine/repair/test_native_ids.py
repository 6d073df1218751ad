"""Native deltas that stay as they are: only their identifiers are put right, and the calls are told for the message."""

from __future__ import annotations

from moonshim.engine.frames import FrameOutput
from moonshim.engine.ids import IdRepairer
from moonshim.engine.repair.blocks import BlockTracker
from moonshim.engine.repair.native_ids import NativeIdWatcher
from moonshim.engine.values.events import BlockClosed, BlockDelta, BlockOpened, CallPiece, Event, Repaired


def piece(index: int | None, id: str | None = None, name: str | None = None, arguments: str = "") -> CallPiece:
    return CallPiece(index, id, name, arguments, {})


class Watched:
    def __init__(self) -> None:
        self.output = FrameOutput()
        self.watch = NativeIdWatcher(IdRepairer([]), BlockTracker(), mends=True)

    def feed(self, *pieces: CallPiece) -> list[str | None]:
        return [self.watch.feed(one, self.output) for one in pieces]

    @property
    def repairs(self) -> list[Event]:
        return [event for event in self.output.events if isinstance(event, Repaired)]


def test_a_right_identifier_is_left_alone() -> None:
    watched = Watched()
    pieces = piece(0, "functions.ls:0", "ls"), piece(0, arguments="{"), piece(0, arguments="}")
    assert watched.feed(*pieces) == [None, None, None]
    assert watched.repairs == []


def test_a_wrong_identifier_is_replaced_wherever_it_stands_and_told_once() -> None:
    watched = Watched()
    pieces = piece(0, "call_1", "ls"), piece(0, "call_1", None, "{}"), piece(0, None, None, "")
    assert watched.feed(*pieces) == ["functions.ls:0", "functions.ls:0", None]
    assert watched.repairs == [Repaired("id_invalid", "call_1 -> functions.ls:0")]


def test_a_missing_identifier_is_made() -> None:
    watched = Watched()
    assert watched.feed(piece(0, None, "ls"), piece(0, None, None, "{}")) == ["functions.ls:0", None]
    assert [event.rule for event in watched.output.events if isinstance(event, Repaired)] == ["id_missing"]


def test_each_index_is_a_call_of_its_own() -> None:
    watched = Watched()
    assert watched.feed(piece(0, "a", "ls"), piece(1, "b", "cat")) == ["functions.ls:0", "functions.cat:1"]
    assert watched.watch.count == 2


def test_what_belongs_to_no_call_is_left_alone() -> None:
    watched = Watched()
    assert watched.feed(piece(0, "call_1", None, "{}")) == [None]
    assert (watched.watch.count, watched.output.events) == (0, [])


def test_the_calls_are_in_the_output_for_the_message() -> None:
    watched = Watched()
    watched.feed(piece(0, "call_1", "ls"), piece(0, arguments='{"a":'), piece(0, arguments=" 1}"))
    watched.watch.finish(watched.output)
    assert watched.output.events == [
        Repaired("id_invalid", "call_1 -> functions.ls:0"),
        BlockOpened(0, "call", "functions.ls:0", "ls", {}),
        BlockDelta(0, '{"a":'),
        BlockDelta(0, " 1}"),
        BlockClosed(0, complete=True),
    ]


def test_arguments_that_break_off_are_known() -> None:
    watched = Watched()
    watched.feed(piece(0, "functions.ls:0", "ls", '{"a": "}'))
    assert watched.watch.cut_off
    watched.feed(piece(0, arguments='"}'))
    assert not watched.watch.cut_off
