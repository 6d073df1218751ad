"""The SSE framer: any split of the bytes gives the same frames, and what is right already is left alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.engine.wire.sse import Frame, FrameFault, SseFramer, merge_comments, render_sse
from tests.support.looped import looped

BOM = b"\xef\xbb\xbf"
DEEP = b"[" * 100_000


def run(pieces: Iterable[bytes], max_event_bytes: int = 1 << 24) -> list[Frame]:
    framer = SseFramer(max_event_bytes)
    return [frame for piece in pieces for frame in framer.feed(piece)] + framer.flush()


def by_size(text: bytes, size: int) -> list[bytes]:
    return [text[i : i + size] for i in range(0, len(text), size)]


def by_cuts(text: bytes, cuts: Sequence[int]) -> list[bytes]:
    at = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[a:b] for a, b in pairwise(at)]


def joined(frames: Iterable[Frame]) -> bytes:
    return b"".join(frame.raw for frame in frames)


def blank(fault: FrameFault | None = None) -> Frame:
    return Frame(b"\n", None, b"", fault)


CASES: dict[str, tuple[bytes, list[Frame]]] = {
    "nothing": (b"", []),
    "one event": (b"data: {}\n\n", [Frame(b"data: {}\n\n", b"{}")]),
    "two events": (b"data: 1\n\ndata: 2\n\n", [Frame(b"data: 1\n\n", b"1"), Frame(b"data: 2\n\n", b"2")]),
    "the end of the stream": (b"data: [DONE]\n\n", [Frame(b"data: [DONE]\n\n", b"[DONE]")]),
    "only the first space is taken off": (b"data:  x \n\n", [Frame(b"data:  x \n\n", b" x ")]),
    "no space": (b"data:x\n\n", [Frame(b"data: x\n\n", b"x", b"", "data_without_space")]),
    "a tab is no space": (b"data:\tx\n\n", [Frame(b"data: \tx\n\n", b"\tx", b"", "data_without_space")]),
    "empty data": (b"data: \n\n", [Frame(b"data: \n\n", b"")]),
    "data without colon": (b"data\n\n", [Frame(b"data: \n\n", b"", b"", "data_without_space")]),
    "an empty data line": (b"data:\n\n", [Frame(b"data: \n\n", b"", b"", "data_without_space")]),
    "a name that begins like data": (b"database: x\n\n", [Frame(b"database: x\n\n", None, b"database: x\n")]),
    "names are case-sensitive": (b"Data: x\n\n", [Frame(b"Data: x\n\n", None, b"Data: x\n")]),
    "CRLF": (b"data: x\r\n\r\n", [Frame(b"data: x\n\n", b"x", b"", "line_endings")]),
    "CR": (b"data: x\r\rdata: y\r\r", [Frame(b"data: %b\n\n" % d, d, b"", "line_endings") for d in (b"x", b"y")]),
    "LF, then CR": (
        b"data: x\n\rdata: y\n\n",
        [Frame(b"data: x\n\n", b"x", b"", "line_endings"), Frame(b"data: y\n\n", b"y")],
    ),
    "LF, then CRLF": (
        b"data: x\n\r\ndata: y\n\n",
        [Frame(b"data: x\n\n", b"x", b"", "line_endings"), Frame(b"data: y\n\n", b"y")],
    ),
    "CR, then CRLF": (b"data: x\r\r\n\n", [Frame(b"data: x\n\n", b"x", b"", "line_endings"), blank()]),
    "CRLF, then LF": (
        b"data: x\r\n\ndata: y\n\n",
        [Frame(b"data: x\n\n", b"x", b"", "line_endings"), Frame(b"data: y\n\n", b"y")],
    ),
    "CRLF for one event alone": (
        b"data: 1\n\ndata: 2\r\n\r\ndata: 3\n\n",
        [Frame(b"data: 1\n\n", b"1"), Frame(b"data: 2\n\n", b"2", b"", "line_endings"), Frame(b"data: 3\n\n", b"3")],
    ),
    "CRLF, then an event begun with LF": (
        b"data: 1\r\n\r\nid: 2\ndata: 2\n\n",
        [Frame(b"data: 1\n\n", b"1", b"", "line_endings"), Frame(b"id: 2\ndata: 2\n\n", b"2", b"id: 2\n")],
    ),
    "a missing space weighs more than CRLF": (
        b"data:x\r\n\r\n",
        [Frame(b"data: x\n\n", b"x", b"", "data_without_space")],
    ),
    "a comment": (b": keep-alive\n\n", [Frame(b": keep-alive\n\n", None, b": keep-alive\n")]),
    "a comment with CRLF": (b":\r\n\r\n", [Frame(b":\n\n", None, b":\n", "line_endings")]),
    "a comment before data": (b": ping\ndata: x\n\n", [Frame(b": ping\ndata: x\n\n", b"x", b": ping\n")]),
    "event, id, retry, unknown": (
        b"event: e\nid: 7\nretry: 10\nx-new\ndata: x\n\n",
        [Frame(b"event: e\nid: 7\nretry: 10\nx-new\ndata: x\n\n", b"x", b"event: e\nid: 7\nretry: 10\nx-new\n")],
    ),
    "fields after the data stay where they are": (
        b"data: x\nid: 7\n\n",
        [Frame(b"data: x\nid: 7\n\n", b"x", b"id: 7\n")],
    ),
    "an event without data": (b"event: ping\n\n", [Frame(b"event: ping\n\n", None, b"event: ping\n")]),
    "stray blank lines": (b"\n\ndata: x\n\n\n\n", [blank(), blank(), Frame(b"data: x\n\n", b"x"), blank(), blank()]),
    "stray blank lines with CRLF": (b"\r\n\r\n", [blank("line_endings"), blank("line_endings")]),
    "JSON over several lines": (
        b'event: e\ndata: {"a":\ndata: 1,\ndata:  "b": 2}\n\n',
        [Frame(b'event: e\ndata: {"a":1, "b": 2}\n\n', b'{"a":\n1,\n "b": 2}', b"event: e\n", "multi_line_data")],
    ),
    "text over several lines": (b"data: a\ndata: b\n\n", [Frame(b"data: a\ndata: b\n\n", b"a\nb")]),
    "text over several lines, no space": (
        b"data:a\ndata:\ndata: b\n\n",
        [Frame(b"data: a\ndata: \ndata: b\n\n", b"a\n\nb", b"", "data_without_space")],
    ),
    "not JSON, though it begins like it": (b"data: [a\ndata: b]\n\n", [Frame(b"data: [a\ndata: b]\n\n", b"[a\nb]")]),
    "folding would make two numbers one": (b"data: [1\ndata: 2]\n\n", [Frame(b"data: [1\ndata: 2]\n\n", b"[1\n2]")]),
    "folding would shorten a string": (b'data: ["\ndata: "]\n\n', [Frame(b'data: ["\ndata: "]\n\n', b'["\n"]')]),
    "no blank line at the end": (b"data: x\n", [Frame(b"data: x\n\n", b"x", b"", "unterminated")]),
    "no line end at the end": (b"id: 1\ndata: x", [Frame(b"id: 1\ndata: x\n\n", b"x", b"id: 1\n", "unterminated")]),
    "a comment at the end": (b": bye", [Frame(b": bye\n\n", None, b": bye\n", "unterminated")]),
    "a CR at the end": (b"data: x\r", [Frame(b"data: x\n\n", b"x", b"", "line_endings")]),
    "a byte order mark": (BOM + b"data: x\n\n", [Frame(b"data: x\n\n", b"x", b"", "byte_order_mark")]),
    "two byte order marks": (BOM * 2 + b"data: x\n\n", [Frame(b"data: x\n\n", b"x", b"", "byte_order_mark")]),
    "a byte order mark, then another fault": (
        BOM + b"data:x\n\ndata: y\n\n",
        [Frame(b"data: x\n\n", b"x", b"", "data_without_space"), Frame(b"data: y\n\n", b"y")],
    ),
    "a byte order mark alone": (BOM, [Frame(b"", None, b"", "byte_order_mark")]),
    "half a byte order mark": (BOM[:2], [Frame(BOM[:2] + b"\n\n", None, BOM[:2] + b"\n", "unterminated")]),
    "a byte order mark in a later event": (
        b"data: x\n\n" + BOM + b"\n\n",
        [Frame(b"data: x\n\n", b"x"), Frame(BOM + b"\n\n", None, BOM + b"\n")],
    ),
    "a byte order mark before a later line": (
        b"data:x\n" + BOM + b"data: y\n\n",
        [Frame(b"data: x\n" + BOM + b"data: y\n\n", b"x", BOM + b"data: y\n", "data_without_space")],
    ),
    "characters of several bytes": ("data: 月🌙\n\n".encode(), [Frame("data: 月🌙\n\n".encode(), "月🌙".encode())]),
    "bytes that are no text": (b"data: \xff\x00\n\n", [Frame(b"data: \xff\x00\n\n", b"\xff\x00")]),
}

any_text = st.lists(
    st.sampled_from(
        [
            b"data: ",
            b"data:",
            b"data",
            b"id: 1",
            b": ping",
            b"{",
            b"[1,",
            b"2]",
            b"}",
            b" ",
            b"\n",
            b"\n\n",
            b"\r",
            b"\r\n",
            b"\r\n\r\n",
            BOM,
            b"\xef",
            "月".encode(),
            b"data: {}\n\n",
            b"data: {}\r\n\r\n",
        ]
    ),
    max_size=20,
).map(b"".join) | st.binary(max_size=40)
cuts = st.lists(st.integers(min_value=0, max_value=1 << 16), max_size=8)

one_line = st.binary(max_size=12).map(lambda b: re.sub(rb"[\r\n]", b"", b))
other_line = one_line.filter(lambda b: b and not b.startswith((b"data", BOM[:1])))
good_event = st.builds(
    lambda others, data: render_sse(data, b"".join(line + b"\n" for line in others)),
    st.lists(other_line, max_size=2),
    one_line,
)
good_text = st.lists(good_event | st.just(b"\n") | other_line.map(lambda line: line + b"\n\n"), max_size=8).map(
    b"".join
)


def payloads_by_the_standard(text: bytes) -> list[bytes]:
    """WHATWG's algorithm in a few lines, for a whole input; the last event counts without its end."""
    while text.startswith(BOM):
        text = text.removeprefix(BOM)
    found: list[bytes] = []
    data: list[bytes] = []
    for line in [*re.split(rb"\r\n|\r|\n", text), b""]:
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" "))
        elif not line and data:
            found.append(b"\n".join(data))
            data = []
    return found


