"""Budgets of a key, on real stores: what is reserved, waits and is refused, whatever the estimates were."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from moonshim.config import Budget, GatewayKey
from moonshim.errors import Problem, Refused
from moonshim.gateway.inbound.budgets import LEASE_SECONDS, Admission, BudgetKeeper
from moonshim.gateway.observe.record import RequestRecord
from moonshim.store import Store, StoreUnavailable, open_store
from moonshim.usage.budgets import TOKENS, BudgetCounter
from moonshim.usage.record import COST_UNITS, UsageRecord
from tests.support.logged import logged_events
from tests.support.redis_server import running_redis

NOON = datetime(2026, 12, 31, 12, tzinfo=UTC).timestamp()
CENT = COST_UNITS // 100


class Clock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


def key(*budgets: Budget) -> GatewayKey:
    return GatewayKey(name="alice", digest="sha256:" + "0" * 64, budgets=budgets)


def dollars(limit: str, period: str = "day", *, soft: bool = False) -> Budget:
    return Budget(period=period, limit=Decimal(limit), soft=soft)  # type: ignore[arg-type]  # one of the three


def request() -> RequestRecord:
    return RequestRecord(request_id="r", path="/v1/messages", dialect="anthropic")


def used(cents: int = 0, tokens: int = 0) -> UsageRecord:
    return UsageRecord(
        id="x", request_id="r", started=0, input_tokens=tokens, output_tokens=0, cost=cents * CENT, currency="$"
    )


class Process:
    """One process of a gateway, and the books of its machine."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], float],
        *,
        books: str = "books",
        patience: float = 60,
        refuses_unknown: bool = False,
    ) -> None:
        self.booked: dict[BudgetCounter, int] = {}
        self.books = books
        self.is_readable = True
        self.keeper = BudgetKeeper(
            store, self._spent, self._id, clock=clock, patience=patience, refuses_unknown=refuses_unknown
        )
        self.running = self.most_running = self.served = 0

    async def _spent(self, counter: BudgetCounter) -> int:
        if not self.is_readable:
            raise StoreUnavailable("no books")
        return self.booked.get(counter, 0)

    async def _id(self) -> str:
        return self.books

    async def admit(self, key: GatewayKey, cents: int = 0, tokens: int = 0) -> Admission:
        return await self.keeper.admit(key, lambda: {"$": cents * CENT, TOKENS: tokens}, request())

    async def settle(self, admission: Admission, usage: UsageRecord | None) -> None:
        for counter in admission.reserved:
            amount = 0 if usage is None else usage.cost if counter.unit == "$" else usage.input_tokens
            self.booked[counter] = self.booked.get(counter, 0) + (amount or 0)
        await self.keeper.settle(admission, usage, request())

    async def serve(self, key: GatewayKey, *, estimate: int, cents: int) -> Problem | None:
        try:
            admission = await self.admit(key, estimate)
        except Refused as refused:
            return refused.problem
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        await self.settle(admission, used(cents))
        self.served += 1
        return None

    async def refused(self, key: GatewayKey, cents: int = 0) -> Problem:
        with pytest.raises(Refused) as refused:
            await self.admit(key, cents)
        return refused.value.problem


