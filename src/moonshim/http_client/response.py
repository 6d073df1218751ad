"""A response that has started -> its bytes as they arrive, its end, or what went wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from moonshim.errors import UpstreamBroke, UpstreamError, UpstreamStalled
from moonshim.http_client.connection import MOST_AT_ONCE, Connection, ConnectionFailed, IncomingResponse, Take
from moonshim.http_client.content_encoding import BadContent
from moonshim.http_client.request import UpstreamRequest, origin_of

__all__ = ["GOODBYE_SECONDS", "LAST_WORDS_SECONDS", "MOST_AT_ONCE", "UpstreamResponse"]

LAST_WORDS_SECONDS: Final = 10.0
"""How long to wait in silence after the end of the content, since usage may follow."""
GOODBYE_SECONDS: Final = 0.25
"""The same once everything was received: only the connection can still be saved, for the next request."""


class UpstreamResponse:
    """A host's response. The caller closes it.

    `read` raises `UpstreamStalled` if nothing came for too long, `UpstreamBroke` if the connection ended in the middle,
    and nothing else. `close` may be called from any task: a pending read then raises `UpstreamBroke`. Not reading holds
    the host back, and does not count as its silence.
    """

    __slots__ = (
        "__weakref__",
        "_call",
        "_connection",
        "_failure",
        "_has_more",
        "_incoming",
        "_now",
        "_since",
        "_timer",
        "connect_seconds",
        "headers",
        "status",
    )

    def __init__(
        self,
        incoming: IncomingResponse,
        connection: Connection,
        call: UpstreamRequest,
        connect_seconds: float | None = None,
    ) -> None:
        self.status: int = incoming.status
        self.connect_seconds = connect_seconds
        """How long the connection took; None: it was open already."""
        self.headers: Mapping[str, str] = incoming.headers
        """Names in lower case; values of one name joined by commas."""
        self._call = call
        self._incoming, self._connection = incoming, connection
        self._failure: UpstreamError | None = None
        self._has_more = False
        """The last read left something, so the next one need not wait."""
        self._now = asyncio.get_running_loop().time
        self._since: float | None = None
        """Start time of the pending read."""
        self._timer: asyncio.TimerHandle | None = None

    async def read(self, take: Take | None = None) -> bytes:
        """The bytes since the last read, or the next ones to arrive; empty: the response is complete.

        `take` is offered what arrives meanwhile, piece by piece and at once; the first piece that it refuses, of at
        most `MOST_AT_ONCE` bytes, is at the start of what is returned.
        """
        incoming = self._incoming
        # A timer for each read would cost more than the read. One watches the whole response and compares times.
        if self._timer is None and not incoming.is_complete:
            self._watch(self._call.timeouts.between_bytes)
        if self._has_more:
            await asyncio.sleep(0)
        self._since = self._now()
        if take is not None and not (incoming.has_more or incoming.is_encoded):
            incoming.take = self._offer_to(take)
        try:
            data = await incoming.read()
        except BadContent:
            self._failure = self._failure or UpstreamBroke(
                f"cannot decompress the response of {origin_of(self._call.url)}"
            )
        except ConnectionFailed:
            self._failure = self._failure or UpstreamBroke(
                f"{origin_of(self._call.url)} closed the connection in the middle of the response"
            )
        else:
            self._has_more = incoming.has_more
            if not data:
                self._unwatch()
            return data
        finally:
            self._since = incoming.take = None
        self.close()
        raise self._failure

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
        self._stop()

    def _stop(self) -> None:
        incoming = self._incoming
        if not incoming.is_complete and incoming.failure is None:
            incoming.break_off(ConnectionFailed("lost", self._failure))
            self._connection.abort()

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
        self._stop()
