"""Hosts that send given bytes, and calls to them: what the tests of this folder share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from moonshim.config import Timeouts
from moonshim.http_client import UpstreamClient, UpstreamRequest, UpstreamResponse
from tests.support.gateway.hosts import Host, HostRequest, Peer, Script, run

__all__ = ["PATIENT", "call", "read_out", "sending", "silent", "with_host"]

PATIENT: Final = Timeouts(connect=120.0, first_byte=120.0, between_bytes=120.0)


def call(
    url: str, headers: dict[str, str] | None = None, *, body: bytes = b"{}", timeouts: Timeouts = PATIENT
) -> UpstreamRequest:
    return UpstreamRequest(url, headers or {}, body, timeouts)


def sending(*pieces: bytes, close: bool = False) -> Script:
    """A host that sends this to whoever asks."""

    async def script(peer: Peer, asked: HostRequest) -> None:
        await peer.send(*pieces)
        if close:
            peer.writer.close()

    return script


async def silent(peer: Peer, asked: HostRequest) -> None:
    await peer.gone()


async def read_out(answer: UpstreamResponse) -> bytes:
    pieces = []
    while data := await answer.read():
        pieces.append(data)
    return b"".join(pieces)


def with_host(script: Script, test: Callable[[UpstreamClient, Host], Awaitable[None]]) -> None:
    """Run a test; afterwards nothing may be left: no connection, no task."""

    async def whole_test() -> None:
        async with Host(script) as host:
            upstream = UpstreamClient()
            before = asyncio.all_tasks()
            try:
                await test(upstream, host)
            finally:
                await upstream.close()
            await host.until(lambda: host.open == 0)
            left = {task for task in asyncio.all_tasks() - before if "_serve" not in repr(task)}
            assert left == set()

    run(whole_test())
