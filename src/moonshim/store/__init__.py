"""A URL -> a store: what the gateway has to remember, on one machine or on many."""

from __future__ import annotations

from typing import Protocol

from moonshim.errors import MoonshimError

__all__ = ["Store", "StoreUnavailable"]


class StoreUnavailable(MoonshimError):
    """The store cannot be reached, or is full. Requests go on without it, and say what they lost."""

    code = "store_unavailable"
    status = 503
    retryable = True


class Store(Protocol):
    """Bytes under names, each for a time. Every method may raise `StoreUnavailable`, and nothing else.

    A value may be gone before its time (memory is bounded), never after it.
    """

    async def get(self, key: str) -> bytes | None: ...

    async def put(self, key: str, value: bytes, ttl: float | None) -> None:
        """`ttl` in seconds; None: for good."""

    async def put_new(self, key: str, value: bytes, ttl: float | None) -> bytes:
        """Put it unless something is there; what is there now. Of two who do this at once, both get the same."""

    async def delete(self, key: str) -> bool:
        """Whether something was there. Takes entries (`put_entry`) of that key too."""

    async def put_entry(self, key: str, field: str, value: bytes, ttl: float) -> None:
        """One of several values under a key, each with a name of its own; the whole key lives `ttl` from now."""

    async def entries(self, key: str) -> dict[str, bytes]: ...

    async def add(self, key: str, amount: int, ttl: float) -> int:
        """A counter: the sum so far, this amount included. Its time runs from the first amount."""

    async def lease(self, key: str, holder: str, limit: int, ttl: float) -> bool:
        """Be one of at most `limit` holders for `ttl` seconds; holding it already renews it. False: all are taken."""

    async def release(self, key: str, holder: str) -> None: ...

    async def ping(self) -> None:
        """Raises `StoreUnavailable` when nothing could be stored now."""

    async def close(self) -> None: ...
