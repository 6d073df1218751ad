"""The call tracker: every call goes out once, with a name and an identifier, at once or when it is whole."""

from __future__ import annotations

from typing import Any

import pytest

from moonshim.engine.frames import FrameOutput
from moonshim.engine.ids import IdRepairer
from moonshim.engine.repair.blocks import BlockTracker
from moonshim.engine.repair.tool_calls import Source, ToolCallTracker, TrackedCall
from moonshim.engine.repair.tool_names import DeclaredTools
from moonshim.engine.values.conversation import Tool
from moonshim.engine.values.events import BlockClosed, BlockDelta, BlockOpened, Event, Repaired
from moonshim.engine.values.options import KimiOptions

PATH = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}},
    "required": ["path"],
}
TOOLS = [Tool("read", parameters=PATH), Tool("ls", parameters={"type": "object", "properties": {}})]


class Desk:
    """A call tracker, and everything that it put on one output."""

    def __init__(self, tools: list[Tool] | None = None, **options: Any) -> None:
        self.output = FrameOutput()
        self.tracker = ToolCallTracker(
            DeclaredTools(tools), KimiOptions.mending(**options), IdRepairer([]), BlockTracker()
        )

    def begin(
        self, wire_id: str | None = None, name: str | None = None, source: Source = "markers", *, opened: bool = True
    ) -> TrackedCall:
        call = TrackedCall(source, "text", wire_id, name)
        self.tracker.begin(call, self.output, opened=opened)
        return call

    def whole(
        self, wire_id: str | None, arguments: str, name: str | None = None, source: Source = "markers"
    ) -> TrackedCall:
        call = self.begin(wire_id, name, source)
        self.tracker.grow(call, arguments, self.output)
        self.tracker.end(call, self.output, closed=True)
        return call

    def taken(self) -> list[Event]:
        """What was put on the output since the last time."""
        events = list(self.output.events)
        self.output.events.clear()
        return events

    @property
    def told(self) -> list[str]:
        return [event.rule for event in self.output.events if isinstance(event, Repaired)]

    @property
    def calls(self) -> list[tuple[str | None, str | None, str]]:
        """Identifier, name and arguments of each call, as a client has them."""
        found: dict[int, list[Any]] = {}
        for event in self.output.events:
            if isinstance(event, BlockOpened) and event.kind == "call":
                found[event.index] = [event.call_id, event.name, ""]
            elif isinstance(event, BlockDelta) and event.index in found:
                found[event.index][2] += event.text
        return [tuple(call) for call in found.values()]

    @property
    def text(self) -> str:
        calls = {one.index for one in self.output.events if isinstance(one, BlockOpened) and one.kind == "call"}
        return "".join(one.text for one in self.output.events if isinstance(one, BlockDelta) and one.index not in calls)


def test_a_call_with_a_clear_name_goes_out_as_it_arrives() -> None:
    tracker = Desk()
    call = tracker.begin("functions.read:0")
    assert tracker.taken() == [
        Repaired("marker_call", "functions.read:0 -> read"),
        BlockOpened(0, "call", "functions.read:0", "read"),
    ]
    tracker.tracker.grow(call, '{"path', tracker.output)
    tracker.tracker.grow(call, '": "a"}', tracker.output)
    assert tracker.taken() == [BlockDelta(0, '{"path'), BlockDelta(0, '": "a"}')]
    tracker.tracker.end(call, tracker.output, closed=True)
    assert tracker.taken() == [BlockClosed(0, complete=True)]
    assert (tracker.tracker.delivered, tracker.tracker.cut_off) == (1, False)


NAMED: dict[str, tuple[list[Tool] | None, str | None, str, tuple[str, str]]] = {
    "by the wrapper in its arguments": (None, "3", '{"name": "rm", "arguments": {"a": 1}}', ("rm", '{"a": 1}')),
    "by the only tool that the arguments fit": (TOOLS, "call_59ad", '{"path": "a"}', ("read", '{"path": "a"}')),
    "without any identifier": (TOOLS, None, '{"path": "a"}', ("read", '{"path": "a"}')),
}


@pytest.mark.parametrize("case", NAMED)
def test_a_call_without_a_name_is_held_until_it_is_whole_and_then_named(case: str) -> None:
    tools, wire_id, arguments, named = NAMED[case]
    tracker = Desk(tools)
    call = tracker.begin(wire_id)
    tracker.tracker.grow(call, arguments, tracker.output)
    assert tracker.taken() == []
    tracker.tracker.end(call, tracker.output, closed=True)
    assert [one[1:] for one in tracker.calls] == [named]
    assert "tool_name_inferred" in tracker.told


