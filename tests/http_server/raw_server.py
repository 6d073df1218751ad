"""A real server with the protocol of our servers, and raw sockets to attack it with."""

from __future__ import annotations

import asyncio
import http.client
import json
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import uvicorn

from moonshim.http_server.protocol import BoundedProtocol

PATIENCE: Final = 120.0
"""Seconds that a test waits for what must happen, on a machine that is busy with other things."""


class Watched:
    """The application behind the server: it tells what reached it, and streams until it is told to stop."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.headers: list[list[tuple[bytes, bytes]]] = []
        self.disconnects = 0
        self.streaming = threading.Event()
        self.go_on = threading.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/early":
            await _answer(send, 401, b"{}")
            return
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.disconnects += 1
                return
            body += message["body"]
            more = message["more_body"]
        self.bodies.append(body)
        self.headers.append(list(scope["headers"]))
        if scope["path"] == "/stream":
            await self._stream(receive, send)
        else:
            await _answer(send, 200, json.dumps({"path": scope["path"], "bytes": len(body)}).encode())

    async def _stream(self, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first;", "more_body": True})
        gone = asyncio.ensure_future(receive())
        self.streaming.set()
        while not self.go_on.is_set() and not gone.done():
            await asyncio.sleep(0.01)
        if gone.done():
            self.disconnects += 1
        gone.cancel()
        await send({"type": "http.response.body", "body": b"last", "more_body": False})


async def _answer(send: Any, status: int, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


class RawServer:
    """One server on a free port of loopback, in a thread of its own."""

    def __init__(self, protocol: type[BoundedProtocol], loop: str) -> None:
        self.app = Watched()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        config = uvicorn.Config(
            self.app,
            http=protocol,
            loop=loop,
            lifespan="off",
            log_config=None,
            access_log=False,
            ws="none",
            timeout_keep_alive=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listener]})

    def __enter__(self) -> RawServer:
        self._thread.start()
        wait_until(lambda: self._server.started)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(PATIENCE)
        self._listener.close()
        assert not self._thread.is_alive()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def serves(self) -> bool:
        """An ordinary request of an ordinary client is answered."""
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            client.request("POST", "/", body=b"hello")
            answer = client.getresponse()
            return answer.status == 200 and json.loads(answer.read())["bytes"] == 5
        finally:
            client.close()

    def idle(self) -> bool:
        """No connection is kept, and nothing runs for one."""
        state = self._server.server_state
        return not state.connections and not state.tasks


def wait_until(holds: Callable[[], bool]) -> None:
    """Until it is so, with a deadline."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def read_all(connection: socket.socket) -> bytes:
    """All that the server says until it ends the connection; a reset is an end too."""
    said = b""
    try:
        while piece := connection.recv(65536):
            said += piece
    except ConnectionResetError:
        pass
    return said


def read_answer(connection: socket.socket) -> bytes:
    """One answer that says how long it is."""
    said = b""
    while b"\r\n\r\n" not in said:
        piece = connection.recv(65536)
        assert piece, said
        said += piece
    head, _, body = said.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(body) < length:
        piece = connection.recv(65536)
        assert piece, said
        body += piece
        said += piece
    return said


def send_until_answered(connection: socket.socket, beginning: bytes, more: bytes, pause: float = 0.0) -> bytes:
    """Send for as long as the server says nothing, then listen to the end."""
    deadline = time.monotonic() + PATIENCE
    try:
        connection.sendall(beginning)
        while not select.select([connection], [], [], pause)[0]:
            assert time.monotonic() < deadline, "it reads for ever"
            connection.sendall(more)
    except (BrokenPipeError, ConnectionResetError):
        return b""
    return read_all(connection)


def status_of(answer: bytes) -> int:
    """0: none."""
    return int(answer.split(b" ", 2)[1]) if answer else 0
