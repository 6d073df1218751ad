"""A host's answer is bounded, and no more of it is held in memory than somebody needs."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any, Final

import aiohttp
import pytest

import moonshim
from moonshim.config import Limits, Retries
from tests.support.gateway.hosts import Host, HostRequest, Peer, Script, chunked_head, chunks, run, whole
from tests.support.gateway.running import MODEL, config_for, running
from tests.support.playing import Thought, chat_answer
from tests.support.streams import chunk, sse

MIB: Final = 1024 * 1024
LIMIT: Final = 256 * 1024
FRAME: Final = sse([chunk({"content": "a" * 8000})], done=False)
ANSWER: Final = json.dumps(chat_answer(Thought({}), "Hello.", []).whole).encode()
ASKING: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "openai_chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
    "anthropic": ("/v1/messages", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}),
    "openai_responses": ("/v1/responses", {"input": "hi"}),
}
ENDINGS: Final = {
    "openai_chat": 'data: {"error":',
    "anthropic": "event: error\n",
    "openai_responses": "event: response.failed\n",
}


def endless(hung_up: list[bool]) -> Script:
    """The first answer never ends; those to other requests do."""

    async def script(peer: Peer, asked: HostRequest) -> None:
        if hung_up:
            return await peer.send(whole(ANSWER))
        await peer.send(chunked_head())
        try:
            while True:
                await peer.send(chunks(FRAME, end=False))
        except ConnectionError:
            hung_up.append(True)
            raise

    return script


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("client", ASKING)
def test_an_answer_that_does_not_end_is_cut_off_with_an_error_in_the_clients_dialect(
    client: str, streamed: bool
) -> None:
    path, body = ASKING[client]

    async def test() -> None:
        hung_up: list[bool] = []
        limits, retries = Limits(max_answer_bytes=LIMIT), Retries(breaker_failures=1)
        async with (
            Host(endless(hung_up)) as host,
            running(config_for(host.url, limits=limits, retries=retries)) as server,
            aiohttp.ClientSession(server.url) as session,
        ):
            async with session.post(path, json={"model": MODEL, "stream": streamed, **body}) as answer:
                text = await answer.text()
            assert answer.status == (200 if streamed else 502)
            assert f"more than {LIMIT:,} bytes" in text
            assert len(text) < 8 * LIMIT  # Responses says each text four times
            if streamed:
                assert ENDINGS[client] in text
            await host.until(lambda: bool(hung_up))
            # It is not asked for the same again, and does not count as ill.
            assert len(host.requests) == 1
            async with session.post(path, json={"model": MODEL, **body}) as answer:
                assert answer.status == 200

    run(test())


@pytest.mark.parametrize("client", ASKING)
def test_a_line_that_does_not_end_is_asked_for_once_and_the_provider_stays_available(client: str) -> None:
    path, body = ASKING[client]

    async def script(peer: Peer, asked: HostRequest) -> None:
        if len(host.requests) > 1:
            return await peer.send(whole(ANSWER))
        await peer.send(chunked_head(), chunks(b"data: ", end=False))
        while True:
            await peer.send(chunks(b"a" * 8000, end=False))

    async def test() -> None:
        limits, retries = Limits(max_answer_bytes=LIMIT), Retries(breaker_failures=1)
        async with (
            host,
            running(config_for(host.url, limits=limits, retries=retries)) as server,
            aiohttp.ClientSession(server.url) as session,
        ):
            async with session.post(path, json={"model": MODEL, "stream": True, **body}) as answer:
                assert f"more than {LIMIT:,} bytes" in await answer.text()
                assert answer.status == 502
            assert len(host.requests) == 1
            async with session.post(path, json={"model": MODEL, **body}) as answer:
                assert answer.status == 200

    host = Host(script)
    run(test())


@pytest.mark.parametrize("flood", [b": c\n\n", b"\n", b": c\r\n\r\n"], ids=["comments", "blank lines", "CRLF"])
@pytest.mark.parametrize("client", ASKING)
def test_comments_without_end_count_as_an_answer_and_the_client_gets_few_of_them(client: str, flood: bytes) -> None:
    path, body = ASKING[client]
    limit, batch = 2 * MIB, chunks(flood * 1600, end=False)

    async def script(peer: Peer, asked: HostRequest) -> None:
        await peer.send(chunked_head())
        while True:
            await peer.send(batch)

    async def test() -> None:
        async with (
            Host(script) as host,
            running(config_for(host.url, limits=Limits(max_answer_bytes=limit))) as server,
            aiohttp.ClientSession(server.url) as session,
        ):
            async with session.post(path, json={"model": MODEL, "stream": True, **body}) as answer:
                text = await answer.text()
            assert f"more than {limit:,} bytes" in text
            assert len(text) < limit / 10
            assert len(host.requests) == 1

    run(test())


def test_an_answer_whose_message_nobody_files_is_not_collected() -> None:
    size = 24 * MIB

    async def script(peer: Peer, asked: HostRequest) -> None:
        await peer.send(chunked_head())
        for _ in range(size // len(FRAME)):
            await peer.send(chunks(FRAME, end=False))
        await peer.send(chunks(sse([chunk({}, "stop")])))

    async def test() -> None:
        model = "kimi-k2-0905-preview"  # which does not reason
        async with Host(script) as host:
            config = config_for(host.url, models=(model,), inspector=False)
            async with running(config) as server, aiohttp.ClientSession(server.url, read_bufsize=64 * 1024) as session:
                asked = {"model": model, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
                tracemalloc.start()
                try:
                    async with session.post("/v1/chat/completions", json=asked) as answer:
                        last = b""
                        while piece := await answer.content.readany():
                            last = (last + piece)[-100:]
                    peak = tracemalloc.get_traced_memory()[1]
                finally:
                    tracemalloc.stop()
        assert last.endswith(b"data: [DONE]\n\n")
        assert peak < size / 3

    run(test())


def test_what_was_collected_is_not_copied_again_and_again() -> None:
    frame, count = sse([chunk({"content": "a" * 1000})], done=False), 8000
    mender = moonshim.Mender(model="kimi-k2.5")
    tracemalloc.start()
    try:
        for _ in range(count):
            mender.feed(frame)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.5 * 1000 * count
    (text,) = mender.message.parts
    assert isinstance(text, moonshim.Text)
    assert len(text.text) == 1000 * count