@looped("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES.keys())
def test_case_at_every_chunk_size(text: bytes, expected: list[Frame], size: int) -> None:
    assert run(by_size(text, size)) == expected


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES.keys())
def test_case_cut_in_two_anywhere_with_an_empty_chunk_between(text: bytes, expected: list[Frame]) -> None:
    for at in range(len(text) + 1):
        assert run([text[:at], b"", text[at:]]) == expected


@given(any_text, cuts)
def test_the_split_of_the_bytes_is_invisible(text: bytes, where: list[int]) -> None:
    whole = run([text])
    assert run(by_cuts(text, where)) == whole
    assert run(by_size(text, 1)) == whole


@given(any_text)
def test_payloads_are_those_of_the_standard(text: bytes) -> None:
    assert [frame.data for frame in run([text]) if frame.data is not None] == payloads_by_the_standard(text)


@given(any_text)
def test_output_framed_again_is_the_same_and_without_fault(text: bytes) -> None:
    frames = run([text])
    again = run([joined(frames)])
    assert joined(again) == joined(frames)
    assert {frame.fault for frame in again} <= {None}


@given(any_text)
def test_no_fault_means_that_nothing_changed(text: bytes) -> None:
    frames = run([text])
    if all(frame.fault is None for frame in frames):
        assert joined(frames) == text


