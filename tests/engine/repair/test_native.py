"""Native tool deltas in every shape that hosts send: one clean call each, in order, with distinct numbers."""

from __future__ import annotations

from typing import Any

import pytest

from moonshim.engine.frames import FrameOutput
from moonshim.engine.ids import IdRepairer
from moonshim.engine.repair.blocks import BlockTracker
from moonshim.engine.repair.native import NativeCalls
from moonshim.engine.repair.tool_calls import ToolCallTracker
from moonshim.engine.repair.tool_names import DeclaredTools
from moonshim.engine.values.conversation import Tool
from moonshim.engine.values.events import BlockDelta, BlockOpened, CallPiece, Repaired
from moonshim.engine.values.options import KimiOptions

READ, LS = "functions.read:0", "functions.ls:1"
Calls = list[tuple[str, str, str]]


def piece(
    index: int | None = 0, id: str | None = None, name: str | None = None, arguments: str = "", **extras: Any
) -> CallPiece:
    return CallPiece(index, id, name, arguments, extras)


class Host:
    """Sends pieces, each in a frame of its own, to native calls in a call tracker."""

    def __init__(self, *names: str, **options: Any) -> None:
        self.declared = DeclaredTools([Tool(name) for name in names] if names else None)
        self.blocks = BlockTracker()
        self.tracker = ToolCallTracker(self.declared, KimiOptions.mending(**options), IdRepairer([]), self.blocks)
        self.native = NativeCalls(self.tracker, self.declared)
        self.outputs: list[FrameOutput] = []

    def send(self, *pieces: CallPiece) -> None:
        for one in pieces:
            self.outputs.append(FrameOutput())
            self.native.feed(one, self.outputs[-1])

    def finish(self) -> None:
        self.outputs.append(FrameOutput())
        self.native.finish(self.outputs[-1])
        self.tracker.finish(self.outputs[-1])

    @property
    def calls(self) -> Calls:
        found: dict[int, list[str]] = {}
        for event in (event for output in self.outputs for event in output.events):
            if isinstance(event, BlockOpened):
                found[event.index] = [event.call_id or "", event.name or "", ""]
            elif isinstance(event, BlockDelta):
                found[event.index][2] += event.text
        assert sorted(self.blocks.numbers.values()) == list(range(len(self.blocks.numbers)))
        return [(one[0], one[1], one[2]) for one in found.values()]

    @property
    def told(self) -> list[str]:
        return [event.rule for output in self.outputs for event in output.events if isinstance(event, Repaired)]


ONE: Calls = [(READ, "read", '{"a": 1}')]
TWO: Calls = [(READ, "read", '{"a": 1}'), (LS, "ls", "{}")]

SHAPES: dict[str, tuple[list[CallPiece], Calls]] = {
    "a header, then arguments": ([piece(0, READ, "read"), piece(0, arguments='{"a"'), piece(0, arguments=": 1}")], ONE),
    "the whole call in one delta": ([piece(0, READ, "read", '{"a": 1}')], ONE),
    "the identifier on every delta": ([piece(0, READ, "read", '{"a"'), piece(0, READ, None, ": 1}")], ONE),
    "identifier and name on every delta": ([piece(0, READ, "read", '{"a"'), piece(0, READ, "read", ": 1}")], ONE),
    "the name in pieces": ([piece(0, READ, "re"), piece(0, None, "ad"), piece(0, arguments='{"a": 1}')], ONE),
    "arguments before the name": (
        [piece(0, READ, None, '{"a"'), piece(0, None, "read"), piece(0, arguments=": 1}")],
        ONE,
    ),
    "arguments before a name in pieces": (
        [piece(0, "call_1", None, '{"a": 1}'), piece(0, None, "re"), piece(0, None, "ad")],
        [("functions.read:0", "read", '{"a": 1}')],
    ),
    "two calls one after the other": ([piece(0, READ, "read", '{"a": 1}'), piece(1, LS, "ls", "{}")], TWO),
    "two calls interleaved": (
        [piece(0, READ, "read"), piece(1, LS, "ls"), piece(0, arguments='{"a": 1}'), piece(1, arguments="{}")],
        TWO,
    ),
    "two identifiers under one index": ([piece(0, READ, "read", '{"a": 1}'), piece(0, LS, "ls", "{}")], TWO),
    "two identifiers under one index, in turns": (
        [
            piece(0, READ, "read", '{"a"'),
            piece(0, LS, "ls", "{"),
            piece(0, READ, None, ": 1}"),
            piece(0, LS, None, "}"),
        ],
        TWO,
    ),
    "no index": ([piece(None, READ, "read"), piece(None, None, None, '{"a": 1}')], ONE),
    "no index, two calls": ([piece(None, READ, "read", '{"a": 1}'), piece(None, LS, "ls", "{}")], TWO),
    "no index, two calls, the identifier on every delta": (
        [piece(None, READ, "read", '{"a"'), piece(None, LS, "ls", "{}"), piece(None, READ, None, ": 1}")],
        TWO,
    ),
    "no index and no identifier, two calls": (
        [piece(None, None, "read", '{"a": 1}'), piece(None, None, "ls", "{}")],
        TWO,
    ),
    "one index and no identifier, two calls": ([piece(0, None, "read", '{"a": 1}'), piece(0, None, "ls", "{}")], TWO),
    "indexes that begin at 1": ([piece(1, READ, "read", '{"a": 1}'), piece(2, LS, "ls", "{}")], TWO),
    "the identifier after the name": ([piece(0, None, "read"), piece(0, READ), piece(0, arguments='{"a": 1}')], ONE),
    "no name, but an identifier that carries it": ([piece(0, READ, None, '{"a": 1}')], ONE),
    "no arguments at all": ([piece(0, READ, "read")], [(READ, "read", "{}")]),
    "nothing but an index": ([piece(0)], []),
}


