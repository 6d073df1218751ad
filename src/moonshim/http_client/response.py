"""A response that has begun -> its bytes as they come, its end, or what went wrong."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Final

import aiohttp

from moonshim.errors import UpstreamBroke, UpstreamError, UpstreamStalled
from moonshim.http_client.failures import FAILURES, broke
from moonshim.http_client.request import UpstreamRequest, origin_of

__all__ = ["GOODBYE_SECONDS", "LAST_WORDS_SECONDS", "UpstreamResponse"]

LAST_WORDS_SECONDS: Final = 10.0
"""How long a host may be silent behind the end of what it says, before that is taken for all: its usage may follow."""
GOODBYE_SECONDS: Final = 0.25
"""The same once all is said and somebody waits: only the connection can still be won, for the next request."""

MOST_AT_ONCE: Final = 8 * 1024
"""Bytes of one read. They leave before more is read, so that a client that stops reading holds no more than these; and
other requests have their turn, so that a host that sends as fast as it can does not hold them up."""


class UpstreamResponse:
    """What a host answers. Whoever has it closes it.

    `read` raises `UpstreamStalled` when nothing came for too long, `UpstreamBroke` when the connection ended in the
    middle, and nothing else. `close` may come from any task: a read that waits then raises `UpstreamBroke`. Not
    reading holds the host back, and does not count as its silence.
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
        "headers",
        "status",
    )

    def __init__(self, response: aiohttp.ClientResponse, call: UpstreamRequest) -> None:
        self.status: int = response.status
        self.headers: Mapping[str, str] = _plain(response)
        """Names in lower case; values of one name joined by commas."""
        self._call = call
        self._response = response
        self._read = partial(response.content.read, MOST_AT_ONCE)
        self._failure: UpstreamError | None = None
        self._full = False
        """The last read brought as much as it may, so that the next one need not wait."""
        self._now = asyncio.get_running_loop().time
        self._since: float | None = None
        """When the read that waits now began."""
        self._timer: asyncio.TimerHandle | None = None

    async def read(self) -> bytes:
        """What has come since the last read, or the next that comes; empty: the answer is over."""
        # A timer for each read would cost more than the read. One watches the whole answer and compares times.
        if self._timer is None:
            self._watch(self._call.timeouts.between_bytes)
        if self._full:
            await asyncio.sleep(0)
        self._since = self._now()
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
        self.close()
        raise failure

    async def read_all(self, limit: int, *, cut: bool = False) -> bytes:
        """All that is left, at most `limit` bytes: more is `UpstreamBroke`, or with `cut` left away. Closes it."""
        pieces: list[bytes] = []
        size = 0
        try:
            while size <= limit and (piece := await self.read()):
                pieces.append(piece)
                size += len(piece)
        finally:
            self.close()
        if size > limit and not cut:
            raise UpstreamBroke(f"{origin_of(self._call.url)} answered with more than {limit} bytes")
        return b"".join(pieces)[:limit]

    def close(self) -> None:
        """Be done with it, at once. The connection is kept only if the answer was read to its end."""
        self._unwatch()
        if self._failure is None:
            self._failure = UpstreamBroke("the answer was closed before its end")
        self._response.close()

    def _rest(self) -> bytes:
        """What had come before it broke, and was not read yet: aiohttp would tell of the fault first, and lose it."""
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
        """The timer went off: either a read has waited too long, or it is set to when one will have."""
        limit = self._call.timeouts.between_bytes
        left = limit if self._since is None else self._since + limit - self._now()
        if left > 0:
            self._watch(left)
            return
        self._failure = UpstreamStalled(f"{origin_of(self._call.url)} stopped sending for {limit:g} seconds")
        self._response.close()  # wakes the read


def _plain(response: aiohttp.ClientResponse) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in response.headers.items():
        lower = name.lower()
        headers[lower] = f"{headers[lower]}, {value}" if lower in headers else value
    return headers