@given(any_text)
def test_raw_says_what_data_and_head_say(text: bytes) -> None:
    for frame in run([text]):
        [again] = run([b"\n", frame.raw])[1:] or [frame]
        assert again.head == frame.head
        if frame.data != again.data:
            assert frame.data is not None
            assert again.data == frame.data.replace(b"\n", b"")
            assert frame.fault is not None


@given(good_text, cuts)
def test_correct_framing_passes_byte_for_byte(text: bytes, where: list[int]) -> None:
    for frames in (run([text]), run(by_cuts(text, where))):
        assert joined(frames) == text
        assert {frame.fault for frame in frames} <= {None}


chunks = st.lists(
    st.sampled_from(
        [
            b"data: 1\n\n",
            b"data: a\rb\n\n",
            b"data: 2\r\r",
            b"data: 3\r\n\r",
            b"\n",
            b"data:4\n\n",
            b"data: 5",
            b": \n",
            b"data: 678901\n\n",
        ]
    ),
    max_size=8,
)


@given(chunks, st.sampled_from([12, 1 << 24]))
def test_a_chunk_that_is_one_event_is_read_as_if_it_came_byte_by_byte(pieces: list[bytes], limit: int) -> None:
    assert unread(run([b"\n", *pieces], limit)) == unread(run(by_size(b"\n" + b"".join(pieces), 1), limit))


