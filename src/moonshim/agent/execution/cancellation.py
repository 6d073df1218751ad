"""An awaitable and a request to stop -> whichever comes first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

__all__ = ["Stopped", "Stopping"]

T = TypeVar("T")


class Stopped(Exception):
    """A stop was requested."""


class Stopping:
    """Ends all waiting when `stop` is called, without cancelling the task that waits."""

    def __init__(self) -> None:
        self._wanted = False
        self._scope: asyncio.Timeout | None = None

    def stop(self) -> None:
        """End current and future waits. Call it in the loop's thread."""
        if self._wanted:
            return  # a task that is already being ended cannot be ended again
        self._wanted = True
        if self._scope is not None:
            self._scope.reschedule(asyncio.get_running_loop().time())

    def check(self) -> None:
        if self._wanted:
            raise Stopped

    async def wait_for(self, begin: Callable[[], Awaitable[T]]) -> T:
        """The result of `begin()`, or `Stopped`."""
        self.check()
        scope = asyncio.timeout(None)
        try:
            async with scope:
                self._scope = scope
                return await begin()
        except TimeoutError:
            if scope.expired():
                raise Stopped from None
            raise
        finally:
            self._scope = None
