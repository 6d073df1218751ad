"""Connections of clients: what guards them, half-closed ones, and those that do not read."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from contextlib import AsyncExitStack
from typing import Final

import aiohttp
import pytest

from tests.support.gateway.hosts import Host, HostRequest, Peer, chunked_head, chunks, run
from tests.support.gateway.raw_client import CLIENTS, answer_of, body_of, connected, content_of, sending
from tests.support.gateway.running import config_for, running
from tests.support.streams import chunk, sse

KIB: Final = 1024
OWN_PATHS: Final = ("/metrics", "/ready", "/health", "/")


@pytest.mark.parametrize("path", [*OWN_PATHS, "/v1/chat/completions", "/v1/responses/resp_1", "/v1/models", "/none"])
@pytest.mark.parametrize(
    "headers",
    [{"host": "evil.example"}, {"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}],
    ids=["host", "origin", "fetch"],
)
def test_options_does_not_get_around_the_guard(path: str, headers: dict[str, str]) -> None:
    async def test() -> None:
        asking = {"access-control-request-method": "GET"}
        async with running(config_for("http://127.0.0.1:1")) as server, aiohttp.ClientSession(server.url) as client:
            for method in ("OPTIONS", "GET", "PUT", "TRACE"):
                for given in (headers, headers | asking):
                    async with client.request(method, path, headers=given) as answer:
                        assert answer.status == 403, (method, given)
                        assert "providers" not in await answer.text()

    run(test())


# --- half-closed ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_that_closes_its_sending_side_gets_its_answer(client: str, stream: bool) -> None:
    async def test() -> None:
        answer = sending(answer_of("openai_chat"))

        async def script(peer: Peer, asked: HostRequest) -> None:
            await host.resumed.wait()  # until the gateway has seen the end
            await answer(peer, asked)

        async with (
            Host(script) as host,
            running(config_for(host.url)) as server,
            connected(server.port) as connection,
        ):
            connection.send(client, body_of(client, stream=stream))
            await host.until(lambda: len(host.requests) == 1)
            connection.writer.write_eof()
            await connection.head()
            assert connection.status == 100  # so that the gateway learns whether anybody is there
            host.resumed.set()
            await connection.head()
            reply = await connection.rest()
        assert reply.status == 200
        assert content_of(client, reply).text == "Hi."

    run(test())


def test_a_client_that_closes_its_sending_side_within_a_stream_gets_the_rest() -> None:
    first, rest = (
        sse([chunk({"content": "Hello "})], done=False),
        sse([chunk({"content": "there."}), chunk({}, "stop")]),
    )

    async def test() -> None:
        async def script(peer: Peer, asked: HostRequest) -> None:
            await peer.send(chunked_head(), chunks(first, end=False))
            await host.resumed.wait()
            await peer.send(chunks(rest))

        async with Host(script) as host, running(config_for(host.url)) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            body = json.dumps(body_of("openai_chat")).encode()
            head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            seen = await reader.readuntil(b"Hello ")
            writer.write_eof()
            while not seen.endswith(b"\r\n0"):  # the first digit of the next chunk's size
                seen += await reader.readexactly(1)
            host.resumed.set()
            seen += await reader.read()
            writer.close()
        assert b"there." in seen
        assert seen.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")

    run(test())


# --- those that do not read -------------------------------------------------------------------------------------


def test_a_stream_that_nobody_reads_holds_a_bounded_number_of_bytes() -> None:
    """Without the inspector, whose recordings have a limit of their own."""
    readers, each = 20, 512 * KIB
    batch = chunks(*[sse([chunk({"content": "a" * 1000})], done=False)] * 16, end=False)

    async def test() -> None:
        sent = [0]

        async def script(peer: Peer, asked: HostRequest) -> None:
            peer.writer.transport.set_write_buffer_limits(high=0)
            await peer.send(chunked_head())
            while True:
                await peer.send(batch)
                sent[0] += 1

        async with (
            Host(script) as host,
            running(config_for(host.url, inspector=False)) as server,
            AsyncExitStack() as stack,
        ):
            tracemalloc.start()
            try:
                before = tracemalloc.get_traced_memory()[0]
                for _ in range(readers):
                    connection = await stack.enter_async_context(connected(server.port, room=16 * KIB))
                    connection.send("openai_chat", body_of("openai_chat"))
                    await connection.head()
                # Until no host can go on: many looks in a row see the same.
                looks: list[int] = []
                while len(looks) < 50 or looks[-1] != looks[-50]:
                    looks.append(sent[0])
                    await asyncio.sleep(0.01)
                held = tracemalloc.get_traced_memory()[0] - before
            finally:
                tracemalloc.stop()
            assert held < readers * each

    run(test())