def test_a_clean_chunk_leaves_as_the_same_object() -> None:
    framer = SseFramer()
    framer.feed(b": hello\n\n")
    chunk = b'data: {"choices": []}\n\n'
    assert framer.feed(chunk)[0].raw is chunk


@pytest.mark.parametrize("end", [b"\n\n", b"\r\r", b"\r\n\r\n", b"\r\n\r", b"\n\r", b"\r\n\n"])
@looped("size", [1, 1000])
def test_an_event_comes_out_with_its_blank_line(end: bytes, size: int) -> None:
    framer = SseFramer()
    out = [frame.data for piece in by_size(b"data: x" + end, size) for frame in framer.feed(piece)]
    assert out == [b"x"]
    assert framer.feed(b"data: y\n\n") == [Frame(b"data: y\n\n", b"y")]


def test_a_line_feed_after_the_final_carriage_return_is_swallowed_once() -> None:
    framer = SseFramer()
    assert [frame.data for frame in framer.feed(b"data: x\r\n\r")] == [b"x"]
    assert framer.feed(b"\n") == []
    assert framer.feed(b"\n") == [blank()]


def test_flush_gives_the_last_event_once() -> None:
    framer = SseFramer()
    assert framer.feed(b"data: x") == []
    assert [frame.data for frame in framer.flush()] == [b"x"]
    assert framer.flush() == []


def test_very_deep_json_over_two_lines_is_left_as_it_is() -> None:
    text = b"data: %b\ndata: %b\n\n" % (DEEP, DEEP)
    assert run([text]) == [Frame(text, DEEP + b"\n" + DEEP)]


@pytest.mark.parametrize(
    ("data", "head", "expected"),
    [
        (b"{}", b"", b"data: {}\n\n"),
        (b"{}", b"event: e\n", b"event: e\ndata: {}\n\n"),
        (b"", b"", b"data: \n\n"),
        (b"a\nb\n", b"", b"data: a\ndata: b\ndata: \n\n"),
        (b"a\r\nb\rc", b"", b"data: a\ndata: b\ndata: c\n\n"),
    ],
)
def test_render(data: bytes, head: bytes, expected: bytes) -> None:
    assert render_sse(data, head) == expected


@given(st.binary(max_size=30))
def test_a_rendered_payload_is_read_back(data: bytes) -> None:
    frames = run([render_sse(data)])
    assert [frame.data for frame in frames] == [re.sub(rb"\r\n?", b"\n", data)]


# --- oversized events


def unread(frames: list[Frame]) -> list[Frame]:
    """Pieces of one oversized event as one frame: where it is cut is the chunking's business."""
    out: list[Frame] = []
    for frame in frames:
        if out and frame.fault == out[-1].fault == "oversized" and not out[-1].raw.endswith(b"\n\n"):
            out[-1] = Frame(out[-1].raw + frame.raw, None, b"", "oversized")
        else:
            out.append(frame)
    return out


@looped("size", [1, 2, 5, 16, 1000])
def test_an_oversized_event_passes_in_pieces_and_the_next_is_read(size: int) -> None:
    long = b"id: 1\ndata: " + b"x" * 50 + b"\ndata: y\n\n"
    frames = run(by_size(b"data: 1\n\n" + long + b"\ndata: 2\n\n", size), max_event_bytes=20)
    assert unread(frames) == [
        Frame(b"data: 1\n\n", b"1"),
        Frame(long, None, b"", "oversized"),
        blank(),
        Frame(b"data: 2\n\n", b"2"),
    ]


@looped("size", [1, 1000])
@pytest.mark.parametrize(("limit", "data"), [(9, b"x"), (8, None)])
def test_the_limit_counts_an_event_with_its_end(limit: int, data: bytes | None, size: int) -> None:
    framer = SseFramer(limit)
    framer.feed(b"\n")
    frames = [frame for piece in by_size(b"data: x\n\n", size) for frame in framer.feed(piece)]
    assert joined(frames) == b"data: x\n\n"
    assert frames[-1].data == data


@given(good_text | any_text, cuts, st.integers(min_value=1, max_value=24))
def test_with_any_limit_the_split_is_invisible_and_what_is_held_bounded(
    text: bytes, where: list[int], limit: int
) -> None:
    framer = SseFramer(limit)
    frames: list[Frame] = []
    for piece in by_cuts(text, where):
        frames += framer.feed(piece)
        assert len(framer._held) <= limit
    assert unread(frames + framer.flush()) == unread(run([text], limit))


