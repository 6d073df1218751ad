"""The NDJSON framer: any split of the bytes gives the same lines, and what is right already is left alone."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.engine.wire.ndjson import NdjsonFramer, render_ndjson
from moonshim.engine.wire.sse import Frame
from tests.engine.wire.test_sse import WatchedHeld, by_cuts, by_size, joined
from tests.support.looped import looped

BOM = b"\xef\xbb\xbf"


def run(pieces: Iterable[bytes], max_event_bytes: int = 1 << 24) -> list[Frame]:
    framer = NdjsonFramer(max_event_bytes)
    return [frame for piece in pieces for frame in framer.feed(piece)] + framer.flush()


CASES: dict[str, tuple[bytes, list[Frame]]] = {
    "nothing": (b"", []),
    "one line": (b"{}\n", [Frame(b"{}\n", b"{}")]),
    "two lines": (b'{"a":1}\n[2]\n', [Frame(b'{"a":1}\n', b'{"a":1}'), Frame(b"[2]\n", b"[2]")]),
    "CRLF": (b"{}\r\n{}\n", [Frame(b"{}\n", b"{}", b"", "line_endings"), Frame(b"{}\n", b"{}")]),
    "several CR before the LF": (b"{}\r\r\n", [Frame(b"{}\n", b"{}", b"", "line_endings")]),
    "a CR inside is white space": (b"[1,\r2]\n", [Frame(b"[1,\r2]\n", b"[1,\r2]")]),
    "empty lines": (b"\n{}\n\n", [Frame(b"\n", None), Frame(b"{}\n", b"{}"), Frame(b"\n", None)]),
    "an empty line with CRLF": (b"\r\n", [Frame(b"\n", None, b"", "line_endings")]),
    "a line of white space": (b" \t\n", [Frame(b" \t\n", None)]),
    "white space around": (b" {} \n", [Frame(b" {} \n", b" {} ")]),
    "no newline at the end": (b'{}\n{"a"', [Frame(b"{}\n", b"{}"), Frame(b'{"a"\n', b'{"a"', b"", "unterminated")]),
    "a CR at the end": (b"{}\r", [Frame(b"{}\n", b"{}", b"", "line_endings")]),
    "a byte order mark": (BOM + b"{}\n{}\n", [Frame(b"{}\n", b"{}", b"", "byte_order_mark"), Frame(b"{}\n", b"{}")]),
    "a byte order mark alone": (BOM, [Frame(b"", None, b"", "byte_order_mark")]),
    "half a byte order mark": (BOM[:1], [Frame(BOM[:1] + b"\n", BOM[:1], b"", "unterminated")]),
    "characters of several bytes": ('"月🌙"\n'.encode(), [Frame('"月🌙"\n'.encode(), '"月🌙"'.encode())]),
}

any_text = st.lists(
    st.sampled_from([b"{}", b"{", b'"x"', b" ", b"\n", b"\r", b"\r\n", BOM, b"\xef", "月".encode(), b"{}\n"]),
    max_size=20,
).map(b"".join) | st.binary(max_size=40)
good_text = st.lists(st.sampled_from([b'{"a": 1}\n', b"[1, 2, 3]\n", b"\n", b" \n", b'"\xe6\x9c\x88"\n'])).map(b"".join)
cuts = st.lists(st.integers(min_value=0, max_value=1 << 16), max_size=8)


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
def test_output_framed_again_is_the_same_and_without_fault(text: bytes) -> None:
    frames = run([text])
    again = run([joined(frames)])
    assert joined(again) == joined(frames)
    assert {frame.fault for frame in again} <= {None}


@given(any_text)
def test_only_line_ends_and_marks_change(text: bytes) -> None:
    frames = run([text])
    while text.startswith(BOM):
        text = text.removeprefix(BOM)
    expected = [line.rstrip(b"\r") for line in text.split(b"\n")]
    if text.endswith(b"\n") or not text:
        expected.pop()
    assert [frame.raw for frame in frames if frame.raw] == [line + b"\n" for line in expected]


@given(good_text, cuts, st.integers(min_value=1, max_value=24))
def test_correct_framing_passes_byte_for_byte_with_any_limit(text: bytes, where: list[int], limit: int) -> None:
    frames = run(by_cuts(text, where))
    assert joined(frames) == text
    assert {frame.fault for frame in frames} <= {None}
    assert joined(run(by_cuts(text, where), limit)) == text


@given(
    st.lists(
        st.sampled_from([b"{}\n", b"{1\r2}\n", b"{}\r\n", b"{", b"\n", b"{12345678901}\n", b"[123456789012"]),
        max_size=8,
    ),
    st.sampled_from([12, 1 << 24]),
)
def test_a_chunk_that_is_one_line_is_read_as_if_it_came_byte_by_byte(pieces: list[bytes], limit: int) -> None:
    whole, bytewise = run([b"\n", *pieces], limit), run(by_size(b"\n" + b"".join(pieces), 1), limit)
    assert joined(whole) == joined(bytewise)
    assert [f for f in whole if f.fault != "oversized"] == [f for f in bytewise if f.fault != "oversized"]


def test_a_clean_chunk_leaves_as_the_same_object_and_at_once() -> None:
    framer = NdjsonFramer()
    framer.feed(b"\n")
    chunk = b'{"choices": []}\n'
    assert framer.feed(chunk)[0].raw is chunk


def test_flush_gives_the_last_line_once() -> None:
    framer = NdjsonFramer()
    assert framer.feed(b"{}") == []
    assert [frame.data for frame in framer.flush()] == [b"{}"]
    assert framer.flush() == []


def test_render() -> None:
    assert render_ndjson(b"{}") == render_ndjson(b"{}", b"id: 1\n") == b"{}\n"


@looped("size", [1, 2, 5, 16, 1000])
def test_an_oversized_line_passes_in_pieces_and_the_next_is_read(size: int) -> None:
    framer = NdjsonFramer(20)
    long = b"[" + b"1," * 40 + b"1]\r\n"
    frames: list[Frame] = []
    for piece in by_size(b"{}\n" + long + b"{}\n", size):
        frames += framer.feed(piece)
        assert len(framer._held) <= 20
    assert joined(frames) == b"{}\n" + long + b"{}\n"
    assert [(frame.data, frame.fault) for frame in frames if frame.fault != "oversized"] == [(b"{}", None)] * 2


@looped("size", [1, 1000])
@pytest.mark.parametrize(("limit", "data"), [(3, b"{}"), (2, None)])
def test_the_limit_counts_a_line_with_its_end(limit: int, data: bytes | None, size: int) -> None:
    framer = NdjsonFramer(limit)
    framer.feed(b"\n")
    frames = [frame for piece in by_size(b"{}\n", size) for frame in framer.feed(piece)]
    assert joined(frames) == b"{}\n"
    assert frames[-1].data == data


def test_an_oversized_line_without_its_end_gets_one() -> None:
    assert run([b"1" * 20], max_event_bytes=10)[-1] == Frame(b"\n", None, b"", "unterminated")


@pytest.mark.parametrize("piece", [b"x", b"xxxx", b"\r"])
def test_a_line_in_many_pieces_is_copied_once_in_and_once_out(piece: bytes) -> None:
    for count in (1_000, 10_000):
        framer = NdjsonFramer()
        framer._held = held = WatchedHeld()
        framer.feed(b"{")
        for _ in range(count):
            framer.feed(piece)
        framer.feed(b"\n")
        assert held.touched <= 2 * (count * len(piece) + 10)
