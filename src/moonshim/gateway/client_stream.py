"""What the gateway answers -> one client: headers once, then bytes, and signs of life while the host is silent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Final, TypeAlias

__all__ = ["ClientStream", "Header", "Receive", "Send"]

Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Header: TypeAlias = tuple[bytes, bytes]

_SOONEST: Final = 0.05
"""Seconds: a timer is never set closer than this, however late it is."""
_LAST_SECONDS: Final = 2.0
"""How long the host may take for the rest, when the client has heard the end and gone."""


class ClientStream:
    """The way to one client. Headers leave once; a heartbeat leaves only between two writes, never inside one.

    The client's disconnect ends the task that answers it, whatever that is waiting for:
    `gone` tells that this was the reason.
    """

    def __init__(self, receive: Receive, send: Send, always: Sequence[Header] = ()) -> None:
        self._receive, self._send = receive, send
        self.always: list[Header] = list(always)
        """What every answer carries, whichever it will be."""
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._busy = False
        self._complete = False
        """The last byte of the answer is out."""
        self._last = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._heartbeat_task: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._heartbeat_seconds = 0.0
        self._heartbeat_bytes = b""
        self._heartbeat_headers: Sequence[Header] = ()
        self.status = 0
        """What the client was told; 0: nothing yet."""
        self.gone = False
        self.sent_end = False
        """The client has heard the end of the answer. Most go away then, and do not wait for the last byte."""

    @property
    def started(self) -> bool:
        return self.status != 0

    @property
    def silent_seconds(self) -> float:
        """Since something was sent last."""
        return self._loop.time() - self._last

    # -- the client's side -----------------------------------------------------------

    def watch(self) -> None:
        """From now on the client's disconnect cancels the task that made this stream. Its body must have been read."""
        self._watcher = self._loop.create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self.sent_end and not self._complete:
            # The host may still tell what it cost, and its connection can be used again when all of it was read.
            self._send = _discard
            await asyncio.sleep(_LAST_SECONDS)
        if self._complete:
            return  # servers say so behind every answer: nobody has gone away from anything
        self.gone = True
        if self._task is not None:
            self._task.cancel()

    @property
    def has_left(self) -> bool:
        """Whether the client went away behind the end that it was told: nobody waits any longer."""
        return self._send is _discard

    # -- heartbeats ------------------------------------------------------------------

    def keep_alive(self, seconds: float, heartbeat: bytes, headers: Sequence[Header]) -> None:
        """Whenever nothing was sent for so long, `heartbeat` is; the first one sends the headers too, if need be.

        A client, or a balancer before it, gives up on a connection that says nothing: 20 s in Claude Code.
        """
        self._heartbeat_seconds, self._heartbeat_bytes, self._heartbeat_headers = seconds, heartbeat, headers
        self._timer = self._loop.call_later(seconds, self._tick)

    def _tick(self) -> None:
        idle = self._loop.time() - self._last
        if idle >= self._heartbeat_seconds:
            if not self._busy and self._heartbeat_task is None:
                self._heartbeat_task = self._loop.create_task(self._heartbeat())
            idle = 0.0
        self._timer = self._loop.call_later(max(self._heartbeat_seconds - idle, _SOONEST), self._tick)

    async def settle(self) -> None:
        """No heartbeat follows, and none is on its way: from now on `started` says what it will say."""
        self._cancel_timer()
        if self._heartbeat_task is not None:
            await asyncio.shield(self._heartbeat_task)

    async def _heartbeat(self) -> None:
        try:
            if not self.started:
                await self._start(200, self._heartbeat_headers)
            await self._send({"type": "http.response.body", "body": self._heartbeat_bytes, "more_body": True})
            self._last = self._loop.time()
        finally:
            self._heartbeat_task = None

    # -- what is sent ----------------------------------------------------------------

    def _stop_if_gone(self) -> None:
        """The cancellation may have been lost on its way: a store's client that waits can swallow it (redis does)."""
        if self.gone:
            raise asyncio.CancelledError

    async def respond(self, status: int, headers: Sequence[Header], body: bytes) -> None:
        """A whole answer. Where heartbeats may have begun one, `settle` and `started` come first."""
        self._stop_if_gone()
        self._cancel_timer()
        length = (b"content-length", str(len(body)).encode())
        await self._start(status, [*headers, length])
        await self._end(body)

    async def start(self, headers: Sequence[Header]) -> None:
        """The headers of a stream, unless a heartbeat had to send some already."""
        if self._heartbeat_task is not None:
            await asyncio.shield(self._heartbeat_task)
        if not self.started:
            self._busy = True
            try:
                await self._start(200, headers)
            finally:
                self._busy = False

    async def _start(self, status: int, headers: Sequence[Header]) -> None:
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, *self.always]})

    async def write(self, data: bytes) -> None:
        """More of a stream. Returns when the client's side has room again: that is what holds the host back."""
        self._stop_if_gone()
        if self._heartbeat_task is not None:
            await asyncio.shield(self._heartbeat_task)
        self._busy = True
        try:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
        finally:
            self._busy = False
        self._last = self._loop.time()

    async def finish(self, data: bytes = b"") -> None:
        """The end of a stream."""
        self._stop_if_gone()
        await self.settle()
        await self._end(data)

    async def _end(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": False})
        self._complete = True

    async def abort(self) -> None:
        """The answer cannot be ended properly: the connection is cut, so that nobody takes it for whole.

        A server ends the connection when an application returns without the last piece of a body.
        """
        self._cancel_timer()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Nothing of this stream runs any longer."""
        self._cancel_timer()
        for task in (self._watcher, self._heartbeat_task):
            if task is not None:
                task.cancel()
        # They know this stream: a ring would keep all three in memory.
        self._watcher = self._heartbeat_task = None


async def _discard(message: MutableMapping[str, Any]) -> None:
    """Sends to a client that is gone."""
