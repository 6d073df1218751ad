"""A code fence around an answer that should be JSON is removed if it is all of the answer; anything else passes."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from moonshim import Mender, mend_response, prepare_request
from moonshim.engine.plan import Plan
from moonshim.engine.repair.json_fence import JsonFence
from moonshim.engine.values.events import BlockClosed, BlockDelta, BlockOpened, Event, Failed, Finished, Repaired
from tests.support.streams import ReceivedChoice, chunk, parse_payloads, read_chunks, read_sse, sse

Json = dict[str, Any]
JSON: Final = '{"city": "Paris", "note": "```", "days": [1, 2]}'
FORMAT: Final[Json] = {"response_format": {"type": "json_object"}}
TOOLS: Final[Json] = {"tools": [{"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}]}
FENCED: Final = {
    "label": f"```json\n{JSON}\n```",
    "no label": f"```\n{JSON}\n```",
    "capitals": f"```JSON\r\n{JSON}\r\n```",
    "white space around it": f"\n\n  ```json  \n\n{JSON}\n\n```\n \n",
    "one line": f"```{JSON}```",
}
AS_IT_IS: Final = {
    "raw": JSON,
    "prose": "Certainly! I tell it in words.",
    "words before it": f"Here:\n```json\n{JSON}\n```",
    "words after it": f"```json\n{JSON}\n```\nThat is all.",
    "two fences": f"```json\n{JSON}\n```\n```json\n{JSON}\n```",
    "never closed": f"```json\n{JSON}",
    "no JSON in it": "```json\n{city: Paris}\n```",
    "another language": "```python\nprint(1)\n```",
    "empty": "```json\n```",
    "only a fence": "```",
    "two backticks": "``",
    "tildes": f"~~~json\n{JSON}\n~~~",
    "too deep": "```json\n" + "[" * 100_000 + "\n```",
    "white space": " \n ",
}
SIZES: Final = (1, 2, 3, 7, 1000)


def plan(fields: Json = FORMAT, *, dialect: str = "openai_chat", host: str = "generic") -> Plan:
    upstream = "anthropic" if dialect == "anthropic" else "openai_chat"
    messages = [{"role": "user", "content": "The weather."}]
    body = {"model": "kimi-k2.5", "max_tokens": 100, "messages": messages, "stream": True} | fields
    return prepare_request(body, dialect="openai_chat", upstream=upstream, host=host).plan


def stream_of(text: str, size: int) -> bytes:
    deltas = [{"content": text[at : at + size]} for at in range(0, len(text), size)]
    return sse([chunk({"role": "assistant"}), *(chunk(delta) for delta in deltas), chunk({}, "stop")])


def mended(given: Plan, data: bytes) -> tuple[bytes, list[str]]:
    mender = Mender(plan=given)
    out = mender.feed(data) + mender.flush()
    return out, [repair.rule for repair in mender.repairs]


def received(out: bytes) -> ReceivedChoice:
    return read_chunks(parse_payloads(read_sse(out)))[0]


@pytest.mark.parametrize("fenced", FENCED.values(), ids=FENCED)
def test_a_fence_around_all_of_the_answer_is_removed(fenced: str) -> None:
    for size in SIZES:
        out, rules = mended(plan(), stream_of(fenced, size))
        assert received(out).content == JSON, size
        assert rules == ["json_fence"], size
        assert received(out).finish == "stop"


@pytest.mark.parametrize("text", AS_IT_IS.values(), ids=AS_IT_IS)
def test_any_other_answer_arrives_as_the_model_wrote_it(text: str) -> None:
    for size in SIZES if len(text) < 1000 else (1000,):
        out, rules = mended(plan(), stream_of(text, size))
        assert received(out).content == text, size
        assert "json_fence" not in rules


def test_json_without_a_fence_passes_byte_for_byte() -> None:
    data = stream_of(JSON, 3)
    assert mended(plan(), data) == (data, [])


def test_nothing_is_removed_where_the_client_did_not_ask_for_json() -> None:
    data = stream_of(FENCED["label"], 3)
    assert mended(plan({}), data) == (data, [])
    assert mended(plan({"response_format": {"type": "text"}}), data) == (data, [])


def test_a_whole_response_is_treated_like_a_stream() -> None:
    for text, expected in [*((one, JSON) for one in FENCED.values()), *((one, one) for one in AS_IT_IS.values())]:
        message = {"role": "assistant", "content": text}
        body = {"id": "c", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
        assert mend_response(body, plan=plan()).body["choices"][0]["message"]["content"] == expected, text[:40]


def test_a_fence_before_a_call_stays() -> None:
    """The text is not the answer then."""
    call = {"index": 0, "id": "functions.run:0", "type": "function", "function": {"name": "run", "arguments": "{}"}}
    deltas: list[Json] = [{"content": FENCED["label"]}, {"tool_calls": [call]}]
    chunks = [chunk({"role": "assistant"}), *(chunk(delta) for delta in deltas), chunk({}, "tool_calls")]
    out, rules = mended(plan(FORMAT | TOOLS), sse(chunks))
    assert received(out).content == FENCED["label"]
    assert rules == []


def test_a_call_that_is_shown_in_the_json_stays_text() -> None:
    """Without the fence, nothing says any more that it is an example: so it is taken off after markers are read."""
    call = "<|tool_call_begin|>functions.run:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
    inside = json.dumps({"example": f"so: {call} "})
    for size in SIZES:
        out, _ = mended(plan(FORMAT | TOOLS), stream_of(f"```json\n{inside}\n```", size))
        assert not received(out).calls, size
        assert received(out).content == inside, size


def test_an_answer_over_the_limit_is_not_held() -> None:
    fence, head, tail = JsonFence(100), "```json\n[", "0, " * 100
    events: list[Event] = [BlockOpened(0, "text"), BlockDelta(0, head), BlockDelta(0, tail)]
    assert fence.feed(events) == events
    rest: list[Event] = [BlockDelta(0, "0]\n```"), BlockClosed(0), Finished("stop")]
    assert fence.feed(rest) == rest


def test_a_response_that_fails_keeps_what_came() -> None:
    fence = JsonFence(1000)
    events: list[Event] = [BlockOpened(0, "text"), BlockDelta(0, FENCED["label"]), BlockClosed(0)]
    assert fence.feed(events) == []
    assert fence.feed([Failed("stream_ended", "no")]) == [*events, Failed("stream_ended", "no")]


def test_reasoning_passes_at_once() -> None:
    fence = JsonFence(1000)
    thought: list[Event] = [BlockOpened(0, "reasoning"), BlockDelta(0, "```"), BlockClosed(0)]
    assert fence.feed(thought) == thought
    said: list[Event] = [BlockOpened(1, "text"), BlockDelta(1, "```json\n1\n```"), BlockClosed(1)]
    assert fence.feed(said) == []
    released = fence.feed([Finished("stop")])
    assert [event for event in released if not isinstance(event, Repaired)] == [
        BlockOpened(1, "text"),
        BlockDelta(1, "1"),
        BlockClosed(1),
        Finished("stop"),
    ]
