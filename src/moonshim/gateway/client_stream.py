"""The gateway's response -> one client: headers once, then bytes, and heartbeats while the host is silent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Final, TypeAlias

from moonshim.http_server.protocol import DirectWriter

__all__ = ["ClientStream", "Header", "Receive", "Send"]

Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Header: TypeAlias = tuple[bytes, bytes]

_SOONEST: Final = 0.05
"""Seconds: the minimum delay of a timer, however late it is."""
_LAST_SECONDS: Final = 2.0
"""How long the host may take for the rest after the client has received the end and disconnected."""


class ClientStream:
    """The stream to one client. Headers are sent once; heartbeats only between two writes, never inside one.

    A disconnect of the client cancels the task that answers it, whatever that is waiting for; `gone` says that this was
    the reason.
    """

    def __init__(
        self,
        receive: Receive,
        send: Send,
        always: Sequence[Header] = (),
        open_direct: Callable[[], DirectWriter | None] | None = None,
    ) -> None:
        """`open_direct`: of our own server, for `write_now`."""
        self._receive, self._send = receive, send
        self._open_direct = open_direct
        self._direct: DirectWriter | None = None
        self.always: list[Header] = list(always)
        """Headers of every response."""
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._busy = False
        self._complete = False
        """The last byte of the response was sent."""
        self._last = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._heartbeat_task: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._heartbeat_seconds = 0.0
        self._heartbeat_bytes = b""
        self._heartbeat_headers: Sequence[Header] = ()
        self.status = 0
        """The status that was sent; 0: none yet."""
        self.gone = False
        self.sent_end = False
        """The client has received the end of the response. Most disconnect then, without waiting for the last byte."""

    @property
    def started(self) -> bool:
        return self.status != 0

    @property
    def silent_seconds(self) -> float:
        """Seconds since anything was sent."""
        return self._loop.time() - self._last

    # -- the client's side -----------------------------------------------------------

    def watch(self) -> None:
        """From now on a disconnect cancels the task that made this stream. The request body must have been read."""
        self._watcher = self._loop.create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self.sent_end and not self._complete:
            # The host may still report the usage, and its connection can be reused once everything was read.
            self._send = _discard
            await asyncio.sleep(_LAST_SECONDS)
        if self._complete:
            return  # servers report a disconnect after every complete response
        self.gone = True
        if self._task is not None:
            self._task.cancel()

    @property
    def has_left(self) -> bool:
        """Whether the client disconnected after the end of its response was sent: no one waits any longer."""
        return self._send is _discard

    # -- heartbeats ------------------------------------------------------------------

    def keep_alive(self, seconds: float, heartbeat: bytes, headers: Sequence[Header]) -> None:
        """Send `heartbeat` whenever nothing was sent for `seconds`; the first one sends the headers too, if necessary.

        A client, or a load balancer before it, gives up on a silent connection: after 20 s in Claude Code.
        """
        self._heartbeat_seconds, self._heartbeat_bytes, self._heartbeat_headers = seconds, heartbeat, headers
        self._timer = self._loop.call_later(seconds, self._tick)

    def _tick(self) -> None:
        idle = self._loop.time() - self._last
        if idle >= self._heartbeat_seconds:
            # After the end of a response, clients accept nothing more, and its host may leave it open.
            if not (self._busy or self.sent_end) and self._heartbeat_task is None:
                self._heartbeat_task = self._loop.create_task(self._heartbeat())
            idle = 0.0
        self._timer = self._loop.call_later(max(self._heartbeat_seconds - idle, _SOONEST), self._tick)

    async def settle(self) -> None:
        """Stop the heartbeats, and wait for one that is being sent: after this, `started` is final."""
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

    # -- sending -------------------------------------------------------------------------

    def _stop_if_gone(self) -> None:
        """The cancellation may have been lost on its way: a store's client that is waiting can swallow it (redis
        does)."""
        if self.gone:
            raise asyncio.CancelledError

    async def respond(self, status: int, headers: Sequence[Header], body: bytes) -> None:
        """Send a complete response. If heartbeats may have started one, call `settle` and check `started` first."""
        self._stop_if_gone()
        self._cancel_timer()
        length = (b"content-length", str(len(body)).encode())
        await self._start(status, [*headers, length])
        await self._end(body)

    async def start(self, headers: Sequence[Header]) -> None:
        """Send the headers of a stream, unless a heartbeat has sent some already."""
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
        """Send more of a stream. Returns when the client's side has room again, which is what holds the host back."""
        self._stop_if_gone()
        if self._heartbeat_task is not None:
            await asyncio.shield(self._heartbeat_task)
        self._busy = True
        try:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
        finally:
            self._busy = False
        self._last = self._loop.time()

    def open_direct(self) -> bool:
        """Whether `write_now` can be used for the stream, which has started. Other servers than ours cannot."""
        if self._direct is None and self._open_direct is not None:
            self._direct = self._open_direct()
        return self._direct is not None

    @property
    def is_ready(self) -> bool:
        """Whether `write_now` can be used now: nothing else is being written, and the client has read enough."""
        direct = self._direct
        return direct is not None and self._heartbeat_task is None and not self.gone and direct.is_ready

    def write_now(self, data: bytes) -> None:
        """Send more of a stream, at once."""
        assert self._direct is not None, "open_direct comes first"
        self._direct.write(data)
        self._last = self._loop.time()

    async def finish(self, data: bytes = b"") -> None:
        """End the stream."""
        self._stop_if_gone()
        await self.settle()
        await self._end(data)

    async def _end(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": False})
        self._complete = True

    async def abort(self) -> None:
        """Cut the connection, so that an incomplete response is not taken for a complete one.

        A server closes the connection when an application returns without the last piece of a body.
        """
        self._cancel_timer()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Stop everything that belongs to this stream."""
        self._cancel_timer()
        for task in (self._watcher, self._heartbeat_task):
            if task is not None:
                task.cancel()
        # They refer to this stream: a reference cycle would keep all three in memory.
        self._watcher = self._heartbeat_task = None


async def _discard(message: MutableMapping[str, Any]) -> None:
    """Discard what is sent to a client that is gone."""
