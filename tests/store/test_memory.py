"""The store in memory is bounded, whatever is put into it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

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


def test_a_tenant_that_writes_much_pushes_out_its_own_and_no_other() -> None:
    async def run() -> None:
        store = MemoryStore(LIMIT)
        await store.put("secret", b"s" * 32, None)
        for number in range(10):
            await store.put(f"turn:small:{number}", b"x" * 1000, 60)
        await store.put_entry("recall:small:key", "field", b"x" * 1000, 60)
        for number in range(500):
            await store.put(f"turn:large:{number}", b"x" * (number * 97 % 9000), 60)
            await store.put_entry(f"recall:large:{number}", "field", b"x" * 500, 60)
        assert None not in await store.get_many([f"turn:small:{number}" for number in range(10)])
        assert await store.entries("recall:small:key")
        assert await store.get("turn:large:0") is None
        assert await store.get("turn:large:499") is not None

    asyncio.run(run())


def test_counters_and_leases_stay_however_much_is_stored() -> None:
    async def run() -> None:
        store = MemoryStore(LIMIT)
        await store.add("limits:one:requests", 5, 60)
        assert await store.lease("limits:one:streams", "me", 1, 60)
        for number in range(500):
            await store.put(f"turn:one:{number}", b"x" * 5000, 60)
            await store.put_entry(f"recall:{number % 3}:{number}", "field", b"x" * 500, 60)
        assert await store.add("limits:one:requests", 1, 60) == 6
        assert not await store.lease("limits:one:streams", "you", 1, 60)

    asyncio.run(run())


def test_what_goes_is_always_of_the_tenant_that_holds_the_most() -> None:
    random = Random(7)

    async def run() -> None:
        store = MemoryStore(LIMIT)
        held: dict[str, dict[str, int]] = {}
        for number in range(3000):
            tenant = f"{random.choice('aaaabbcdefgh')}"
            key, size = f"turn:{tenant}:{number % 400}", random.randrange(2000)
            await store.put(key, b"x" * size, 60)
            held.setdefault(tenant, {}).pop(key, None)
            held[tenant][key] = size + 300 + len(key)
            while sum(sum(one.values()) for one in held.values()) > LIMIT:
                largest = max(held.values(), key=lambda one: sum(one.values()))
                del largest[next(iter(largest))]
            if number % 100 == 0:
                kept = {key for one in held.values() for key in one}
                keys = [f"turn:{tenant}:{place}" for tenant in "abcdefgh" for place in range(400)]
                found = await store.get_many(keys)
                assert {key for key, value in zip(keys, found, strict=True) if value is not None} == kept

    asyncio.run(run())


def test_an_item_larger_than_its_tenants_share_takes_nothing_from_others() -> None:
    async def run() -> None:
        store = MemoryStore(LIMIT)
        for tenant in range(9):
            await store.put(f"turn:{tenant}:1", b"x" * 10_000, 60)
        with pytest.raises(StoreUnavailable):
            await store.put("turn:new:1", b"x" * 40_000, 60)
        assert None not in await store.get_many([f"turn:{tenant}:1" for tenant in range(9)])

    asyncio.run(run())
