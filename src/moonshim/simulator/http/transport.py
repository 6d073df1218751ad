"""The connection of one request -> its body in, and a response out with the latency of a model.

Every wait ends when the client disconnects or the simulator closes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, MutableMapping
from typing import Any, Final, TypeAlias, TypeVar

from moonshim.http_server.protocol import DROP
from moonshim.simulator.fault import CUT, Stall
from moonshim.simulator.http.latency import Latency
from moonshim.simulator.wire.playback import SimResponse

__all__ = ["BodyTooLarge", "ClientConnection", "ClientDisconnected", "Message", "Receive", "Send"]

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
_T = TypeVar("_T")
_AT_ONCE: Final = Latency()


class ClientDisconnected(Exception):
    """The client disconnected, or the simulator is closing."""


class BodyTooLarge(Exception):
    """The body is larger than the limit."""


class ClientConnection:
    """One client while it waits for one response. `closing` is set when the simulator shuts down."""

    def __init__(self, scope: Message, receive: Receive, send: Send, closing: asyncio.Event) -> None:
        self.headers = _combine_headers(scope["headers"])
        self._scope, self._receive, self._send, self._closing = scope, receive, send, closing

    async def read(self, most: int) -> bytes:
        """The body. Raises `BodyTooLarge` before more than `limit` bytes are held, and `ClientDisconnected`."""
        length = self.headers.get("content-length", "0")
        if length.isdecimal() and int(length) > most:
            raise BodyTooLarge
        return await self._until_closed(self._body(most))

    async def send(self, response: SimResponse, latency: Latency = _AT_ONCE) -> None:
        """Send a response. The body must have been read, or be irrelevant: from now on, only the disconnect is
        watched."""
        try:
            await self._until_closed(self._write(response, latency), self._wait_for_disconnect())
        except ClientDisconnected:
            self.abort()

    async def _body(self, most: int) -> bytes:
        data = bytearray()
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            data += message.get("body", b"")
            if len(data) > most:
                raise BodyTooLarge
            if not message.get("more_body"):
                return bytes(data)

    async def _write(self, response: SimResponse, latency: Latency) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        if not response.streamed:
            await asyncio.sleep(latency.whole(response.tokens))
            began, latency = clock(), _AT_ONCE
        if response.status:
            await self._send({"type": "http.response.start", "status": response.status, "headers": _headers(response)})
        for moment, piece in latency.moments(response.pieces, response.tokens):
            # Yield even without a delay, so that each frame is a separate write, as hosts send them.
            await asyncio.sleep(max(began + moment - clock(), 0.0))
            if piece == CUT:
                self.drop()
                return
            if isinstance(piece, bytes):
                await self._send({"type": "http.response.body", "body": piece, "more_body": True})
            elif isinstance(piece, Stall):
                await asyncio.sleep(piece.seconds)
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _wait_for_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _until_closed(self, work: Coroutine[Any, Any, _T], *ends: Coroutine[Any, Any, object]) -> _T:
        """The result of this work. It is cancelled, and `ClientDisconnected` raised, if the client or the simulator
        ends first."""
        doing = asyncio.ensure_future(work)
        waiting = [asyncio.ensure_future(end) for end in (*ends, self._closing.wait())]
        try:
            await asyncio.wait([doing, *waiting], return_when=asyncio.FIRST_COMPLETED)
        finally:
            over = not doing.done()
            for task in (doing, *waiting):
                task.cancel()
            for task in (doing, *waiting):
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task
        if over:
            raise ClientDisconnected
        return doing.result()

    def drop(self) -> None:
        """Close the connection after sending what was written, without a proper end of the response."""
        self._end("drop")

    def abort(self) -> None:
        """Close the connection at once, whether the client reads or not."""
        self._end("abort")

    def _end(self, how: str) -> None:
        extension = self._scope.get("extensions", {}).get(DROP)
        # Another ASGI server cannot do this; it sees an application that returns without ending its response.
        if extension is not None:
            extension[how]()


def _combine_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """By lower-case names; repeated headers are joined in their order, as HTTP defines it.

    >>> _combine_headers([(b"X-Moonshim-Simulate", b"stall"), (b"x-moonshim-simulate", b"cut-off")])
    {'x-moonshim-simulate': 'stall, cut-off'}
    """
    found: dict[str, str] = {}
    for name, value in headers:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found


def _headers(response: SimResponse) -> list[tuple[bytes, bytes]]:
    headers = [(name.encode(), value.encode("latin-1", "replace")) for name, value in response.headers.items()]
    if not response.streamed and len(response.pieces) == 1 and isinstance(response.pieces[0], bytes):
        headers.append((b"content-length", b"%d" % len(response.pieces[0])))
    return headers
