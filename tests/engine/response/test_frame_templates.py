"""Frame templates: where in the bytes of a chunk its only text is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from moonshim.engine.dialects.openai_chat.decode import ChatDecoder
from moonshim.engine.response.frame_templates import FrameTemplate, learn_template
from moonshim.engine.wire.sse import Frame, render_sse
from tests.support.streams import chunk


def learn(value: dict[str, Any], data: bytes | None = None) -> FrameTemplate | None:
    data = json.dumps(value).encode() if data is None else data
    decoder = ChatDecoder()
    decoder.feed(value)
    only = decoder.only_text(value)
    assert only is not None
    return learn_template(Frame(render_sse(data), data), value, only)


def filled(template: FrameTemplate, text: bytes) -> Any:
    """What a frame of this shape contains, with this text."""
    return json.loads(template.frame(template.head + text + template.tail).data or b"")


def arguments(text: str, **more: Any) -> dict[str, Any]:
    return {"tool_calls": [{"index": 1, "function": {"arguments": text}, **more}]}


# a delta, the same one with another text, its channel, its index
LEARNED: dict[str, tuple[dict[str, Any], dict[str, Any], str | None, int]] = {
    "content": ({"content": "Hi"}, {"content": "x"}, "text", -1),
    "content beside no reasoning": (
        {"content": "Hi", "reasoning": None},
        {"content": "x", "reasoning": None},
        "text",
        -1,
    ),
    "content after what looks like it": (
        {"note": '"content": "Hi"', "content": "Hi"},
        {"note": '"content": "Hi"', "content": "x"},
        "text",
        -1,
    ),
    "content with escapes": ({"content": 'a "b" \\ é\n'}, {"content": "x"}, "text", -1),
    "reasoning_content": ({"reasoning_content": "Hm"}, {"reasoning_content": "x"}, "reasoning", -1),
    "reasoning": ({"reasoning": "Hm"}, {"reasoning": "x"}, "reasoning", -1),
    "arguments": (arguments('{"a'), arguments("x"), None, 1),
}


@pytest.mark.parametrize("case", LEARNED)
def test_a_chunk_with_one_text_has_a_shape_around_it(case: str) -> None:
    delta, other, channel, index = LEARNED[case]
    template = learn(chunk(delta))
    assert template is not None
    assert (template.channel, template.index) == (channel, index)
    assert filled(template, b"x") == chunk(other)


def test_a_field_that_is_there_twice_is_the_one_that_counts() -> None:
    data = b'{"choices": [{"index": 0, "delta": {"content": "first", "content": "last"}}]}'
    template = learn(json.loads(data), data)
    assert template is not None
    assert b"first" in template.head
    assert b"last" not in template.head


@pytest.mark.parametrize("key", [rb'"con\u0074ent": ', b'"content"\n: '])
def test_a_field_that_is_written_in_an_unusual_way_is_left_to_the_slow_path(key: bytes) -> None:
    data = b'{"choices": [{"index": 0, "delta": {%b"Hi"}}]}' % key
    assert learn(json.loads(data), data) is None


def test_a_text_outside_of_the_delta_is_not_taken_for_it() -> None:
    template = learn({"content": "Hi", "choices": [{"index": 0, "delta": {"content": "Hi"}}]})
    assert template is not None
    assert filled(template, b"x") == {"content": "Hi", "choices": [{"index": 0, "delta": {"content": "x"}}]}


@pytest.mark.parametrize("frame", [Frame(b"", None), Frame(b"data: {}\n\n", b"{}")])
def test_nothing_is_learned_from_a_frame_without_this_text(frame: Frame) -> None:
    value = chunk({"content": "a"})
    only = ChatDecoder().only_text(value)
    assert only is not None
    assert learn_template(frame, value, only) is None


@pytest.mark.parametrize("place", ["before", "after"])
def test_frames_leave_with_the_client_s_name_of_the_model(place: str) -> None:
    def data(model: str, text: str) -> bytes:
        fields = {"model": model, "choices": [{"index": 0, "delta": {"content": text}}]}
        return json.dumps(fields if place == "before" else dict(reversed(fields.items()))).encode()

    came, sent = data("host", "a"), data("a-longer-name", "a")
    value = json.loads(sent)
    decoder = ChatDecoder()
    only = decoder.only_text(value)
    assert only is not None
    template = learn_template(Frame(render_sse(sent), sent), value, only)
    assert template is not None
    assert template.learn_incoming(render_sse(came), render_sse(sent))
    later = render_sse(data("host", "b c"))
    assert later.startswith(template.head)
    assert later.endswith(template.tail)
    assert template.outgoing(later) == render_sse(data("a-longer-name", "b c"))
