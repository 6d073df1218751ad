"""Limits of a key, on real stores: what is over them is refused, with a time that is true."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moonshim.config import GatewayKey
from moonshim.errors import Problem, Refused
from moonshim.gateway.inbound.limits import LEASE_SECONDS, Limiter, Used
from moonshim.gateway.observe.record import RequestRecord
from moonshim.store import Store, StoreUnavailable
from moonshim.store.memory import MemoryStore
from moonshim.store.sqlite import SqliteStore
from tests.support.profiles import examples

START = 1_763_200_000.0 - 1_763_200_000.0 % 60
"""The first second of a minute."""


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


class Gateway:
    """What a gateway does with a limiter, request by request."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self.store = store
        self.limiter = Limiter(store, clock)

    async def asks(self, key: GatewayKey, *, request_id: str = "r") -> RequestRecord:
        record = RequestRecord(request_id=request_id, path="/v1/messages", dialect="anthropic")
        await self.limiter.admit(key, request_id, record=record)
        return record

    async def refused(self, key: GatewayKey) -> Problem:
        with pytest.raises(Refused) as refused:
            await self.asks(key)
        problem = refused.value.problem
        assert (problem.status, problem.kind) == (429, "rate_limit")
        assert problem.retry_after is not None
        assert problem.retry_after >= 1
        return problem

    async def spends(self, key: GatewayKey, tokens: int) -> None:
        record = RequestRecord(request_id="r", path="/", dialect="anthropic")
        await self.limiter.spend(key, tokens, record=record)
        assert not record.store_failures

    async def ends(self, key: GatewayKey, record: RequestRecord) -> None:
        await self.limiter.release(key, record.request_id, record=record)


def key(**limits: int) -> GatewayKey:
    return GatewayKey(name="alice", digest="sha256:" + "0" * 64, **limits)  # type: ignore[arg-type]  # numbers only


def in_memory(test: Callable[[Gateway, Clock], Coroutine[Any, Any, None]]) -> None:
    clock = Clock()
    asyncio.run(test(Gateway(MemoryStore(1 << 20, clock), clock), clock))


@asynccontextmanager
async def two_gateways(folder: Path, clock: Clock) -> AsyncIterator[tuple[Gateway, Gateway]]:
    stores = [await SqliteStore.open(folder / "state.db", clock) for _ in range(2)]
    try:
        yield Gateway(stores[0], clock), Gateway(stores[1], clock)
    finally:
        for store in stores:
            await store.close()


def test_a_flood_of_requests_stops_at_the_limit_and_says_when_it_may_go_on() -> None:
    async def test(gateway: Gateway, clock: Clock) -> None:
        limited = key(requests_per_minute=5)
        clock.now += 20
        for _ in range(5):
            await gateway.asks(limited)
        problem = await gateway.refused(limited)
        assert problem.code == "requests_per_minute"
        assert "Rate limit for key 'alice' reached (5 requests/min)" in problem.message
        assert problem.retry_after == 52  # 40 to the next minute, and 12 until one of the five is out of sight
        clock.now += problem.retry_after
        await gateway.asks(limited)

    in_memory(test)


def test_a_flood_around_the_turn_of_the_minute_gets_no_second_limit() -> None:
    async def test(gateway: Gateway, clock: Clock) -> None:
        limited = key(requests_per_minute=60)
        clock.now += 59
        for _ in range(60):
            await gateway.asks(limited)
        clock.now += 2
        await gateway.asks(limited)  # one second of sixty is out of sight, and with it one request of sixty
        await gateway.refused(limited)

    in_memory(test)


def test_asking_in_vain_does_not_make_it_worse() -> None:
    async def test(gateway: Gateway, clock: Clock) -> None:
        limited = key(requests_per_minute=2)
        await gateway.asks(limited)
        await gateway.asks(limited)
        waits = [(await gateway.refused(limited)).retry_after for _ in range(50)]
        assert len(set(waits)) == 1
        clock.now += waits[0] or 0
        await gateway.asks(limited)

    in_memory(test)


def test_tokens_are_counted_when_they_are_known_and_hold_back_what_comes_next() -> None:
    async def test(gateway: Gateway, clock: Clock) -> None:
        limited = key(tokens_per_minute=1000)
        await gateway.asks(limited)
        await gateway.spends(limited, 999)
        await gateway.asks(limited)
        await gateway.spends(limited, 5000)
        problem = await gateway.refused(limited)
        assert problem.code == "tokens_per_minute"
        assert "1,000 tokens/min" in problem.message
        clock.now += problem.retry_after or 0
        await gateway.asks(limited)

    in_memory(test)


