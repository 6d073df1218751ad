"""A stream under a wrong content type reaches every client while the host still writes it, and is asked for again."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import openai
import pytest

from moonshim.agent import Provider
from moonshim.engine.values.events import BlockDelta
from moonshim.integrations import async_openai_http_client, openai_http_client
from tests.agent.asking import collected, human
from tests.support.gateway.hosts import Host, HostRequest, Peer, Script, chunked_head, chunks, run
from tests.support.gateway.leaks import scene
from tests.support.gateway.raw_client import CLIENTS, answer_of, body_of, connected, content_of
from tests.support.playing import Answer

LABELS: Final = ("text/plain", "application/json; charset=utf-8", "application/octet-stream", None)
STARTS: Final = {
    "events": b"",
    "a comment": b": hello\n\n",
    "an id": b"id: 1\n",
    "white space": b"\r\n \n",
    "lines": b"",
}
"""What comes before the first chunk."""


def head(label: str | None) -> bytes:
    return chunked_head(headers=("connection: close", *(() if label is None else (f"content-type: {label}",))))


def frames_of(answer: Answer, start: str) -> list[bytes]:
    frames = [frame + b"\n\n" for frame in answer.stream.split(b"\n\n") if frame]
    if start == "lines":
        return [frame[6:-1] for frame in frames if frame.startswith(b"data: {")]
    return [STARTS[start] + frames[0], *frames[1:]]


def waiting(label: str | None, start: str) -> Script:
    """A host that goes on only when its client has the first word of the text; the first bytes come one by one."""
    frames = frames_of(answer_of("openai_chat"), start)
    place = next(number for number, frame in enumerate(frames) if b'"content": "Hi"' in frame) + 1

    async def script(peer: Peer, asked: HostRequest) -> None:
        first = b"".join(frames[:place])
        odd = [first[at : at + 1] for at in range(12)]
        await peer.send(head(label), *(chunks(piece, end=False) for piece in (*odd, first[12:])))
        await peer.host.resumed.wait()
        await peer.send(chunks(*frames[place:]))
        peer.writer.close()

    return script


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("label", LABELS)
def test_the_gateway_passes_it_on_as_it_comes(label: str | None, start: str) -> None:
    async def test() -> None:
        async with scene(waiting(label, start)) as one:
            for client in CLIENTS:
                one.host.resumed.clear()
                async with connected(one.port) as connection:
                    connection.send(client, body_of(client))
                    await connection.head()
                    await connection.until(lambda got: b'"Hi"' in got)
                    one.host.resumed.set()
                    reply = await connection.rest()
                said = content_of(client, reply)
                assert (said.text, len(said.calls), said.error) == ("Hi.", 2, None)
                assert reply.headers["content-type"].startswith("text/event-stream")
            await one.settles()

    run(test())


TOOLS: Final[Any] = [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}]
ASKED: Final[dict[str, Any]] = {"model": "kimi-k2.5", "messages": [{"role": "user", "content": "hi"}], "tools": TOOLS}


@pytest.mark.parametrize("start", STARTS)
def test_the_http_clients_for_the_sdks_pass_it_on_as_it_comes(start: str) -> None:
    async def through_the_async_client(host: Host) -> None:
        async with openai.AsyncOpenAI(
            base_url=f"{host.url}/v1", api_key="none", http_client=async_openai_http_client()
        ) as client:
            names: list[str] = []
            async for chunk in await client.chat.completions.create(**ASKED, stream=True):
                if chunk.choices and chunk.choices[0].delta.content == "Hi":
                    host.resumed.set()
                if chunk.choices:
                    names += [call.function.name for call in chunk.choices[0].delta.tool_calls or () if call.function]
            assert "ls" in names

    def through_the_client(host: Host, loop: asyncio.AbstractEventLoop) -> None:
        with openai.OpenAI(base_url=f"{host.url}/v1", api_key="none", http_client=openai_http_client()) as client:
            seen = False
            for chunk in client.chat.completions.create(**ASKED, stream=True):
                if chunk.choices and chunk.choices[0].delta.content == "Hi":
                    loop.call_soon_threadsafe(host.resumed.set)
                seen = seen or bool(chunk.choices and chunk.choices[0].delta.tool_calls)
            assert seen

    async def test() -> None:
        async with Host(waiting("text/plain", start)) as host:
            await through_the_async_client(host)
            host.resumed.clear()
            await asyncio.to_thread(through_the_client, host, asyncio.get_running_loop())

    run(test())


@pytest.mark.parametrize("start", STARTS)
def test_the_agent_gets_it_as_it_comes(start: str) -> None:
    async def test() -> None:
        async with (
            Host(waiting("application/json", start)) as host,
            Provider(f"{host.url}/v1", model="kimi-k2.5") as provider,
        ):
            async for event in provider.stream_chat_with_tools(human()):
                if isinstance(event, BlockDelta) and event.text == "Hi":
                    host.resumed.set()
            assert host.resumed.is_set()
            assert provider.last.problem is None

    run(test())


def empty_first(label: str, start: str) -> Script:
    """The first answer is nothing but reasoning, the next one is right."""
    left = [answer_of("openai_chat", "", calls=0), answer_of("openai_chat")]

    async def script(peer: Peer, asked: HostRequest) -> None:
        answer = left.pop(0) if len(left) > 1 else left[0]
        await peer.send(head(label) + chunks(*frames_of(answer, start)))
        peer.writer.close()

    return script


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("way", ["gateway", "whole", "sdk", "agent"])
def test_an_empty_answer_is_asked_for_again(way: str, start: str) -> None:
    async def through_the_gateway(stream: bool) -> None:
        for client in CLIENTS:
            async with scene(empty_first("text/plain", start)) as one:
                said = content_of(client, await one.ask(client, body_of(client, stream=stream)))
                assert (said.text, len(said.calls), said.error) == ("Hi.", 2, None)
                assert len(one.host.requests) == 2
                await one.settles()

    async def through_an_sdk(host: Host) -> None:
        async with openai.AsyncOpenAI(
            base_url=f"{host.url}/v1", api_key="none", http_client=async_openai_http_client(), max_retries=0
        ) as client:
            stream = await client.chat.completions.create(**ASKED, stream=True)
            pieces = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
            assert "".join(pieces) == "Hi."

    async def through_the_agent(host: Host) -> None:
        async with Provider(f"{host.url}/v1", model="kimi-k2.5") as provider:
            await collected(provider.stream_chat_with_tools(human()))
            assert provider.last.problem is None
            assert [part.text for part in provider.last.message.parts if hasattr(part, "text")][-1] == "Hi."

    async def test() -> None:
        if way in ("gateway", "whole"):
            await through_the_gateway(stream=way == "gateway")
            return
        async with Host(empty_first("application/json", start)) as host:
            await (through_an_sdk if way == "sdk" else through_the_agent)(host)
            assert len(host.requests) == 2

    run(test())


@pytest.mark.parametrize("label", ["text/event-stream", "text/plain"])
def test_a_whole_response_under_a_wrong_content_type_is_read_too(label: str) -> None:
    async def script(peer: Peer, asked: HostRequest) -> None:
        await peer.send(head(label) + chunks(json.dumps(answer_of("openai_chat").whole).encode()))
        peer.writer.close()

    async def test() -> None:
        async with scene(script) as one:
            for client in CLIENTS:
                for stream in (True, False):
                    said = content_of(client, await one.ask(client, body_of(client, stream=stream)))
                    assert (said.text, len(said.calls), said.error) == ("Hi.", 2, None)
            await one.settles()

    run(test())
