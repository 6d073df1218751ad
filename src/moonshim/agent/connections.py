"""The event loop that runs -> the connections to hosts that belong to it."""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

from moonshim.http_client import UpstreamClient

__all__ = ["Connections"]


class Connections:
    """Connections are bound to a loop; a provider is not, as `asyncio.run` may be called many times with it."""

    def __init__(self, given: UpstreamClient | None = None) -> None:
        self._given = given
        self._made: WeakKeyDictionary[asyncio.AbstractEventLoop, UpstreamClient] = WeakKeyDictionary()

    def current(self) -> UpstreamClient:
        """Those of the loop that runs, made when they are first wanted."""
        if self._given is not None:
            return self._given
        loop = asyncio.get_running_loop()
        if loop not in self._made:
            self._made[loop] = UpstreamClient()
        return self._made[loop]

    async def close(self) -> None:
        """Drop those of the loop that runs, unless somebody else made them. Others end with their loops."""
        made = self._made.pop(asyncio.get_running_loop(), None)
        if made is not None:
            await made.close()
