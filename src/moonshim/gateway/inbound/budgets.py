"""A key with budgets -> a request admitted, held back for a moment, or refused; counted in the gateways' shared store.

A request reserves what it may use, and the reservation is released when its actual use is counted. While the
reservations of a key would exceed what is left, its requests run one at a time per process. So each process exceeds a
budget by at most one request, if estimates are not too low.

Every process lists its reservations under the key, and renews the list: what a killed process had reserved expires.

A request may go on after its first host call: with a search, or with another call. Each of them is reserved when it is
opened, next to what the request has spent so far. One that does not fit waits, or is refused, unless its request is the
oldest of the key in this process: that is the one which may exceed the budget, with a call, whose cost is an estimate.
The price of a search is known, so no search exceeds a budget.

What a process has seen or counted itself is never forgotten: a counter that the store has lost does not start again.
While the store is unavailable, that count decides, with what the books of this machine have. Amounts are added to the
store when it is back, from the books.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from moonshim.config import GatewayKey
from moonshim.errors import BUDGET_EXCEEDED, Problem, Refused
from moonshim.gateway.observe import logs
from moonshim.gateway.observe.record import RequestRecord
from moonshim.store import Store, StoreUnavailable, key_space
from moonshim.usage.budgets import MOST_AMOUNT, BudgetCounter, BudgetState, Unit, amounts_of, counters_of, has_hard
from moonshim.usage.record import UsageRecord

__all__ = ["Admission", "BudgetKeeper", "BudgetRefusal"]

LEASE_SECONDS: Final = 60.0
"""Seconds until a reservation that is not renewed expires: its process may have died."""
_RENEWALS: Final = 3
"""Per lease."""
PATIENCE: Final = 30.0
"""Seconds that a request waits for others of its key to end."""
_POLL_SECONDS: Final = 0.5
"""How often the first request that waits looks at the store: requests in other processes may have ended."""
_RETRY_SECONDS: Final = 5.0
_MOST_COUNTERS: Final = 4096
_ATTEMPTS: Final = 20
_BOOKS_SECONDS: Final = 5.0
"""While the store is unavailable: how often the books are read for what other processes have used."""
_LARGE: Final = 2**40
"""An amount for which a counter may have no room."""
_LOST: Final = "budgets"


class _Reserved(Struct, frozen=True):
    """What the running requests of one process have reserved for a key, as other processes read it."""

    until: float
    """Wall-clock time at which it expires."""
    amounts: dict[str, int] = {}
    """By the name of a counter."""


class Admission(Struct, eq=False):
    """One admitted request: what it reserved, until it is settled."""

    key: GatewayKey
    states: list[BudgetState]
    """As known when it was admitted; empty if the store was unavailable."""
    reserved: dict[BudgetCounter, int]


class BudgetRefusal(Refused):
    """A request that a budget does not allow now."""

    def __init__(self, problem: Problem, states: Sequence[BudgetState]) -> None:
        super().__init__(problem)
        self.states = states
        """All budgets of its key, as far as they are known."""


class _OfKey:
    """The requests of one key in this process."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        """Held by the request that is being admitted, so that they come in order."""
        self.extending = asyncio.Lock()
        """Held while a running request reserves more."""
        self.publishing = asyncio.Lock()
        self.changed = asyncio.Event()
        self.running: dict[int, Admission] = {}
        self.exceeded: list[BudgetState] = []
        """The budgets that the queue waits for, or waited for last."""
        self.states: list[BudgetState] = []
        """All budgets, as they were seen last."""

    def reserved(self) -> dict[str, int]:
        total: dict[str, int] = {}
        for admission in self.running.values():
            for counter, amount in admission.reserved.items():
                total[counter.name] = total.get(counter.name, 0) + amount
        return total


class _Known:
    """What this process knows about a counter."""

    __slots__ = (
        "claimed",
        "floor",
        "is_current",
        "is_known",
        "is_reported",
        "is_shared",
        "owed",
        "read_at",
        "unbooked",
        "unsent",
        "updating",
        "used",
    )

    def __init__(self) -> None:
        self.updating = asyncio.Lock()
        self.used = 0
        """The sum of all books, as the store had it when it was last read."""
        self.floor = 0
        """The least that is used: the most that was ever read, and what this process has counted since."""
        self.is_shared = False
        """Whether the store had the sum when it was last read."""
        self.is_known = False
        """Whether anything said what was used before this process started: the store, or the books of this machine."""
        self.is_reported = False
        """Whether it was logged that nothing did."""
        self.read_at: float | None = None
        """When the books were last read in place of the store, in monotonic time."""
        self.claimed = 0
        """The part of these books."""
        self.unsent = 0
        """Used, but not in the store yet."""
        self.owed = 0
        """In the part of these books, but not in the sum yet."""
        self.unbooked = 0
        """In the sum, but not in the part: the books could not be read."""
        self.is_current = False
        """Whether the part has all that the books have, but for `unsent`."""


class BudgetKeeper:
    """Keeps the budgets of keys, as the sum of what the books of all machines have.

    The store also has the part of each: `ledger_id` names the books of this machine, and `spent` returns what they have
    for a counter. What their part lacks is added when the process starts and when the store comes back. Both functions
    raise `StoreUnavailable` while the books cannot be read; then only what the process itself used is counted.
    """

    def __init__(
        self,
        store: Store,
        spent: Callable[[BudgetCounter], Awaitable[int]],
        ledger_id: Callable[[], Awaitable[str]],
        *,
        has_books: bool = True,
        refuses_unknown: bool = False,
        clock: Callable[[], float] = time.time,
        patience: float = PATIENCE,
    ) -> None:
        """`clock` must be shared by all gateways: the wall clock. `has_books`: whether the books are in a file."""
        self.refuses_unknown = refuses_unknown
        """Whether a hard budget refuses requests while neither the store nor the books say what was used before."""
        self._has_books = has_books
        self._store, self._spent, self._ledger_id = store, spent, ledger_id
        self._clock, self._patience = clock, patience
        self._process = secrets.token_hex(8)
        self._keys: dict[str, _OfKey] = {}
        self._known: dict[BudgetCounter, _Known] = {}
        self._renewing: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # --- one request -------------------------------------------------------------------------------------------

    async def admit(
        self, key: GatewayKey, estimate: Callable[[], Mapping[Unit, int]], record: RequestRecord
    ) -> Admission:
        """Reserve what a request may use. Raises `BudgetRefusal` (429) if a budget is used up, or others use what is
        left.

        `estimate` returns what it uses at most, by unit; while it waits, other responses may teach us that it is less.
        Every admission must be settled.
        """
        mine = self._keys.setdefault(key.name, _OfKey())
        try:
            async with asyncio.timeout(self._patience):
                async with mine.turn:
                    while True:
                        mine.changed.clear()
                        admission = await self._try(key, estimate(), mine, record)
                        if admission is not None:
                            return admission
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(_POLL_SECONDS):
                                await mine.changed.wait()
        except TimeoutError:
            raise _busy(key, mine) from None

    async def extend(
        self,
        admission: Admission,
        spent: Mapping[Unit, int],
        coming: Mapping[Unit, int],
        record: RequestRecord,
        *,
        is_exact: bool = False,
    ) -> None:
        """Reserve what a running request is about to use, next to what it has spent so far, which is not settled yet.

        `is_exact`: it will use just this, so it has to leave something, whichever request it is for. Waits while others
        use what is left. Raises `BudgetRefusal` if that takes too long, or if nothing is left.
        """
        mine = self._keys[admission.key.name]
        try:
            async with asyncio.timeout(self._patience):
                while True:
                    mine.changed.clear()
                    async with mine.extending:
                        if await self._extend(admission, spent, coming, mine, record, is_exact=is_exact):
                            return
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_POLL_SECONDS):
                            await mine.changed.wait()
        except TimeoutError:
            raise _busy(admission.key, mine) from None

    async def _extend(
        self,
        admission: Admission,
        spent: Mapping[Unit, int],
        coming: Mapping[Unit, int],
        mine: _OfKey,
        record: RequestRecord,
        *,
        is_exact: bool,
    ) -> bool:
        key, before = admission.key, admission.reserved
        certain = Counter(spent) + Counter(coming if is_exact else {})
        states = [replace(one, used=one.used + certain[one.counter.unit]) for one in await self._states(key)]
        if used_up := [state for state in states if state.is_used_up and not state.budget.soft]:
            raise _used_up(key, max(used_up, key=lambda state: state.resets or "9999"), states)

        def reserve(amount: Callable[[BudgetCounter], int]) -> None:
            admission.reserved = {counter: min(amount(counter), MOST_AMOUNT) for counter in before}

        is_granted = False
        reserve(lambda counter: spent.get(counter.unit, 0) + coming.get(counter.unit, 0))
        try:
            try:
                await self._publish(key, mine)
            except StoreUnavailable:
                _record_store_failure(record)
            is_oldest = next(iter(mine.running.values()), None) is admission
            exceeded = [] if is_oldest and not is_exact else await self._exceeded(key, mine)
            mine.exceeded = exceeded or mine.exceeded
            is_granted = not exceeded
            if exceeded and is_oldest:  # the others may wait for this one
                raise _busy(key, mine)
        finally:
            if not is_granted:
                reserve(lambda counter: max(before[counter], spent.get(counter.unit, 0)))
                self._publish_later(key, mine)
        return is_granted

    async def settle(self, admission: Admission, usage: UsageRecord | None, record: RequestRecord) -> list[BudgetState]:
        """Count what a request used; None: no host got it. Call it once, whatever the end of the request.

        Returns its budgets, as far as they are known.
        """
        mine = self._keys[admission.key.name]
        amounts = Counter[Unit]()
        for used in (*(earlier for earlier, _ in record.booked_earlier), *(() if usage is None else (usage,))):
            amounts.update(amounts_of(used))
        for counter in admission.reserved:
            known = self._knows(counter)
            known.unsent += amounts[counter.unit]
            known.floor = min(known.floor + amounts[counter.unit], MOST_AMOUNT)
        try:
            for counter in admission.reserved:
                if self._knows(counter).unsent:
                    await self._used(counter)
            if not self._are_current(admission.reserved):
                _record_store_failure(record)
        finally:
            # Only now: between the two, an amount must rather count twice than not at all.
            mine.running.pop(id(admission), None)
            mine.changed.set()
            if has_hard(admission.key):
                self._publish_later(admission.key, mine)
        return [BudgetState(one.budget, one.counter, self._knows(one.counter).floor) for one in admission.states]

    async def states(self, keys: Sequence[GatewayKey]) -> list[BudgetState]:
        """The budgets of these keys now. Raises `StoreUnavailable`."""
        states = [state for key in keys for state in await self._states(key)]
        if not self._are_current(state.counter for state in states):
            raise StoreUnavailable("the usage records cannot be read")
        return states

    async def close(self) -> None:
        """Before the store is closed."""
        if self._renewing is not None:
            self._renewing.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # --- admission ---------------------------------------------------------------------------------------------

    async def _try(
        self, key: GatewayKey, estimate: Mapping[Unit, int], mine: _OfKey, record: RequestRecord
    ) -> Admission | None:
        states = mine.states = await self._states(key)
        if not self._are_current(state.counter for state in states):
            _record_store_failure(record)
        self._report_unknown(key, states)
        if used_up := [state for state in states if state.is_used_up and not state.budget.soft]:
            raise _used_up(key, max(used_up, key=lambda state: state.resets or "9999"), states)
        reserved = {state.counter: min(estimate.get(state.counter.unit, 0), MOST_AMOUNT) for state in states}
        is_alone = not mine.running
        admission = self._hold(mine, Admission(key, states, reserved))
        if not has_hard(key):
            return admission
        # Reserve first and look then: of two processes that want the last of a budget, one sees the other at least.
        is_admitted = False
        try:
            try:
                await self._publish(key, mine)
            except StoreUnavailable:  # others do not see it: each process is within the budget then, by its own count
                _record_store_failure(record)
            exceeded = [] if is_alone else await self._exceeded(key, mine)
            mine.exceeded = exceeded or mine.exceeded
            is_admitted = not exceeded
        finally:
            if not is_admitted:
                del mine.running[id(admission)]
                self._publish_later(key, mine)
        return admission if is_admitted else None

    async def _exceeded(self, key: GatewayKey, mine: _OfKey) -> list[BudgetState]:
        """The hard budgets that the requests of all processes could exceed together."""
        # In this order: what is settled in between counts twice, and not never.
        reserved = await self._reserved(key, mine)
        states = [state for state in await self._states(key) if not state.budget.soft]
        return [state for state in states if state.used + reserved.get(state.counter.name, 0) > state.limit]

    def _hold(self, mine: _OfKey, admission: Admission) -> Admission:
        mine.running[id(admission)] = admission
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew())
        return admission

    async def _reserved(self, key: GatewayKey, mine: _OfKey) -> dict[str, int]:
        """What the running requests of all processes have reserved, by the name of a counter."""
        now, total = self._clock(), mine.reserved()
        lists: dict[str, bytes] = {}
        with contextlib.suppress(StoreUnavailable):
            lists = await self._store.entries(_list_name(key))
        for process, value in lists.items():
            other = _decode(value)
            if process != self._process and other.until > now:
                for name, amount in other.amounts.items():
                    total[name] = total.get(name, 0) + amount
        return total

    async def _publish(self, key: GatewayKey, mine: _OfKey) -> None:
        """List the reservations of this process for the others."""
        async with mine.publishing:  # a later list must not be overwritten by an earlier one
            value = _Reserved(self._clock() + LEASE_SECONDS, mine.reserved())
            await self._store.put_entry(_list_name(key), self._process, msgspec.json.encode(value), None)

    def _publish_later(self, key: GatewayKey, mine: _OfKey) -> None:
        """The same when a list became shorter, for which nobody has to wait."""

        async def publish() -> None:
            with contextlib.suppress(StoreUnavailable):
                await self._publish(key, mine)

        task = asyncio.create_task(publish())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _renew(self) -> None:
        while any(mine.running for mine in self._keys.values()):
            await asyncio.sleep(LEASE_SECONDS / _RENEWALS)
            for mine in list(self._keys.values()):
                if mine.running:
                    with contextlib.suppress(StoreUnavailable):
                        await self._publish(next(iter(mine.running.values())).key, mine)

    # --- counters ----------------------------------------------------------------------------------------------

    async def _states(self, key: GatewayKey) -> list[BudgetState]:
        used: dict[BudgetCounter, int] = {}
        states: list[BudgetState] = []
        for budget, counter in counters_of(key, self._clock()):
            if counter not in used:
                used[counter] = await self._used(counter)
            states.append(BudgetState(budget, counter, used[counter]))
        return states

    async def _used(self, counter: BudgetCounter) -> int:
        """The sum of a counter, after what this process has not sent yet; or the most that this process knows of."""
        known = self._knows(counter)
        async with known.updating:
            try:
                total = known.used = await self._total(counter, known)
            except StoreUnavailable:
                known.is_shared = False
                await self._read_books(counter, known)
            else:
                known.is_shared = True
                known.is_known = known.is_known or total > 0 or not self._has_books
                known.floor = max(known.floor, total)
            return known.floor

    async def _total(self, counter: BudgetCounter, known: _Known) -> int:
        """The sum in the store."""
        if known.is_current and known.unsent:
            await self._claim(counter, known)
        if not known.is_current:
            await self._reconcile(counter, known)
        total = await self._send(counter, known)
        if total < known.used and known.is_current:  # the store was emptied
            await self._reconcile(counter, known)
            total = await self._send(counter, known)
        return total

    async def _read_books(self, counter: BudgetCounter, known: _Known) -> None:
        """Learn from the books what the other processes of this machine have used, since the store cannot say."""
        now = time.monotonic()
        if known.read_at is None or not known.is_known or now - known.read_at >= _BOOKS_SECONDS:
            known.read_at = now
            with contextlib.suppress(StoreUnavailable):
                known.floor = max(known.floor, await self._spent(counter))
                known.is_known = known.is_known or self._has_books

    async def _claim(self, counter: BudgetCounter, known: _Known) -> None:
        """Add what this process used to the part of these books."""
        part = _part_name(counter, await self._ledger_id())
        amount, known.unsent = known.unsent, 0
        known.is_current = False  # if this fails, nobody knows whether it was added
        try:
            total = await self._add(part, amount, counter)
        except BaseException:
            known.unsent += amount
            raise
        known.owed += amount
        # Less: the store was emptied.
        known.is_current = total >= min(known.claimed + amount, MOST_AMOUNT)
        known.claimed = total

    async def _send(self, counter: BudgetCounter, known: _Known) -> int:
        amount, known.owed = known.owed, 0
        try:
            return await self._add(counter.name, amount, counter)
        except BaseException:
            known.owed += amount
            raise

    async def _reconcile(self, counter: BudgetCounter, known: _Known) -> None:
        """Claim what the books have beyond their part: the store is new, was emptied, or was down."""
        try:
            booked, spent = known.unsent, await self._spent(counter)  # what is not sent is in the books, too
            part = _part_name(counter, await self._ledger_id())
        except StoreUnavailable:
            known.is_current = False
            known.owed += known.unsent
            known.unbooked += known.unsent
            known.unsent = 0
            return
        known.is_known = known.is_known or self._has_books
        ttl = counter.span.ttl(self._clock())
        for _ in range(_ATTEMPTS):
            claimed = await self._store.add(part, 0, ttl)
            missing = max(0, spent - claimed)
            if not missing or await self._store.add(part, missing, ttl) == claimed + missing:
                break
            await self._store.add(part, -missing, ttl)  # another worker has claimed something in between
        else:
            raise StoreUnavailable("other workers are reconciling the same budget")
        known.claimed = claimed + missing
        known.owed += max(0, missing - known.unbooked)
        known.unsent -= booked
        known.unbooked = 0
        known.is_current = True

    async def _add(self, name: str, amount: int, counter: BudgetCounter) -> int:
        """Add up to `MOST_AMOUNT`: a store that cannot count any further would seem to be unavailable."""
        ttl = counter.span.ttl(self._clock())
        if amount > _LARGE:
            amount = max(0, min(amount, MOST_AMOUNT - await self._store.add(name, 0, ttl)))
        return await self._store.add(name, amount, ttl)

    def _are_current(self, counters: Iterable[BudgetCounter]) -> bool:
        return all((known := self._knows(counter)).is_current and known.is_shared for counter in counters)

    def _report_unknown(self, key: GatewayKey, states: Sequence[BudgetState]) -> None:
        """Refuse, or at least log, that a hard budget counts from zero, since neither store nor books can be read."""
        for state in states:
            known = self._knows(state.counter)
            if state.budget.soft or known.is_known:
                continue
            if not known.is_reported:
                known.is_reported = True
                logs.event(
                    "budget_unknown",
                    level="warning",
                    key=key.name,
                    period=state.budget.period,
                    problem="neither the store nor the usage records say what was used before this process started",
                    refused=self.refuses_unknown,
                )
            if self.refuses_unknown:
                raise _unknown(key, state, states)

    def _knows(self, counter: BudgetCounter) -> _Known:
        known = self._known.get(counter)
        if known is None:
            if len(self._known) >= _MOST_COUNTERS:
                self._forget()
            known = self._known[counter] = _Known()
        return known

    def _forget(self) -> None:
        """Forget counters of periods that are over."""
        now = self._clock()
        for counter in list(self._known):
            if counter.span.ends is not None and counter.span.ttl(now) < 0:
                del self._known[counter]


def _list_name(key: GatewayKey) -> str:
    return f"budget:{key_space(f'key:{key.name}')}:reserved"


def _part_name(counter: BudgetCounter, ledger_id: str) -> str:
    return f"{counter.name}:part:{ledger_id}"


def _decode(value: bytes) -> _Reserved:
    try:
        return msgspec.json.decode(value, type=_Reserved)
    except msgspec.MsgspecError:  # of another version
        return _Reserved(0.0)


def _record_store_failure(record: RequestRecord) -> None:
    if _LOST not in record.store_failures:
        record.store_failures.append(_LOST)


def _used_up(key: GatewayKey, state: BudgetState, states: Sequence[BudgetState]) -> BudgetRefusal:
    when = "Ask the operator of this gateway to raise it." if state.resets is None else f"It resets at {state.resets}."
    return BudgetRefusal(
        Problem(
            status=429,
            # Not a rate limit: clients would retry, some of them for hours.
            kind="quota",
            message=f"Key {key.name!r} has reached its {state.title}. {when}",
            code=BUDGET_EXCEEDED,
        ),
        states,
    )


def _unknown(key: GatewayKey, state: BudgetState, states: Sequence[BudgetState]) -> BudgetRefusal:
    return BudgetRefusal(
        Problem(
            status=503,
            kind="overloaded",
            message=f"What key {key.name!r} has used of its {state.budget.period} budget is not known, because neither "
            "the store nor the usage records of this gateway can be read. Retry later.",
            code="budget_unknown",
            retry_after=_RETRY_SECONDS,
        ),
        states,
    )


def _busy(key: GatewayKey, mine: _OfKey) -> BudgetRefusal:
    """For the first in the queue and for those behind it: what they wait for is the same."""
    what = "budget" if not mine.exceeded else mine.exceeded[0].title
    return BudgetRefusal(
        Problem(
            status=429,
            kind="rate_limit",
            message=f"Requests in progress may use the rest of the {what} of key {key.name!r}. "
            "Retry when one of them has finished.",
            code="budget_reserved",
            retry_after=_RETRY_SECONDS,
        ),
        mine.states,
    )
