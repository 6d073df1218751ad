"""One request of a client, as far as the routes have read it: what an exchange works on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moonshim.config import GatewayKey
from moonshim.dialect import Dialect
from moonshim.gateway.outlet import Outlet
from moonshim.gateway.record import Record

__all__ = ["ClientCall"]


class ClientCall:
    """Who asks, what, in which dialect, and the way back. One object for each request."""

    __slots__ = ("body", "dialect", "headers", "keeps_response", "key", "outlet", "query", "record", "tokens")

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
        self.tokens = 0
        """What the answer counts for its key."""
        self.keeps_response = False
        """The whole answer is to be kept, for clients that go on from it (Responses)."""

    @property
    def tenant(self) -> str:
        """Whose state this request reads and writes: nobody sees another's."""
        return f"key:{self.key.name}" if self.key is not None else "local"

    @property
    def request_id(self) -> str:
        return self.record.request_id
