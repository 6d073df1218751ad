"""Hosts that die, fall silent or answer what is no answer: every client hears of it in its own words, and can go on."""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final

import pytest

from tests.gateway.faults import CLIENTS, Reply, body_of, error_of, read_stream, short_stream
from tests.gateway.hosts import Asked, Peer, run
from tests.gateway.leaks import scene

HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
_AT: Final = re.compile(rb"die at (\d+) by (\w+)")
WAYS: Final = ("close", "chunk", "reset")
"""The end of a body that has no length; the middle of one in chunks; a reset."""
AT_ONCE: Final = 12


def dying(stream: bytes) -> Any:
    """A host that dies where the prompt says so."""

    async def script(peer: Peer, asked: Asked) -> None:
        found = _AT.search(asked.body)
        assert found is not None
        at, way = int(found[1]), found[2].decode()
        if way == "close":
            await peer.send(HEAD + b"connection: close\r\n\r\n" + stream[:at])
            peer.writer.close()
            return
        # One byte more is promised than comes.
        await peer.send(HEAD + b"transfer-encoding: chunked\r\n\r\n%x\r\n" % (at + 1) + stream[:at])
        if way == "reset":
            peer.reset()
        else:
            peer.writer.close()

    return script


def check_cut(client: str, stream: bytes, at: int, reply: Reply) -> bool:
    """Whether it was told as whole, which it may only be once the host has said how it ends."""
    last = b'"finish_reason":"tool_calls"}]}' if b'"choices"' in stream else b'"stop_reason":"tool_use"}'
    assert reply.ended, "the client's own connection is always ended properly"
    if reply.status != 200:
        # Nothing had been sent: then it is a plain error, with a status.
        assert reply.status == 502
        error_of(client, reply.json)
        assert at <= stream.index(b"\n\n", stream.index(b"Hm.")) + 2
        return False
    ended = read_stream(client, reply.body)
    assert "Hi.".startswith(ended.text)
    if ended.error is not None:
        assert ended.reason is None
        assert at < len(stream) - 1
        return False
    assert at >= stream.index(last) + len(last), "it had not said how it ends"
    assert ended.calls == [("ls", '{"n":0}'), ("ls", '{"n":1}')]
    return True


@pytest.mark.parametrize("client", CLIENTS)
def test_a_host_of_chat_may_die_at_every_byte_of_a_stream(client: str) -> None:
    run(_dies_everywhere("openai_chat", (client,)))


def test_a_host_of_messages_may_die_at_every_byte_of_a_stream_whoever_reads_it() -> None:
    run(_dies_everywhere("anthropic", CLIENTS))


async def _dies_everywhere(upstream: str, clients: tuple[str, ...]) -> None:
    stream = short_stream(upstream)
    # All clients and all three ways at every boundary of a frame; between them in turn.
    ends = {found.end() for found in re.finditer(rb"\n\n", stream)}
    several = [(client, way) for way in WAYS for client in clients]
    cases = [
        (at, *case)
        for at in range(len(stream) + 1)
        for case in (several if at in ends else [several[at % len(several)]])
    ]
    async with scene(dying(stream), dialect=upstream) as one:

        async def cut(at: int, client: str, way: str) -> bool:
            reply = await one.ask(client, body_of(client, f"die at {at} by {way}"))
            return check_cut(client, stream, at, reply)

        whole: list[bool] = []
        for start in range(0, len(cases), AT_ONCE):
            whole += await asyncio.gather(*(cut(*case) for case in cases[start : start + AT_ONCE]))
        assert 0 < sum(whole) < len(whole) / 4
        assert len(one.host.asked) == len(cases)
        await one.settles()
        outcomes = [record.outcome for record in one.records]
        assert outcomes.count("ok") == sum(whole)
        assert set(outcomes) == {"ok", "broken", "upstream_error"}
        for client in clients:
            await one.works(client)
