"""Patching: every field of the host's chunk stays; where one becomes several, what names the response is in each."""

from __future__ import annotations

from typing import Any

import pytest

from moonshim.engine.dialects.openai_chat.chunk import error_chunk
from moonshim.engine.dialects.openai_chat.decode import ChatDecoder
from moonshim.engine.dialects.openai_chat.patch import ChatPatchWriter
from moonshim.engine.dialects.protocol import TEXT, PatchContext, ResponseContext
from moonshim.engine.frames import ChoicePart, HostFrame, Released
from moonshim.engine.upstream_events import ChoiceSelected, UpstreamEvent
from moonshim.engine.values.conversation import ToolCall
from moonshim.engine.values.events import BlockDelta, BlockOpened, Event, Failed, Finished, Repaired

STOP, CALLS, FAILED = Finished("stop"), Finished("tool_calls", "stop"), Failed("overloaded", "Try again.")
IDENTITY = {"id": "c1", "object": "chat.completion.chunk", "created": 7, "model": "kimi-k2.5", "provider": "Moon"}
TEXT_BLOCK, REASONING_BLOCK, CALL_BLOCK = 0, 1, 2


def text(*pieces: str) -> list[Event]:
    return [BlockOpened(TEXT_BLOCK, "text"), *(BlockDelta(TEXT_BLOCK, piece) for piece in pieces)]


def reasoning(*pieces: str) -> list[Event]:
    return [BlockOpened(REASONING_BLOCK, "reasoning"), *(BlockDelta(REASONING_BLOCK, piece) for piece in pieces)]


def call(*arguments: str, extras: dict[str, Any] | None = None) -> list[Event]:
    """A call that was read from markers, or, with `extras`, a native one."""
    opened = BlockOpened(CALL_BLOCK, "call", "functions.ls:0", "ls", extras)
    return [opened, *(BlockDelta(CALL_BLOCK, piece) for piece in arguments)]