@pytest.mark.parametrize(
    ("tools", "arguments"),
    [(TOOLS, '{"nothing": 1}'), (TOOLS, "words"), (None, '{"path": "a"}'), ([], "{}"), (TOOLS, '{"path": "a')],
)
def test_a_call_that_nobody_can_name_goes_out_as_text_and_its_raw_form_is_told(
    tools: list[Tool] | None, arguments: str
) -> None:
    tracker = Desk(tools)
    tracker.whole("call_59ad", arguments)
    assert tracker.calls == []
    assert tracker.text == f"call_59ad{arguments}"
    assert Repaired("unreadable_call", f"call_59ad{arguments}") in tracker.output.events
    assert tracker.tracker.delivered == 0


@pytest.mark.parametrize(
    ("tools", "wire_id", "is_call"),
    [
        (TOOLS, "ls:0", True),
        (TOOLS, "functions.ls:0", True),
        (TOOLS, "functions.rm:0", False),
        (None, "functions.rm:0", True),
        (None, "rm:0", False),
        (None, "some words", False),
    ],
)
def test_a_header_without_arguments_is_a_call_only_if_its_name_is_beyond_doubt(
    tools: list[Tool] | None, wire_id: str, is_call: bool
) -> None:
    tracker = Desk(tools)
    call = tracker.begin(wire_id, opened=False)
    tracker.tracker.end(call, tracker.output, closed=True)
    assert bool(tracker.calls) is is_call
    assert tracker.text == ("" if is_call else wire_id)


def test_a_clear_name_that_was_not_declared_is_a_call_and_told() -> None:
    tracker = Desk(TOOLS)
    tracker.whole("functions.rm:0", "{}")
    assert tracker.calls == [("functions.rm:0", "rm", "{}")]
    assert Repaired("undeclared_tool", "rm") in tracker.output.events


def test_a_native_name_in_disguise_becomes_the_declared_one_and_is_told() -> None:
    tracker = Desk(TOOLS)
    tracker.whole("functions.read:0", "{}", "functions.read", "native")
    assert tracker.calls == [("functions.read:0", "read", "{}")]
    assert Repaired("tool_name", "functions.read -> read") in tracker.output.events


def test_an_identifier_is_put_right_and_told() -> None:
    tracker = Desk()
    tracker.whole("call_7", "{}", "read", "native")
    assert tracker.calls == [("functions.read:0", "read", "{}")]
    assert tracker.told == ["id_invalid"]


def test_a_call_that_breaks_off_is_told_and_remembered() -> None:
    tracker = Desk()
    call = tracker.begin("functions.read:0")
    tracker.tracker.grow(call, '{"path": "a', tracker.output)
    tracker.tracker.end(call, tracker.output, closed=False)
    assert tracker.calls == [("functions.read:0", "read", '{"path": "a')]
    assert "arguments_truncated" in tracker.told
    assert tracker.tracker.cut_off
    assert tracker.output.events[-1] == BlockClosed(0, complete=False)


def test_a_call_that_was_closed_with_unfinished_arguments_cannot_be_run_and_the_answer_fails() -> None:
    tracker = Desk()
    tracker.whole("functions.read:0", '{"path": ')
    assert "arguments_unfinished" in tracker.told
    assert tracker.tracker.cut_off


def test_what_comes_after_the_end_of_a_call_is_told_and_does_not_grow_it() -> None:
    tracker = Desk()
    call = tracker.whole("functions.read:0", "{}")
    tracker.taken()
    tracker.tracker.grow(call, '{"path": "a"}', tracker.output)
    tracker.tracker.end(call, tracker.output, closed=True)
    assert tracker.taken() == [Repaired("arguments_trailing", '{"path": "a"}')]


def test_assembled_holds_a_call_until_it_is_whole() -> None:
    tracker = Desk(tool_call_streaming="assembled")
    call = tracker.begin("functions.read:0")
    tracker.tracker.grow(call, '{"path": ', tracker.output)
    tracker.tracker.grow(call, '"a"}', tracker.output)
    assert tracker.taken() == []
    tracker.tracker.end(call, tracker.output, closed=True)
    assert tracker.taken()[1:] == [
        BlockOpened(0, "call", "functions.read:0", "read"),
        BlockDelta(0, '{"path": "a"}'),
        BlockClosed(0),
    ]


class TestTheBufferLimit:
    LONG = '{"path": "' + "x" * 2000

    def test_a_held_call_with_a_name_goes_out_as_deltas_and_streams_on(self) -> None:
        tracker = Desk(tool_call_streaming="assembled", buffer_limit=1024)
        call = tracker.begin("functions.read:0")
        tracker.tracker.grow(call, self.LONG, tracker.output)
        assert tracker.calls == [("functions.read:0", "read", self.LONG)]
        assert tracker.told == ["buffer_limit", "marker_call"]
        tracker.tracker.grow(call, '"}', tracker.output)
        assert tracker.calls == [("functions.read:0", "read", self.LONG + '"}')]

    def test_a_held_call_without_a_name_goes_out_as_text_and_streams_on(self) -> None:
        tracker = Desk(buffer_limit=1024)
        call = tracker.begin("call_7")
        tracker.tracker.grow(call, self.LONG, tracker.output)
        assert tracker.text == "call_7" + self.LONG
        assert tracker.told == ["buffer_limit"]
        tracker.tracker.grow(call, '"}', tracker.output)
        tracker.tracker.end(call, tracker.output, closed=True)
        assert tracker.text == "call_7" + self.LONG + '"}'
        assert (tracker.calls, tracker.tracker.delivered) == ([], 0)


