"""The store in Redis when Redis is slow, gone, full or strange; and what it leaves there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from redis import Redis

from moonshim.store import Store, StoreUnavailable, open_store
from moonshim.store.circuit import Circuit
from moonshim.store.redis import RedisStore
from tests.store.opened import until
from tests.support.redis_server import RedisServer, redis_executable, running_redis


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """One that the test may stop and pause."""
    with running_redis() as one:
        yield one


async def works(store: Store) -> bool:
    try:
        await store.put("a", b"1", 60)
        return await store.get("a") == b"1"
    except StoreUnavailable:
        return False


def test_a_redis_that_goes_and_comes_back_is_used_again(server: RedisServer) -> None:
    async def run() -> None:
        store = RedisStore(server.url, rest=0.05)
        assert await works(store)
        server.stop()
        assert not await works(store)
        with pytest.raises(StoreUnavailable):
            await store.ping()
        server.start()
        await until(lambda: works(store))
        await store.close()

    asyncio.run(run())


def test_a_redis_that_was_only_started_again_loses_no_request(server: RedisServer) -> None:
    async def run() -> None:
        store = RedisStore(server.url)
        await asyncio.gather(*(store.put(f"{number}", b"x", 60) for number in range(10)))
        server.stop()
        server.start()
        # The connections in the pool are dead, and that is nobody's business.
        assert await store.get("1") is None
        await store.put("1", b"x", 60)
        await store.close()

    asyncio.run(run())


def test_a_redis_that_is_down_at_the_start_is_no_error_until_it_is_asked(server: RedisServer) -> None:
    async def run() -> None:
        server.stop()
        store = await open_store(server.url, memory_bytes=1)
        with pytest.raises(StoreUnavailable):
            await store.ping()
        await store.close()

    asyncio.run(run())


def test_a_redis_that_hangs_holds_only_those_who_found_out(server: RedisServer) -> None:
    async def run() -> None:
        store = RedisStore(server.url, patience=0.2, rest=60)
        assert await works(store)
        server.pause()
        try:
            begun = await asyncio.gather(*(store.get("a") for _ in range(50)), return_exceptions=True)
            assert {type(result) for result in begun} == {StoreUnavailable}
            with pytest.raises(StoreUnavailable, match="not responding"):  # at once, without asking
                await store.get("a")
        finally:
            server.go_on()
        await store.close()

    asyncio.run(run())


def test_a_request_that_was_cancelled_says_nothing_about_redis(server: RedisServer) -> None:
    async def run() -> None:
        store = RedisStore(server.url, rest=60)
        assert await works(store)
        server.pause()
        try:
            waiting = asyncio.ensure_future(store.get("a"))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not waiting.done()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        finally:
            server.go_on()
        # Nobody reads the answer that was meant for the one who is gone.
        await store.put("b", b"2", 60)
        assert await store.get_many(["a", "b"]) == [b"1", b"2"]
        await store.close()

    asyncio.run(run())


def test_a_password_opens_and_is_in_no_message() -> None:
    async def run(server: RedisServer) -> None:
        right = RedisStore(server.url.replace("//", "//:hush-hush@"))
        assert await works(right)
        await right.close()
        for address in ("//:wrong-hush@", "//"):
            wrong = RedisStore(server.url.replace("//", address))
            with pytest.raises(StoreUnavailable) as told:
                await wrong.put("a", b"text of mine", 60)
            error: BaseException | None = told.value
            while error is not None:
                assert "hush" not in repr(error)
                assert "text of mine" not in repr(error)
                error = error.__cause__
            assert told.value.__suppress_context__
            assert "hush" not in repr(wrong)
            await wrong.close()

    with running_redis("--requirepass", "hush-hush") as server:
        asyncio.run(run(server))


def test_a_redis_that_is_full_is_told_and_still_read() -> None:
    async def run(server: RedisServer) -> None:
        store = RedisStore(server.url, rest=60)
        await store.put("a", b"1", 60)
        results = list[object]()
        for number in range(60):
            results += await asyncio.gather(store.put(f"{number}", b"x" * 100_000, 60), return_exceptions=True)
        assert {type(result) for result in results} == {type(None), StoreUnavailable}
        assert isinstance(results[-1], StoreUnavailable)
        assert await store.get("a") == b"1"
        await store.close()

    with running_redis("--maxmemory", "5mb", "--maxmemory-policy", "noeviction") as server:
        asyncio.run(run(server))


@pytest.mark.parametrize("scheme", ["valkey", "unix"])
def test_other_ways_to_the_same_server(redis_server: RedisServer, scheme: str) -> None:
    url = f"unix://{redis_server.socket}" if scheme == "unix" else redis_server.url.replace("redis", scheme)

    async def run() -> None:
        store = await open_store(url, memory_bytes=1)
        assert await works(store)
        await store.close()

    asyncio.run(run())


def test_everything_is_under_our_name_and_has_a_time_but_what_is_for_good(redis_server: RedisServer) -> None:
    redis_server.empty()

    async def run() -> None:
        store = RedisStore(redis_server.url)
        await store.put("secret", b"1", None)
        await store.put("value", b"1", 60)
        await store.put_new("new", b"1", 60)
        await store.put_entry("entries", "x", b"1", 60)
        await store.put_entry("forever", "x", b"1", None)
        await store.add("counter", 1, 60)
        await store.lease("lease", "me", 1, 60)
        await store.ping()
        await store.close()

    asyncio.run(run())
    with Redis(port=redis_server.port) as client:
        left = {key.decode(): client.pttl(key) for key in client.scan_iter()}
    assert all(key.startswith("moonshim:") for key in left)
    # A full server deletes only what has a time to live.
    for name in ("v:secret", "e:forever", "n:counter", "l:lease", "x:index::"):
        assert left.pop(f"moonshim:{name}") == -1
    assert len(left) == 5
    assert all(0 < ms <= 60_000 for ms in left.values())


def in_redis(test: Callable[[RedisStore], Awaitable[None]], *options: str, key_bytes: int = 1024 * 1024) -> None:
    async def run(url: str) -> None:
        store = RedisStore(url, key_bytes=key_bytes)
        try:
            await test(store)
        finally:
            await store.close()

    with running_redis(*options) as server:
        asyncio.run(run(server.url))


SMALL: Final = ("--maxmemory", "6mb", "--maxmemory-policy")
PAGE: Final = b"x" * 40_000


def test_a_key_that_stores_much_deletes_its_own_oldest_and_nothing_of_others() -> None:
    async def test(store: RedisStore) -> None:
        await store.put("turn:alice:1", PAGE, 600)
        await store.put_entry("prefix:alice:1", "x", PAGE, 600)
        for number in range(100):
            await store.put(f"turn:mallory:{number}", PAGE, 600 + number)
            await store.put_entry("prefix:mallory:1", f"{number % 8}", PAGE, 600 + number)
        there = await store.get_many([f"turn:mallory:{number}" for number in range(100)])
        count = sum(value is not None for value in there)
        assert 1024 * 1024 * 3 // 4 < (count + 8) * len(PAGE) <= 1024 * 1024
        assert there[-count:] == [PAGE] * count, "the newest are there"
        assert await store.get("turn:alice:1") == PAGE
        assert await store.entries("prefix:alice:1") == {"x": PAGE}
        with pytest.raises(StoreUnavailable, match="does not fit"):
            await store.put("turn:mallory:large", b"x" * 1024 * 1024, 600)

    in_redis(test)


def test_what_has_expired_or_was_touched_counts_for_as_long_as_it_is_there() -> None:
    async def test(store: RedisStore) -> None:
        for number in range(100):
            await store.put(f"turn:alice:{number}", PAGE, 0.05)
            await asyncio.sleep(0.01)
        await store.put("turn:alice:oldest", PAGE, 60)
        await store.touch(["turn:alice:oldest"], 600)
        for number in range(20):
            await store.put(f"turn:alice:{number}", PAGE, 300)
        assert None not in await store.get_many([f"turn:alice:{number}" for number in range(20)])
        for number in range(20, 40):
            await store.put(f"turn:alice:{number}", PAGE, 300)
        assert await store.get("turn:alice:oldest") == PAGE, "since it was touched, others expire earlier"

    in_redis(test)


def test_a_full_redis_evicts_conversations_and_no_counter_lease_or_secret() -> None:
    """With the policy that is shipped."""

    async def test(store: RedisStore) -> None:
        await store.put("secret", b"1", None)
        await store.put_entry("budget:alice:reserved", "x", b"1", None)
        await store.add("budget:alice:day", 7, 600)
        assert await store.lease("limits:alice:streams", "me", 1, 600)
        for number in range(300):
            await store.put(f"turn:tenant-{number}:1", PAGE, 600)
        assert None in await store.get_many([f"turn:tenant-{number}:1" for number in range(300)]), "some were evicted"
        assert await store.get("secret") == b"1"
        assert await store.entries("budget:alice:reserved") == {"x": b"1"}
        assert await store.add("budget:alice:day", 1, 600) == 8
        assert not await store.lease("limits:alice:streams", "you", 1, 600)
        assert await store.policy_problem() is None

    in_redis(test, *SMALL, "volatile-lru")


def test_counters_that_are_over_are_deleted() -> None:
    async def test(store: RedisStore) -> None:
        for number in range(100):
            await store.add(f"limits:alice:{number}", 1, -3600)
        for _ in range(200):
            await store.add("limits:alice:now", 1, 60)
        (names,) = await store._run_for_key("", lambda pipe: pipe.keys("*:n:*"))
        assert names == [b"moonshim:n:limits:alice:now"]

    in_redis(test)


def test_a_policy_that_evicts_counters_is_reported() -> None:
    async def test(store: RedisStore) -> None:
        problem = await store.policy_problem()
        assert problem is not None
        assert "allkeys-lru" in problem
        assert "volatile-lru" in problem

    in_redis(test, *SMALL, "allkeys-lru")


def test_no_more_connections_are_opened_than_the_pool_has(redis_server: RedisServer) -> None:
    async def run() -> None:
        store = RedisStore(redis_server.url, patience=10)
        await asyncio.gather(*(store.put(f"{number}", b"x", 60) for number in range(500)))
        with Redis(port=redis_server.port) as client:
            assert 1 < len(client.client_list()) <= 33
        await store.close()

    asyncio.run(run())


def test_the_circuit_lets_one_try_after_its_rest_and_all_when_that_went_well() -> None:
    now = [0.0]
    circuit = Circuit(1.0, lambda: now[0])
    assert circuit.lets_through()
    assert circuit.lets_through()
    circuit.settle(answered=False)
    circuit.settle(answered=None)
    assert not circuit.lets_through()
    now[0] = 1.0
    assert [circuit.lets_through() for _ in range(3)] == [True, False, False]
    circuit.settle(answered=False)
    assert not circuit.lets_through()
    now[0] = 2.0
    assert circuit.lets_through()
    circuit.settle(answered=None)  # the one who tried was cancelled: the next one tries
    assert circuit.lets_through()
    circuit.settle(answered=True)
    assert [circuit.lets_through() for _ in range(3)] == [True, True, True]


def test_a_machine_without_a_server_is_told_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MOONSHIM_REDIS_SERVER", str(tmp_path / "mine"))
    assert redis_executable() == str(tmp_path / "mine")
    with pytest.raises(FileNotFoundError), running_redis():
        pass
