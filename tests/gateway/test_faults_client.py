"""Clients that vanish, read slowly or not at all: the host hears of it at once, and nothing is held for nobody."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import pytest

from moonshim.config import Retries
from moonshim.gateway.client_stream import ClientStream
from tests.support.gateway.hosts import HostRequest, Peer, Script, chunked_head, chunks, run
from tests.support.gateway.leaks import Scene, resident, scene
from tests.support.gateway.raw_client import (
    CLIENTS,
    UPSTREAMS,
    Connection,
    answer_of,
    body_of,
    content_of,
    sending,
    short_stream,
)

pytestmark = pytest.mark.usefixtures("both_paths")

MEGABYTE: Final = 1024 * 1024


def frames_of(stream: bytes) -> list[bytes]:
    return [frame + b"\n\n" for frame in stream.split(b"\n\n") if frame]


class Stepping:
    """A host that sends one frame whenever its test says so, and notes when nobody listens any more."""

    def __init__(self, upstream: str) -> None:
        self.frames = frames_of(short_stream(upstream))
        self._steps: asyncio.Queue[int] = asyncio.Queue()
        self.sent = 0
        """Frames, of the answer that it gives now."""
        self.sees_end = 0

    def step(self, count: int = 1) -> None:
        self._steps.put_nowait(count)

    async def __call__(self, peer: Peer, asked: HostRequest) -> None:
        gone = asyncio.ensure_future(peer.gone())
        self.sent = 0
        await peer.send(chunked_head())
        while self.sent < len(self.frames):
            step = asyncio.ensure_future(self._steps.get())
            await asyncio.wait((gone, step), return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                step.cancel()
                self.sees_end += 1
                peer.writer.close()
                return
            await peer.send(chunks(*self.frames[self.sent : self.sent + step.result()], end=False))
            self.sent += step.result()
        await peer.send(chunks())
        peer.writer.close()
        gone.cancel()


async def _hung_up(one: Scene, host: Stepping, connection: Connection) -> None:
    """The client vanishes; the host, which has more to say, is left at once, and nothing remains."""
    ends = host.sees_end
    connection.hang_up()
    await one.until(lambda: host.sees_end == ends + 1, "the host still believes that somebody listens")
    await one.settles()
    assert one.records[-1].outcome == "client_gone"


@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_a_client_may_vanish_after_every_event_of_a_stream(upstream: str) -> None:
    async def test() -> None:
        host = Stepping(upstream)
        async with scene(host, dialect=upstream) as one:
            for client in CLIENTS:
                for count in range(1, len(host.frames)):
                    async with one.connected() as connection:
                        connection.send(client, body_of(client))
                        host.step(count)
                        await one.until(lambda count=count: host.sent == count, "the host is not asked")
                        await _hung_up(one, host, connection)
                await one.works(client)
                one.play(host)

    run(test())


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_may_vanish_while_the_host_has_said_nothing(client: str) -> None:
    async def test() -> None:
        seen = asyncio.Event()

        async def thinking(peer: Peer, asked: HostRequest) -> None:
            await peer.gone()
            seen.set()

        async with scene(thinking) as one:
            for stream in (True, False):
                async with one.connected() as connection:
                    connection.send(client, body_of(client, stream=stream))
                    await one.until(lambda: one.host.open == 1, "the host is not asked")
                    connection.hang_up()
                    await seen.wait()
                    seen.clear()
                    await one.settles()
                assert (one.records[-1].outcome, one.records[-1].status) == ("client_gone", 499)
            await one.works(client)

    run(test())


def test_a_client_may_vanish_while_a_whole_answer_comes() -> None:
    async def test() -> None:
        host = Stepping("openai_chat")
        async with scene(host, overrides={"streaming": "only"}) as one:
            for count in range(1, len(host.frames), 3):
                async with one.connected() as connection:
                    connection.send("openai_chat", body_of("openai_chat", stream=False))
                    host.step(count)
                    await one.until(lambda count=count: host.sent == count, "the host is not asked")
                    await _hung_up(one, host, connection)
            await one.works()

    run(test())


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_may_vanish_at_every_byte_of_its_request(client: str) -> None:
    async def test() -> None:
        async with scene(sending(answer_of("openai_chat"))) as one:
            body = json.dumps(body_of(client)).encode()
            path = {"openai_chat": "/v1/chat/completions", "anthropic": "/v1/messages"}.get(client, "/v1/responses")
            head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            for at in [*range(0, len(head), 9), len(head), *range(len(head) + 1, len(head) + len(body), 25)]:
                async with one.connected() as connection:
                    connection.writer.write((head + body)[:at])
                    if at >= len(head):
                        await one.until(lambda: one.open_requests() == 1, "it does not wait for the body")
            await one.settles()
            assert len(one.host.requests) == 0
            assert {(record.outcome, record.status) for record in one.records} == {("client_gone", 499)}
            await one.works(client)

    run(test())


def test_a_client_that_sleeps_between_two_attempts_costs_no_second_call() -> None:
    async def busy(peer: Peer, asked: HostRequest) -> None:
        body = b'{"error":{"message":"busy","type":"engine_overloaded_error"}}'
        await peer.send(b"HTTP/1.1 429 No\r\nretry-after: 15\r\ncontent-length: %d\r\n\r\n" % len(body) + body)

    async def test() -> None:
        async with scene(busy, retries=Retries(attempts=3)) as one:
            async with one.connected() as connection:
                connection.send("openai_chat", body_of("openai_chat"))
                await one.until(
                    lambda: len(one.host.requests) == 1 and one.open_requests() == 1, "the host is not asked"
                )
                connection.hang_up()
                await one.until(lambda: one.open_requests() == 0, "it waits for nobody")
            assert one.records[-1].outcome == "client_gone"
            assert len(one.host.requests) == 1

    run(test())


# --- slow readers -----------------------------------------------------------------------------------------------


def flood(count: int, sent: list[int]) -> Script:
    """A host that says a kilobyte at a time, as fast as it may, and notes how much it could."""
    delta = {"choices": [{"index": 0, "delta": {"content": "a" * 1000}, "finish_reason": None}], "id": "c"}
    frame = b"data: %b\n\n" % json.dumps(delta).encode()
    batch = chunks(*[frame] * 64, end=False)

    async def script(peer: Peer, asked: HostRequest) -> None:
        await peer.send(chunked_head(headers=("content-type: text/event-stream", "connection: close")))
        for _ in range(count // 64):
            await peer.send(batch)
            sent[0] += 64
        await peer.send(chunks(b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'))
        peer.writer.close()

    return script


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_that_does_not_read_holds_the_host_back(client: str) -> None:
    async def test() -> None:
        sent = [0]
        async with scene(flood(50_000, sent)) as one:
            async with one.connected(room=16 * 1024) as connection:
                before = resident()
                connection.send(client, body_of(client))
                await connection.head()
                await connection.piece()
                # Until the host cannot go on: several looks in a row see the same.
                looks: list[int] = []
                while len(looks) < 20 or looks[-1] != looks[-20]:
                    looks.append(sent[0])
                    await asyncio.sleep(0.01)
                assert sent[0] < 20_000, "what nobody reads is taken all the same"
                assert resident() - before < 30 * MEGABYTE
                connection.hang_up()
            await one.settles()
            assert one.records[-1].outcome == "client_gone"
            await one.works(client)

    run(test())


def test_a_client_that_reads_slowly_gets_all_of_it_and_costs_what_it_reads() -> None:
    async def test() -> None:
        sent = [0]
        async with scene(flood(12_800, sent), inspector=False) as one:  # it records a part, within its own limit
            before = peak = resident()
            async with one.connected(room=64 * 1024) as connection:
                connection.send("openai_chat", body_of("openai_chat"))
                await connection.head()
                length = 0
                while piece := await connection.piece():
                    length += len(piece)
                    connection.body = connection.body[-100:]
                    peak = max(peak, resident()) if length % 7 == 0 else peak
            assert connection.ended
            assert connection.body.endswith(b"data: [DONE]\n\n")
            assert length > 12_800 * 1000
            # Its 13 MB of text are kept until it ends, to be remembered, and twice while pieces of them are joined.
            assert peak - before < 48 * MEGABYTE
            await one.settles()

    run(test())


WORDS: Final = (b"Hm.", b"Hi.", rb"{\"n\":", b'0}"', b'1}"')


# --- promptness -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_while_the_host_pauses_the_client_has_all_that_was_said(client: str, upstream: str) -> None:
    """Law 9, over sockets. The host goes on only when the client has what it said."""

    async def test() -> None:
        host = Stepping(upstream)
        async with scene(host, dialect=upstream) as one:
            async with one.connected() as connection:
                connection.send(client, body_of(client))
                sent = b""
                for frame in host.frames[:-2]:
                    host.step()
                    sent += frame
                    said = [word for word in WORDS if word in sent]
                    if said and not connection.status:
                        await connection.head()
                    await connection.until(lambda body, said=said: all(word in body for word in said))  # type: ignore[misc]
                host.step(2)
                assert content_of(client, await connection.rest()).reason in ("tool_calls", "tool_use")
            await one.settles()

    run(test())


# --- the end is not a disconnect ----------------------------------------------------------------------------------


def test_a_server_that_tells_a_disconnect_behind_the_answer_ends_nothing() -> None:
    """As uvicorn does. What is still to be done, such as giving a place back, must not be cancelled for it."""

    async def test() -> None:
        over = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await over.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if not message.get("more_body", True):
                over.set()

        for whole in (True, False):
            over.clear()
            client_stream = ClientStream(receive, send)
            client_stream.watch()
            await (client_stream.respond(200, [], b"{}") if whole else client_stream.finish(b"x"))
            for _ in range(5):
                await asyncio.sleep(0)
            assert not client_stream.gone
            client_stream.close()

    run(test())
