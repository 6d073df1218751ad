"""The connection of one request -> its body in, and an answer out at the pace of a model.

Whatever is waited for, it ends when the client is gone or the simulator closes.
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
    """There is nobody to answer any longer, or nobody who would."""


class BodyTooLarge(Exception):
    """The body is larger than it may be."""


class ClientConnection:
    """One client, as long as it waits for one answer. `closing` is set when nobody may wait any longer."""

    def __init__(self, scope: Message, receive: Receive, send: Send, closing: asyncio.Event) -> None:
        self.headers = _combine_headers(scope["headers"])
        self._scope, self._receive, self._send, self._closing = scope, receive, send, closing

    async def read(self, most: int) -> bytes:
        """The body. Raises `BodyTooLarge` before more than that is kept, and `ClientDisconnected`."""
        length = self.headers.get("content-length", "0")
        if length.isdecimal() and int(length) > most:
            raise BodyTooLarge
        return await self._unless_over(self._body(most))

    async def send(self, response: SimResponse, latency: Latency = _AT_ONCE) -> None:
        """Answer. The body must have been read, or be of no interest: from now on only the client's end counts."""
        try:
            await self._unless_over(self._write(response, latency), self._until_gone())
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
            # Also where there is nothing to wait for: each frame leaves in a piece of its own, as hosts send them.
            await asyncio.sleep(max(began + moment - clock(), 0.0))
            if piece == CUT:
                self.drop()
                return
            if isinstance(piece, bytes):
                await self._send({"type": "http.response.body", "body": piece, "more_body": True})
            elif isinstance(piece, Stall):
                await asyncio.sleep(piece.seconds)
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _unless_over(self, work: Coroutine[Any, Any, _T], *ends: Coroutine[Any, Any, object]) -> _T:
        """What this work makes. It is given up, and `ClientDisconnected` raised, when one of the ends comes first."""
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
        """End the connection as it stands: what was sent arrives, and no end of the answer behind it."""
        self._end("drop")

    def abort(self) -> None:
        """End the connection whether anybody reads or not."""
        self._end("abort")

    def _end(self, how: str) -> None:
        extension = self._scope.get("extensions", {}).get(DROP)
        # Somebody else's server cannot; it will see an answer that has no end, and do what it does then.
        if extension is not None:
            extension[how]()


def _combine_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """By their names in lower case; what comes again stands behind what came first, as HTTP has it.

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
