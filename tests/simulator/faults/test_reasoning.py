"""Thoughts in every field, order and shape."""

from __future__ import annotations

from typing import Any, Final

import pytest

from moonshim.simulator.faults.reasoning import FAULTS
from moonshim.simulator.request import Json, Wire
from moonshim.simulator.response import HostResponse
from tests.simulator.faults.answers import PARIS, WIRES, answer_to, apply_speech, by_name, payloads_of, sim_request

ROWS: Final = by_name(FAULTS)
THOUGHT: Final = "Let me see."
FIELDS: Final = ("reasoning_content", "reasoning", "reasoning_details")


def answer(*, stream: bool, generation: str = "k3", wire: Wire = "openai_chat") -> HostResponse:
    return answer_to(sim_request(generation, wire, stream=stream), PARIS, reasoning=THOUGHT)


def deltas_of(name: str) -> list[Json]:
    return [choice["delta"] for one in payloads_of(ROWS[name], answer(stream=True)) for choice in one["choices"]]


def message_of(name: str) -> Json:
    message: Json = payloads_of(ROWS[name], answer(stream=False))["choices"][0]["message"]
    return message


def events_of(name: str) -> list[Json]:
    events: list[Json] = payloads_of(ROWS[name], answer(stream=True, wire="anthropic"))
    return events


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("reasoning-content", {"reasoning_content"}),
        ("reasoning", {"reasoning"}),
        ("reasoning-details", {"reasoning", "reasoning_details"}),
        ("reasoning-summary", {"reasoning_details"}),
        ("reasoning-copies", {"reasoning_content", "reasoning"}),
    ],
)
def test_thoughts_stand_in_these_fields_and_no_others(name: str, fields: set[str]) -> None:
    received = [{field for field in FIELDS if delta.get(field)} for delta in deltas_of(name)]
    assert {frozenset(one) for one in received if one} == {frozenset(fields)}
    assert {field for field in FIELDS if message_of(name).get(field)} == fields
    for field in fields - {"reasoning_details"}:
        assert "".join(delta.get(field, "") for delta in deltas_of(name)) == THOUGHT
        assert message_of(name)[field] == THOUGHT


def test_details_are_a_text_or_a_summary_and_an_encrypted_entry() -> None:
    streamed = [entry for delta in deltas_of("reasoning-summary") for entry in delta.get("reasoning_details", ())]
    assert "".join(entry.get("summary", "") for entry in streamed) == THOUGHT
    assert streamed[-1].keys() == {"index", "type", "encrypted"}
    whole = message_of("reasoning-summary")["reasoning_details"]
    assert [entry["type"] for entry in whole] == ["summary", "encrypted"]
    assert not any("index" in entry for entry in whole)
    texts = [entry for delta in deltas_of("reasoning-details") for entry in delta.get("reasoning_details", ())]
    assert "".join(entry["text"] for entry in texts) == THOUGHT


def test_fields_without_thoughts_are_null() -> None:
    assert all(delta.keys() >= set(FIELDS) for delta in deltas_of("null-reasoning"))
    assert message_of("null-reasoning")["reasoning"] is None
    assert message_of("null-reasoning")["reasoning_content"] == THOUGHT


def test_thoughts_are_told_as_empty() -> None:
    assert {delta["reasoning_content"] for delta in deltas_of("empty-reasoning") if "reasoning_content" in delta} == {
        ""
    }
    assert message_of("empty-reasoning")["reasoning_content"] == ""
    kinds = [one["content_block"]["type"] for one in events_of("empty-reasoning") if "content_block" in one]
    assert kinds == ["thinking", "text", "tool_use"]
    assert not [one for one in events_of("empty-reasoning") if one.get("delta", {}).get("type") == "thinking_delta"]
    whole = payloads_of(ROWS["empty-reasoning"], answer(stream=False, wire="anthropic"))
    assert whole["content"][0] == {"type": "thinking", "thinking": "", "signature": ""}


def order_of(deltas: list[Json]) -> list[str]:
    """What comes, each kind once for each time that it begins."""
    keys = [key for delta in deltas for key in ("reasoning_content", "content", "tool_calls") if delta.get(key)]
    return [key for at, key in enumerate(keys) if at == 0 or keys[at - 1] != key]


def test_the_last_thought_and_the_first_text_share_a_delta() -> None:
    both = [
        delta for delta in deltas_of("reasoning-with-text") if delta.get("content") and "reasoning_content" in delta
    ]
    assert both == [{"reasoning_content": ".", "content": "I"}]
    assert "".join(delta.get("content", "") for delta in deltas_of("reasoning-with-text")) == "I look."


def test_thoughts_come_behind_the_text_and_before_the_calls() -> None:
    assert order_of(deltas_of("reasoning-after-text")) == ["content", "reasoning_content", "tool_calls"]
    starts = [one for one in events_of("reasoning-after-text") if one["type"] == "content_block_start"]
    assert [(one["index"], one["content_block"]["type"]) for one in starts] == [
        (0, "text"),
        (1, "thinking"),
        (2, "tool_use"),
    ]


def test_a_thought_of_somebody_else_comes_first() -> None:
    reply = apply_speech(ROWS["foreign-reasoning"], answer(stream=True))
    assert reply.reasoning.endswith(THOUGHT)
    assert reply.reasoning != THOUGHT


@pytest.mark.parametrize(("name", "finish"), [("stops-after-thinking", "stop"), ("limit-spent-thinking", "length")])
@pytest.mark.parametrize("wire", WIRES)
def test_nothing_comes_behind_the_thoughts(wire: Wire, name: str, finish: str) -> None:
    reply = apply_speech(ROWS[name], answer(stream=True, wire=wire))
    received: tuple[Any, ...] = (reply.reasoning, reply.text, reply.calls, reply.finish)
    assert received == (THOUGHT, "", (), finish)
    assert ROWS[name].lost
