"""One request of a client, as far as the routes have read it: what an exchange works on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from moonshim.config import GatewayKey
from moonshim.dialect import Dialect
from moonshim.gateway.outlet import Outlet
from moonshim.gateway.record import Record

__all__ = ["LARGE_BYTES", "ClientCall"]

T = TypeVar("T")

LARGE_BYTES: Final = 1024 * 1024
"""About 10 ms of work, up to a second where there are very many small messages."""


class ClientCall:
    """Who asks, what, in which dialect, and the way back. One object for each request."""

    __slots__ = ("body", "dialect", "headers", "keeps_response", "key", "outlet", "query", "record", "tenant", "tokens")

    def __init__(
        self,
        *,
        dialect: Dialect,
        headers: Mapping[str, str],
        query: Mapping[str, str],
        record: Record,
        outlet: Outlet,
    ) -> None:
        self.dialect = dialect
        self.headers = headers
        """By lower-case names."""
        self.body: dict[str, Any] = {}
        self.key: GatewayKey | None = None
        self.query = query
        """What stands behind the `?`."""
        self.record = record
        self.outlet = outlet
        self.tenant = "local"
        """Whose state this request reads and writes: nobody sees another's."""
        self.tokens = 0
        """What the answer counts for its key."""
        self.keeps_response = False
        """The whole answer is to be kept, for clients that go on from it (Responses)."""

    @property
    def is_large(self) -> bool:
        """Whether reading it may take so long that others would have to wait: then a thread does it."""
        headers = self.headers
        length = headers.get("content-length", "")
        return "content-encoding" in headers or not length.isdecimal() or int(length) > LARGE_BYTES

    async def worked(self, work: Callable[..., T], *given: Any, **named: Any) -> T:
        """The result of work that takes as long as the body is large. Nobody else waits for it."""
        return await asyncio.to_thread(work, *given, **named) if self.is_large else work(*given, **named)

    @property
    def request_id(self) -> str:
        return self.record.request_id
