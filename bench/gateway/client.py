"""Many clients at once, each reading one stream to its end: a port and a body -> what arrived, and when."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from typing import Any, Final, cast

from msgspec import Struct

__all__ = ["Result", "body_of", "run_streams", "run_whole"]

_STAMP: Final = re.compile(rb"@([0-9.]{16})@")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read",
            "description": "Read a file",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        },
    }
]


class Result(Struct, frozen=True):
    """What the clients saw."""

    streams: int
    whole: int
    """Streams that ended as they should."""
    reads: int
    first_bytes: list[float]
    """Seconds until the first byte of the body, sorted."""
    delays: list[float] = []
    """Seconds from the host to the client of each chunk that says when it was sent, sorted."""


def body_of(model: str, *, stream: bool, tools: bool = False, dialect: str = "openai_chat") -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": model,
        "stream": stream,
        "messages": [{"role": "user", "content": "Say something, please."}],
    }
    if dialect == "anthropic":
        body["max_tokens"] = 4096
    if tools:
        body["tools"] = TOOLS
    return body


class _Client(asyncio.Protocol):
    def __init__(self, request: bytes, ends_with: bytes, done: asyncio.Future[bool]) -> None:
        self._request, self._ends_with, self._done = request, ends_with, done
        self._tail = b""
        self.reads = 0
        self.first: float | None = None
        self._sent = 0.0
        self.delays: list[float] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._sent = time.perf_counter()
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.reads += 1
        if self.first is None and b"data:" in data:
            self.first = time.perf_counter() - self._sent
        if b"@" in data:
            now = time.monotonic()
            self.delays += (now - float(stamp) for stamp in _STAMP.findall(data))
        tail = self._tail[-64:] + data[-256:]
        if self._ends_with in tail:
            self._finish(True)
        self._tail = tail

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish(False)

    def _finish(self, whole: bool) -> None:
        if not self._done.done():
            self._done.set_result(whole)
            self.transport.close()


def _request(path: str, body: dict[str, Any]) -> bytes:
    payload = json.dumps(body).encode()
    return b"POST %b HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        path.encode(),
        len(payload),
        payload,
    )


async def _streams(port: int, path: str, body: dict[str, Any], count: int, spread: float) -> Result:
    loop = asyncio.get_running_loop()
    request = _request(path, body)
    ends_with = b"message_stop" if path.endswith("messages") else b"[DONE]"
    clients: list[_Client] = []
    waiting: list[asyncio.Future[bool]] = []
    for _ in range(count):
        done: asyncio.Future[bool] = loop.create_future()
        _, client = await loop.create_connection(lambda done=done: _Client(request, ends_with, done), "127.0.0.1", port)  # type: ignore[misc]
        clients.append(client)
        waiting.append(done)
        # Every chunk is a wake-up of its own: the streams must not tick together.
        await asyncio.sleep(spread / count)
    whole = await asyncio.gather(*waiting)
    firsts = sorted(one.first for one in clients if one.first is not None)
    delays = sorted(delay for one in clients for delay in one.delays)
    return Result(count, sum(whole), sum(one.reads for one in clients), firsts, delays)


async def _whole(port: int, path: str, body: dict[str, Any], count: int, connections: int) -> Result:
    request = _request(path, body)

    async def one_after_another(share: int) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        good = 0
        for _ in range(share):
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            good += head.startswith(b"HTTP/1.1 200")
        writer.close()
        return good

    good = await asyncio.gather(*(one_after_another(count // connections) for _ in range(connections)))
    return Result(count // connections * connections, sum(good), 0, [])


def _run(work: Any) -> Result:
    if sys.platform == "win32":
        result: Result = asyncio.run(work)
    else:
        import uvloop

        result = cast(Result, uvloop.run(work))
    return result


def run_streams(port: int, path: str, body: dict[str, Any], count: int, *, spread: float = 0.01) -> Result:
    return _run(_streams(port, path, body, count, spread))


def run_whole(port: int, path: str, body: dict[str, Any], count: int, *, connections: int = 4) -> Result:
    return _run(_whole(port, path, body, count, connections))
