"""A script -> a host on a real loopback socket that follows it to the byte, and a proxy in front of it."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, TypeVar

import uvloop
from msgspec import Struct

__all__ = ["Host", "HostRequest", "Peer", "Proxy", "Script", "chunked_head", "chunks", "run", "whole"]

T = TypeVar("T")

PATIENCE: Final = 300.0
"""How long anything in a test may take before it counts as hung."""


def run(test: Coroutine[Any, Any, T]) -> T:
    """Run a test to its end on the gateway's event loop; a test that hangs fails."""
    return uvloop.run(asyncio.wait_for(test, PATIENCE))


class HostRequest(Struct, frozen=True):
    """A request as received."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Peer:
    """The host's end of one connection."""

    def __init__(self, host: Host, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.host, self.reader, self.writer = host, reader, writer
        self.requests = 0
        """Number of requests on this connection."""

    async def ask(self) -> HostRequest | None:
        """The next request; None when the client has disconnected."""
        try:
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        first, *lines = head.rstrip().split("\r\n")
        method, path, _ = first.split(" ")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        self.requests += 1
        return HostRequest(method, path, headers, body)

    async def send(self, *pieces: bytes) -> None:
        """Each piece in its own packet, as far as TCP allows."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0)

    def reset(self) -> None:
        """End the connection with RST."""
        sock: socket.socket = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def gone(self) -> None:
        """Wait until the client has closed its end."""
        with suppress(ConnectionError):
            while await self.reader.read(65536):
                pass


Script: TypeAlias = Callable[[Peer, HostRequest], Awaitable[None]]


class Host:
    """Serves a script on a free port for the duration of a `with`. The script is run for every request.

    A script that returns leaves the connection open; one that closes `peer.writer` ends it.
    """

    def __init__(self, script: Script, *, tls: ssl.SSLContext | None = None) -> None:
        self._script, self._tls = script, tls
        self._tasks: set[asyncio.Task[None]] = set()
        self.requests: list[HostRequest] = []
        self.connections = 0
        self.open = 0
        """Open connections."""
        self.resumed = asyncio.Event()
        """For a script that waits until its test continues it."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls, backlog=1024)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition; `run` has the deadline."""
        while not condition():
            await asyncio.sleep(0.002)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.open += 1
        peer = Peer(self, reader, writer)
        try:
            while not writer.is_closing() and (asked := await peer.ask()) is not None:
                self.requests.append(asked)
                await self._script(peer, asked)
            if writer.is_closing():
                await writer.wait_closed()  # its last bytes may still wait for a client that reads slowly
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.open -= 1
            writer.transport.abort()
            self._tasks.discard(task)


class Proxy(Host):
    """A forward proxy that connects every request to one host, whatever its name; it records what was requested."""

    def __init__(self, host: Host, *, refuse: int | None = None, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(self._forward, tls=tls)
        self._host, self._refuse = host, refuse

    async def _forward(self, peer: Peer, asked: HostRequest) -> None:
        if self._refuse is not None:
            await peer.send(f"HTTP/1.1 {self._refuse} No\r\ncontent-length: 0\r\n\r\n".encode())
            return
        reader, writer = await asyncio.open_connection("127.0.0.1", self._host.port)
        if asked.method == "CONNECT":
            await peer.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            path = "/" + asked.path.partition("://")[2].partition("/")[2]
            lines = "".join(f"{name}: {value}\r\n" for name, value in asked.headers.items())
            writer.write(f"{asked.method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + asked.body)
        try:
            await asyncio.gather(_pump(peer.reader, writer), _pump(reader, peer.writer))
        finally:
            writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


# --- response bytes -------------------------------------------------------------------------------------------------


def whole(
    body: bytes, *, status: str = "200 OK", headers: Iterable[str] = ("content-type: application/json",)
) -> bytes:
    """A response with its length."""
    lines = "".join(f"{line}\r\n" for line in (*headers, f"content-length: {len(body)}"))
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body


def chunked_head(*, headers: Iterable[str] = ("content-type: text/event-stream",)) -> bytes:
    """The head of a chunked response."""
    lines = "".join(f"{line}\r\n" for line in (*headers, "transfer-encoding: chunked"))
    return f"HTTP/1.1 200 OK\r\n{lines}\r\n".encode()


def chunks(*pieces: bytes, end: bool = True) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + (b"0\r\n\r\n" if end else b"")
