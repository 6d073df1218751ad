"""The books of several machines, added up in a real Redis: nothing twice, and nothing lost while it is down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from moonshim.config import Budget, GatewayKey, UsageBooks
from moonshim.config.model import digest_of
from moonshim.simulator import Simulator
from moonshim.store import Store, StoreUnavailable, open_store
from moonshim.usage import shared
from moonshim.usage.ledger import UsageLedger
from moonshim.usage.record import COST_UNITS
from moonshim.usage.report import GROUPINGS, Grouping, UsageReport, summarize
from moonshim.usage.shared import OTHER_SESSIONS, SharedUsage, read_other_machines, read_parts, report_of_parts
from tests.support.gateway.hosts import run
from tests.support.gateway.running import MODEL, config_for, running
from tests.support.redis_server import RedisServer, running_cluster, running_redis
from tests.usage.books import DAY, NOON, record


def now() -> float:
    return NOON / 1000


class Machine:
    """The books of one machine, and one of its workers."""

    def __init__(self, store: Store, ledger: UsageLedger) -> None:
        self.store, self.ledger = store, ledger
        self.worker = SharedUsage(store, ledger, days=90, clock=now)

    def use(self, *numbers: int, **fields: Any) -> None:
        for number in numbers:
            self.ledger.settle(record(number, **fields))

    async def report(self, by: Grouping = "day", key: str | None = None, since: int | None = None) -> UsageReport:
        """Of all machines."""
        others = await read_other_machines(self.store, await self.ledger.identity(), since=since, until=None)
        own = await self.ledger.run(read_parts)
        return report_of_parts([*own, *others], by=by, since=since, until=None, key=key)


@asynccontextmanager
async def machine(url: str, path: Path) -> AsyncIterator[Machine]:
    store, ledger = await open_store(url, memory_bytes=10**6), UsageLedger(path, days=36_500)
    await ledger.start()
    try:
        yield Machine(store, ledger)
    finally:
        await ledger.close()
        await store.close()


def on_redis(test: Callable[[RedisServer, Path], Coroutine[Any, Any, None]], folder: Path) -> None:
    with running_redis() as redis:
        asyncio.run(test(redis, folder))


def test_a_report_adds_up_all_machines(tmp_path: Path) -> None:
    async def test(redis: RedisServer, folder: Path) -> None:
        async with machine(redis.url, folder / "a.db") as a, machine(redis.url, folder / "b.db") as b:
            a.use(1, 2, model="kimi-k3", client="codex")
            b.use(1, 3, model="kimi-k2.5", key="bob")
            b.use(4, started=NOON - 3 * DAY, cost=None)
            for one in (a, b):
                await one.worker.write()
            for one in (a, b):
                report = await one.report("day")
                assert [(row.name, row.requests) for row in report.rows] == [("2026-11-13", 1), ("2026-11-16", 4)]
                assert report.total.costs == {"$": 2 * COST_UNITS}
                assert (report.total.input_tokens, report.total.unpriced) == (5000, 1)
            assert {row.name: row.requests for row in (await a.report("model")).rows} == {"kimi-k3": 3, "kimi-k2.5": 2}
            assert {row.name: row.requests for row in (await a.report("key")).rows} == {"alice": 3, "bob": 2}
            assert (await a.report("session", key="bob")).total.requests == 2
            assert (await a.report(since=NOON - DAY)).total.requests == 4

    on_redis(test, tmp_path)


def test_one_machine_has_the_report_of_its_own_books(tmp_path: Path) -> None:
    async def test(redis: RedisServer, folder: Path) -> None:
        async with machine(redis.url, folder / "a.db") as a:
            a.use(1, 2, 3)
            a.use(4, 5, key="bob", currency="¥", session=None, estimated=True, state="in_flight")
            await a.worker.write()
            for by in GROUPINGS:
                assert await a.report(by) == await a.ledger.run(partial(summarize, by=by))

    on_redis(test, tmp_path)


def test_writing_again_changes_nothing_and_workers_do_not_overwrite_each_other(tmp_path: Path) -> None:
    async def test(redis: RedisServer, folder: Path) -> None:
        async with (
            machine(redis.url, folder / "a.db") as a,
            machine(redis.url, folder / "a.db") as second_worker,
            machine(redis.url, folder / "b.db") as b,
        ):
            a.use(1)
            await a.worker.write()
            second_worker.use(2)
            await second_worker.ledger.run(lambda books: None)
            for _ in range(3):
                await a.worker.write()
                await second_worker.worker.write()
            assert (await b.report()).total.requests == 2

    on_redis(test, tmp_path)


def test_what_was_used_while_redis_was_down_is_written_later(tmp_path: Path) -> None:
    async def test(redis: RedisServer, folder: Path) -> None:
        async with machine(redis.url, folder / "a.db") as a:
            a.use(1)
            await a.worker.write()
            redis.stop()
            a.use(2)
            with pytest.raises(StoreUnavailable):
                await a.worker.write()
            redis.start()  # it has lost everything
            while True:
                try:
                    await a.worker.write()
                    break
                except StoreUnavailable:
                    await asyncio.sleep(0.05)
        async with machine(redis.url, folder / "b.db") as b:
            assert (await b.report()).total.requests == 2

    on_redis(test, tmp_path)


def test_closing_writes_the_rest(tmp_path: Path) -> None:
    async def test(redis: RedisServer, folder: Path) -> None:
        async with machine(redis.url, folder / "a.db") as a:
            a.worker.start()
            await asyncio.sleep(0)
            a.use(1)
            await a.worker.close()
        async with machine(redis.url, folder / "b.db") as b:
            assert (await b.report()).total.requests == 1

    on_redis(test, tmp_path)


def test_the_number_of_sessions_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "MOST_PARTS", 10)

    async def test(redis: RedisServer, folder: Path) -> None:
        async with machine(redis.url, folder / "a.db") as a, machine(redis.url, folder / "b.db") as b:
            for number in range(50):
                a.use(number, session=f"s{number}")
            a.use(50, session="s7")
            await a.worker.write()
            report = await b.report("session")
            names = {row.name: row.requests for row in report.rows}
            assert report.total.requests == 51
            assert (names["s7"], names[OTHER_SESSIONS], len(names)) == (2, 45, 6)

    on_redis(test, tmp_path)


def test_a_redis_cluster_can_share_them_too(tmp_path: Path) -> None:
    async def test(url: str) -> None:
        async with machine(url, tmp_path / "a.db") as a, machine(url, tmp_path / "b.db") as b:
            a.use(1, 2)
            b.use(3, started=NOON - DAY)
            for one in (a, b):
                await one.worker.write()
            assert [(await one.report()).total.requests for one in (a, b)] == [3, 3]

    with running_cluster() as cluster:
        asyncio.run(test(cluster.url))


def test_books_without_a_file_have_no_name_that_they_would_lose(tmp_path: Path) -> None:
    """Otherwise what they have written would count twice, after they have got another one."""

    async def test() -> None:
        (tmp_path / "usage.db").mkdir()
        ledger = UsageLedger(tmp_path / "usage.db")
        await ledger.start()
        with pytest.raises(StoreUnavailable):
            await ledger.identity()
        await ledger.close()
        named = [UsageLedger(tmp_path / "other.db") for _ in range(2)]
        for one in named:
            await one.start()
        assert await named[0].identity() == await named[1].identity()
        for one in named:
            await one.close()

    asyncio.run(test())


def test_a_gateway_whose_books_cannot_be_opened_counts_what_it_knows_and_says_so(tmp_path: Path) -> None:
    async def test() -> None:
        (tmp_path / "usage.db").mkdir()
        limited = GatewayKey(name="ci", digest=digest_of("msk_x"), budgets=(Budget(period="day", tokens=10),))
        async with Simulator() as simulator:
            config = config_for(simulator.url, keys=(limited,), usage=UsageBooks(file=str(tmp_path / "usage.db")))
            async with (
                running(config) as server,
                aiohttp.ClientSession(server.url, headers={"x-api-key": "msk_x"}) as client,
            ):
                answers = []
                for _ in range(2):
                    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
                    async with client.post("/v1/chat/completions", json=body) as answer:
                        answers.append((answer.status, answer.headers.get("x-moonshim-lost")))
                assert answers == [(200, "budgets"), (429, "budgets")]

    run(test())
