"""The fast path gives the very bytes that the slow path gives, and takes what it can."""

from __future__ import annotations

from typing import Any

import pytest

from moonshim.engine.plan import plan_for
from moonshim.engine.prepare import prepare_request
from moonshim.engine.response.chunk_mender import ChunkMender
from moonshim.engine.response.fast_path import FastPath
from moonshim.engine.response.frame_templates import FrameTemplate
from moonshim.engine.response.stream import Mender
from moonshim.engine.wire.json_codec import decode_object
from moonshim.engine.wire.sse import Frame, render_sse
from tests.support.streams import chunk, dump_json, split_bytes, split_text

CALL = '<|tool_call_begin|>functions.ls:0<|tool_call_argument_begin|>{"a": "b c", "d": [1]}<|tool_call_end|>'


def said(text: str) -> list[dict[str, Any]]:
    return [chunk({"content": text})]


def told(*texts: str, field: str = "content") -> list[dict[str, Any]]:
    return [chunk({field: text}) for text in texts]


def grown(*texts: str) -> list[dict[str, Any]]:
    return [chunk({"tool_calls": [{"index": 0, "function": {"arguments": text}}]}) for text in texts]


def native(index: int, arguments: str, *, id: str, name: str | None = None) -> dict[str, Any]:
    function = {"arguments": arguments} | ({} if name is None else {"name": name})
    return chunk({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]})


HEADER = chunk(
    {
        "tool_calls": [
            {"index": 0, "id": "functions.ls:0", "type": "function", "function": {"name": "ls", "arguments": ""}}
        ]
    }
)
STREAMS: dict[str, list[dict[str, Any]]] = {
    "text": told("One", " two", " three", " é😀", ' "four"', "\n"),
    "text that ends like a marker": told("a", "b <", "b", "<|", "tool", "_x", " <|tool_call", " done", "<"),
    "text that ends like a bare header": told("I", " read", "_file", " and", " ls", ":0", " again", "read"),
    "text with a long tail that is no marker": told("a", "b", *"<|tool_calls_section_begin|x"),
    "reasoning, then text": [*told("H", "m", "!", field="reasoning_content"), *told("Y", "e", "s")],
    "text, then reasoning": [*told("Y", "e", "s <"), *told("H", "m", "!", field="reasoning")],
    "a call in markers": told("I ", "run", " it ", *split_text(CALL, 4), " now", "."),
    "a call in markers, with one marker a chunk": told("I run", " it ", CALL[:19], *split_text(CALL[19:], 30), " now"),
    "a call in markers within reasoning": told(
        "I ", "run", " it ", *split_text(CALL, 4), " now", field="reasoning_content"
    ),
    "a call in markers whose arguments are mended": told("I", " run", *split_text(CALL.replace("b c", "b\nc\\q"), 3)),
    "native arguments": [HEADER, *grown("{", '"a"', ': "', "b c", " d", '"', "}")],
    "native arguments that are mended": [
        HEADER,
        *grown("{", '"a"', ': "', "b\nc", "\\", "q", "\\u00", "e9", '"}', "junk"),
    ],
    "native arguments, then text": [HEADER, *grown("{", '"a":', " 1", "}"), *told("Done", ".")],
    "empty texts between": told("a", "", "b", "", "", "c"),
    "halves of a character": told("a", "b", "c\ud83d", "\ude00", "d", "\ud83d", "e"),
    "an empty object of one of two native calls, then text, then more of it": [
        *told("a", "b"),
        *(native(at, "", id=f"c{at}", name="ls") for at in (0, 1)),
        native(0, "{}", id="c0"),
        *told("c", "d"),
        native(0, '{"a": 1}', id="c0"),
        *told("e"),
    ],
    "chunks of many shapes": [
        chunk({"content": "a"}, number=number) if number % 3 else chunk({"content": "b", "number": number})
        for number in range(80)
    ],
    "a field that changes its place": [
        *told("a", "b"),
        *({**one, "id": "other"} for one in told("c", "d")),
        *told("e"),
    ],
}
STREAMS = {case: [*chunks, chunk({}, "stop")] for case, chunks in STREAMS.items()}
TOOLS = [{"type": "function", "function": {"name": name}} for name in ("ls", "read_file")]


def mended(pieces: list[bytes], *, collect: bool, framing: Any = "sse") -> tuple[bytes, Mender]:
    mender = Mender(model="kimi-k2.5", tools=TOOLS, collect=collect, framing=framing)
    return b"".join([*map(mender.feed, pieces), mender.flush()]), mender


def mended_the_long_way(pieces: list[bytes], framing: str) -> tuple[bytes, Mender]:
    def never(self: FastPath, *, is_idle: bool) -> None:
        self.template = None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FastPath, "settle", never)
        return mended(pieces, collect=True, framing=framing)


@pytest.mark.parametrize("framing", ["sse", "ndjson"])
@pytest.mark.parametrize("case", STREAMS)
def test_what_comes_out_is_what_comes_out_by_the_long_way(case: str, framing: str) -> None:
    payloads = [*map(dump_json, STREAMS[case]), b"[DONE]"]
    frames = [b"data: %b\n\n" % one if framing == "sse" else one + b"\n" for one in payloads]
    expected, long = mended_the_long_way(frames, framing)
    for pieces in (frames, [b"".join(frames)], split_bytes(b"".join(frames), 5), split_bytes(b"".join(frames), 500)):
        out, short = mended(pieces, collect=True, framing=framing)
        assert out == expected
        assert short.message == long.message
        assert short.repairs == long.repairs
    assert mended(frames, collect=False, framing=framing)[0] == expected


