"""Pieces that a reader takes as they arrive: in order, once each, and what it does not take is read."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from moonshim.config import Timeouts
from moonshim.errors import UpstreamBroke, UpstreamStalled
from moonshim.http_client import UpstreamClient, UpstreamResponse
from moonshim.http_client.response import MOST_AT_ONCE
from tests.http_client.asking import call, sending, with_host
from tests.support.gateway.hosts import Host, HostRequest, Peer, chunked_head, chunks, whole

FIRST = b"first."


class Taker:
    """Takes pieces until it has seen `until`, which it refuses."""

    def __init__(self, until: bytes = b"never") -> None:
        self.taken: list[bytes] = []
        self._until = until

    def __call__(self, data: bytes) -> bool:
        if self._until in data:
            return False
        self.taken.append(data)
        return True


async def read_rest(answer: UpstreamResponse, take: Taker) -> bytes:
    rest = b""
    while data := await answer.read(take):
        rest += data
    return rest


def lines(count: int) -> list[bytes]:
    return [b"line %d;" % number for number in range(count)]


class Stepping:
    """A host that sends the next piece when it is told to, so that each one is an arrival of its own."""

    def __init__(self, *pieces: bytes, then_close: bool = False) -> None:
        self._pieces, self._then_close = pieces, then_close
        self.next = asyncio.Semaphore(0)

    async def __call__(self, peer: Peer, asked: HostRequest) -> None:
        await peer.send(chunked_head() + chunks(FIRST, end=False))
        for piece in self._pieces:
            await self.next.acquire()
            await peer.send(piece)
        if self._then_close:
            peer.writer.close()


def test_pieces_are_taken_while_the_reader_waits_and_the_end_wakes_it() -> None:
    wanted = lines(200)

    async def test(upstream: UpstreamClient, host: Host) -> None:
        stepping = host._script = Stepping(*(chunks(line, end=False) for line in wanted), b"0\r\n\r\n")
        answer = await upstream.open(call(host.url))
        assert await answer.read() == FIRST
        take = Taker()
        reading = asyncio.create_task(answer.read(take))
        for number in range(len(wanted)):
            stepping.next.release()
            while len(take.taken) <= number:
                await asyncio.sleep(0)
            assert not reading.done()
        stepping.next.release()
        assert await reading == b""
        assert take.taken == wanted

    with_host(sending(), test)


def test_a_refused_piece_is_read_and_so_is_what_follows_until_the_next_read() -> None:
    async def test(upstream: UpstreamClient, host: Host) -> None:
        pieces = (chunks(line, end=False) for line in lines(20))
        stepping = host._script = Stepping(*pieces, b"0\r\n\r\n")
        answer = await upstream.open(call(host.url))
        assert await answer.read() == FIRST
        take = Taker(until=b"line 7;")
        for _ in range(21):
            stepping.next.release()
        data = await answer.read(take)
        assert data.startswith(b"line 7;")
        assert b"".join(take.taken) == b"".join(lines(7))
        assert data + await read_rest(answer, Taker(until=b"")) == b"".join(lines(20)[7:])

    with_host(sending(), test)


@pytest.mark.parametrize("packed", [False, True])
def test_nothing_is_lost_whatever_is_taken(packed: bool) -> None:
    text = b"".join(lines(20_000))
    body = gzip.compress(text) if packed else text
    kinds = ["content-encoding: gzip"] if packed else []

    async def test(upstream: UpstreamClient, host: Host) -> None:
        answer = await upstream.open(call(host.url))
        seen: list[bytes] = []
        turn = 0

        def take(data: bytes) -> bool:
            nonlocal turn
            turn += 1
            assert len(data) <= MOST_AT_ONCE
            if turn % 3 == 0:
                return False
            seen.append(data)
            return True

        while data := await answer.read(take):
            seen.append(data)
        assert b"".join(seen) == text

    pieces = (body[at : at + 500] for at in range(0, len(body), 500))
    with_host(sending(chunked_head(headers=kinds), *(chunks(piece, end=False) for piece in pieces), chunks()), test)


def test_a_piece_that_is_too_large_is_read() -> None:
    large = b"x" * (3 * MOST_AT_ONCE)

    async def test(upstream: UpstreamClient, host: Host) -> None:
        answer = await upstream.open(call(host.url))
        take = Taker()
        assert len(await read_rest(answer, take)) + sum(map(len, take.taken)) == len(large)
        assert all(len(piece) <= MOST_AT_ONCE for piece in take.taken)

    with_host(sending(whole(large)), test)


def test_a_connection_that_breaks_while_pieces_are_taken_wakes_the_reader() -> None:
    async def test(upstream: UpstreamClient, host: Host) -> None:
        stepping = host._script = Stepping(chunks(*lines(1), end=False), then_close=True)
        answer = await upstream.open(call(host.url))
        assert await answer.read() == FIRST
        take = Taker()
        stepping.next.release()
        with pytest.raises(UpstreamBroke):
            await read_rest(answer, take)
        assert take.taken == lines(1)

    with_host(sending(), test)


def test_silence_is_measured_from_the_last_piece_that_was_taken() -> None:
    async def test(upstream: UpstreamClient, host: Host) -> None:
        wanted = lines(40)
        stepping = host._script = Stepping(*(chunks(line, end=False) for line in wanted))
        answer = await upstream.open(call(host.url, timeouts=Timeouts(between_bytes=3.0)))
        assert await answer.read() == FIRST
        take = Taker()
        reading = asyncio.create_task(answer.read(take))
        for _ in wanted:  # longer than the limit in sum
            stepping.next.release()
            await asyncio.sleep(0.1)
        with pytest.raises(UpstreamStalled, match="sent nothing for 3 seconds"):
            await reading
        assert take.taken == wanted

    with_host(sending(), test)


def test_after_a_reader_is_cancelled_nothing_is_taken() -> None:
    async def test(upstream: UpstreamClient, host: Host) -> None:
        stepping = host._script = Stepping(chunks(*lines(1), end=False), b"0\r\n\r\n")
        answer = await upstream.open(call(host.url))
        assert await answer.read() == FIRST
        take = Taker()
        reading = asyncio.create_task(answer.read(take))
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        stepping.next.release()
        stepping.next.release()
        assert await answer.read() == b"line 0;"
        assert take.taken == []

    with_host(sending(), test)


def test_the_next_request_on_the_connection_has_a_taker_of_its_own() -> None:
    async def test(upstream: UpstreamClient, host: Host) -> None:
        for _ in range(5):
            answer = await upstream.open(call(host.url))
            take = Taker()
            rest = await read_rest(answer, take)
            assert len(rest) + sum(map(len, take.taken)) == len(b"".join(lines(3)))
        assert host.connections == 1

    with_host(sending(chunked_head(), *(chunks(line, end=False) for line in lines(3)), chunks()), test)
