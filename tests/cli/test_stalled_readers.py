"""Clients that ask for streams and read nothing: when they are gone, so is what they took."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.support.gateway.hosts import Host, HostRequest, Peer, chunked_head, chunks
from tests.support.gateway.raw_client import body_of, connected
from tests.support.servers import running
from tests.support.streams import chunk, sse

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc says what a process takes")

READERS: Final = 100
BATCH: Final = chunks(*[sse([chunk({"content": "a" * 1000})], done=False)] * 16, end=False)
# The inspector keeps what it records, so it is off.
FILE: Final = """
[gateway]
inspector = false

[[providers]]
name = "host"
api_base_url = "{url}/v1"
models = ["kimi-k2.5"]
"""


def resident(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def test_the_memory_of_many_streams_goes_back_to_the_system(tmp_path: Path) -> None:
    async def test() -> None:
        sent = [0]

        async def script(peer: Peer, asked: HostRequest) -> None:
            await peer.send(chunked_head())
            while True:
                await peer.send(BATCH)
                sent[0] += 1

        async with Host(script) as host:
            file = tmp_path / "gateway.toml"
            file.write_text(FILE.format(url=host.url))
            with running("serve", "--config", file, cwd=tmp_path) as gateway:
                port, pid = int(gateway.url.rpartition(":")[2]), gateway.process.pid
                before = resident(pid)
                async with AsyncExitStack() as stack:
                    for _ in range(READERS):
                        connection = await stack.enter_async_context(connected(port, room=16 * 1024))
                        connection.send("openai_chat", body_of("openai_chat"))
                        await connection.head()
                    # Until no host can go on: many looks in a row see the same.
                    looks: list[int] = []
                    while len(looks) < 50 or looks[-1] != looks[-50]:
                        looks.append(sent[0])
                        await asyncio.sleep(0.01)
                    taken = resident(pid) - before
                while resident(pid) - before > taken * 0.8:
                    await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(test(), 180))
