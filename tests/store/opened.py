"""The name of a kind of store -> one that is open, a second one on the same state, and a way to let time pass."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final

from moonshim.store import Store, open_store
from moonshim.store.memory import MemoryStore
from moonshim.store.sqlite import SqliteStore
from tests.support.redis_server import RedisCluster, RedisServer

KINDS: Final = ("memory", "sqlite", "redis", "redis-cluster")
DEADLINE: Final = 120.0


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a condition; fail when it does not come true in time."""
    deadline = time.monotonic() + DEADLINE
    while not await holds():
        assert time.monotonic() < deadline, "this did not come true in time"
        await asyncio.sleep(0.01)


class Opened:
    """A store under test."""

    def __init__(self, kind: str, store: Store, other: Store, tick: Callable[[float], None] | None) -> None:
        self.kind = kind
        self.store = store
        self.other = other
        """Another connection to the same state (in memory, where there is none, the same store)."""
        self._tick = tick

    async def passes(self, seconds: float, is_over: Callable[[], Awaitable[bool]]) -> None:
        """After so many seconds this is so. Where the clock is Redis's own, the seconds are waited for."""
        if self._tick is not None:
            self._tick(seconds)
            assert await is_over()
        else:
            await until(is_over)


@contextlib.asynccontextmanager
async def opened(kind: str, folder: Path, server: RedisServer | RedisCluster) -> AsyncIterator[Opened]:
    now = [1_000_000.0]

    def tick(seconds: float) -> None:
        now[0] += seconds

    stores: list[Store]
    match kind:
        case "memory":
            stores = [MemoryStore(64 * 1024 * 1024, lambda: now[0])] * 2
        case "sqlite":
            stores = [await SqliteStore.open(folder / "state.db", lambda: now[0]) for _ in range(2)]
        case _:
            stores = [await open_store(server.url, memory_bytes=1) for _ in range(2)]
    try:
        yield Opened(kind, stores[0], stores[1], None if kind.startswith("redis") else tick)
    finally:
        for store in stores:
            await store.close()
