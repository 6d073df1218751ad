"""Shapes: where in a chunk's bytes its only text stands, learned only where nothing else can be told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from moonshim.engine.plan import plan_for
from moonshim.engine.repair.repair_log import RepairLog
from moonshim.engine.response.choice import Choice
from moonshim.engine.response.frame_templates import FrameTemplate, learn_template
from tests.support.streams import chunk


def learn(value: dict[str, Any], data: bytes | None = None) -> FrameTemplate | None:
    data = json.dumps(value).encode() if data is None else data
    state = Choice(0, plan_for(model="kimi-k2.5"), RepairLog(), collect=False)
    return learn_template(b"data: " + data + b"\n\n", data, value, state)


def arguments(text: str, **more: Any) -> dict[str, Any]:
    return {"tool_calls": [{"index": 1, "function": {"arguments": text}, **more}]}


# a delta, the same one with another text, its channel, its index
LEARNED: dict[str, tuple[dict[str, Any], dict[str, Any], str | None, int]] = {
    "content": ({"content": "Hi"}, {"content": "x"}, "text", -1),
    "content beside a role": ({"role": "a", "content": "Hi"}, {"role": "a", "content": "x"}, "text", -1),
    "content beside no reasoning": (
        {"content": "Hi", "reasoning": None},
        {"content": "x", "reasoning": None},
        "text",
        -1,
    ),
    "content behind what looks like it": (
        {"refusal": '"content": "Hi"', "content": "Hi"},
        {"refusal": '"content": "Hi"', "content": "x"},
        "text",
        -1,
    ),
    "content with escapes": ({"content": 'a "b" \\ é\n'}, {"content": "x"}, "text", -1),
    "reasoning_content": ({"reasoning_content": "Hm"}, {"reasoning_content": "x"}, "reasoning", -1),
    "reasoning": ({"reasoning": "Hm"}, {"reasoning": "x"}, "reasoning", -1),
    "arguments": (arguments('{"a'), arguments("x"), None, 1),
}


@pytest.mark.parametrize("case", LEARNED)
def test_a_chunk_that_tells_one_text_has_a_shape_around_it(case: str) -> None:
    delta, other, channel, index = LEARNED[case]
    shape = learn(chunk(delta))
    assert shape is not None
    assert (shape.channel, shape.index) == (channel, index)
    assert json.loads(shape.payload(shape.head + b"x" + shape.tail)) == chunk(other)


NOT_LEARNED: dict[str, dict[str, Any]] = {
    "no text": chunk({"role": "assistant"}),
    "an empty text": chunk({"content": ""}),
    "two texts": chunk({"content": "a", "reasoning": "b"}),
    "two copies of the reasoning": chunk({"reasoning": "a", "reasoning_content": "a"}),
    "reasoning in details": chunk({"reasoning_details": [{"text": "a"}]}),
    "a finish reason": chunk({"content": "a"}, "stop"),
    "a finish reason in the delta": chunk({"content": "a", "finish_reason": "stop"}),
    "usage": chunk({"content": "a"}, usage={"total_tokens": 1}),
    "usage in the choice": {"choices": [{"index": 0, "delta": {"content": "a"}, "usage": {"total_tokens": 1}}]},
    "two choices": {"choices": [{"index": 0, "delta": {"content": "a"}}, {"index": 1, "delta": {"content": "b"}}]},
    "no choices": {"choices": []},
    "choices that are none": {"choices": "x"},
    "a choice that is none": {"choices": [7]},
    "a delta that is none": {"choices": [{"index": 0, "delta": None}]},
    "a header of a call": chunk(arguments("{", id="x")),
    "a call with a name": chunk({"tool_calls": [{"index": 0, "function": {"name": "ls", "arguments": "{"}}]}),
    "a call with other fields": chunk(arguments("{", cache=1)),
    "a call without an index": chunk({"tool_calls": [{"function": {"arguments": "{"}}]}),
    "two calls": chunk({"tool_calls": [*arguments("{")["tool_calls"], *arguments("}")["tool_calls"]]}),
    "a call beside text": chunk({"content": "a", **arguments("{")}),
}


@pytest.mark.parametrize("case", NOT_LEARNED)
def test_a_chunk_that_may_tell_more_has_no_shape(case: str) -> None:
    assert learn(NOT_LEARNED[case]) is None


def test_a_field_that_is_there_twice_is_the_one_that_counts() -> None:
    data = b'{"choices": [{"index": 0, "delta": {"content": "first", "content": "last"}}]}'
    shape = learn(json.loads(data), data)
    assert shape is not None
    assert b"first" in shape.head
    assert b"last" not in shape.head


@pytest.mark.parametrize("key", [rb'"con\u0074ent": ', b'"content"\n: '])
def test_a_field_that_is_written_in_an_unusual_way_is_left_to_the_long_way(key: bytes) -> None:
    data = b'{"choices": [{"index": 0, "delta": {%b"Hi"}}]}' % key
    assert learn(json.loads(data), data) is None


def test_a_text_that_stands_outside_of_the_delta_is_not_taken_for_it() -> None:
    value = {"content": "Hi", "choices": [{"index": 0, "delta": {"content": "Hi"}}]}
    shape = learn(value)
    assert shape is not None
    assert json.loads(shape.payload(shape.head + b"x" + shape.tail)) == {
        "content": "Hi",
        "choices": [{"index": 0, "delta": {"content": "x"}}],
    }


def test_in_the_place_of_a_text_a_chunk_can_tell_that_a_call_grew_and_keeps_its_fields() -> None:
    shape = learn(chunk({"content": "Hi"}, provider="Moon"))
    assert shape is not None
    before, after = shape.argument_frame(3)
    grown = json.loads(before + b'"{}"' + after)
    assert grown == chunk({"tool_calls": [{"index": 3, "function": {"arguments": "{}"}}]}, provider="Moon")
    assert shape.argument_frame(3) == (before, after)
