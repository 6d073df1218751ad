"""A response that has started -> its bytes as they arrive, its end, or what went wrong."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Final

import aiohttp

from moonshim.errors import UpstreamBroke, UpstreamError, UpstreamStalled
from moonshim.http_client.failures import FAILURES, broke
from moonshim.http_client.relay import Take, attach, detach
from moonshim.http_client.request import UpstreamRequest, origin_of

__all__ = ["GOODBYE_SECONDS", "LAST_WORDS_SECONDS", "UpstreamResponse"]

LAST_WORDS_SECONDS: Final = 10.0
"""How long to wait in silence after the end of the content, since usage may follow."""
GOODBYE_SECONDS: Final = 0.25
"""The same once everything was received: only the connection can still be saved, for the next request."""

MOST_AT_ONCE: Final = 8 * 1024
"""Bytes per read. They are sent on before more is read, so that a client that stops reading holds no more than these;
and other requests get their turn, so that a host that sends at full speed does not delay them."""


class UpstreamResponse:
    """A host's response. The caller closes it.

    `read` raises `UpstreamStalled` if nothing came for too long, `UpstreamBroke` if the connection ended in the middle,
    and nothing else. `close` may be called from any task: a pending read then raises `UpstreamBroke`. Not reading holds
    the host back, and does not count as its silence.
    """

    __slots__ = (
        "__weakref__",
        "_call",
        "_failure",
        "_full",
        "_now",
        "_read",
        "_response",
        "_since",
        "_timer",
        "connect_seconds",
        "headers",
        "status",
    )

    def __init__(
        self, response: aiohttp.ClientResponse, call: UpstreamRequest, connect_seconds: float | None = None
    ) -> None:
        self.status: int = response.status
        self.connect_seconds = connect_seconds
        """How long the connection took; None: it was open already."""
        self.headers: Mapping[str, str] = _plain(response)
        """Names in lower case; values of one name joined by commas."""
        self._call = call
        self._response = response
        self._read = partial(response.content.read, MOST_AT_ONCE)
        self._failure: UpstreamError | None = None
        self._full = False
        """The last read was full, so the next one need not wait."""
        self._now = asyncio.get_running_loop().time
        self._since: float | None = None
        """Start time of the pending read."""
        self._timer: asyncio.TimerHandle | None = None

    async def read(self, take: Take | None = None) -> bytes:
        """The bytes since the last read, or the next ones to arrive; empty: the response is complete.

        `take` is offered what arrives meanwhile, piece by piece and at once; the first piece that it refuses, of at
        most `MOST_AT_ONCE` bytes, is at the start of what is returned.
        """
        # A timer for each read would cost more than the read. One watches the whole response and compares times.
        if self._timer is None:
            self._watch(self._call.timeouts.between_bytes)
        if self._full:
            await asyncio.sleep(0)
        self._since = self._now()
        body, offer = self._response.content, None if take is None else self._offer_to(take)
        if offer is not None and not attach(body, offer):
            offer = None
        try:
            data = await self._read()
        except FAILURES as error:
            if self._failure is None:
                if rest := self._rest():
                    return rest
                self._failure = broke(error, self._call)
            failure = self._failure
        else:
            self._full = len(data) == MOST_AT_ONCE
            if not data:
                self._unwatch()
            return data
        finally:
            self._since = None
            if offer is not None:
                detach(body, offer)
        self.close()
        raise failure

    def _offer_to(self, take: Take) -> Take:
        now = self._now

        def offer(data: bytes) -> bool:
            self._since = now()
            return len(data) <= MOST_AT_ONCE and take(data)

        return offer

    async def read_all(self, limit: int, *, cut: bool = False) -> bytes:
        """Everything that is left, up to `limit` bytes: more raises `UpstreamBroke`, or with `cut` is dropped. Closes
        it."""
        pieces: list[bytes] = []
        size = 0
        try:
            while size <= limit and (piece := await self.read()):
                pieces.append(piece)
                size += len(piece)
        finally:
            self.close()
        if size > limit and not cut:
            raise UpstreamBroke(f"the response of {origin_of(self._call.url)} is larger than {limit} bytes")
        return b"".join(pieces)[:limit]

    def close(self) -> None:
        """Stop at once. The connection is reused only if the response was read to its end."""
        self._unwatch()
        if self._failure is None:
            self._failure = UpstreamBroke("the response was closed before its end")
        self._response.close()

    def _rest(self) -> bytes:
        """Bytes that arrived before the connection broke, and were not read yet: aiohttp would raise first, and lose
        them."""
        buffer: deque[bytes] | None = getattr(self._response.content, "_buffer", None)
        if not buffer:
            return b""
        rest = b"".join(buffer)
        buffer.clear()
        return rest

    def _watch(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        """The timer fired: either a read has waited too long, or the timer is set to when it will have."""
        limit = self._call.timeouts.between_bytes
        left = limit if self._since is None else self._since + limit - self._now()
        if left > 0:
            self._watch(left)
            return
        self._failure = UpstreamStalled(f"{origin_of(self._call.url)} sent nothing for {limit:g} seconds")
        self._response.close()  # wakes the read


def _plain(response: aiohttp.ClientResponse) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in response.headers.items():
        lower = name.lower()
        headers[lower] = f"{headers[lower]}, {value}" if lower in headers else value
    return headers
