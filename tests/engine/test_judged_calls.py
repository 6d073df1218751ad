"""Calls that a client gets with verdicts: under its ids, at the end, whatever the chunking, and whatever breaks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final

import pytest

from moonshim.engine.exchange import Exchange, JudgeOutcome, JudgeWanted, RequestTarget, SearchWanted
from moonshim.engine.prepare import read_request
from moonshim.engine.values.verdicts import CallToJudge, Verdict
from moonshim.errors import Problem
from tests.support.streams import chunk, sse

TARGET: Final = RequestTarget(key="t", host="vllm", model="kimi-k2.5")
TOOLS: Final = [{"name": name, "description": "x", "input_schema": {"type": "object"}} for name in ("Bash", "Read")]
SEARCH: Final = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
HISTORY: Final = [
    {"role": "user", "content": "Go."},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_call_0", "name": "Bash", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_call_0", "content": "ok"}]},
]
FLAGGED, ALLOWED = Verdict("flagged", "judged", "no"), Verdict("not_flagged", "judged")
BROKEN: Final = Problem(status=502, kind="server", message="gone", code="upstream_broke")


def exchange(*, stream: bool = True, tools: Iterable[Any] = TOOLS, **given: Any) -> Exchange:
    body = {"model": "kimi-k2.5", "max_tokens": 99, "messages": HISTORY, "tools": list(tools), "stream": stream}
    parsed = read_request(body, dialect="anthropic")
    one = Exchange(parsed, plays_rounds=True, judges_calls=True, reply_id="r1", **given)
    one.prepare(TARGET)
    one.start_response("text/event-stream")
    return one


def call(index: int, name: str, *pieces: str, id: str | None = None) -> list[dict[str, Any]]:
    head = {
        "index": index,
        "id": id or f"call_{index}",
        "type": "function",
        "function": {"name": name, "arguments": ""},
    }
    deltas = [{"index": index, "function": {"arguments": piece}} for piece in pieces]
    return [chunk({"tool_calls": [one]}) for one in (head, *deltas)]


HOST: Final = sse(
    [
        chunk({"role": "assistant", "content": "I do it."}),
        *call(0, "Bash", '{"command":', ' "ls"}'),
        *call(1, "Read", '{"file_path": "a"}'),
        *call(2, "Bash", '{"command": "rm x"}'),
        chunk({}, "tool_calls", usage={"prompt_tokens": 9, "completion_tokens": 8, "total_tokens": 17}),
    ]
)


def judge(calls: list[CallToJudge]) -> dict[int, Verdict]:
    return {one.index: FLAGGED if "rm" in one.arguments else ALLOWED for one in calls}


def played(data: bytes, size: int, **given: Any) -> tuple[bytes, list[CallToJudge]]:
    """The bytes for the client, and the calls in the order in which they could be judged."""
    one, out, calls = exchange(**given), b"", list[CallToJudge]()
    for at in range(0, len(data), size):
        out += one.feed(data[at : at + size])
        calls += one.take_calls()
    out += one.end()
    calls += one.take_calls()
    assert b"message_delta" not in out, "the end comes before the verdicts"
    assert one.pending == (JudgeWanted(),)
    assert one.awaits_verdicts
    return out + one.continue_with([JudgeOutcome(judge(calls))]) + one.end(), calls


def frames(out: bytes) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in out.splitlines() if line.startswith(b"data: ")]


def results(out: bytes) -> Any:
    (last,) = [frame for frame in frames(out) if frame["type"] == "message_delta"]
    return last["delta"]["safeguard_results"]


def ids(out: bytes) -> list[str]:
    starts = [frame["content_block"] for frame in frames(out) if frame["type"] == "content_block_start"]
    return [block["id"] for block in starts if block["type"] == "tool_use"]


def outcomes(out: bytes) -> list[str]:
    uses = results(out)[0]["status"]["tool_uses"]
    assert list(uses) == ids(out)
    return [use["outcome"] for use in uses.values()]


def test_chunking_changes_neither_the_calls_nor_the_response() -> None:
    expected, calls = played(HOST, len(HOST))
    assert [(one.name, json.loads(one.arguments)) for one in calls] == [
        ("Bash", {"command": "ls"}),
        ("Read", {"file_path": "a"}),
        ("Bash", {"command": "rm x"}),
    ]
    assert outcomes(expected) == ["not_flagged", "not_flagged", "flagged"]
    for size in (1, 2, 3, 7, 64, 1000):
        out, seen = played(HOST, size)
        assert seen == calls, size
        assert frames(out)[-2:] == frames(expected)[-2:], size


def test_verdicts_are_keyed_by_the_ids_that_the_client_gets_when_those_are_changed() -> None:
    """The history has the host's id already, so the client gets another one."""
    data = sse(
        [*call(0, "Bash", "{}", id="call_0"), *call(1, "Bash", '{"a": 1}', id="call_0"), chunk({}, "tool_calls")]
    )
    out, _ = played(data, len(data))
    assert len(set(ids(out)) | {"toolu_call_0"}) == 3
    assert outcomes(out) == ["not_flagged", "not_flagged"]


