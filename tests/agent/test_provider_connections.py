"""The connections of a provider: used again, and closed whenever nobody wants more of an answer."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import pytest

from moonshim.agent import AnswerStream, Provider, as_marked_text
from moonshim.engine.values.events import BlockDelta, Failed, Finished
from moonshim.http_client import UpstreamClient
from moonshim.simulator import Simulator
from tests.agent.asking import LIST, collected, human, run
from tests.support.gateway.hosts import Host, HostRequest, Peer, chunked_head, chunks


def chunk(text: str | None = None, finish: str | None = None) -> bytes:
    delta = {} if text is None else {"content": text}
    body = {"id": "1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    return b"data: %b\n\n" % json.dumps(body).encode()


async def half(peer: Peer, asked: HostRequest) -> None:
    """Says a word, and then nothing until the client is gone."""
    await peer.send(chunked_head() + chunks(chunk("Hello"), end=False))
    await peer.gone()
    peer.writer.close()


async def nothing(peer: Peer, asked: HostRequest) -> None:
    await peer.gone()
    peer.writer.close()


@asynccontextmanager
async def asking(script: Callable[[Peer, HostRequest], Awaitable[None]]) -> AsyncIterator[tuple[Host, Provider]]:
    async with Host(script) as host, Provider(f"{host.url}/v1", model="kimi-k2.5") as provider:
        yield host, provider


def answer(provider: Provider) -> AnswerStream:
    return provider.stream_chat_with_tools(human())


class TestLeaving:
    def test_closing_a_stream_closes_its_connection(self) -> None:
        async def test() -> None:
            async with asking(half) as (host, provider):
                stream = answer(provider)
                async for event in stream:
                    if isinstance(event, BlockDelta):
                        break
                assert host.open == 1
                await stream.aclose()
                await host.until(lambda: host.open == 0)
                assert provider.last.ending is None
                assert [part.text for part in provider.last.message.parts] == ["Hello"]  # type: ignore[union-attr]

        run(test())

    def test_leaving_a_loop_closes_its_connection(self) -> None:
        """Without a word to the stream, and without the garbage collector."""

        async def test() -> None:
            async with asking(half) as (host, provider):
                gc.disable()
                try:
                    async for event in answer(provider):
                        if isinstance(event, BlockDelta):
                            break
                    assert host.open == 1
                    await host.until(lambda: host.open == 0)
                finally:
                    gc.enable()

        run(test())

    def test_leaving_a_loop_over_marked_text_closes_it_too(self) -> None:
        async def test() -> None:
            async with asking(half) as (host, provider):
                async for piece in as_marked_text(answer(provider)):
                    assert piece == "Hello"
                    break
                await host.until(lambda: host.open == 0)

        run(test())

    @pytest.mark.parametrize("script", [half, nothing])
    def test_cancelling_a_task_closes_its_connection(
        self, script: Callable[[Peer, HostRequest], Awaitable[None]]
    ) -> None:
        async def test() -> None:
            async with asking(script) as (host, provider):
                task = asyncio.create_task(collected(answer(provider)))
                await host.until(lambda: len(host.requests) == 1)
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                await host.until(lambda: host.open == 0)

        run(test())

    def test_cancelling_between_two_attempts_asks_nobody_any_more(self) -> None:
        async def test() -> None:
            async def refuse(peer: Peer, asked: HostRequest) -> None:
                await peer.send(b"HTTP/1.1 429 No\r\nretry-after: 15\r\ncontent-length: 0\r\n\r\n")

            async with asking(refuse) as (host, provider):
                task = asyncio.create_task(collected(answer(provider)))
                await host.until(lambda: len(host.requests) == 1)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert len(host.requests) == 1

        run(test())

    def test_a_stream_that_nobody_reads_asks_nobody(self) -> None:
        async def test() -> None:
            async with asking(half) as (host, provider):
                stream = answer(provider)
                await stream.aclose()
                assert host.connections == 0

        run(test())

    def test_a_deadline_of_the_caller_holds(self) -> None:
        async def test() -> None:
            async with asking(half) as (host, provider):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await collected(answer(provider))
                await host.until(lambda: host.open == 0)

        run(test())

    @pytest.mark.parametrize("events", [0, 1, 2, 3, 5, 8])
    @pytest.mark.parametrize("wire", ["/v1", "/anthropic"])
    def test_nothing_is_left_at_the_simulator_wherever_one_stops(self, events: int, wire: str) -> None:
        async def test() -> None:
            async with (
                Simulator(behaviour="selfhost", tokens_per_second=200.0, log=lambda seen: None) as server,
                Provider(f"{server.url}{wire}", model="kimi-k2.5") as provider,
            ):
                for _ in range(3):
                    async with provider.stream_chat_with_tools(human(), [LIST]) as stream:
                        for _ in range(events):
                            await anext(stream)
                await until_closed(server)

        run(test())


class TestKeeping:
    def test_one_connection_serves_one_answer_after_the_other(self) -> None:
        async def test() -> None:
            async def speak(peer: Peer, asked: HostRequest) -> None:
                done = chunk(finish="stop") + b"data: [DONE]\n\n"
                await peer.send(chunked_head(), chunks(chunk("Hello"), done, end=False), b"0\r\n\r\n")

            async with asking(speak) as (host, provider):
                for model in ("kimi-k2.5", "kimi-k3", "kimi-k2.5"):
                    events = await collected(answer(provider.with_(model=model)))
                    assert isinstance(events[-1], Finished)
                assert host.connections == 1

        run(test())

    def test_words_are_told_while_the_host_still_speaks(self) -> None:
        async def test() -> None:
            async def slow(peer: Peer, asked: HostRequest) -> None:
                await peer.send(chunked_head() + chunks(chunk("Hello"), end=False))
                await host.resumed.wait()
                await peer.send(chunks(chunk(finish="stop"), b"data: [DONE]\n\n"))

            async with asking(slow) as (host, provider):
                seen = []
                async for event in answer(provider):
                    seen.append(event)
                    if isinstance(event, BlockDelta):
                        host.resumed.set()
                assert isinstance(seen[-1], Finished)

        run(test())

    def test_whoever_asks_after_closing_has_a_new_connection(self) -> None:
        async def test() -> None:
            async with Simulator(behaviour="selfhost", log=lambda seen: None) as server:
                provider = Provider(f"{server.url}/v1", model="kimi-k2.5")
                for _ in range(2):
                    assert isinstance((await collected(answer(provider)))[-1], Finished)
                    await provider.close()
                    await until_closed(server)

        run(test())

    def test_closing_ends_what_is_still_told(self) -> None:
        async def test() -> None:
            async with asking(half) as (_, provider):
                events = []
                async for event in answer(provider):
                    events.append(event)
                    if isinstance(event, BlockDelta):
                        await provider.close()
                assert isinstance(events[-1], Failed)

        run(test())

    def test_connections_of_somebody_else_are_left_to_him(self) -> None:
        async def test() -> None:
            upstream = UpstreamClient()
            async with Simulator(behaviour="selfhost", log=lambda seen: None) as server:
                for model in ("kimi-k2.5", "kimi-k3"):
                    async with Provider(f"{server.url}/v1", model=model, upstream=upstream) as provider:
                        await collected(answer(provider))
                assert connections(server) == 1
                await upstream.close()

        run(test())

    def test_one_provider_for_several_loops(self) -> None:
        with Simulator(behaviour="selfhost", log=lambda seen: None).running() as server:
            provider = Provider(f"{server.url}/v1", model="kimi-k2.5")

            async def once() -> None:
                async with provider:
                    assert isinstance((await collected(answer(provider)))[-1], Finished)

            for _ in range(3):
                run(once())


_PATIENCE: Final = 60.0


def connections(server: Simulator) -> int:
    """How many connections stand at a simulator now."""
    assert server._server is not None
    return len(server._server._server.server_state.connections)


async def until_closed(server: Simulator) -> None:
    async with asyncio.timeout(_PATIENCE):
        while connections(server):
            await asyncio.sleep(0.002)