@pytest.mark.parametrize(
    "tools", [("read", "ls"), ("read", "ls", "read_file", "real")], ids=["", "names that may grow"]
)
@pytest.mark.parametrize("case", SHAPES)
def test_every_shape_becomes_clean_calls_in_order(case: str, tools: tuple[str, ...]) -> None:
    pieces, calls = SHAPES[case]
    host = Host(*tools)
    host.send(*pieces)
    host.finish()
    assert host.calls == calls
    assert not any(output.waiting for output in host.outputs)


@pytest.mark.parametrize("case", [case for case in SHAPES if case != "arguments before a name in pieces"])
def test_every_shape_becomes_clean_calls_when_nobody_knows_the_tools(case: str) -> None:
    pieces, calls = SHAPES[case]
    host = Host()
    host.send(*pieces)
    host.finish()
    assert host.calls == calls


def test_a_declared_name_that_cannot_grow_goes_out_at_once() -> None:
    host = Host("read", "ls")
    host.send(piece(0, READ, "read"))
    assert host.calls == [(READ, "read", "")]
    assert host.outputs[0].waiting == 0


def test_a_name_that_may_grow_waits_for_the_first_argument_and_goes_out_in_its_own_frame() -> None:
    host = Host("read", "read_file")
    host.send(piece(0, READ, "read"))
    assert (host.calls, host.outputs[0].waiting) == ([], 1)
    host.send(piece(0, arguments="{"))
    assert host.calls == [(READ, "read", "{")]
    assert host.outputs[0].waiting == 0
    assert any(isinstance(event, BlockOpened) for event in host.outputs[0].events)


def test_a_name_that_may_grow_is_settled_when_another_call_comes() -> None:
    host = Host("read", "read_file", "ls")
    host.send(piece(0, READ, "read"), piece(1, LS, "ls"))
    assert [call[1] for call in host.calls] == ["read", "ls"]


def test_a_name_that_grows_is_the_longer_one() -> None:
    host = Host("read", "read_file")
    host.send(piece(0, "x", "read"), piece(0, None, "_file"), piece(0, arguments="{}"))
    assert [call[1:] for call in host.calls] == [("read_file", "{")]
    host.finish()
    assert [call[1:] for call in host.calls] == [("read_file", "{}")]


def test_frames_that_leave_wait_no_longer_and_the_name_goes_out_later() -> None:
    host = Host("read", "read_file")
    host.send(piece(0, READ, "read"))
    host.native.release_all()
    assert host.outputs[0].waiting == 0
    host.send(piece(0, arguments="{}"))
    assert host.outputs[0].events == []
    assert [call[1] for call in host.calls] == ["read"]


def test_a_frame_whose_arguments_are_held_back_waits_and_gets_them_when_they_were_ordinary() -> None:
    host = Host("read")
    host.send(piece(0, READ, "read"), piece(0, arguments='{"a": "\\u00'))
    assert host.outputs[1].waiting == 1
    assert not host.native.is_idle
    host.send(piece(0, arguments='e9"}'))
    assert host.outputs[1].waiting == 0
    assert [event for event in host.outputs[2].events if isinstance(event, BlockDelta)] == [BlockDelta(0, 'e9"}')]
    assert host.native.is_idle


def test_frames_that_leave_go_without_the_arguments_that_are_held_back() -> None:
    host = Host("read")
    host.send(piece(0, READ, "read"), piece(0, arguments='{"a": "\\u00'))
    host.native.release_all()
    assert host.outputs[1].waiting == 0
    host.send(piece(0, arguments='e9"}'))
    assert host.calls == [(READ, "read", '{"a": "\\u00e9"}')]


def test_fields_that_nobody_knows_go_out_with_the_header() -> None:
    host = Host("read")
    host.send(piece(0, READ, "read", cache="x"))
    opened = [event for event in host.outputs[0].events if isinstance(event, BlockOpened)]
    assert [event.wire_extras for event in opened] == [{"cache": "x"}]


def test_only_the_call_that_came_last_and_has_gone_out_flows() -> None:
    host = Host("read", "ls")
    assert host.native.continued_call(0) is None
    host.send(piece(0, READ, "read", "{"))
    assert host.native.continued_call(0) is None, "the second delta may repeat the first"
    host.send(piece(0, arguments='"a": '))
    assert host.native.continued_call(0) is not None
    host.send(piece(1, LS, "ls", "{"), piece(1, arguments='"a": '))
    assert host.native.continued_call(0) is None
    assert host.native.continued_call(1) is not None
    host.finish()
    assert host.native.continued_call(1) is None


def test_assembled_calls_go_out_whole_when_the_next_begins() -> None:
    host = Host("read", "ls", tool_call_streaming="assembled")
    host.send(piece(0, READ, "read", '{"a": '), piece(0, arguments="1}"))
    assert host.calls == []
    host.send(piece(1, LS, "ls", "{}"))
    assert host.calls == ONE
    host.finish()
    assert host.calls == TWO


def test_arguments_for_a_call_that_went_out_whole_are_told() -> None:
    host = Host("read", "ls", tool_call_streaming="assembled")
    host.send(piece(0, READ, "read", '{"a": 1}'), piece(1, LS, "ls", "{}"), piece(0, arguments="more"))
    host.finish()
    assert host.calls == TWO
    assert "arguments_trailing" in host.told