class TestTwins:
    @pytest.mark.parametrize(("first", "second"), [("native", "markers"), ("markers", "native")])
    def test_the_same_call_from_the_other_source_is_dropped_and_told(self, first: Source, second: Source) -> None:
        tracker = Desk()
        tracker.whole("functions.read:0", '{"path": "a"}', "read", first)
        tracker.whole("functions.read:0", '{"path":"a"}', "read", second)
        tracker.tracker.finish(tracker.output)
        assert tracker.calls == [("functions.read:0", "read", '{"path": "a"}')]
        assert Repaired("duplicate_call", f"read from {second}") in tracker.output.events

    @pytest.mark.parametrize("source", ["native", "markers"])
    def test_two_equal_calls_from_one_source_are_two_calls(self, source: Source) -> None:
        tracker = Desk()
        tracker.whole("functions.ls:0", "{}", "ls", source)
        tracker.whole("functions.ls:1", "{}", "ls", source)
        assert len(tracker.calls) == 2

    def test_two_equal_calls_from_each_source_are_two_calls(self) -> None:
        tracker = Desk()
        sources: list[Source] = ["native", "native", "markers", "markers"]
        for source in sources:
            tracker.whole(None, '{"path": "a"}', "read", source)
        tracker.tracker.finish(tracker.output)
        assert len(tracker.calls) == 2
        assert tracker.told.count("duplicate_call") == 2

    def test_a_call_that_has_no_twin_is_delivered(self) -> None:
        tracker = Desk()
        tracker.whole("functions.read:0", '{"path": "a"}', "read", "native")
        tracker.whole("functions.read:1", '{"path": "b"}', "read", "markers")
        tracker.whole("functions.ls:2", "{}", "ls", "markers")
        tracker.tracker.finish(tracker.output)
        assert [call[1:] for call in tracker.calls] == [
            ("read", '{"path": "a"}'),
            ("read", '{"path": "b"}'),
            ("ls", "{}"),
        ]

    def test_a_copy_waits_for_the_original_to_be_whole(self) -> None:
        tracker = Desk()
        first = tracker.begin("functions.read:0", "read", "native")
        tracker.tracker.grow(first, '{"path": ', tracker.output)
        tracker.whole("functions.read:0", '{"path": "a"}', "read", "markers")
        tracker.tracker.grow(first, '"a"}', tracker.output)
        tracker.tracker.end(first, tracker.output, closed=False)
        tracker.tracker.finish(tracker.output)
        assert tracker.calls == [("functions.read:0", "read", '{"path": "a"}')]

    def test_a_copy_whose_original_never_ends_is_delivered_at_the_end(self) -> None:
        tracker = Desk()
        first = tracker.begin("functions.read:0", "read", "native")
        tracker.tracker.grow(first, '{"path": ', tracker.output)
        tracker.whole("functions.read:0", '{"path": "a"}', "read", "markers")
        assert len(tracker.calls) == 1
        tracker.tracker.finish(tracker.output)
        assert [call[2] for call in tracker.calls] == ['{"path": ', '{"path": "a"}']

    def test_without_the_repair_of_deltas_nothing_is_taken_for_a_copy(self) -> None:
        tracker = Desk(repair_deltas=False)
        tracker.whole("functions.ls:0", "{}", "ls", "markers")
        tracker.whole("functions.ls:1", "{}", "ls", "native")
        assert len(tracker.calls) == 2


def test_a_call_that_gets_its_name_late_goes_on_its_way_with_what_was_held() -> None:
    tracker = Desk(TOOLS)
    call = tracker.begin(None, None, "native")
    tracker.tracker.grow(call, '{"path": ', tracker.output)
    tracker.tracker.set_name(call, "read", tracker.output)
    tracker.tracker.grow(call, '"a"}', tracker.output)
    assert tracker.calls == [("functions.read:0", "read", '{"path": "a"}')]


@pytest.mark.parametrize(
    ("policy", "arguments"),
    [
        ("off", '{"path": "a", "lines": "3"}{}'),
        ("safe", '{"path": "a", "lines": "3"}'),
        ("schema", '{"path": "a", "lines": 3}'),
    ],
)
def test_arguments_are_repaired_as_the_option_says(policy: str, arguments: str) -> None:
    tracker = Desk(TOOLS, repair_arguments=policy)
    tracker.whole("functions.read:0", '{"path": "a", "lines": "3"}{}')
    assert tracker.calls == [("functions.read:0", "read", arguments)]