@pytest.mark.parametrize(
    "limits", [{"requests_per_minute": 3}, {"tokens_per_minute": 3}], ids=lambda one: next(iter(one))
)
def test_many_at_once_are_counted_one_by_one(limits: dict[str, int]) -> None:
    async def test(gateway: Gateway, clock: Clock) -> None:
        limited = key(**limits)

        async def one() -> bool:
            try:
                await gateway.asks(limited)
            except Refused:
                return False
            await gateway.spends(limited, 1)
            return True

        served = [await one() for _ in range(2)] + list(await asyncio.gather(*(one() for _ in range(50))))
        assert sum(served) == 3

    in_memory(test)


def test_streams_at_once_are_bounded_and_a_place_is_free_when_one_ends() -> None:
    async def test(gateway: Gateway, clock: Clock) -> None:
        limited = key(concurrent_streams=2)
        first = await gateway.asks(limited)
        await gateway.asks(limited)
        assert (await gateway.refused(limited)).code == "concurrent_streams"
        await gateway.ends(limited, first)
        await gateway.ends(limited, first)  # said twice
        await gateway.asks(limited)
        await gateway.refused(limited)

    in_memory(test)


def test_one_request_id_for_all_streams_does_not_make_them_one() -> None:
    async def test(gateway: Gateway, clock: Clock) -> None:
        limited = key(concurrent_streams=1)
        running = await gateway.asks(limited, request_id="mine")
        with pytest.raises(Refused):
            await gateway.asks(limited, request_id="mine")
        await gateway.ends(limited, running)

    in_memory(test)


def test_a_refused_request_takes_no_stream_and_a_refused_stream_no_request() -> None:
    async def test(gateway: Gateway, clock: Clock) -> None:
        limited = key(concurrent_streams=1, requests_per_minute=2)
        running = await gateway.asks(limited)
        for _ in range(5):
            assert (await gateway.refused(limited)).code == "concurrent_streams"
        await gateway.ends(limited, running)
        await gateway.ends(limited, await gateway.asks(limited))  # so that those five did not count
        for _ in range(5):
            assert (await gateway.refused(limited)).code == "requests_per_minute"
        clock.now += 120
        await gateway.asks(limited)  # and those five hold no place

    in_memory(test)


def test_a_stream_that_is_renewed_keeps_its_place_and_one_whose_gateway_died_loses_it() -> None:
    async def test(gateway: Gateway, clock: Clock) -> None:
        limited = key(concurrent_streams=1)
        running = await gateway.asks(limited)
        for _ in range(6):
            clock.now += LEASE_SECONDS / 3
            await gateway.limiter.renew(limited, running.request_id, record=running)
        await gateway.refused(limited)
        clock.now += LEASE_SECONDS + 1
        await Gateway(gateway.store, clock).asks(limited)

    in_memory(test)


def test_a_second_gateway_is_no_second_limit(tmp_path: Path) -> None:
    async def test() -> None:
        clock = Clock()
        limited = key(requests_per_minute=4, concurrent_streams=1)
        async with two_gateways(tmp_path, clock) as (one, other):
            running = await one.asks(limited)
            assert (await other.refused(limited)).code == "concurrent_streams"
            await one.ends(limited, running)
            for gateway in (other, one, other):
                await gateway.ends(limited, await gateway.asks(limited))
            assert (await one.refused(limited)).code == "requests_per_minute"
            assert (await other.refused(limited)).code == "requests_per_minute"
            clock.now += 120
            await other.asks(limited)
            tokens = key(tokens_per_minute=100)
            await one.spends(tokens, 100)
            await other.refused(tokens)

    asyncio.run(test())


def test_keys_do_not_count_for_each_other() -> None:
    async def test(gateway: Gateway, clock: Clock) -> None:
        for name in ("alice", "bob", "alice:1", "1:alice"):
            one = GatewayKey(name=name, digest="sha256:" + "0" * 64, requests_per_minute=1, concurrent_streams=1)
            await gateway.asks(one)

    in_memory(test)


class Gone:
    """A store that is away."""

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def fail(*_: object) -> None:
            raise StoreUnavailable("away")

        return fail


