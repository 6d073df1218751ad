"""Which writer a response gets: patched where both sides speak the same dialect, and else encoded."""

from __future__ import annotations

from typing import Any

import pytest

from moonshim.engine.dialects.anthropic.patch import MessagesPatchWriter
from moonshim.engine.dialects.openai_chat.patch import ChatPatchWriter
from moonshim.engine.dialects.registry import CLIENT_DIALECTS, dialect_named
from moonshim.engine.frames import ChoicePart, HostFrame, Released
from moonshim.engine.plan import Plan, plan_for
from moonshim.engine.repair.repair_log import RepairLog
from moonshim.engine.response.writers import EncodingWriter, EventCollector, writer_for
from moonshim.engine.values.events import BlockClosed, BlockDelta, BlockOpened, Event, Finished, Started

PATCHES = {"openai_chat": ChatPatchWriter, "anthropic": MessagesPatchWriter}


def plan_of(client: str | None, upstream: str | None) -> Plan:
    plan = plan_for(model="kimi-k2.5")
    plan.client = None if client is None else dialect_named(client)
    plan.upstream = None if upstream is None else dialect_named(upstream)
    return plan


@pytest.mark.parametrize("client", CLIENT_DIALECTS)
@pytest.mark.parametrize("upstream", PATCHES)
def test_a_response_is_patched_where_both_sides_speak_the_same(client: str, upstream: str) -> None:
    writer = writer_for(plan_of(client, upstream), RepairLog())
    assert type(writer) is (PATCHES[upstream] if client == upstream else EncodingWriter)
    assert writer.keeps_frames is (client == upstream)


def test_a_recording_of_a_chat_host_is_patched() -> None:
    assert isinstance(writer_for(plan_of(None, None), RepairLog()), ChatPatchWriter)


@pytest.mark.parametrize("upstream", PATCHES)
def test_with_an_encoder_a_response_is_encoded(upstream: str) -> None:
    assert isinstance(writer_for(plan_of(upstream, upstream), RepairLog(), EventCollector()), EncodingWriter)


class Transformer:
    def prepare(self, request: Any) -> Any:
        return request

    def stages(self, plan: Any) -> list[Any]:
        return [self]

    def feed(self, event: Event) -> list[Event]:
        return [event]

    def flush(self) -> list[Event]:
        return []


@pytest.mark.parametrize(("dialect", "expected"), [("openai_chat", EncodingWriter), ("anthropic", MessagesPatchWriter)])
def test_what_stages_made_of_a_chat_response_is_encoded(dialect: str, expected: type) -> None:
    plan = plan_of(dialect, dialect)
    plan._transformers = (Transformer(),)
    assert isinstance(writer_for(plan, RepairLog()), expected)


EVENTS: list[Event] = [Started("c1"), BlockOpened(0, "text"), BlockDelta(0, "a"), BlockClosed(0)]


def encoding(collector: EventCollector) -> EncodingWriter[str]:
    plan = plan_of("anthropic", "openai_chat")
    return EncodingWriter(collector, plan.reply, "anthropic")


def test_an_encoder_gets_the_events_of_the_first_choice_in_order() -> None:
    collector = EventCollector()
    frame: HostFrame[str] = HostFrame("as it came", {})
    frame.parts = [ChoicePart(list(EVENTS))]
    assert encoding(collector).write(frame) == []
    assert encoding(collector).write_ending(frame, [Finished("stop")]) == []
    assert collector.events == [*EVENTS, Finished("stop")]


def test_what_has_no_payload_leaves_as_it_came() -> None:
    writer = encoding(EventCollector())
    assert writer.write(HostFrame(": a comment", None)) == [Released(": a comment")]
    assert writer.write(HostFrame("a payload", {"unknown": 1})) == []


def test_a_whole_response_is_written_in_the_client_s_dialect() -> None:
    frame: HostFrame[str] = HostFrame(None, {})
    frame.parts = [ChoicePart([*EVENTS, Finished("stop")])]
    body = encoding(EventCollector()).write_body(frame)
    assert (body["type"], body["content"], body["stop_reason"]) == (
        "message",
        [{"type": "text", "text": "a"}],
        "end_turn",
    )


def test_a_collector_wants_every_event() -> None:
    assert EventCollector().template(0) is None