@given(good_text, cuts, st.integers(min_value=1, max_value=24))
def test_with_any_limit_correct_framing_loses_no_byte(text: bytes, where: list[int], limit: int) -> None:
    assert joined(run(by_cuts(text, where), limit)) == text


def test_an_unterminated_event_within_the_limit_is_still_an_event() -> None:
    assert run([b"data: x"], max_event_bytes=7) == [Frame(b"data: x\n\n", b"x", b"", "unterminated")]


@pytest.mark.parametrize(("tail", "missing"), [(b"", b"\n\n"), (b"\n", b"\n")])
def test_an_oversized_event_without_its_end_gets_one(tail: bytes, missing: bytes) -> None:
    frames = run([b"data: " + b"x" * 20 + tail], max_event_bytes=10)
    assert frames[-1] == Frame(missing, None, b"", "unterminated")


# --- linear work, by counting bytes


class WatchedHeld(bytearray):
    """Counts the bytes that go in, and all of its own for whatever is done with it beyond its length."""

    touched = 0

    def __iadd__(self, piece: Any) -> Any:
        self.touched += len(piece)
        super().__iadd__(piece)
        return self

    def __add__(self, piece: Any) -> Any:
        raise AssertionError("copies all that is held")

    def __bytes__(self) -> bytes:
        self.touched += len(self)
        return b"".join([memoryview(self)])

    def __getitem__(self, key: Any) -> Any:
        self.touched += len(self)
        return super().__getitem__(key)

    def __contains__(self, wanted: Any) -> bool:
        self.touched += len(self)
        return super().__contains__(wanted)

    def __getattribute__(self, name: str) -> Any:
        if name not in {"touched", "clear"}:
            self.touched += len(self)
        return super().__getattribute__(name)


class WatchedChunk(bytes):
    """Counts the bytes that are copied out of it or searched."""

    touched = 0

    def __getitem__(self, key: Any) -> Any:
        part = super().__getitem__(key)
        self.touched += len(part) if isinstance(part, bytes) else 1
        return part

    def find(self, wanted: Any, start: Any = 0, end: Any = None) -> int:
        at = super().find(wanted, start)
        self.touched += (at if at >= 0 else len(self)) - start
        return at


@pytest.mark.parametrize("piece", [b"x", b"xxxx", b"a\n", b"\r", b"a\r\n", b": c"])
def test_an_event_in_many_pieces_is_copied_once_in_and_once_out(piece: bytes) -> None:
    for count in (1_000, 10_000):
        framer = SseFramer()
        framer._held = held = WatchedHeld()
        framer.feed(b"data: ")
        for _ in range(count):
            framer.feed(piece)
        framer.feed(b"\n\n")
        assert held.touched <= 2 * (count * len(piece) + 10)


@pytest.mark.parametrize("event", [b"data: {}\n\n", b"id: 1\ndata: {}\n\n", b"\n", b": c\n\n"])
def test_many_events_in_one_chunk_are_searched_a_fixed_number_of_times(event: bytes) -> None:
    for count in (1_000, 10_000):
        framer = SseFramer()
        framer.feed(b"\n")
        chunk = WatchedChunk(event * count)
        assert len(framer.feed(chunk)) == count
        assert chunk.touched <= 6 * len(chunk)


# --- runs of comments -------------------------------------------------------------------------------------------

LINES = [
    b"data: 1",
    b"event: x",
    b": c",
    b":",
    b"\n",
    b"\r",
    b"\r\n",
    *(b": c" + end * 2 for end in (b"\n", b"\r", b"\r\n")),
]


def said(pieces: Iterable[bytes]) -> list[tuple[bytes | None, list[bytes]]]:
    """What the events say, comments left out."""
    events = ((one.data, [line for line in one.head.splitlines() if line[:1] != b":"]) for one in run(pieces))
    return [(data, head) for data, head in events if data is not None or head]


@given(st.lists(st.tuples(st.sampled_from(LINES), st.integers(1, 300))), st.lists(st.integers(0), max_size=3))
def test_merging_comments_changes_no_event_however_the_stream_is_cut(lines: Any, cuts: list[int]) -> None:
    text = b"".join(line * count if line[:1] not in b"de" else line for line, count in lines)
    assert said(map(merge_comments, by_cuts(text, cuts))) == said([text])


@pytest.mark.parametrize("line", [b": c\n\n", b": c\r\n\r\n", b": c\n", b"\n", b"\r", b":\r\r"])
def test_of_a_flood_of_comments_a_few_lines_are_left(line: bytes) -> None:
    assert len(merge_comments(b"data: 1\n\n" + line * 1000)) < 30
