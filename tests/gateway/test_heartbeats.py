"""Signs of life while a host is silent: before its first byte, in the middle, between frames, never behind the end."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any, Final

import pytest

from moonshim.config import Retries, Timeouts
from moonshim.engine.dialects.registry import dialect_named
from moonshim.gateway.client_stream import ClientStream
from tests.support.gateway.hosts import HostRequest, Peer, chunked_head, chunks, run, whole
from tests.support.gateway.leaks import Scene, scene
from tests.support.gateway.raw_client import (
    CLIENTS,
    UPSTREAMS,
    Reply,
    answer_of,
    body_of,
    content_of,
    read_stream,
    sending,
    short_stream,
)

pytestmark = pytest.mark.usefixtures("both_paths")

SECONDS: Final = 0.05
OVERLOADED: Final = b'{"error":{"message":"too busy, try again in 10ms","type":"engine_overloaded_error"}}'


def beat_of(client: str) -> bytes:
    return dialect_named(client).heartbeat


def beats_in(client: str, body: bytes) -> int:
    return body.count(beat_of(client))


async def answered_after_beats(one: Scene, client: str, let_go: asyncio.Event) -> Reply:
    """Let the host go on when two heartbeats have come, and read to the end."""
    async with one.connected() as connection:
        connection.send(client, body_of(client))
        await connection.head()
        await connection.until(lambda body: beats_in(client, body) >= 2)
        let_go.set()
        return await connection.rest()


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_they_come_before_the_first_byte_and_between_any_two_pieces(client: str, upstream: str) -> None:
    stream = short_stream(upstream)
    # Once between two frames, and several times inside one.
    cuts = [0, stream.index(b"\n\n") + 2, stream.index(b"Hi.") + 1, stream.index(b'"0}') + 2, len(stream)]

    async def test() -> None:
        steps = asyncio.Semaphore(0)
        sent = 0

        async def pausing(peer: Peer, asked: HostRequest) -> None:
            nonlocal sent
            await steps.acquire()
            await peer.send(chunked_head(headers=("content-type: text/event-stream", "connection: close")))
            for start, end in pairwise(cuts):
                await peer.send(chunks(stream[start:end], end=False))
                sent += 1
                await steps.acquire()
            await peer.send(chunks())
            peer.writer.close()

        async with scene(pausing, dialect=upstream, heartbeat_seconds=SECONDS) as one:
            async with one.connected() as connection:
                connection.send(client, body_of(client))
                await connection.head()
                assert connection.headers["content-type"] == "text/event-stream; charset=utf-8"
                for count in range(1, len(cuts)):
                    seen = beats_in(client, connection.body)
                    await connection.until(lambda body, seen=seen: beats_in(client, body) > seen)  # type: ignore[misc]
                    # A step is never lost: on a busy machine, heartbeats come before the host has the request.
                    steps.release()
                    await one.until(lambda count=count: sent == count, "the host does not continue")
                steps.release()  # no heartbeat comes after the last frame
                reply = await connection.rest()
            said = content_of(client, reply)
            assert (said.text, said.calls) == ("Hi.", [("ls", '{"n":0}'), ("ls", '{"n":1}')])
            await one.settles()

    run(test())


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_none_comes_after_the_end_while_the_host_leaves_its_response_open(client: str, upstream: str) -> None:
    """The gateway still reads what the host may add; to the client, everything was said."""

    async def script(peer: Peer, asked: HostRequest) -> None:
        head = chunked_head(headers=("content-type: text/event-stream", "connection: close"))
        await peer.send(head, chunks(answer_of(upstream).stream, end=False))
        await peer.gone()
        peer.writer.close()

    async def test() -> None:
        async with scene(script, dialect=upstream, heartbeat_seconds=0.01) as one:
            reply = await one.ask(client, body_of(client))
            assert content_of(client, reply).text == "Hi."
            end = max(reply.body.rfind(marker) for marker in dialect_named(client).terminal_markers)
            assert beats_in(client, reply.body[end:]) == 0
            await one.settles()

    run(test())


def test_the_answer_is_the_same_with_them_and_without() -> None:
    async def test() -> None:
        let_go = asyncio.Event()

        async def late(peer: Peer, asked: HostRequest) -> None:
            await let_go.wait()
            await sending(answer_of("openai_chat"))(peer, asked)

        async with scene(late, heartbeat_seconds=SECONDS) as one:
            for client in CLIENTS:
                let_go.clear()
                reply = await answered_after_beats(one, client, let_go)
                assert beats_in(client, reply.body) >= 2
                assert content_of(client, reply).text == "Hi."
                assert one.records[-1].outcome == "ok"
                assert "x-moonshim-repairs" in reply.headers
            await one.settles()

    run(test())


@pytest.mark.parametrize(
    "wrong",
    [
        whole(OVERLOADED, status="429 No"),
        whole(b"<html>", status="502 No", headers=("content-type: text/html",)),
        whole(OVERLOADED),
        b"",
    ],
    ids=["429", "page", "200", "close"],
)
def test_an_error_of_the_host_behind_them_is_an_event_in_the_stream(wrong: bytes) -> None:
    async def test() -> None:
        let_go = asyncio.Event()

        async def failing(peer: Peer, asked: HostRequest) -> None:
            await let_go.wait()
            await peer.send(wrong)
            peer.writer.close()

        async with scene(failing, heartbeat_seconds=SECONDS) as one:
            for client in CLIENTS:
                let_go.clear()
                reply = await answered_after_beats(one, client, let_go)
                assert (reply.status, reply.ended) == (200, True)
                said = read_stream(client, reply.body)
                assert said.error is not None
                assert said.error["message"]
                assert one.records[-1].outcome == "upstream_error"
            await one.settles()
            await one.works()

    run(test())


def test_a_silent_host_is_an_event_in_the_stream_too() -> None:
    async def silent(peer: Peer, asked: HostRequest) -> None:
        await peer.gone()

    async def test() -> None:
        async with scene(silent, heartbeat_seconds=SECONDS, timeouts=Timeouts(first_byte=0.3)) as one:
            replies = await asyncio.gather(*(one.ask(client, body_of(client)) for client in CLIENTS))
            for client, reply in zip(CLIENTS, replies, strict=True):
                assert reply.status == 200
                said = read_stream(client, reply.body)
                assert said.error is not None
                assert "sent no response" in said.error["message"]
            await one.settles()

    run(test())


def test_a_host_can_be_asked_again_behind_them() -> None:
    async def test() -> None:
        let_go = asyncio.Event()

        async def second_time(peer: Peer, asked: HostRequest) -> None:
            if len(one.host.requests) == 1:
                await let_go.wait()
                await peer.send(whole(OVERLOADED, status="503 No", headers=("retry-after: 0",)))
                peer.writer.close()
            else:
                await sending(answer_of("openai_chat"))(peer, asked)

        async with scene(second_time, heartbeat_seconds=SECONDS, retries=Retries(attempts=2)) as one:
            for client in CLIENTS:
                let_go.clear()
                one.host.requests.clear()
                reply = await answered_after_beats(one, client, let_go)
                said = content_of(client, reply)
                assert (said.text, len(said.calls), said.error) == ("Hi.", 2, None)
                assert (len(one.host.requests), one.records[-1].attempts) == (2, 2)
            await one.works()

    run(test())


def test_comments_of_a_host_are_signs_of_life_and_no_answer() -> None:
    """OpenRouter sends `: OPENROUTER PROCESSING` while it looks for somebody who answers, and then maybe an error."""
    failing = b"data: " + OVERLOADED + b"\n\n"

    async def script(peer: Peer, asked: HostRequest) -> None:
        if len(peer.host.requests) > 1:
            await sending(answer_of("openai_chat"))(peer, asked)
            return
        await peer.send(chunked_head() + chunks(b": OPENROUTER PROCESSING\n\n", end=False))
        await peer.send(chunks(b": OPENROUTER PROCESSING\n\n", failing))
        peer.writer.close()

    async def test() -> None:
        async with scene(script, retries=Retries(attempts=2)) as one:
            for client in CLIENTS:
                one.host.requests.clear()
                reply = await one.ask(client, body_of(client))
                assert b": OPENROUTER PROCESSING\n\n" in reply.body
                said = content_of(client, reply)
                assert (said.text, len(said.calls), said.error) == ("Hi.", 2, None)
            await one.settles()
        async with scene(script) as one:
            for client in CLIENTS:
                one.host.requests.clear()
                said = read_stream(client, (await one.ask(client, body_of(client))).body)
                assert said.error is not None
                assert "too busy" in said.error["message"]
            await one.settles()

    run(test())


def test_a_whole_answer_has_none() -> None:
    async def test() -> None:
        let_go = asyncio.Event()

        async def late(peer: Peer, asked: HostRequest) -> None:
            await let_go.wait()
            await sending(answer_of("openai_chat"))(peer, asked)

        async with scene(late, heartbeat_seconds=SECONDS) as one:
            async with one.connected() as connection, one.connected() as streamed:
                connection.send("openai_chat", body_of("openai_chat", stream=False))
                streamed.send("openai_chat", body_of("openai_chat"))
                await streamed.head()
                # As long as it takes a stream beside it to hear some.
                await streamed.until(lambda body: beats_in("openai_chat", body) >= 3)
                let_go.set()
                await connection.head()
                reply = await connection.rest()
            assert json.loads(reply.body)["choices"][0]["message"]["content"] == "Hi."
            assert int(reply.headers["content-length"]) == len(reply.body)
            await one.settles()

    run(test())


# --- the client stream itself --------------------------------------------------------------------------------------


class Server:
    """An ASGI server whose client reads when it is told to."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.room = asyncio.Event()
        self.room.set()

    async def receive(self) -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(self, message: Any) -> None:
        await self.room.wait()
        await asyncio.sleep(0)
        self.messages.append(message)

    @property
    def sent(self) -> list[bytes]:
        return [message["body"] for message in self.messages if message["type"] == "http.response.body"]


