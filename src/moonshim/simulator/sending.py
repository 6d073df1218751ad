"""What is to be sent -> one client, at the pace of a model, until it is out, the client gone, or the box closed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from moonshim.simulator.fault import CUT, Stall
from moonshim.simulator.pace import Pace
from moonshim.simulator.play import Played

__all__ = ["Receive", "Send", "Sender"]

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]


class Sender:
    """Sends answers, each in the task of its request. After `close` none is under way, and none begins."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._closing = asyncio.Event()

    def close(self) -> None:
        self._closing.set()

    async def send(self, played: Played, scope: Message, receive: Receive, send: Send) -> None:
        """The body of the request must have been read: from now on only its end can come."""
        works = (self._write(played, scope, send), _gone(receive), self._closing.wait())
        tasks: list[asyncio.Task[Any]] = [asyncio.ensure_future(work) for work in works]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        if isinstance(results[0], asyncio.CancelledError):
            drop(scope, send)
        elif isinstance(results[0], BaseException):
            raise results[0]

    async def _write(self, played: Played, scope: Message, send: Send) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        if not played.streamed:
            await asyncio.sleep(self._pace.whole(played.tokens))
        if played.status:
            headers = [(name.encode(), value.encode("latin-1", "replace")) for name, value in played.headers.items()]
            if not played.streamed and len(played.pieces) == 1 and isinstance(played.pieces[0], bytes):
                headers.append((b"content-length", b"%d" % len(played.pieces[0])))
            await send({"type": "http.response.start", "status": played.status, "headers": headers})
        pace = self._pace if played.streamed else Pace()
        for moment, piece in pace.moments(played.pieces, played.tokens):
            if piece == CUT:
                drop(scope, send)
                return
            await asyncio.sleep(max(began + moment - clock(), 0.0))
            if isinstance(piece, Stall):
                await asyncio.sleep(piece.seconds)
            elif isinstance(piece, bytes):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def drop(scope: Message, send: Send) -> None:
    """End the connection as it stands: what was sent arrives, and no end of the body behind it."""
    cycle = getattr(send, "__self__", None)
    if cycle is not None:
        cycle.disconnected = True
        cycle.transport.close()
