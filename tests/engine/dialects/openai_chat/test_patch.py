"""Patching: every field of the host's chunk stays; where one becomes several, what names the answer goes with each."""

from __future__ import annotations

from typing import Any

import pytest

from moonshim.engine.dialects.openai_chat.patch import ChoicePart, error_chunk, host_error, patch_chunk, summary_message
from moonshim.engine.dialects.openai_chat.segments import Segment
from moonshim.engine.values.events import CallPiece, Failed, Finished

STOP, CALLS, FAILED = Finished("stop"), Finished("tool_calls", "stop"), Failed("overloaded", "Try again.")
IDENTITY = {"id": "c1", "object": "chat.completion.chunk", "created": 7, "model": "kimi-k2.5", "provider": "Moon"}


def choice(delta: Any, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": finish, **more}


def patched(came: dict[str, Any], *segments: Segment, **more: Any) -> list[dict[str, Any]]:
    chunk = {**IDENTITY, "choices": [came], "invented_tomorrow": [1]}
    return patch_chunk(chunk, [ChoicePart(came, list(segments), **more)], None)


def deltas(chunks: list[dict[str, Any]]) -> list[tuple[Any, str | None]]:
    return [(one["delta"], one["finish_reason"]) for chunk in chunks for one in chunk["choices"]]


def header(number: int = 0, arguments: str = "", **extras: Any) -> CallPiece:
    return CallPiece(number, "functions.ls:0", "ls", arguments, extras)


ENTRY = {"index": 0, "id": "functions.ls:0", "type": "function", "function": {"name": "ls", "arguments": ""}}
GROWN = {"index": 0, "function": {"arguments": "{}"}}

PATCHED: dict[str, tuple[dict[str, Any], list[Segment], list[tuple[Any, str | None]]]] = {
    "another text": ({"content": "old"}, [Segment("", "new")], [({"content": "new"}, None)]),
    "no text at all": ({"content": "old"}, [], [({}, None)]),
    "the role stays": (
        {"role": "assistant", "content": "old"},
        [Segment("", "new")],
        [({"role": "assistant", "content": "new"}, None)],
    ),
    "an empty text stays as it was": (
        {"content": None, "reasoning": "old"},
        [Segment("new")],
        [({"content": None, "reasoning": "new"}, None)],
    ),
    "reasoning in the field it came in": ({"reasoning": "old"}, [Segment("new")], [({"reasoning": "new"}, None)]),
    "a call in place of text": ({"content": "old"}, [Segment(calls=[header()])], [({"tool_calls": [ENTRY]}, None)]),
    "several deltas": (
        {"role": "assistant", "content": "old"},
        [Segment("", "a"), Segment(calls=[header()]), Segment(calls=[CallPiece(0, None, None, "{}")])],
        [
            ({"role": "assistant", "content": "a"}, None),
            ({"tool_calls": [ENTRY]}, None),
            ({"tool_calls": [GROWN]}, None),
        ],
    ),
    "an end beside nothing": ({}, [Segment(ending=STOP)], [({}, "stop")]),
    "an end behind text is a delta of its own": (
        {"content": "old"},
        [Segment("", "new", ending=STOP)],
        [({"content": "new"}, None), ({}, "stop")],
    ),
    "an end beside a role": ({"role": "assistant"}, [Segment(ending=CALLS)], [({"role": "assistant"}, "tool_calls")]),
    "a finish reason inside the delta goes": ({"finish_reason": "stop"}, [Segment(ending=STOP)], [({}, "stop")]),
    "fields of an entry that nobody knows": (
        {},
        [Segment(calls=[header(cache=1, function={"strict": True})])],
        [
            (
                {"tool_calls": [{**ENTRY, "function": {**ENTRY["function"], "strict": True}, "cache": 1}]},  # type: ignore[dict-item]
                None,
            )
        ],
    ),
}


@pytest.mark.parametrize("case", PATCHED)
def test_a_choice_tells_what_its_segments_say(case: str) -> None:
    delta, segments, expected = PATCHED[case]
    assert deltas(patched(choice(delta), *segments)) == expected


def test_every_other_field_stays_and_of_several_chunks_the_first_one_has_them() -> None:
    came = choice({"content": "old", "refusal": None}, logprobs={"content": [1]})
    first, second = patched(came, Segment("", "a"), Segment("b"))
    assert {**first, "choices": []} == {**IDENTITY, "choices": [], "invented_tomorrow": [1]}
    assert first["choices"] == [choice({"content": "a", "refusal": None}, logprobs={"content": [1]})]
    assert {**second, "choices": []} == {**IDENTITY, "choices": []}
    assert second["choices"] == [choice({"reasoning_content": "b"})]


def test_a_choice_without_an_index_or_a_delta_gets_them() -> None:
    assert patched({"delta": None}, Segment("", "a"))[0]["choices"] == [choice({"content": "a"})]


def test_usage_inside_a_choice_goes_and_usage_at_the_top_goes_with_the_last_chunk() -> None:
    usage = {"total_tokens": 7}
    came = choice({"content": "old"}, usage=usage)
    chunk = {**IDENTITY, "choices": [came], "usage": None}
    part = ChoicePart(came, [Segment("", "new", ending=STOP)])
    first, last = patch_chunk(chunk, [part], usage)
    assert "usage" not in first
    assert "usage" not in first["choices"][0]
    assert last["usage"] == usage


def test_a_chunk_without_choices_still_carries_its_usage() -> None:
    chunk = {**IDENTITY, "choices": [], "usage": {"total_tokens": 7}}
    assert patch_chunk(chunk, [], None) == [{**IDENTITY, "choices": [], "usage": None}]
    assert patch_chunk({**IDENTITY, "choices": []}, [], {"total_tokens": 7}) == [chunk]


def test_several_choices_share_their_chunks() -> None:
    one, two = choice({"content": "x"}), {**choice({"content": "y"}), "index": 1}
    parts = [ChoicePart(one, [Segment("", "a"), Segment("b")]), ChoicePart(two, [Segment("", "c")])]
    first, second = patch_chunk({**IDENTITY, "choices": [one, two]}, parts, None)
    assert [(one["index"], one["delta"]) for one in first["choices"]] == [(0, {"content": "a"}), (1, {"content": "c"})]
    assert [(one["index"], one["delta"]) for one in second["choices"]] == [(0, {"reasoning_content": "b"})]


@pytest.mark.parametrize("delta", [{}, {"content": ""}, {"role": "assistant"}])
def test_an_error_takes_the_place_of_a_chunk_that_says_nothing(delta: dict[str, Any]) -> None:
    assert patched(choice(delta, "engine_overloaded"), Segment(ending=FAILED)) == [error_chunk(FAILED, {"index": 0})]


def test_an_error_comes_behind_what_was_said() -> None:
    said, error = patched(choice({"content": "x"}), Segment("", "a", ending=FAILED))
    assert said["choices"] == [choice({"content": "a"})]
    assert error == error_chunk(FAILED, {"index": 0})


def test_entries_that_go_out_as_they_are_stay_beside_other_text() -> None:
    entries = [{"index": 0, "anything": True}]
    came = choice({"content": "x", "tool_calls": entries})
    assert deltas(patched(came, Segment("", "a"), entries=entries)) == [({"content": "a", "tool_calls": entries}, None)]


def test_a_summary_stands_beside_an_empty_delta_in_the_finish_chunk() -> None:
    calls = [{**ENTRY, "function": {"name": "ls", "arguments": "{}"}}]
    said, last = patched(choice({"content": "x"}, "stop"), Segment("", "a", ending=CALLS), summary=calls)
    assert "message" not in said["choices"][0]
    assert last["choices"] == [choice({}, "tool_calls", message=summary_message(calls))]


def test_an_error_has_the_shape_that_openai_clients_raise() -> None:
    error = error_chunk(FAILED)["error"]
    assert (error["message"], error["code"], error["retryable"]) == ("Try again.", "overloaded", True)
    assert {"type", "param"} <= error.keys()
    assert "choice" not in error
    assert error_chunk(FAILED, {"index": 2})["error"]["choice"] == 2
    assert error_chunk(FAILED, {})["error"]["choice"] == 0


@pytest.mark.parametrize(
    ("error", "failed"),
    [
        ({"message": "No.", "code": "overloaded"}, Failed("overloaded", "No.")),
        ({"message": "No.", "type": "server_error", "code": None}, Failed("server_error", "No.")),
        ({"message": "No.", "code": 429}, Failed("429", "No.")),
        ({"message": "No."}, Failed("upstream_error", "No.")),
        ({"code": "overloaded"}, Failed("overloaded", "overloaded")),
        ({"message": "No.", "retryable": False}, Failed("upstream_error", "No.", retryable=False)),
        ("It broke.", Failed("upstream_error", "It broke.")),
        (True, Failed("upstream_error", "True")),
    ],
)
def test_the_error_that_a_host_told_itself(error: Any, failed: Failed) -> None:
    assert host_error(error) == failed


def test_the_error_that_we_tell_reads_as_it_was() -> None:
    assert host_error(error_chunk(FAILED, {"index": 0})["error"]) == FAILED