def test_when_the_store_is_away_the_own_count_decides_and_says_what_it_lost() -> None:
    async def test() -> None:
        clock = Clock()
        gateway = Gateway(Gone(), clock)
        limited = key(requests_per_minute=3, tokens_per_minute=100, concurrent_streams=2)
        running = [await gateway.asks(limited) for _ in range(2)]
        assert (await gateway.refused(limited)).code == "concurrent_streams"
        for record in running:
            await gateway.limiter.renew(limited, "r", record=record)
            await gateway.limiter.release(limited, "r", record=record)
            await gateway.limiter.release(limited, "r", record=record)
        await gateway.limiter.spend(limited, 99, record=running[0])
        record = await gateway.asks(limited)
        assert (await gateway.refused(limited)).code == "requests_per_minute"
        await gateway.limiter.spend(limited, 1, record=record)
        assert (await gateway.refused(limited)).code == "tokens_per_minute"
        assert [one.store_failures for one in (*running, record)] == [["limits"]] * 3
        clock.now += 120
        await gateway.asks(limited)

    asyncio.run(test())


def test_a_store_that_was_emptied_gives_no_second_limit() -> None:
    async def test(gateway: Gateway, clock: Clock) -> None:
        limited = key(requests_per_minute=2, concurrent_streams=1)
        await gateway.asks(limited)
        await gateway.store.close()  # in memory: everything is gone
        assert (await gateway.refused(limited)).code == "concurrent_streams"

    in_memory(test)


def test_a_wall_clock_that_jumps_gives_no_second_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        jump, wall = 0.0, time.time
        monkeypatch.setattr(time, "time", lambda: wall() + jump)
        store = MemoryStore(10_000_000)
        gateway, limited = Gateway(store, time.time), key(requests_per_minute=2)
        for _ in range(2):
            await gateway.asks(limited)
        for jump in (86_400.0, -86_400.0):  # noqa: B007 - read by the clock
            assert (await gateway.refused(limited)).code == "requests_per_minute"

    asyncio.run(test())


def test_a_key_without_limits_asks_the_store_for_nothing() -> None:
    async def test() -> None:
        gateway = Gateway(Gone(), Clock())
        record = await gateway.asks(key())
        await gateway.limiter.renew(key(), "r", record=record)
        await gateway.limiter.spend(key(), 5, record=record)
        await gateway.ends(key(), record)
        assert record.store_failures == []

    asyncio.run(test())


def test_clients_are_told_how_much_is_left_as_openai_tells_it() -> None:
    async def test(gateway: Gateway, clock: Clock) -> None:
        limited = key(requests_per_minute=10, tokens_per_minute=1000)
        await gateway.asks(limited)
        await gateway.spends(limited, 400)
        record = RequestRecord(request_id="r", path="/", dialect="openai_chat")
        clock.now += 30
        told = dict(await gateway.limiter.admit(limited, "r", record=record))
        assert told == {
            b"x-ratelimit-limit-tokens": b"1000",
            b"x-ratelimit-remaining-tokens": b"600",
            b"x-ratelimit-reset-tokens": b"1m30s",
            b"x-ratelimit-limit-requests": b"10",
            b"x-ratelimit-remaining-requests": b"8",
            b"x-ratelimit-reset-requests": b"1m30s",
        }

    in_memory(test)


@settings(max_examples=examples(200), deadline=None)
@given(
    limit=st.integers(1, 40),
    gaps=st.lists(st.floats(0, 45), min_size=1, max_size=60),
)
def test_whoever_waits_as_long_as_it_was_told_is_served(limit: int, gaps: list[float]) -> None:
    async def test(gateway: Gateway, clock: Clock) -> None:
        limited = key(requests_per_minute=limit)
        for gap in gaps:
            clock.now += gap
            try:
                await gateway.asks(limited)
            except Refused as refused:
                clock.now += refused.problem.retry_after or 0
                await gateway.asks(limited)

    in_memory(test)


@given(before=st.integers(0, 100), now=st.integers(0, 100), elapsed=st.floats(0, 59.9), limit=st.integers(1, 100))
def test_the_time_that_is_told_is_not_longer_than_needed(before: int, now: int, elapsed: float, limit: int) -> None:
    used = Used(before=before, now=now, elapsed=elapsed)
    wait = used.seconds_until(limit)

    def total_after(seconds: float) -> float:
        later = elapsed + seconds
        if later < 60:
            return Used(before=before, now=now, elapsed=later).total()
        return Used(before=now, now=0, elapsed=later - 60).total()

    assert wait >= 0
    assert total_after(wait + 1e-6) <= limit - 1 + 1e-6
    if wait > 1:
        assert total_after(wait - 1) > limit - 1
