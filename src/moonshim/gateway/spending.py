"""A request of a key with budgets -> an estimate of its cost, admitted or refused; and its actual cost, counted."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil
from typing import Final, TypeAlias, get_args

from msgspec import Struct
from msgspec.structs import replace

from moonshim.config import BudgetPeriod, Config, GatewayKey, Price, Target, profile_of
from moonshim.engine.prepare import ParsedRequest
from moonshim.engine.values.conversation import Usage
from moonshim.engine.values.lifetimes import lifetime_seconds
from moonshim.errors import Problem, Refused
from moonshim.gateway.inbound.admission import RefusalPace
from moonshim.gateway.inbound.budgets import Admission, BudgetKeeper, BudgetRefusal
from moonshim.gateway.inbound.call import ClientCall
from moonshim.gateway.observe import logs
from moonshim.gateway.observe.metrics import MOST_KEYS, Metrics
from moonshim.gateway.observe.record import RequestRecord
from moonshim.store import Store, StoreUnavailable
from moonshim.usage.budgets import (
    MOST_AMOUNT,
    TOKENS,
    BudgetCounter,
    BudgetState,
    Unit,
    amounts_of,
    budget_header,
    budgets_in_books,
    budgets_in_store,
    hard_currencies,
    has_hard,
    spent_in_books,
)
from moonshim.usage.cost import billed, cost_of
from moonshim.usage.ledger import UsageLedger
from moonshim.usage.record import COST_UNITS

__all__ = ["InputRatios", "OutputPeaks", "Spending"]

PriceOf: TypeAlias = Callable[[Target], Price | None]

UNKNOWN_OUTPUT: Final = 16_000
"""Tokens that a response may have, before the first one of a model to a key."""
UNKNOWN_INPUT: Final = 16.0
"""How much more input than estimated a host may report, before the first response of a model to a key."""
LEAST_OUTPUT: Final = 2_000
"""And however short they were: the next one can be longer."""
_FADING: Final = 16
"""After so many shorter responses, a peak has become a third."""
_SHORT_CACHE: Final = 300
"""Seconds. What is cached for longer costs the price of an hour."""
_BYTES_PER_TOKEN: Final = 4
_MOST_PEAKS: Final = 4096
_MOST_WARNINGS: Final = 4096


class OutputPeaks:
    """How long responses to a key may be: as the longest of the last ones, which fades. A guess does not fade: the
    first response replaces it.

    >>> peaks = OutputPeaks()
    >>> peaks.expect("ci", "kimi-k3", None), peaks.expect("ci", "kimi-k3", 500)
    (16000, 500)
    >>> peaks.learn("ci", "kimi-k3", 100)
    >>> peaks.expect("ci", "kimi-k3", None)
    2000
    >>> peaks.learn("ci", "kimi-k3", 20_000)
    >>> peaks.learn("ci", "kimi-k3", 100)
    >>> peaks.expect("ci", "kimi-k3", None)
    18750
    """

    def __init__(self) -> None:
        self._peaks: dict[tuple[str, str], int] = {}

    def expect(self, key: str, model: str, limit: int | None) -> int:
        """The tokens that a response has at most, by experience. `limit`: those that its request allows."""
        peak = self._peaks.get((key, model), UNKNOWN_OUTPUT)
        return peak if limit is None else min(peak, max(0, limit))

    def learn(self, key: str, model: str, tokens: int) -> None:
        if len(self._peaks) >= _MOST_PEAKS and (key, model) not in self._peaks:  # clients can choose model names
            del self._peaks[next(iter(self._peaks))]
        peak = self._peaks.get((key, model), 0)
        self._peaks[key, model] = max(tokens, peak - peak // _FADING, LEAST_OUTPUT)


class InputRatios:
    """How many input tokens a host reports for each that was estimated: the highest of the last ones, which fades. A
    guess does not fade: the first response replaces it.

    >>> ratios = InputRatios()
    >>> ratios.expect("ci", "kimi-k3", 100)
    1600
    >>> ratios.learn("ci", "kimi-k3", estimated=111, reported=1000)
    >>> ratios.expect("ci", "kimi-k3", 111), ratios.expect("ci", "kimi-k2", 111)
    (1000, 1776)
    """

    def __init__(self) -> None:
        self._ratios: dict[tuple[str, str], float] = {}

    def expect(self, key: str, model: str, estimated: int) -> int:
        return ceil(estimated * self._ratios.get((key, model), UNKNOWN_INPUT))

    def learn(self, key: str, model: str, *, estimated: int, reported: int) -> None:
        if len(self._ratios) >= _MOST_PEAKS and (key, model) not in self._ratios:  # clients can choose model names
            del self._ratios[next(iter(self._ratios))]
        ratio = self._ratios.get((key, model), 1.0)
        faded = 1.0 + (ratio - 1.0) * (1 - 1 / _FADING)
        self._ratios[key, model] = max(min(reported, MOST_AMOUNT) / max(1, estimated), faded, 1.0)


class _Running(Struct, eq=False):
    """An admitted request, while it runs."""

    admission: Admission
    read: int
    """Its input tokens, as estimated."""
    spent: dict[Unit, int] = {}
    """What its host calls so far have cost; not the searches."""
    searches: int = 0
    """Searches that were opened, and did not fail."""


class Spending:
    """Keeps the requests of each key within its budgets, and shows what is left."""

    def __init__(self, store: Store, ledger: UsageLedger, metrics: Metrics, refusals: RefusalPace) -> None:
        self._ledger, self._metrics, self._refusals = ledger, metrics, refusals
        self.keeper = BudgetKeeper(store, self._spent, ledger.identity, has_books=ledger.path is not None)
        self._peaks = OutputPeaks()
        self._ratios = InputRatios()
        self._running: dict[int, _Running] = {}
        """By the identity of a request's record."""
        self._warned: dict[BudgetCounter, None] = {}
        self._settling: set[asyncio.Task[None]] = set()
        self._store = store
        self._showing: asyncio.Task[None] | None = None

    def configure(self, config: Config) -> None:
        """Use this configuration, and show the budgets of its keys in the metrics, soon: also if a key sends
        nothing."""
        self.keeper.refuses_unknown = config.budgets.on_unknown == "refuse"
        self._show_soon(config.keys)

    def _show_soon(self, keys: Sequence[GatewayKey]) -> None:
        keys = [key for key in keys if key.budgets][:MOST_KEYS]
        if self._showing is not None:
            self._showing.cancel()
        self._showing = asyncio.create_task(self._show(keys)) if keys else None

    async def _show(self, keys: Sequence[GatewayKey]) -> None:
        now = time.time()
        with contextlib.suppress(StoreUnavailable):  # then requests of a key show its budgets
            for period in get_args(BudgetPeriod):  # one at a time, since long books take seconds and writes wait
                limited = [replace(key, budgets=tuple(b for b in key.budgets if b.period == period)) for key in keys]
                await self._show_period([key for key in limited if key.budgets], now)

    async def _show_period(self, keys: Sequence[GatewayKey], now: float) -> None:
        books = await self._ledger.run(lambda connection: budgets_in_books(connection, keys, now))
        booked = {state.counter: state.used for state in books}
        for key in keys:
            # The store has what other machines used; a new one is filled only when the key sends a request.
            shared = await budgets_in_store(self._store, [key], now)
            self._metrics.set_budgets([replace(state, used=max(state.used, booked[state.counter])) for state in shared])

    async def admit(
        self, call: ClientCall, parsed: ParsedRequest, targets: list[Target], price_of: PriceOf
    ) -> list[Target]:
        """The targets that the budgets of the key allow. Raises `Refused`; waits while others use what is left."""
        key = call.key
        if key is None or not key.budgets:
            return targets
        try:
            allowed = _priced(key, targets, price_of)
            read = await call.run_work(parsed.estimate_tokens) if has_hard(key) else 0
            estimate = partial(self._estimate, key, parsed, read, allowed, price_of)
            admission = await self.keeper.admit(key, estimate, call.record)
        except Refused as refusal:
            if isinstance(refusal, BudgetRefusal):
                self._add_header(call, refusal.states)
            await self._refusals.wait(call.tenant)
            raise
        self._running[id(call.record)] = _Running(admission, read)
        self._add_header(call, admission.states)
        return allowed

    def _add_header(self, call: ClientCall, states: Sequence[BudgetState]) -> None:
        if states:  # otherwise the store is unavailable
            call.client_stream.always.append((b"x-moonshim-budget", budget_header(states).encode()))
            self._observe(states)

    async def settle(self, record: RequestRecord) -> None:
        """Count what a request used, if it was admitted. It is counted even if this is cancelled."""
        running = self._running.pop(id(record), None)
        if running is not None:
            task = asyncio.create_task(self._settle(running, record))
            self._settling.add(task)
            task.add_done_callback(self._settling.discard)
            await asyncio.shield(task)

    # --- while a request runs ----------------------------------------------------------------------------------

    def note_spent(self, record: RequestRecord, usage: Usage, target: Target, host_searches: int) -> None:
        """What the calls of a request to this host have used so far, with the searches that the host ran itself."""
        if (running := self._hard(record)) is None:
            return
        amounts = Counter[Unit]({TOKENS: (usage.input_tokens or 0) + (usage.output_tokens or 0)})
        counted = replace(usage, input_tokens=usage.input_tokens or 0, output_tokens=usage.output_tokens or 0)
        cost, currency = billed(counted, record.price, target.provider.api_base_url)
        if cost is not None and currency is not None:
            amounts[currency] += cost
        earlier = [usage for usage, _ in record.booked_earlier]
        if record.booking is not None and record.booking.input_tokens is not None:  # of the attempt before this one
            earlier.append(record.booking)
        for attempt in earlier:
            amounts.update(amounts_of(attempt))
        running.spent = dict(amounts + Counter(_fees(record, host_searches)))

    async def reserve_search(self, record: RequestRecord) -> bool:
        """Whether the budgets of its key allow a request one more search."""
        if (running := self._hard(record)) is None:
            return True
        running.searches += 1
        spent = self._spent_by(running, record, own=1)
        try:
            await self.keeper.extend(running.admission, spent, _fees(record, 1), record, is_exact=True)
        except BudgetRefusal:
            running.searches -= 1
            return False
        return True

    def return_search(self, record: RequestRecord) -> None:
        """A search that was reserved has failed, and costs nothing."""
        if (running := self._hard(record)) is not None:
            running.searches -= 1

    async def reserve_call(self, record: RequestRecord, target: Target, size: int) -> None:
        """A request is about to be sent to a host, with a body of this size. Raises `BudgetRefusal`.

        The first call of a request is reserved when it is admitted.
        """
        running = self._hard(record)
        if running is None or not (running.spent or running.searches):
            return
        key, read = running.admission.key.name, max(running.read, size // _BYTES_PER_TOKEN)
        read = self._ratios.expect(key, target.model, read)
        written = self._peaks.expect(key, target.model, None)
        coming = {TOKENS: read + written}
        if (price := record.price) is not None:
            cost = cost_of(price, input_tokens=read, output_tokens=written)
            coming[price.currency] = MOST_AMOUNT if cost is None else cost
        await self.keeper.extend(running.admission, self._spent_by(running, record), coming, record)

    def _hard(self, record: RequestRecord) -> _Running | None:
        running = self._running.get(id(record))
        return running if running is not None and has_hard(running.admission.key) else None

    def _spent_by(self, running: _Running, record: RequestRecord, *, own: int = 0) -> dict[Unit, int]:
        """What a request has spent, with its searches but for `own`, which are being reserved."""
        return dict(Counter(running.spent) + Counter(_fees(record, running.searches - own)))

    async def _settle(self, running: _Running, record: RequestRecord) -> None:
        usage, admission = record.booked, running.admission
        if usage is not None and usage.input_tokens and running.read and not usage.estimated:
            reported = ceil(usage.input_tokens / max(1, usage.attempts))
            self._ratios.learn(admission.key.name, usage.model, estimated=running.read, reported=reported)
        if usage is not None and usage.output_tokens:
            self._peaks.learn(admission.key.name, usage.model, usage.output_tokens // max(1, usage.choices))
        self._observe(await self.keeper.settle(admission, usage, record))

    async def close(self) -> None:
        """Before the store and the books are closed."""
        if self._showing is not None:
            self._showing.cancel()
        if self._settling:
            await asyncio.wait(self._settling)
        await self.keeper.close()

    async def _spent(self, counter: BudgetCounter) -> int:
        return await self._ledger.run(lambda connection: spent_in_books(connection, counter), whole=True)

    def _estimate(
        self,
        key: GatewayKey,
        parsed: ParsedRequest,
        read: int,
        targets: Sequence[Target],
        price_of: PriceOf,
    ) -> Mapping[Unit, int]:
        """What the request may use at most, by unit, at the dearest of its targets. `read`: its input tokens."""
        if not has_hard(key):
            return {}
        sampling = parsed.request.sampling
        count = max(1, sampling.n or 1)
        is_cached_long = (lifetime_seconds(parsed.request.cache_ttl) or 0) > _SHORT_CACHE
        estimate: dict[Unit, int] = {}
        estimated = read
        for target in targets:
            read = self._ratios.expect(key.name, target.model, estimated)
            written = count * self._peaks.expect(key.name, target.model, parsed.max_output(profile_of(target)))
            estimate[TOKENS] = max(estimate.get(TOKENS, 0), read + written)
            if (price := price_of(target)) is not None:
                fresh = cost_of(price, input_tokens=read, output_tokens=written)
                cached = cost_of(
                    price,
                    input_tokens=read,
                    output_tokens=written,
                    cache_write_tokens=read,
                    cache_write_1h_tokens=read if is_cached_long else 0,
                )
                estimate[price.currency] = max(
                    estimate.get(price.currency, 0),
                    *(MOST_AMOUNT if cost is None else cost for cost in (fresh, cached)),
                )
        return {unit: min(amount, MOST_AMOUNT) for unit, amount in estimate.items()}

    def _observe(self, states: Sequence[BudgetState]) -> None:
        self._metrics.set_budgets(states)
        for state in states:
            if state.budget.soft and state.is_used_up and state.counter not in self._warned:
                if len(self._warned) >= _MOST_WARNINGS:
                    del self._warned[next(iter(self._warned))]
                self._warned[state.counter] = None
                logs.event(
                    "budget_exceeded",
                    level="warning",
                    key=state.counter.key,
                    period=state.budget.period,
                    problem=f"Key {state.counter.key!r} has reached its soft {state.title}",
                )


def _fees(record: RequestRecord, searches: int) -> dict[Unit, int]:
    fee = record.search_fee
    return {} if fee is None or searches <= 0 else {fee.currency: searches * int(fee.amount * COST_UNITS)}


def _priced(key: GatewayKey, targets: Sequence[Target], price_of: PriceOf) -> list[Target]:
    """The targets whose price is in the currency of a hard budget: others could spend without limit."""
    currencies = hard_currencies(key)
    if not currencies:
        return list(targets)
    allowed = [target for target in targets if (price := price_of(target)) is not None and price.currency in currencies]
    if allowed or not targets:
        return allowed
    name, wanted = f"{targets[0].provider.name}/{targets[0].model}", " or ".join(sorted(currencies))
    price = price_of(targets[0])
    if price is None:
        problem, advice = f"the price of {name!r} is unknown", "add it to `[prices]`"
    else:
        problem, advice = f"{name!r} is priced in {price.currency}", f"add a budget in {price.currency}"
    raise Refused(
        Problem(
            status=403,
            kind="permission",
            message=f"Key {key.name!r} has a budget in {wanted}, but {problem}. "
            f"Ask the operator of this gateway to {advice}.",
            code="price_unknown",
        )
    )