def choice(delta: Any, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": finish, **more}


def chunk(*choices: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**IDENTITY, "choices": list(choices), "invented_tomorrow": [1], **more}


class Patched:
    """A writer, and the repairs that it reports."""

    def __init__(self, *, repair_deltas: bool = True, has_client: bool = False, hides_usage: bool = False) -> None:
        self.repairs: list[tuple[str, int]] = []
        self._decoder = ChatDecoder()
        self.writer: ChatPatchWriter[str] = ChatPatchWriter(
            PatchContext(
                reply=ResponseContext(model="kimi-k2.5"),
                names={},
                repair_deltas=repair_deltas,
                has_client=has_client,
                hides_usage=hides_usage,
                report=lambda repaired, index: self.repairs.append((repaired.rule, index)),
            )
        )

    def frame(self, came: dict[str, Any], *events: list[Event], **more: Any) -> HostFrame[str]:
        """This chunk, and the events that leave for each of its choices."""
        frame: HostFrame[str] = HostFrame("as it came", came)
        frame.read = self._decoder.feed(came)
        reads: list[list[UpstreamEvent]] = []
        for event in frame.read:
            if isinstance(event, ChoiceSelected):
                reads.append([])
            elif reads:
                reads[-1].append(event)
        frame.parts = [
            ChoicePart(list(leaving), index=place, numbers={CALL_BLOCK: 0}, read=read, **more)
            for place, (read, leaving) in enumerate(zip(reads, events, strict=True))
        ]
        return frame

    def write(self, came: dict[str, Any], *events: list[Event], **more: Any) -> list[Released[str]]:
        return self.writer.write(self.frame(came, *events, **more))


def patched(came: dict[str, Any], *events: list[Event], **more: Any) -> list[dict[str, Any]]:
    """The chunks that take the place of this one, which has to be changed."""
    (released,) = Patched().write(came, *events, **more)
    assert released.payloads is not None
    return released.payloads


def deltas(chunks: list[dict[str, Any]]) -> list[tuple[Any, str | None]]:
    return [(one["delta"], one["finish_reason"]) for chunk in chunks for one in chunk["choices"]]


ENTRY: dict[str, Any] = {
    "index": 0,
    "id": "functions.ls:0",
    "type": "function",
    "function": {"name": "ls", "arguments": ""},
}
GROWN = {"index": 0, "function": {"arguments": "{}"}}

# the delta that came; the events that leave; the deltas that do
PATCHED: dict[str, tuple[dict[str, Any], list[Event], list[tuple[Any, str | None]]]] = {
    "another text": ({"content": "old"}, text("new"), [({"content": "new"}, None)]),
    "the text in pieces": ({"content": "old"}, text("n", "e", "w"), [({"content": "new"}, None)]),
    "no text beside the role": ({"role": "assistant", "content": "old"}, [], [({"role": "assistant"}, None)]),
    "the role stays": (
        {"role": "assistant", "content": "old"},
        text("new"),
        [({"role": "assistant", "content": "new"}, None)],
    ),
    "an empty text stays as it was": (
        {"content": None, "reasoning": "old"},
        reasoning("new"),
        [({"content": None, "reasoning": "new"}, None)],
    ),
    "reasoning in the field it came in": ({"reasoning": "old"}, reasoning("new"), [({"reasoning": "new"}, None)]),
    "a call in place of text": ({"content": "old"}, call(), [({"tool_calls": [ENTRY]}, None)]),
    "several deltas": (
        {"role": "assistant", "content": "old"},
        [*text("a"), *call("{}")],
        [
            ({"role": "assistant", "content": "a"}, None),
            ({"tool_calls": [ENTRY]}, None),
            ({"tool_calls": [GROWN]}, None),
        ],
    ),
    "an end beside nothing": ({"content": "old"}, [STOP], [({}, "stop")]),
    "an end after text is a delta of its own": (
        {"content": "old"},
        [*text("new"), STOP],
        [({"content": "new"}, None), ({}, "stop")],
    ),
    "an end beside a role": ({"role": "assistant"}, [CALLS], [({"role": "assistant"}, "tool_calls")]),
    "a finish reason inside the delta goes": ({"finish_reason": "stop"}, [STOP], [({}, "stop")]),
    "unknown fields of an entry": (
        {},
        call(extras={"cache": 1, "function": {"strict": True}}),
        [({"tool_calls": [{**ENTRY, "function": {**ENTRY["function"], "strict": True}, "cache": 1}]}, None)],
    ),
}


@pytest.mark.parametrize("case", PATCHED)
def test_a_choice_contains_what_its_events_say(case: str) -> None:
    delta, events, expected = PATCHED[case]
    assert deltas(patched(chunk(choice(delta)), events)) == expected


def test_a_chunk_whose_events_say_what_it_contains_leaves_as_it_came() -> None:
    native = {**ENTRY, "function": {"name": "ls", "arguments": "{}"}}
    came = choice({"content": "a", "reasoning": "b", "tool_calls": [native], "unknown": 1}, "tool_calls")
    events = [*reasoning("b"), *text("a"), *call("{}", extras={}), Finished("tool_calls", "tool_calls")]
    assert Patched().write(chunk(came), events) == [Released("as it came")]


def test_a_chunk_of_which_nothing_is_left_does_not_leave() -> None:
    assert patched({**IDENTITY, "choices": [choice({"content": "old"})]}, []) == []


def test_every_other_field_stays_and_of_several_chunks_the_first_one_has_them() -> None:
    came = choice({"content": "old", "refusal": None}, logprobs={"content": [1]})
    first, second = patched(chunk(came), [*text("a"), *reasoning("b")])
    assert {**first, "choices": []} == {**IDENTITY, "choices": [], "invented_tomorrow": [1]}
    assert first["choices"] == [choice({"content": "a", "refusal": None}, logprobs={"content": [1]})]
    assert {**second, "choices": []} == {**IDENTITY, "choices": []}
    assert second["choices"] == [choice({"reasoning_content": "b"})]


@pytest.mark.parametrize("came", [{"delta": None}, {}, {"index": "0", "delta": {}}])
def test_a_choice_without_an_index_or_a_delta_gets_them(came: dict[str, Any]) -> None:
    (one,) = patched(chunk(came), text("a"))
    assert one["choices"] == [choice({"content": "a"})]


def test_the_text_of_a_choice_without_a_delta_moves_into_one() -> None:
    (one,) = patched(chunk({"index": 0, "text": "a", "finish_reason": None}), text("a"))
    assert one["choices"] == [choice({"content": "a"})]


def test_usage_inside_a_choice_goes_and_usage_at_the_top_goes_with_the_last_chunk() -> None:
    usage = {"total_tokens": 7}
    came = {**IDENTITY, "choices": [choice({"content": "old"}, usage=usage)], "usage": None}
    first, last = patched(came, [*text("new"), STOP])
    assert "usage" not in first
    assert "usage" not in first["choices"][0]
    assert last["usage"] == usage


def test_usage_that_the_client_did_not_ask_for_does_not_leave() -> None:
    came = {**IDENTITY, "choices": [], "usage": {"total_tokens": 7}}
    assert Patched().write(came) == [Released("as it came")]
    assert Patched(has_client=True, hides_usage=True).write(came) == []


def test_several_choices_share_their_chunks() -> None:
    came = chunk(choice({"content": "x"}), {**choice({"content": "y"}), "index": 1})
    first, second = patched(came, [*text("a"), *reasoning("b")], text("c"))
    assert [(one["index"], one["delta"]) for one in first["choices"]] == [(0, {"content": "a"}), (1, {"content": "c"})]
    assert [(one["index"], one["delta"]) for one in second["choices"]] == [(0, {"reasoning_content": "b"})]


@pytest.mark.parametrize("delta", [{}, {"content": ""}, {"role": "assistant"}])
def test_an_error_takes_the_place_of_a_chunk_that_says_nothing(delta: dict[str, Any]) -> None:
    assert patched(chunk(choice(delta, "engine_overloaded")), [FAILED]) == [error_chunk(FAILED, {"index": 0})]


def test_an_error_comes_after_the_text() -> None:
    said, error = patched(chunk(choice({"content": "x"})), [*text("a"), FAILED])
    assert said["choices"] == [choice({"content": "a"})]
    assert error == error_chunk(FAILED, {"index": 0})


def test_where_deltas_are_not_repaired_entries_stay_beside_other_text() -> None:
    entries = [{"index": 0, "anything": True}, 7]
    came = chunk(choice({"content": "x", "tool_calls": entries}))
    (released,) = Patched(repair_deltas=False).write(came, text("a"), ids=[None])
    assert deltas(released.payloads or []) == [({"content": "a", "tool_calls": entries}, None)]


def test_where_deltas_are_not_repaired_only_the_identifier_of_an_entry_changes() -> None:
    entry = {"id": "x", "function": {"name": "ls"}, "anything": True}
    came = chunk({"delta": {"tool_calls": [entry]}, "usage": {"total_tokens": 7}})
    (released,) = Patched(repair_deltas=False).write(came, [], ids=["functions.ls:0"])
    (one,) = released.payloads or []
    assert one["choices"][0]["delta"] == {"tool_calls": [{**entry, "id": "functions.ls:0"}]}
    assert one["choices"][0]["usage"] == {"total_tokens": 7}


def test_a_summary_stands_beside_an_empty_delta_in_the_finish_chunk() -> None:
    calls = [(0, ToolCall("hist_1", "ls", "{}", "functions.ls:0"))]
    came = chunk(choice({"content": "x"}, "stop"))
    said, last = patched(came, [*text("a"), CALLS], summary=lambda: calls)
    entry = {**ENTRY, "function": {"name": "ls", "arguments": "{}"}}
    message = {"role": "assistant", "tool_calls": [entry]}
    assert "message" not in said["choices"][0]
    assert last["choices"] == [choice({}, "tool_calls", message=message)]


def test_a_client_gets_the_role_once() -> None:
    patching = Patched(has_client=True)
    first = patching.write(chunk(choice({"content": "a"})), text("a"))
    second = patching.write(chunk(choice({"role": "assistant", "content": "b"})), [BlockDelta(TEXT_BLOCK, "b")])
    assert [deltas(one.payloads or []) for one in first + second] == [
        [({"role": "assistant", "content": "a"}, None)],
        [({"content": "b"}, None)],
    ]
    assert patching.repairs == [("role_missing", 0)]


def test_a_repeated_role_is_reported_once() -> None:
    patching = Patched(has_client=True)
    for _ in range(3):
        patching.write(chunk(choice({"role": "assistant", "content": "a"})), text("a"))
    assert patching.repairs == [("role_repeated", 0)]


def test_what_the_host_did_not_send_is_modelled_on_its_last_chunk() -> None:
    patching = Patched()
    patching.write(chunk(choice({"content": "a"}), usage={"total_tokens": 7}), text("a"))
    added: HostFrame[str] = HostFrame(None, None)
    added.parts = [ChoicePart([BlockDelta(TEXT_BLOCK, "<"), STOP])]
    (released,) = patching.writer.write(added)
    said, last = released.payloads or []
    assert {**said, "choices": []} == {**IDENTITY, "choices": [], "invented_tomorrow": [1]}
    assert deltas([said, last]) == [({"content": "<"}, None), ({}, "stop")]


def test_nothing_is_added_for_a_choice_without_events() -> None:
    added: HostFrame[str] = HostFrame(None, None)
    added.parts = [ChoicePart([Repaired("framing")])]
    assert Patched().writer.write(added) == []


def test_a_template_writes_arguments_into_the_last_chunk() -> None:
    patching = Patched()
    patching.write(chunk(choice({"content": "x"})), call())
    template = patching.writer.template(CALL_BLOCK)
    assert template is not None
    grown = {"tool_calls": [{"index": 0, "function": {"arguments": TEXT}}]}
    assert template.payload == chunk(choice(grown))
    assert template.count is None