def on_store(url: str, test: Callable[[Store, Clock], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        store = await open_store(url, memory_bytes=10_000_000)
        try:
            await test(store, Clock())
        finally:
            await store.close()

    asyncio.run(run())


async def store_is_back(store: Store) -> None:
    while True:
        try:
            return await store.ping()
        except StoreUnavailable:
            await asyncio.sleep(0.05)


def in_memory(test: Callable[[Store, Clock], Coroutine[Any, Any, None]]) -> None:
    on_store("memory:", test)


@pytest.mark.parametrize("estimate", [1, 10, 15, 100, 1000])
def test_fifty_parallel_requests_against_a_budget_for_ten(estimate: int) -> None:
    """Estimated right or too high, ten are served; one at a time where nothing is known but that it is too much."""

    async def test(store: Store, clock: Clock) -> None:
        process, limited = Process(store, clock), key(dollars("1.00"))
        real = min(estimate, 10)
        problems = await asyncio.gather(
            *(process.serve(limited, estimate=estimate, cents=real) for _ in range(50 * 10 // real))
        )
        assert process.served == 100 // real
        assert {problem.code for problem in problems if problem is not None} == {"budget_exceeded"}
        assert process.most_running == max(1, 100 // estimate)

    in_memory(test)


def check_many_processes(url: str, count: int) -> None:
    async def run() -> None:
        clock, limited = Clock(), key(dollars("1.00"))
        stores = [await open_store(url, memory_bytes=10_000_000) for _ in range(count)]
        processes = [Process(store, clock, books=f"books-{n}") for n, store in enumerate(stores)]
        try:
            problems = await asyncio.gather(
                *(processes[n % count].serve(limited, estimate=15, cents=10) for n in range(50))
            )
            served = sum(process.served for process in processes)
            assert 10 <= served <= 10 + count
            assert {problem.code for problem in problems if problem is not None} == {"budget_exceeded"}
        finally:
            for process, store in zip(processes, stores, strict=True):
                await process.keeper.close()
                await store.close()

    asyncio.run(run())


def test_two_processes_on_sqlite_exceed_a_budget_by_at_most_one_request_each(tmp_path: Path) -> None:
    check_many_processes(f"sqlite:{tmp_path / 'store.db'}", 2)


def test_three_processes_on_redis_exceed_a_budget_by_at_most_one_request_each() -> None:
    with running_redis() as redis:
        check_many_processes(redis.url, 3)


def test_a_refusal_says_what_is_used_and_when_it_resets() -> None:
    async def test(store: Store, clock: Clock) -> None:
        process, limited = Process(store, clock), key(dollars("1.00"))
        await process.settle(await process.admit(limited), used(102))
        problem = await process.refused(limited)
        assert problem.message == (
            "Key 'alice' has reached its daily budget ($1.02 of $1.00 used). It resets at 2027-01-01T00:00:00Z."
        )
        assert (problem.status, problem.kind, problem.code) == (429, "quota", "budget_exceeded")
        # Codex waits as long as `retry-after` says, which would be hours.
        assert problem.retry_headers == {"x-should-retry": "false"}

    in_memory(test)


def test_a_total_never_resets() -> None:
    async def test(store: Store, clock: Clock) -> None:
        process, limited = Process(store, clock), key(Budget(period="total", tokens=1000), dollars("1.00"))
        await process.settle(await process.admit(limited), used(200, tokens=1500))
        clock.now += 400 * 24 * 3600
        problem = await process.refused(limited)
        assert problem.message == (
            "Key 'alice' has reached its total budget (1,500 tokens of 1,000 tokens used). "
            "Ask the operator of this gateway to raise it."
        )

    in_memory(test)


def test_days_and_months_turn_at_midnight_utc() -> None:
    async def test(store: Store, clock: Clock) -> None:
        process, limited = Process(store, clock), key(dollars("1.00"), dollars("3.00", "month"))
        clock.now = datetime(2026, 12, 30, 23, 59, 59, tzinfo=UTC).timestamp()
        late = await process.admit(limited)
        await process.settle(await process.admit(limited), used(100))
        assert "daily budget" in (await process.refused(limited)).message
        clock.now += 1  # the next day
        await process.settle(await process.admit(limited), used(50))
        # What began yesterday is yesterday's, for a day; for the month, it counts.
        await process.settle(late, used(200))
        states = await process.keeper.states([limited])
        assert [state.used for state in states] == [50 * CENT, 350 * CENT]
        problem = await process.refused(limited)
        assert "monthly budget" in problem.message
        assert "2027-01-01T00:00:00Z" in problem.message
        clock.now = datetime(2027, 1, 1, tzinfo=UTC).timestamp()
        await process.admit(limited)

    in_memory(test)


def test_a_request_waits_until_another_has_settled() -> None:
    async def test(store: Store, clock: Clock) -> None:
        process, limited = Process(store, clock), key(dollars("1.00"))
        first = await process.admit(limited, 60)
        second = asyncio.create_task(process.admit(limited, 60))
        await asyncio.sleep(0.01)
        assert not second.done()
        await process.settle(first, used(5))
        assert (await second).states[0].used == 5 * CENT

    in_memory(test)


def test_requests_that_wait_come_in_order_with_what_was_learned_meanwhile() -> None:
    async def test(store: Store, clock: Clock) -> None:
        process, limited = Process(store, clock), key(dollars("1.00"))
        expected, admitted = 90, list[int]()

        async def wait(number: int) -> Admission:
            admission = await process.keeper.admit(limited, lambda: {"$": expected * CENT}, request())
            admitted.append(number)
            return admission

        first = await wait(0)
        waiting = [asyncio.create_task(wait(number)) for number in range(1, 5)]
        await asyncio.sleep(0.01)
        assert admitted == [0]
        expected = 20  # the first response was shorter than the guess
        await process.settle(first, used(5))
        await asyncio.gather(*waiting)
        assert admitted == [0, 1, 2, 3, 4]

    in_memory(test)


def test_a_request_that_no_host_got_costs_nothing() -> None:
    async def test(store: Store, clock: Clock) -> None:
        process, limited = Process(store, clock), key(dollars("1.00"))
        await process.settle(await process.admit(limited, 60), None)
        assert (await process.keeper.states([limited]))[0].used == 0

    in_memory(test)


def test_waiting_ends_with_an_error_that_clients_retry() -> None:
    async def test(store: Store, clock: Clock) -> None:
        process, limited = Process(store, clock, patience=0.05), key(dollars("1.00"))
        await process.admit(limited, 60)
        problem, *others = await asyncio.gather(*(process.refused(limited, 60) for _ in range(3)))
        assert others == [problem, problem]  # also for those that were never the first in the queue
        assert (problem.status, problem.code) == (429, "budget_reserved")
        assert problem.retry_headers == {"retry-after": "5"}
        assert "$0.00 of $1.00 used" in problem.message

    in_memory(test)


def test_what_a_killed_process_reserved_expires(tmp_path: Path) -> None:
    async def test(store: Store, clock: Clock) -> None:
        limited = key(dollars("1.00"))
        await Process(store, clock).admit(limited, 80)  # and never settles it
        alive = Process(store, clock, patience=1.0)
        await alive.admit(limited, 30)  # it has nothing else running
        assert (await alive.refused(limited, 30)).code == "budget_reserved"
        clock.now += LEASE_SECONDS + 1
        await alive.admit(limited, 30)

    on_store(f"sqlite:{tmp_path / 'store.db'}", test)


def test_a_new_store_begins_with_what_the_books_have() -> None:
    async def test(store: Store, clock: Clock) -> None:
        before = Process(store, clock)
        limited = key(dollars("1.00"), dollars("9.00", "month"))
        await before.settle(await before.admit(limited), used(70))
        other = await open_store("memory:", memory_bytes=1_000_000)
        after = Process(other, clock)
        after.booked = before.booked
        assert [state.used for state in await after.keeper.states([limited])] == [70 * CENT] * 2
        await after.settle(await after.admit(limited), used(40))
        assert (await after.refused(limited)).code == "budget_exceeded"

    in_memory(test)


def test_the_books_of_each_machine_are_added_once(tmp_path: Path) -> None:
    async def test(store: Store, clock: Clock) -> None:
        limited = key(dollars("1.00"))
        workers = [Process(store, clock, books=books) for books in ("one", "one", "two")]
        (counter,) = [state.counter for state in await Process(store, clock, books="new").keeper.states([limited])]
        for worker, cents in zip(workers, (10, 10, 5), strict=True):
            worker.booked[counter] = cents * CENT
        for worker in workers:
            (state,) = await worker.keeper.states([limited])
        assert state.used == 15 * CENT

    on_store(f"sqlite:{tmp_path / 'store.db'}", test)


def test_a_redis_that_was_emptied_learns_from_the_books() -> None:
    with running_redis() as redis:

        async def test(store: Store, clock: Clock) -> None:
            process, limited = Process(store, clock), key(dollars("1.00"))
            await process.settle(await process.admit(limited), used(70))
            redis.empty()
            await process.settle(await process.admit(limited), used(40))
            assert (await process.keeper.states([limited]))[0].used == 110 * CENT
            assert (await process.refused(limited)).code == "budget_exceeded"

        on_store(redis.url, test)


def test_a_redis_that_was_emptied_gives_no_second_budget_even_if_the_books_cannot_be_read() -> None:
    with running_redis() as redis:

        async def test(store: Store, clock: Clock) -> None:
            process, limited = Process(store, clock), key(dollars("1.00"), Budget(period="total", tokens=1000))
            process.is_readable = False
            for _ in range(10):
                await process.settle(await process.admit(limited), used(10, tokens=5))
            redis.empty()
            for _ in range(2):
                assert (await process.refused(limited)).code == "budget_exceeded"
            assert "$1.00 of $1.00 used" in (await process.refused(limited)).message

        on_store(redis.url, test)


def test_a_clock_that_jumps_gives_no_second_budget_for_a_day_that_was_used_up() -> None:
    async def test(store: Store, clock: Clock) -> None:
        process, limited = Process(store, clock), key(dollars("1.00"), Budget(period="total", tokens=1000))
        await process.settle(await process.admit(limited), used(100, tokens=10))
        clock.now += 24 * 3600
        await process.settle(await process.admit(limited), used(100, tokens=10))  # that is another day
        clock.now -= 24 * 3600
        assert (await process.refused(limited)).code == "budget_exceeded"
        clock.now += 24 * 3600
        assert (await process.refused(limited)).code == "budget_exceeded"
        assert (await process.keeper.states([limited]))[1].used == 20

    in_memory(test)


@pytest.mark.parametrize("has_store", [False, True])
def test_a_process_that_finds_neither_store_nor_books_counts_from_zero_or_refuses(has_store: bool) -> None:
    with running_redis() as redis:

        async def test(store: Store, clock: Clock) -> None:
            limited = key(dollars("1.00"))
            if not has_store:
                redis.stop()
            process = Process(store, clock)
            process.is_readable = False
            await process.settle(await process.admit(limited), used(100))
            assert (await process.refused(limited)).code == "budget_exceeded"
            strict = Process(store, clock, books="other", refuses_unknown=True)
            strict.is_readable = False
            if has_store:
                assert (await strict.refused(limited)).code == "budget_exceeded", "the store knows"
                redis.empty()
                strict = Process(store, clock, books="other", refuses_unknown=True)
                strict.is_readable = False
            problem = await strict.refused(limited)
            assert (problem.status, problem.code, problem.retry_headers) == (
                503,
                "budget_unknown",
                {"retry-after": "5"},
            )
            strict.is_readable = True  # they have nothing, and that is known now
            await strict.admit(limited)

        with logged_events() as events:
            on_store(redis.url, test)
    assert [event["refused"] for event in events if event["event"] == "budget_unknown"] == [False, True]


def test_without_a_store_the_own_count_decides_and_amounts_are_added_later() -> None:
    with running_redis() as redis:

        async def test(store: Store, clock: Clock) -> None:
            process, limited = Process(store, clock), key(dollars("1.00"))
            await process.settle(await process.admit(limited), used(70))
            redis.stop()
            record = request()
            admission = await process.keeper.admit(limited, lambda: {"$": 500 * CENT}, record)
            assert record.store_failures == ["budgets"]
            await process.settle(admission, used(40))
            record = request()
            with pytest.raises(Refused) as refused:
                await process.keeper.admit(limited, dict, record)
            assert (refused.value.problem.code, record.store_failures) == ("budget_exceeded", ["budgets"])
            worker = Process(store, clock)  # of the same machine
            worker.booked = process.booked
            assert (await worker.refused(limited)).code == "budget_exceeded"
            redis.start()
            await store_is_back(store)
            (state,) = await process.keeper.states([limited])
            assert state.used == 110 * CENT

        on_store(redis.url, test)


@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis"])
def test_an_absurd_amount_uses_up_a_budget_and_breaks_none(kind: str, tmp_path: Path) -> None:
    """No store can count so much; that must not look like a store that is down, which refuses nothing."""

    async def test(store: Store, clock: Clock) -> None:
        tokens, money = Budget(period="total", tokens=10**15, soft=True), dollars("1.00")
        process, limited = Process(store, clock), key(tokens, money)
        for n in range(12):
            record = request()
            admission = await process.keeper.admit(limited, lambda: {"$": 10**25, TOKENS: 10**25}, record)
            await process.keeper.settle(admission, used(5, tokens=10 ** (17 + n)), record)
            assert record.store_failures == []
        many, money_used = await process.keeper.states([limited])
        assert (many.is_used_up, money_used.used) == (True, 60 * CENT)
        other = Process(store, clock, patience=0.1)
        first = await process.admit(limited, 10**20)
        await other.admit(limited, 1)  # it has nothing else running
        assert (await other.refused(limited, 1)).code == "budget_reserved"
        await process.keeper.settle(first, used(40), request())
        assert (await process.refused(limited)).code == "budget_exceeded"

    if kind == "redis":
        with running_redis() as redis:
            on_store(redis.url, test)
    else:
        on_store("memory:" if kind == "memory" else f"sqlite:{tmp_path / 'store.db'}", test)


def test_two_machines_on_an_emptied_redis_add_what_each_of_them_has() -> None:
    """Whichever looks first, and whatever the other one has used since it last looked."""

    async def fill(processes: list[Process], limited: GatewayKey) -> None:
        for process, cents in zip(processes, (30, 60), strict=True):
            await process.settle(await process.admit(limited), used(cents))

    with running_redis() as redis:

        async def test(store: Store, clock: Clock) -> None:
            machines, limited = [Process(store, clock, books=name) for name in "ab"], key(dollars("10.00"))
            await fill(machines, limited)
            redis.empty()
            shown = [(await machines[n].keeper.states([limited]))[0].used // CENT for n in (0, 1, 0)]
            assert shown == [30, 90, 90]
            await fill(machines, limited)
            redis.empty()
            assert (await machines[1].keeper.states([limited]))[0].used == 180 * CENT  # it has seen that before
            # This one sees more than when it last looked, and still notices with its next request.
            await machines[0].settle(await machines[0].admit(limited), used(1))
            for machine in machines:
                assert (await machine.keeper.states([limited]))[0].used == 181 * CENT

        on_store(redis.url, test)


def test_what_was_used_while_the_store_was_down_survives_a_restart() -> None:
    with running_redis() as redis:

        async def test(store: Store, clock: Clock) -> None:
            before, limited = Process(store, clock), key(dollars("1.00"))
            await before.settle(await before.admit(limited), used(30))
            redis.stop()
            await before.settle(await before.admit(limited), used(60))
            redis.start()
            await store_is_back(store)
            workers = [Process(store, clock) for _ in range(3)]
            for worker in workers:
                worker.booked = before.booked
            states = await asyncio.gather(*(worker.keeper.states([limited]) for worker in workers))
            assert max(state.used for (state,) in states) == 90 * CENT
            # A worker that was not restarted has nothing to add.
            assert (await before.keeper.states([limited]))[0].used == 90 * CENT
            await workers[0].settle(await workers[0].admit(limited), used(20))
            assert (await workers[1].refused(limited)).code == "budget_exceeded"

        on_store(redis.url, test)


def test_books_that_cannot_be_read_are_reported_and_added_later() -> None:
    async def test(store: Store, clock: Clock) -> None:
        process, limited = Process(store, clock), key(dollars("1.00"))
        (counter,) = [state.counter for state in await Process(store, clock).keeper.states([limited])]
        process.booked[counter], process.is_readable = 50 * CENT, False
        for _ in range(2):
            record = request()
            admission = await process.keeper.admit(limited, dict, record)
            assert record.store_failures == ["budgets"]
            await process.settle(admission, used(30))
        with pytest.raises(StoreUnavailable):
            await process.keeper.states([limited])
        process.is_readable = True
        assert (await process.keeper.states([limited]))[0].used == 110 * CENT
        assert (await process.refused(limited)).code == "budget_exceeded"

    in_memory(test)


def test_without_books_what_is_known_still_counts() -> None:
    async def test(store: Store, clock: Clock) -> None:
        process, limited = Process(store, clock), key(dollars("1.00"))
        process.is_readable = False
        for _ in range(2):
            await process.settle(await process.admit(limited), used(50))
        assert (await process.refused(limited)).code == "budget_exceeded"

    in_memory(test)


def test_a_soft_budget_refuses_nothing() -> None:
    async def test(store: Store, clock: Clock) -> None:
        process, limited = Process(store, clock), key(dollars("1.00", soft=True))
        admissions = [await process.admit(limited, 60) for _ in range(5)]
        for admission in admissions:
            await process.settle(admission, used(60))
        (state,) = (await process.admit(limited, 60)).states
        assert (state.used, state.is_used_up) == (300 * CENT, True)

    in_memory(test)


def test_a_client_that_leaves_while_it_waits_leaves_nothing(tmp_path: Path) -> None:
    async def test(store: Store, clock: Clock) -> None:
        process, other, limited = Process(store, clock), Process(store, clock), key(dollars("1.00"))
        first = await process.admit(limited, 60)
        waiting = [asyncio.create_task(process.admit(limited, 60)) for _ in range(3)]
        await asyncio.sleep(0.05)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        await process.settle(first, used(10))
        await process.keeper.close()
        # Nothing is reserved any more, as other processes see it.
        admissions = [await other.admit(limited, 45) for _ in range(2)]
        assert admissions[1].states[0].used == 10 * CENT

    on_store(f"sqlite:{tmp_path / 'store.db'}", test)
