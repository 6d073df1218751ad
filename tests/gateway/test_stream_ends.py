"""Clients that go away when they have heard the end: nothing is lost by it, and the host's connection is kept."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from moonshim.gateway.relay import Relay
from tests.support.gateway.hosts import HostRequest, Peer, chunked_head, chunks, run
from tests.support.gateway.leaks import scene
from tests.support.gateway.raw_client import CLIENTS, UPSTREAMS, body_of, content_of, short_stream

pytestmark = pytest.mark.usefixtures("both_paths")

ENDS: Final = {
    "openai_chat": b"data: [DONE]",
    "anthropic": b"event: message_stop",
    "openai_responses": b"event: response.completed",
}


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_that_leaves_at_the_end_was_answered_and_costs_no_connection(client: str, upstream: str) -> None:
    async def test() -> None:
        left = asyncio.Event()

        async def slow_to_end(peer: Peer, asked: HostRequest) -> None:
            await peer.send(chunked_head(), chunks(short_stream(upstream), end=False))
            await left.wait()
            await peer.send(chunks())

        async with scene(slow_to_end, dialect=upstream) as one:
            for count in range(1, 4):
                left.clear()
                async with one.connected() as connection:
                    connection.send(client, body_of(client))
                    await connection.head()
                    await connection.until(lambda seen: ENDS[client] in seen)
                    connection.hang_up()
                server = one.gateway.server.server_state
                await one.until(lambda server=server: not server.connections, "the client is still there")
                left.set()
                await one.until(lambda count=count: len(one.records) == count, "the request does not end")
            assert [record.outcome for record in one.records] == ["ok"] * 3
            assert {record.status for record in one.records} == {200}
            assert one.host.connections == 1

    run(test())


def test_a_host_that_never_ends_is_left_when_the_client_is_gone() -> None:
    async def test() -> None:
        async def never_ends(peer: Peer, asked: HostRequest) -> None:
            await peer.send(chunked_head(), chunks(short_stream("openai_chat"), end=False))
            await peer.gone()

        async with scene(never_ends) as one:
            async with one.connected() as connection:
                connection.send("openai_chat", body_of("openai_chat"))
                await connection.head()
                await connection.until(lambda seen: ENDS["openai_chat"] in seen)
                connection.hang_up()
            await one.settles()
            assert one.records[-1].outcome == "client_gone"

    run(test())


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_that_was_told_the_end_does_not_wait_for_a_host_that_stays(
    client: str, upstream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moonshim.gateway.upstream_attempt.LAST_WORDS_SECONDS", 3600.0)

    async def test() -> None:
        async def stays(peer: Peer, asked: HostRequest) -> None:
            await peer.send(chunked_head(), chunks(short_stream(upstream), end=False))
            await peer.gone()

        async with scene(stays, dialect=upstream) as one, one.connected() as connection:
            connection.send(client, body_of(client))
            await connection.head()
            reply = await connection.rest()
            assert connection.ended
            assert ENDS[client] in reply.body
            await one.until(lambda: len(one.records) == 1, "the request does not end")
            assert [record.outcome for record in one.records] == ["ok"]

    run(test())


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_an_end_that_arrives_as_the_server_stops_is_still_sent(
    client: str, upstream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection to the host has repaired the end; the task that would send it is cancelled before it runs."""
    take = Relay.take

    def take_and_stop(relay: Relay, data: bytes) -> bool:
        taken = take(relay, data)
        if not taken:
            task = relay._client_stream._task
            assert task is not None
            task.cancel()
        return taken

    monkeypatch.setattr(Relay, "take", take_and_stop)

    async def test() -> None:
        begun = asyncio.Event()

        async def pausing(peer: Peer, asked: HostRequest) -> None:
            first, *others = (frame + b"\n\n" for frame in short_stream(upstream).split(b"\n\n") if frame)
            await peer.send(chunked_head(), chunks(first, end=False))
            await begun.wait()
            await peer.send(chunks(b"".join(others)))

        async with scene(pausing, dialect=upstream) as one, one.connected() as connection:
            connection.send(client, body_of(client))
            await connection.head()
            begun.set()
            reply = await connection.rest()
            ended = content_of(client, reply)
            assert (ended.text, len(ended.calls), ended.error) == ("Hi.", 2, None)

    run(test())
