"""Anthropic's Messages: blocks within their bounds, and a stream that says what the whole answer says."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from moonshim.simulator.response import Cut, NativeCall
from moonshim.simulator.wire.messages import messages_events, messages_whole
from tests.simulator.asking import MEANT, answer


def types(events: list[dict[str, Any]]) -> list[str]:
    """The type of each event, each once in a row; a delta by its own type."""
    found: list[str] = []
    for event in events:
        kind = event["delta"]["type"] if event["type"] == "content_block_delta" else event["type"]
        if found[-1:] != [kind]:
            found.append(kind)
    return found


def test_a_stream_has_its_blocks_one_after_the_other() -> None:
    block = ["content_block_start", "{}", "content_block_stop"]
    kinds = ("thinking_delta", "text_delta", "input_json_delta", "input_json_delta")
    blocks = [part.replace("{}", kind) for kind in kinds for part in block]
    assert types(messages_events(answer())) == ["message_start", "ping", *blocks, "message_delta", "message_stop"]


@pytest.mark.parametrize("cut", get_args(Cut))
def test_a_stream_says_what_the_whole_answer_says(cut: Cut) -> None:
    blocks: list[dict[str, Any]] = []
    for event in messages_events(answer(cut=cut)):
        if event["type"] == "content_block_start":
            blocks.append(dict(event["content_block"]) | {"input_text": ""})
        if event["type"] == "content_block_delta":
            (field,) = event["delta"].keys() - {"type"}
            into = "input_text" if field == "partial_json" else field
            blocks[event["index"]][into] += event["delta"][field]
    whole = messages_whole(answer())
    assert [block["type"] for block in blocks] == [block["type"] for block in whole["content"]]
    assert (blocks[0]["thinking"], blocks[1]["text"]) == (MEANT.reasoning, MEANT.text)
    assert [json.loads(block["input_text"]) for block in blocks[2:]] == [
        block["input"] for block in whole["content"][2:]
    ]
    assert [block["input_text"] for block in blocks[2:]] == [call.arguments for call in MEANT.calls]


def test_thoughts_are_signed_before_their_block_ends_where_the_host_signs() -> None:
    events = messages_events(answer(signature="c2ln"))
    at = next(number for number, event in enumerate(events) if event["type"] == "content_block_stop")
    assert events[at - 1]["delta"] == {"type": "signature_delta", "signature": "c2ln"}
    assert messages_whole(answer(signature="c2ln"))["content"][0]["signature"] == "c2ln"


def test_what_the_cache_knew_is_told_apart() -> None:
    start, *_, delta, _ = messages_events(answer())
    received = {"input_tokens": 36, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 64}
    assert start["message"]["usage"] == received | {"output_tokens": 0}
    assert delta["usage"] == messages_whole(answer())["usage"] == received | {"output_tokens": 30}


@pytest.mark.parametrize(
    ("finish", "reason"),
    [("stop", "end_turn"), ("tool_calls", "tool_use"), ("length", "max_tokens"), ("engine_overloaded",) * 2],
)
def test_the_end_is_told_in_the_words_of_messages(finish: str, reason: str) -> None:
    assert messages_events(answer(finish=finish))[-2]["delta"]["stop_reason"] == reason


def test_a_stop_sequence_is_named() -> None:
    whole = messages_whole(answer(calls=(), finish="stop", stopped_by="END"))
    assert (whole["stop_reason"], whole["stop_sequence"]) == ("stop_sequence", "END")


def test_arguments_that_are_no_object_stay_a_text() -> None:
    cut = answer(calls=(NativeCall("tool_1", "weather", '{"city": "Bei'),))
    assert messages_whole(cut)["content"][-1]["input"] == '{"city": "Bei'
