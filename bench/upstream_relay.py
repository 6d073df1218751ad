"""Measure the CPU time of the HTTP client: per read of a host's stream (50 streams, a chunk every 10 ms), and per
request without a stream.

Run it with `python -m bench.upstream_relay`. The rows are measured in the same run:

- a bare protocol that only counts the bytes from the event loop: the lower bound
- `moonshim.http_client`
- aiohttp, with the loop from its documentation
- the same with aiohttp's own timeout between bytes (`sock_read`), which is a timer for every chunk

Reads are counted instead of chunks, because on a busy machine one read may contain several chunks.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import aiohttp
import uvloop

from moonshim.config import Timeouts
from moonshim.http_client import UpstreamClient, UpstreamRequest

STREAMS: Final = 50
SECONDS_BETWEEN: Final = 0.01
EVENT: Final = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"kimi-k2.5",'
    b'"choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}\n\n'
)
CHUNK: Final = b"%x\r\n%b\r\n" % (len(EVENT), EVENT)
HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
WHOLE: Final = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
    len(EVENT),
    EVENT,
)
BODY: Final = b'{"model": "kimi-k2.5", "messages": [{"role": "user", "content": "Hello"}]}'
REQUEST: Final = b"POST / HTTP/1.1\r\nhost: bench\r\ncontent-length: 0\r\n\r\n"


async def serve(chunks: int) -> None:
    """The host, in a process of its own: it prints its port."""

    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        clock = asyncio.get_running_loop().time
        try:
            while (await reader.readuntil(b"\r\n\r\n")).startswith(b"POST /whole"):
                await reader.readexactly(len(BODY))
                writer.write(WHOLE)
        except asyncio.IncompleteReadError:  # the client has closed the connection
            writer.close()
            return
        writer.write(HEAD)
        due = clock()
        for _ in range(chunks):
            writer.write(CHUNK)
            due += SECONDS_BETWEEN
            await asyncio.sleep(max(0.0, due - clock()))
        writer.write(b"0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(stream, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


class Counting(asyncio.Protocol):
    """Takes bytes and does nothing with them."""

    def __init__(self) -> None:
        self.reads = 0
        self.over = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        transport.write(REQUEST)

    def data_received(self, data: bytes) -> None:
        self.reads += 1

    def connection_lost(self, error: Exception | None) -> None:
        self.over.set_result(None)


async def bare(port: int) -> int:
    loop = asyncio.get_running_loop()
    made = [(await loop.create_connection(Counting, "127.0.0.1", port))[1] for _ in range(STREAMS)]
    await asyncio.gather(*(protocol.over for protocol in made))
    return sum(protocol.reads for protocol in made)


async def moonshim(port: int) -> int:
    upstream = UpstreamClient()
    call = UpstreamRequest(f"http://127.0.0.1:{port}/", {}, b"", Timeouts())

    async def one() -> int:
        reads = 0
        answer = await upstream.open(call)
        while await answer.read():
            reads += 1
        answer.close()
        return reads

    reads = sum(await asyncio.gather(*(one() for _ in range(STREAMS))))
    await upstream.close()
    return reads


def plain_aiohttp(silence: float | None) -> Callable[[int], Awaitable[int]]:
    async def read(port: int) -> int:
        timeout = aiohttp.ClientTimeout(total=None, sock_read=silence)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:

            async def one() -> int:
                reads = 0
                async with session.post(f"http://127.0.0.1:{port}/") as response:
                    async for _ in response.content.iter_any():
                        reads += 1
                return reads

            return sum(await asyncio.gather(*(one() for _ in range(STREAMS))))

    return read


READERS: Final[dict[str, Callable[[int], Awaitable[int]]]] = {
    "a bare protocol": bare,
    "moonshim.http_client": moonshim,
    "aiohttp": plain_aiohttp(None),
    "aiohttp with sock_read": plain_aiohttp(120.0),
}


async def moonshim_requests(url: str, count: int) -> None:
    upstream = UpstreamClient()
    call = UpstreamRequest(url, {"content-type": "application/json"}, BODY, Timeouts())
    for _ in range(count):
        answer = await upstream.open(call)
        await answer.read_all(len(EVENT))
    await upstream.close()


async def aiohttp_requests(url: str, count: int) -> None:
    async with aiohttp.ClientSession() as session:
        for _ in range(count):
            async with session.post(url, data=BODY, headers={"content-type": "application/json"}) as response:
                await response.read()


async def measure_requests(send: Callable[[str, int], Awaitable[None]], port: int, count: int) -> float:
    started = time.process_time()
    await send(f"http://127.0.0.1:{port}/whole", count)
    return (time.process_time() - started) / count


async def measure(reader: Callable[[int], Awaitable[int]], port: int) -> tuple[float, int]:
    started = time.process_time()
    reads = await reader(port)
    return (time.process_time() - started) / reads, reads


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=300, help="chunks per stream (default: 300)")
    parser.add_argument("--rounds", type=int, default=5, help="measurements per row; the lowest counts (default: 5)")
    parser.add_argument("--requests", type=int, default=2000, help="requests per round (default: 2000)")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        uvloop.run(serve(options.chunks))
        return
    command = [sys.executable, "-m", "bench.upstream_relay", "--serve", "--chunks", str(options.chunks)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as host:
        assert host.stdout is not None
        port = int(host.stdout.readline())
        best = dict.fromkeys(READERS, (float("inf"), 0))
        for _ in range(options.rounds):
            for name, reader in READERS.items():
                best[name] = min(best[name], uvloop.run(measure(reader, port)))
        requests = {
            name: min(uvloop.run(measure_requests(send, port, options.requests)) for _ in range(options.rounds))
            for name, send in (("moonshim.http_client", moonshim_requests), ("aiohttp", aiohttp_requests))
        }
        host.terminate()
    print(f"{'':24}{'us per read':>12}{'reads':>10}")
    for name, (seconds, reads) in best.items():
        print(f"{name:24}{seconds * 1e6:>12.1f}{reads:>10}")
    print(f"{'':24}{'us per request':>16}")
    for name, seconds in requests.items():
        print(f"{name:24}{seconds * 1e6:>16.1f}")


if __name__ == "__main__":
    main()
