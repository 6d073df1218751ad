"""The store in memory is bounded, whatever is put into it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from moonshim.store import StoreUnavailable
from moonshim.store.memory import MemoryStore

LIMIT = 100_000


def test_the_oldest_goes_first_and_what_was_renewed_stays() -> None:
    async def run() -> None:
        store = MemoryStore(LIMIT)
        await store.put("for good", b"x" * 1000, None)
        for key in ("old", "put again", "touched"):
            await store.put(key, b"x" * 1000, 60)
        await store.put("put again", b"y" * 1000, 60)
        await store.touch(["touched"], 60)
        number = 0
        while await store.get("old") is not None:
            await store.put(f"new {number}", b"x" * 1000, 60)
            number += 1
        assert number > 50
        assert await store.get("put again") == b"y" * 1000
        assert await store.get("touched") is not None
        for number in range(200):
            await store.put(f"newer {number}", b"x" * 1000, 60)
        assert await store.get("touched") is None
        assert await store.get("for good") == b"x" * 1000

    asyncio.run(run())


WRITES: dict[str, Callable[[MemoryStore, int], Awaitable[object]]] = {
    "values": lambda store, n: store.put(f"key {n}", b"x" * (n % 500), 60),
    "empty values": lambda store, n: store.put(f"{n}", b"", 60),
    "long keys": lambda store, n: store.put(f"{n}" * 200, b"", 60),
    "new values": lambda store, n: store.put_new(f"{n}", b"x" * 100, 60),
    "entries of many keys": lambda store, n: store.put_entry(f"{n}", "field", b"x" * 100, 60),
    "entries of one key": lambda store, n: store.put_entry("one", f"{n}" * 50, b"x" * 500, 60),
    "counters": lambda store, n: store.add(f"{n}", 1, 60),
    "leases": lambda store, n: store.lease(f"{n}", f"holder {n}", 1, 60),
    "holders of one lease": lambda store, n: store.lease("one", f"holder {n}" * 20, n % 100 + 1, 60),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_nothing_grows_beyond_the_limit(write: Callable[[MemoryStore, int], Awaitable[object]]) -> None:
    async def run() -> None:
        store = MemoryStore(LIMIT)
        for number in range(2000):
            await write(store, number)
            assert 0 < store.size <= LIMIT

    asyncio.run(run())


def test_size_is_given_back() -> None:
    async def run() -> None:
        store = MemoryStore(LIMIT)
        await store.put("a", b"x" * 1000, 60)
        await store.put("a", b"x", 60)
        await store.put("a", b"x", None)
        await store.put_entry("a", "x", b"x" * 1000, 60)
        await store.add("a", 1, 60)
        await store.lease("a", "me", 1, 60)
        await store.lease("b", "me", 1, 60)
        await store.release("b", "me")
        assert store.size > 1000
        await store.delete("a")
        assert store.size == 0

    asyncio.run(run())


def test_a_value_larger_than_the_store_is_refused_and_pushes_nothing_out() -> None:
    async def run() -> None:
        store = MemoryStore(LIMIT)
        await store.put("small", b"x", 60)
        with pytest.raises(StoreUnavailable):
            await store.put("big", b"x" * LIMIT, 60)
        assert await store.get("small") == b"x"

    asyncio.run(run())


def test_what_is_over_goes_by_itself_while_others_are_written() -> None:
    async def run() -> None:
        now = [0.0]
        store = MemoryStore(LIMIT, lambda: now[0])
        for number in range(50):
            await store.put(f"short {number}", b"x" * 100, 1)
        full = store.size
        now[0] = 2.0
        for _ in range(50):
            await store.put("same", b"x", 60)
        assert store.size < full / 10

    asyncio.run(run())