def test_while_a_client_does_not_read_none_gather() -> None:
    async def test() -> None:
        server = Server()
        client_stream = ClientStream(server.receive, server.send)
        client_stream.keep_alive(0.01, b"beat", [])
        await client_stream.start([])
        server.room.clear()
        writing = asyncio.ensure_future(client_stream.write(b"data"))
        await asyncio.sleep(0.3)
        assert server.sent == []
        server.room.set()
        await writing
        assert server.sent == [b"data"]
        await client_stream.finish()
        await asyncio.sleep(0.2)
        assert server.sent[-1] == b""
        assert not server.messages[-1]["more_body"]
        client_stream.close()

    run(test())


def test_one_that_is_on_its_way_is_waited_for() -> None:
    """An error must not be answered with a status of its own while a heartbeat is sending 200."""

    async def test() -> None:
        server = Server()
        server.room.clear()
        client_stream = ClientStream(server.receive, server.send)
        client_stream.keep_alive(0.01, b"beat", [(b"content-type", b"text/event-stream")])
        while not client_stream.started:
            await asyncio.sleep(0.01)
        settling = asyncio.ensure_future(client_stream.settle())
        await asyncio.sleep(0.05)
        assert not settling.done()
        server.room.set()
        await settling
        await client_stream.finish(b"error")
        assert server.sent == [b"beat", b"error"]
        assert [message["type"] for message in server.messages].count("http.response.start") == 1
        client_stream.close()

    run(test())
