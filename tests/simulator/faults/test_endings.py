"""How answers end, and what their streams say of it and of tokens."""

from __future__ import annotations

from typing import Any, Final

import pytest
from msgspec.structs import replace

from moonshim.simulator.fault import Piece
from moonshim.simulator.faults.endings import FAULTS
from moonshim.simulator.request import Json, Wire
from moonshim.simulator.response import HostResponse, TokenTotals
from moonshim.simulator.wire.chat import DONE, chat_frames
from tests.simulator.faults.answers import PARIS, WIRES, answer_to, apply_speech, by_name, payloads_of, sim_request

ROWS: Final = by_name(FAULTS)
TALLY: Final = TokenTotals(prompt=10, cached=2, completion=7, reasoning=3)


def answer(*calls: tuple[str, str], stream: bool = True, wire: Wire = "openai_chat") -> HostResponse:
    return replace(answer_to(sim_request(wire=wire, stream=stream), *calls), tally=TALLY)


def chunks_of(name: str, *calls: tuple[str, str]) -> list[Json]:
    chunks: list[Json] = payloads_of(ROWS[name], answer(*calls))
    return chunks


def choices_of(name: str, *calls: tuple[str, str]) -> list[Json]:
    return [choice for chunk in chunks_of(name, *calls) for choice in chunk.get("choices", ())]


def finishes_of(name: str, *calls: tuple[str, str]) -> list[Any]:
    return [choice["finish_reason"] for choice in choices_of(name, *calls) if choice["finish_reason"] is not None]


@pytest.mark.parametrize(
    ("name", "calls", "chat", "messages"),
    [
        ("stop-with-calls", [PARIS], "stop", "end_turn"),
        ("tool-calls-without-calls", [], "tool_calls", "tool_use"),
        ("tool-calls-without-calls", [PARIS], "tool_calls", "tool_use"),
        ("finish-function-call", [PARIS], "function_call", None),
        ("finish-function-call", [], "stop", None),
        ("finish-eos", [], "eos", None),
        ("finish-length", [PARIS], "length", "max_tokens"),
    ],
)
def test_the_reason_is_another(name: str, calls: list[tuple[str, str]], chat: str, messages: str | None) -> None:
    assert finishes_of(name, *calls) == [chat]
    whole = payloads_of(ROWS[name], answer(*calls, stream=False))
    assert whole["choices"][0]["finish_reason"] == chat
    if messages is not None:
        events = payloads_of(ROWS[name], answer(*calls, wire="anthropic"))
        assert [one["delta"]["stop_reason"] for one in events if one["type"] == "message_delta"] == [messages]


def test_no_chunk_says_how_the_answer_ends() -> None:
    assert finishes_of("no-finish", PARIS) == []
    events = payloads_of(ROWS["no-finish"], answer(PARIS, wire="anthropic"))
    assert [one["delta"]["stop_reason"] for one in events if one["type"] == "message_delta"] == [None]


def test_the_reason_comes_twice_or_empty() -> None:
    assert finishes_of("finish-twice", PARIS) == ["tool_calls", "stop"]
    assert set(finishes_of("empty-finish", PARIS)[:-1]) == {""}
    assert finishes_of("empty-finish", PARIS)[-1] == "tool_calls"


@pytest.mark.parametrize("wire", WIRES)
def test_an_overloaded_engine_ends_the_answer_in_the_middle(wire: Wire) -> None:
    fault = ROWS["finish-overloaded"]
    payloads = payloads_of(fault, answer(PARIS, wire=wire))
    assert len(payloads) < len(payloads_of(replace(fault, chunks=None), answer(PARIS, wire=wire)))
    assert b"engine_overloaded" in chat_frames(payloads[-2:])[0 if wire == "anthropic" else 1]
    assert fault.fatal


def usages_of(name: str) -> tuple[list[Json], list[Json]]:
    """Those of the chunks, and those of their choices."""
    chunks = chunks_of(name, PARIS)
    return (
        [chunk["usage"] for chunk in chunks if chunk.get("usage")],
        [choice["usage"] for chunk in chunks for choice in chunk.get("choices", ()) if choice.get("usage")],
    )


@pytest.mark.parametrize(
    ("name", "counts"),
    [("usage-in-choice", (0, 1)), ("usage-last", (1, 0)), ("usage-with-finish", (1, 0)), ("no-usage", (0, 0))],
)
def test_tokens_are_told_in_these_places(name: str, counts: tuple[int, int]) -> None:
    top, inner = usages_of(name)
    assert (len(top), len(inner)) == counts
    assert {usage["total_tokens"] for usage in (*top, *inner)} <= {17}


def test_tokens_are_told_with_the_finish_or_behind_it() -> None:
    assert chunks_of("usage-with-finish")[-1]["choices"][0]["finish_reason"] == "stop"
    assert chunks_of("usage-last")[-1]["choices"] == []
    assert "choices" not in chunks_of("usage-without-choices")[-1]


def test_every_chunk_tells_the_tokens_so_far_and_the_last_tells_all() -> None:
    counts = [usage["completion_tokens"] for usage in usages_of("usage-in-each-chunk")[0]]
    assert len(counts) == len(chunks_of("usage-in-each-chunk", PARIS))
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, 7)


def test_usage_is_null_or_nowhere() -> None:
    assert all("usage" in chunk for chunk in chunks_of("null-usage"))
    assert "usage" not in payloads_of(ROWS["no-usage"], answer(stream=False))


def test_the_first_chunk_has_no_choice_and_nobody_says_the_role() -> None:
    assert chunks_of("no-choices-first")[0]["choices"] == []
    assert not any("role" in choice["delta"] for choice in choices_of("no-role", PARIS))


def frames_of(name: str) -> list[Piece]:
    fault = ROWS[name].frames
    assert fault is not None
    return fault(chat_frames([{"n": 1}, {"n": 2}]), answer())


def test_the_stream_ends_once_twice_or_never() -> None:
    one, two = chat_frames([{"n": 1}, {"n": 2}])[:2]
    assert frames_of("no-done") == [one, two]
    assert frames_of("done-twice") == [one, two, DONE, DONE]
    assert frames_of("data-after-done") == [one, two, DONE, two]


def test_of_calls_that_a_parser_swallows_only_the_tokens_are_left() -> None:
    whole = payloads_of(ROWS["calls-swallowed"], answer(PARIS, stream=False))
    assert "tool_calls" not in whole["choices"][0]["message"]
    assert whole["usage"]["completion_tokens"] == TALLY.completion


@pytest.mark.parametrize("name", ["empty-answer", "nonsense", "announced-call", "calls-swallowed"])
def test_what_was_meant_is_gone_and_nothing_shows_it(name: str) -> None:
    reply = apply_speech(ROWS[name], answer(PARIS))
    assert ROWS[name].lost
    assert reply.calls == ()
    assert reply.finish in {"stop", "length"}
    assert reply.intended == answer(PARIS).intended