def test_frames_that_come_together_go_the_short_way_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [render_sse(dump_json(one)) for one in told(*"abcdefgh")]
    taken: list[bytes] = []

    def take(self: FastPath, shape: FrameTemplate, raw: bytes) -> Any:
        taken.append(raw)
        return short_take(self, shape, raw)

    short_take = FastPath.take
    monkeypatch.setattr(FastPath, "take", take)
    mender = Mender(model="kimi-k2.5")
    data = b"".join(frames)
    assert mender.feed(data[:300]) + mender.feed(data[300:]) == data
    assert taken == frames[1:]


def test_a_frame_behind_half_a_line_is_no_frame() -> None:
    frames = [render_sse(dump_json(one)) for one in told("a", "b", "c")]
    pieces = [*frames, b"data: ", frames[0], frames[1]]
    assert mended(pieces, collect=True)[0] == mended_the_long_way(pieces, "sse")[0]


def test_a_frame_that_is_too_large_is_no_more_welcome_for_its_shape() -> None:
    plan = prepare_request({"model": "m", "messages": [{"role": "user", "content": "hi"}]}, host="vllm").plan
    mender = Mender(plan=plan, limit=1000)
    mender.feed(render_sse(dump_json(chunk({"content": "a"}, model="m"))))
    out = mender.feed(render_sse(dump_json(chunk({"content": "a" * 1000}, model="m"))))
    assert b"event_too_large" in out
    assert mender.problem is not None


@pytest.mark.parametrize(
    "case",
    [
        "text",
        "text that ends like a marker",
        "text that ends like a bare header",
        "native arguments",
        "empty texts between",
    ],
)
def test_a_clean_stream_is_identical_on_both_sides(case: str) -> None:
    chunks = STREAMS[case]
    if case == "native arguments":
        chunks = [*chunks[:-1], chunk({}, "tool_calls")]
    frames = [b"data: %b\n\n" % dump_json(one) for one in chunks] + [b"data: [DONE]\n\n"]
    out, mender = mended(frames, collect=False)
    assert out == b"".join(frames)
    assert mender.repairs == []


class Way:
    """A fast path and the slow path behind it, fed frame by frame as the mender does."""

    def __init__(self) -> None:
        self.chunks: ChunkMender[Frame] = ChunkMender(plan_for(model="kimi-k2.5"))
        self.short = FastPath(self.chunks, render_sse)

    def is_ready(self) -> bool:
        """Whether the next frame may be read on the fast path."""
        return self.short.template is not None

    def long(self, value: dict[str, Any]) -> None:
        payload = dump_json(value)
        frame = Frame(render_sse(payload), payload)
        decoded = decode_object(payload)
        assert decoded is not None
        self.chunks.feed(decoded, frame)
        self.short.learn(frame, decoded)
        self.short.settle(is_idle=True)

    def take(self, value: dict[str, Any]) -> Any:
        assert self.short.template is not None
        return self.short.take(self.short.template, render_sse(dump_json(value)))


def test_one_frame_is_enough_to_know_the_next() -> None:
    way = Way()
    assert not way.is_ready()
    way.long(chunk({"content": "a"}))
    assert way.is_ready()
    assert way.take(chunk({"content": "b"})) == render_sse(dump_json(chunk({"content": "b"})))


def test_a_frame_whose_text_is_none_is_left_to_the_long_way() -> None:
    way = Way()
    way.long(chunk({"content": "a"}))
    shape = way.short.template
    assert shape is not None
    for between in (b"", b'x", "content": "y', b"\\ud83d", b"\\q", b"\n", b"\xff", b"\xed\xa0\x80"):
        assert way.short.take(shape, shape.head + between + shape.tail) is None


def test_while_text_is_held_back_no_frame_is_read_at_a_glance_on_the_long_way() -> None:
    way = Way()
    way.long(chunk({"content": "a"}))
    way.long(chunk({"content": "<"}))
    assert not way.is_ready()
    way.long(chunk({"content": "b"}))
    assert way.is_ready()


def test_a_frame_that_waits_on_the_short_way_leaves_with_the_one_that_decides() -> None:
    way = Way()
    way.long(chunk({"content": "a"}))
    assert way.take(chunk({"content": "b<"})) == b""
    both = render_sse(dump_json(chunk({"content": "b<"}))) + render_sse(dump_json(chunk({"content": "c"})))
    assert way.take(chunk({"content": "c"})) == both


def test_when_no_two_chunks_are_alike_learning_stops() -> None:
    way = Way()
    for number in range(100):
        way.long(chunk({"content": "a"}, number=number))
    last = way.short.template
    way.long(chunk({"content": "a"}, number="new"))
    assert way.short.template is last


@pytest.mark.parametrize(
    "frame",
    [
        Frame(b"", None),
        Frame(b"event: x\ndata: {}\n\n", b"{}", b"event: x\n"),
        Frame(b"data: {}\n\n", b"{}", b"", "data_without_space"),
    ],
)
def test_nothing_is_learned_from_a_frame_that_was_not_plain(frame: Frame) -> None:
    way = Way()
    way.chunks.feed(chunk({"content": "a"}), frame)
    way.short.learn(frame, chunk({"content": "a"}))
    way.short.settle(is_idle=True)
    assert not way.is_ready()