def test_a_whole_response_has_them_at_its_top_level() -> None:
    one = exchange(stream=False)
    one.feed(HOST)
    one.end()
    assert one.pending is not None
    message = json.loads(one.continue_with([JudgeOutcome(judge(one.take_calls()))]) + one.end())
    uses = message["safeguard_results"][0]["status"]["tool_uses"]
    assert [uses[block["id"]]["outcome"] for block in message["content"] if block["type"] == "tool_use"] == [
        "not_flagged",
        "not_flagged",
        "flagged",
    ]


def test_calls_in_markers_are_judged_too() -> None:
    text = (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.Bash:0<|tool_call_argument_begin|>"
        '{"command": "rm x"}<|tool_call_end|><|tool_calls_section_end|>'
    )
    out, _ = played(sse([chunk({"role": "assistant", "content": text}), chunk({}, "stop")]), 5)
    assert outcomes(out) == ["flagged"]


def test_a_call_without_a_verdict_is_flagged() -> None:
    one = exchange()
    out = one.feed(HOST) + one.end()
    out += one.continue_with([JudgeOutcome({})]) + one.end()
    assert outcomes(out) == ["flagged"] * 3


ENDINGS: Final[dict[str, Callable[[Exchange], bytes]]] = {
    "the connection breaks": lambda one: one.fail(BROKEN),
    "the gateway stops": lambda one: one.end() + one.fail(BROKEN),
}


@pytest.mark.parametrize("end", ENDINGS.values(), ids=ENDINGS.keys())
def test_a_complete_response_that_cannot_wait_for_its_verdicts_ends_well_with_all_calls_flagged(
    end: Callable[[Exchange], bytes],
) -> None:
    one = exchange()
    out = one.feed(HOST)
    assert one.awaits_verdicts
    out += end(one)
    assert outcomes(out) == ["flagged"] * 3
    assert frames(out)[-1]["type"] == "message_stop"


def test_a_response_that_breaks_off_has_no_verdicts() -> None:
    one = exchange()
    out = one.feed(HOST[: HOST.index(b"rm x")]) + one.fail(BROKEN)
    assert frames(out)[-1]["type"] == "error"
    assert b"safeguard_results" not in out


def test_calls_beside_a_search_wait_for_both() -> None:
    one = exchange(tools=[*TOOLS, SEARCH], search_access="provider")
    data = sse(
        [*call(0, "Bash", '{"command": "ls"}'), *call(1, "web_search", '{"query": "k"}'), chunk({}, "tool_calls")]
    )
    out = one.feed(data) + one.end()
    searches = [wanted for wanted in one.pending or () if isinstance(wanted, SearchWanted)]
    assert len(searches) == 1
    assert not one.awaits_verdicts
    out += one.continue_with([JudgeOutcome(judge(one.take_calls()))]) + one.end()
    assert outcomes(out) == ["not_flagged"]


def test_a_search_alone_is_followed_by_a_round_and_its_calls_are_judged() -> None:
    one = exchange(tools=[*TOOLS, SEARCH], search_access="provider")
    out = one.feed(sse([*call(0, "web_search", '{"query": "k"}'), chunk({}, "tool_calls")])) + one.end()
    assert one.take_calls() == []
    assert not any(isinstance(wanted, JudgeWanted) for wanted in one.pending or ())
    out += one.continue_with([])
    assert one.ending is None
    one.start_response("text/event-stream")
    out += one.feed(sse([*call(0, "Bash", '{"command": "rm x"}'), chunk({}, "tool_calls")])) + one.end()
    out += one.continue_with([JudgeOutcome(judge(one.take_calls()))]) + one.end()
    assert outcomes(out) == ["flagged"]
