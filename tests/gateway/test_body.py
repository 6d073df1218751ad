"""Bodies: bounded in bytes and in time, however they are packed and in whatever pieces they come."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

from moonshim.config import Limits
from moonshim.engine.dialects.registry import dialect_named
from moonshim.errors import Problem, Refused
from moonshim.gateway.client_stream import ClientStream
from moonshim.gateway.inbound.admission import BodyMemory, LargeWork
from moonshim.gateway.inbound.body import BodyGone, decode_object_or_refuse, read_body, read_json
from moonshim.gateway.inbound.call import LARGE_BYTES, ClientCall
from moonshim.gateway.observe.record import RequestRecord

SMALL = Limits(body_bytes=1000)
TEXT = json.dumps({"model": "kimi-k2.5", "messages": [{"role": "user", "content": "größer 🌙" * 20}]}).encode()


class Sent:
    """What a server hands to an application, piece by piece."""

    def __init__(self, *pieces: bytes, ends: bool = True, gone: bool = False) -> None:
        self._messages: Iterator[dict[str, Any]] = iter(
            [
                {"type": "http.request", "body": piece, "more_body": not (ends and place == len(pieces) - 1)}
                for place, piece in enumerate(pieces)
            ]
            + ([{"type": "http.disconnect"}] if gone else [])
        )
        self.asked = 0

    async def __call__(self) -> dict[str, Any]:
        self.asked += 1
        for message in self._messages:
            return message
        await asyncio.Event().wait()
        raise AssertionError


def incoming(sent: Sent, headers: dict[str, str] | None = None, limits: Limits = SMALL) -> ClientCall:
    """A request whose headers are here."""

    async def send(message: Any) -> None: ...

    return ClientCall(
        dialect=dialect_named("openai_chat"),
        headers=headers or {},
        query={},
        record=RequestRecord(request_id="1", path="/", dialect="openai_chat"),
        client_stream=ClientStream(sent, send),
        key=None,
        tenant="local",
        held=BodyMemory().reserve("local", limits),
        threads=LargeWork(),
    )


def read(sent: Sent, headers: dict[str, str] | None = None, limits: Limits = SMALL) -> bytes:
    async def reading() -> bytes:
        return b"".join(await read_body(sent, incoming(sent, headers, limits)))

    return asyncio.run(reading())


def refusal(sent: Sent, headers: dict[str, str] | None = None, limits: Limits = SMALL) -> Problem:
    with pytest.raises(Refused) as refused:
        read(sent, headers, limits)
    return refused.value.problem


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)] or [b""]


def deflated(data: bytes, window_bits: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, window_bits)
    return packer.compress(data) + packer.flush()


def _zstd(data: bytes) -> bytes:
    module = import_module("compression.zstd" if find_spec("compression") else "zstandard")
    packed: bytes = module.compress(data)
    return packed


def _br(data: bytes) -> bytes:
    packed: bytes = import_module("brotli").compress(data)
    return packed


PACKED: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "gzip by its old name": ("X-GZIP", gzip.compress),
    "deflate as it should be": ("deflate", lambda data: deflated(data, 15)),
    "deflate as many send it": ("deflate", lambda data: deflated(data, -15)),
    "deflate of what cannot be packed": ("deflate", lambda data: zlib.compress(data, 0)),
    "zstd": ("zstd", _zstd),
    "br": ("br", _br),
}


@pytest.fixture(params=PACKED)
def packed(request: pytest.FixtureRequest) -> tuple[str, Callable[[bytes], bytes]]:
    return PACKED[request.param]


@pytest.mark.parametrize("size", [1, 2, 7, 10_000])
def test_a_packed_body_is_unpacked_whatever_pieces_it_comes_in(
    packed: tuple[str, Callable[[bytes], bytes]], size: int
) -> None:
    coding, pack = packed
    assert read(Sent(*pieces(pack(TEXT), size)), {"content-encoding": coding}) == TEXT


def test_a_zip_bomb_is_refused_before_it_is_unpacked(packed: tuple[str, Callable[[bytes], bytes]]) -> None:
    coding, pack = packed
    limit = 1024 * 1024
    bomb = pack(b"0" * (8 * limit))
    limits = Limits(body_bytes=limit)
    for size in (100, 65536):
        sent = Sent(*pieces(bomb, size))
        tracemalloc.start()
        try:
            problem = refusal(sent, {"content-encoding": coding}, limits)
            held = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert (problem.status, problem.kind) == (413, "too_large")
        assert "larger than 1 MiB" in problem.message
        assert held < 6 * limit


def test_a_packed_body_may_have_exactly_the_limit(packed: tuple[str, Callable[[bytes], bytes]]) -> None:
    coding, pack = packed
    headers = {"content-encoding": coding}
    assert len(read(Sent(pack(b"x" * 1000)), headers)) == 1000
    assert refusal(Sent(pack(b"x" * 1001)), headers).status == 413


def test_a_packed_body_that_is_cut_off_or_broken_is_refused(packed: tuple[str, Callable[[bytes], bytes]]) -> None:
    coding, pack = packed
    headers = {"content-encoding": coding}
    good = pack(TEXT)
    for bad in (good[:-1], good[: len(good) // 2], b"", b"\xff" * 50, good + b"more", good + good):
        problem = refusal(Sent(bad), headers)
        assert (problem.status, problem.kind) == (400, "invalid_request")
        assert f"Cannot decompress the request body ({coding})" in problem.message


@pytest.mark.parametrize("coding", ["gzip, gzip", "gzip,deflate", "compress", "lzma", "gzip;q=1", "x" * 1000])
def test_bombs_inside_bombs_and_unknown_packings_are_refused_unread(coding: str) -> None:
    sent = Sent(gzip.compress(gzip.compress(TEXT)))
    problem = refusal(sent, {"content-encoding": coding})
    assert problem.status == 415
    assert "gzip, deflate" in problem.message
    assert len(problem.message) < 200
    assert sent.asked == 0


def test_identity_is_no_packing() -> None:
    assert read(Sent(TEXT), {"content-encoding": "Identity"}) == TEXT
    assert read(Sent(TEXT), {"content-encoding": ""}) == TEXT


def test_a_body_that_says_it_is_too_large_is_refused_unread() -> None:
    for length in ("1001", "9" * 30):
        sent = Sent(b"x" * 1001)
        assert refusal(sent, {"content-length": length}).status == 413
        assert sent.asked == 0
    assert len(read(Sent(b"x" * 1000), {"content-length": "1000"})) == 1000


def test_a_body_that_does_not_say_how_large_it_is_is_counted() -> None:
    sent = Sent(*[b"x" * 100] * 1000, ends=False)
    problem = refusal(sent, {"transfer-encoding": "chunked"})
    assert (problem.status, problem.message) == (
        413,
        "The request body is larger than 1,000 bytes (limits.body_bytes).",
    )
    assert sent.asked == 11


@pytest.mark.parametrize("length", ["-1", "+5", "five", "5, 5", "\u0665", "1e3"])
def test_a_length_that_is_no_number_is_refused(length: str) -> None:
    assert refusal(Sent(TEXT), {"content-length": length}).status == 400


@pytest.mark.parametrize("encoding", ["gzip, chunked", "chunked, gzip", "identity"])
def test_a_transfer_encoding_that_nobody_undid_is_refused(encoding: str) -> None:
    assert refusal(Sent(TEXT), {"transfer-encoding": encoding}).status == 400


def test_a_body_that_trickles_is_given_up() -> None:
    limits = Limits(body_seconds=0.05)
    packed = gzip.compress(TEXT)[:20]
    for sent, headers in ((Sent(b"{", ends=False), {}), (Sent(packed, ends=False), {"content-encoding": "gzip"})):
        problem = refusal(sent, headers, limits)
        assert (problem.status, problem.kind) == (408, "timeout")
        assert "within 0.05 seconds" in problem.message


def test_a_client_that_goes_away_in_the_middle_is_nobody_to_answer() -> None:
    for sent in (Sent(gone=True), Sent(b"{", ends=False, gone=True)):
        with pytest.raises(BodyGone):
            read(sent)


def test_being_cancelled_is_not_taken_for_a_slow_client() -> None:
    async def test() -> None:
        sent = Sent(b"{", ends=False)
        reading = asyncio.ensure_future(read_body(sent, incoming(sent)))
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading

    asyncio.run(test())


# -- JSON --------------------------------------------------------------------------------------------------------

GOOD: dict[str, tuple[bytes, Any]] = {
    "an object": (b'{"a": [1, 2.5, null, true, "x"]}', {"a": [1, 2.5, None, True, "x"]}),
    "white space around it": (b' \r\n{"a": 1}\n\n', {"a": 1}),
    "a byte order mark before it": (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
    "a key twice": (b'{"a": 1, "a": 2}', {"a": 2}),
    "half a character": (b'{"a": "\\ud83d", "b": "\\uD83C\\uDF19"}', {"a": "\ud83d", "b": "🌙"}),
    "a number beyond 64 bits": (b'{"seed": 123456789012345678901}', {"seed": 123456789012345678901}),
}


@pytest.mark.parametrize("name", GOOD)
def test_what_clients_send_as_json_is_read(name: str) -> None:
    data, value = GOOD[name]
    spaced = data[:-1] + b" " * LARGE_BYTES + data[-1:]

    async def reading(sent: Sent) -> Any:
        return await read_json(sent, incoming(sent, limits=Limits()))

    assert asyncio.run(reading(Sent(data))) == value
    assert asyncio.run(reading(Sent(*pieces(spaced, 65536)))) == value


DEEP = 200_000
BAD: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "The request body is empty"),
    "white space": (b" \n ", "The request body is empty"),
    "a list": (b"[1]", "must be a JSON object, got a list"),
    "a string": (b'"x"', "must be a JSON object, got a string"),
    "a half character alone": (b'"\\ud83d"', "must be a JSON object, got a string"),
    "null": (b"null", "must be a JSON object, got null"),
    "true": (b"true", "must be a JSON object, got a boolean"),
    "a form": (b"model=kimi&x=1", "not valid JSON: invalid character at byte 0"),
    "a stray comma": (b'{"a": 1,}', "byte 8"),
    "an end in the middle": (b'{"a": ', "unexpected end of data at byte 6"),
    "two objects": (b"{} {}", "trailing characters"),
    "no number": (b'{"a": NaN}', "a: NaN is not a JSON number"),
    "no number beside half a character": (b'{"a": "\\ud83d", "b": NaN}', "b: NaN is not a JSON number"),
    "infinity beside half a character": (b'{"a": "\\ud83d", "b": -Infinity}', "b: -Infinity is not a JSON number"),
    "a broken object beside half a character": (b'{"a": "\\ud83d", ', "not valid JSON"),
    "no UTF-8": (b'{"a": "\xff\xfe"}', "invalid UTF-8 at byte 7"),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), "not valid JSON"),
    "lists without end": (b'{"a":' + b"[" * DEEP, "nested too deeply"),
    "objects without end": (b'{"a":' * DEEP, "nested too deeply"),
    "lists without end beside half a character": (b'{"b":"\\ud83d","a":' + b"[" * DEEP, "nested too deeply"),
    "a number of a million digits": (b'{"a":' + b"9" * 1_000_000 + b"}", "a: the number is too large"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_json_object_is_refused_and_says_where(name: str) -> None:
    data, told = BAD[name]
    with pytest.raises(Refused) as refused:
        decode_object_or_refuse(data)
    problem = refused.value.problem
    assert (problem.status, problem.kind) == (400, "invalid_request")
    assert told in problem.message
    assert len(problem.message) < 200


@pytest.mark.parametrize("name", [name for name in BAD if name not in ("nothing", "white space")])
def test_a_large_body_that_is_no_json_object_is_refused_too(name: str) -> None:
    sent = Sent(*pieces(b" " * LARGE_BYTES + BAD[name][0], 65536))

    async def reading() -> Any:
        return await read_json(sent, incoming(sent, limits=Limits()))

    with pytest.raises(Refused) as refused:
        asyncio.run(reading())
    problem = refused.value.problem
    assert (problem.status, problem.kind) == (400, "invalid_request")
    assert len(problem.message) < 200
