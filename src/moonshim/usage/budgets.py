"""Budgets of keys -> the period that each covers now, the counter for it, how much is used, and the words for that."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from sqlite3 import Connection
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from msgspec import Struct

from moonshim.config import Budget, BudgetPeriod, Config, GatewayKey, ProviderConfig
from moonshim.store import Store, key_space
from moonshim.usage.cost import decimal_text, exact_money, money
from moonshim.usage.prices import PriceList
from moonshim.usage.record import COST_UNITS, UsageRecord

__all__ = [
    "MOST_AMOUNT",
    "TOKENS",
    "BudgetCounter",
    "BudgetState",
    "Span",
    "amounts_of",
    "budget_header",
    "budget_warnings",
    "budgets_in_books",
    "budgets_in_store",
    "counters_of",
    "describe_budget",
    "hard_currencies",
    "has_hard",
    "span_at",
    "spent_in_books",
]

Unit: TypeAlias = str
"""`tokens`, or a currency."""
TOKENS: Final[Unit] = "tokens"
MOST_AMOUNT: Final = 2**60
"""Counters stop here: above every limit that can be set, and below what a store can count (64 bits)."""
_LATE: Final = timedelta(days=2)
"""How long a counter stays after its period: requests of the last minute may still be running."""
_PART: Final = 10**6
_MOST_NAMED: Final = 5
_FOREVER: Final = timedelta(days=3650)
_NAMES: Final[dict[BudgetPeriod, str]] = {"day": "daily", "month": "monthly", "total": "total"}


class Span(Struct, frozen=True):
    """One day, one month or all time, in UTC."""

    name: str
    starts: datetime
    ends: datetime | None

    def ttl(self, now: float) -> float:
        """Seconds for which its counters are needed."""
        return (_FOREVER if self.ends is None else self.ends - _moment(now) + _LATE).total_seconds()


def span_at(period: BudgetPeriod, now: float) -> Span:
    """The period of this kind that contains a point in time.

    >>> [span_at(period, 1_798_761_599.0).name for period in ("day", "month", "total")]
    ['2026-12-31', '2026-12', 'total']
    >>> span_at("month", 1_798_761_599.0).ends.isoformat()
    '2027-01-01T00:00:00+00:00'
    """
    midnight = _moment(now).replace(hour=0, minute=0, second=0, microsecond=0)
    match period:
        case "day":
            return Span(f"{midnight:%Y-%m-%d}", midnight, midnight + timedelta(days=1))
        case "month":
            first = midnight.replace(day=1)
            return Span(f"{first:%Y-%m}", first, (first + timedelta(days=31)).replace(day=1))
        case "total":
            return Span("total", datetime.fromtimestamp(0, UTC), None)


def _moment(now: float) -> datetime:
    return datetime.fromtimestamp(now, UTC)


class BudgetCounter(Struct, frozen=True):
    """What is counted for a key in one period: money in one currency, or tokens. Budgets may share one."""

    key: str
    span: Span
    unit: Unit

    @property
    def name(self) -> str:
        """In the store."""
        return f"budget:{key_space(f'key:{self.key}')}:{self.span.name}:{self.unit}"


def unit_of(budget: Budget) -> Unit:
    return TOKENS if budget.limit is None else budget.currency


def describe_budget(budget: Budget) -> str:
    """For people.

    >>> describe_budget(Budget(period="month", tokens=2_000_000, soft=True))
    '2,000,000 tokens/month (soft)'
    >>> describe_budget(Budget(period="total", limit=Decimal("5.00"), currency="EUR"))
    'EUR 5.00 in total'
    """
    if budget.limit is None:
        amount = f"{budget.tokens:,} tokens"
    else:
        amount = f"{budget.currency}{' ' if budget.currency[-1:].isalpha() else ''}{budget.limit:,}"
    period = " in total" if budget.period == "total" else f"/{budget.period}"
    return f"{amount}{period}{' (soft)' if budget.soft else ''}"


def counters_of(key: GatewayKey, now: float) -> list[tuple[Budget, BudgetCounter]]:
    """The budgets of a key, each with the counter that it limits."""
    return [(one, BudgetCounter(key.name, span_at(one.period, now), unit_of(one))) for one in key.budgets]


def amounts_of(record: UsageRecord) -> dict[Unit, int]:
    """What an exchange used, by unit. Unknown tokens and costs count as none.

    >>> amounts_of(UsageRecord(id="", request_id="", started=0, input_tokens=2**70)) == {TOKENS: MOST_AMOUNT}
    True
    """
    amounts = {TOKENS: (record.input_tokens or 0) + (record.output_tokens or 0)}
    if record.cost is not None and record.currency is not None:
        amounts[record.currency] = record.cost
    return {unit: min(amount, MOST_AMOUNT) for unit, amount in amounts.items()}


class BudgetState(Struct, frozen=True):
    """How much of a budget is used."""

    budget: Budget
    counter: BudgetCounter
    used: int
    """Tokens, or money in units of `COST_UNITS`."""

    @property
    def limit(self) -> int:
        budget = self.budget
        return (budget.tokens or 0) if budget.limit is None else int(budget.limit * COST_UNITS)

    @property
    def left(self) -> int:
        return max(0, self.limit - self.used)

    @property
    def is_used_up(self) -> bool:
        return self.used >= self.limit

    @property
    def ratio(self) -> float:
        """1.0: all of it is used."""
        return float(Decimal(self.used) / self.limit) if self.limit else 1.0

    @property
    def resets(self) -> str | None:
        """ISO 8601; None for a total, which never resets."""
        ends = self.counter.span.ends
        return None if ends is None else f"{ends:%Y-%m-%dT%H:%M:%SZ}"

    def describe(self, amount: int) -> str:
        """An amount, for people.

        >>> counter = BudgetCounter("ci", span_at("day", 0), "$")
        >>> BudgetState(Budget(period="day", limit=Decimal(5)), counter, 0).describe(1_500_000_000_000)
        '$1.50'
        """
        return f"{amount:,} tokens" if self.counter.unit == TOKENS else money(amount, self.counter.unit)

    @property
    def title(self) -> str:
        """
        >>> counter = BudgetCounter("ci", span_at("day", 0), TOKENS)
        >>> BudgetState(Budget(period="day", tokens=5000), counter, 10).title
        'daily budget (10 tokens of 5,000 tokens used)'
        """
        used, unit = self.describe(self.used), self.counter.unit
        limit = f"{self.limit:,} tokens" if unit == TOKENS else exact_money(self.limit, unit)
        return f"{_NAMES[self.budget.period]} budget ({used} of {limit} used)"

    def to_json(self) -> dict[str, Any]:
        """For programs: money is a string with all its digits."""
        is_money = self.counter.unit != TOKENS
        amounts = {"limit": self.limit, "used": self.used, "left": self.left}
        return {
            "key": self.counter.key,
            "period": self.budget.period,
            "unit": self.counter.unit,
            **{name: decimal_text(amount) if is_money else amount for name, amount in amounts.items()},
            "soft": self.budget.soft,
            "resets": self.resets,
        }


def budget_header(states: Iterable[BudgetState]) -> str:
    """The value of `x-moonshim-budget`: one item per budget.

    >>> counter = BudgetCounter("ci", span_at("day", 0), "$")
    >>> budget_header([BudgetState(Budget(period="day", limit=Decimal(5)), counter, 10**12)])
    'day;unit=$;limit=5.00;left=4.00;resets=1970-01-02T00:00:00Z'
    """
    return ", ".join(map(_header_item, states))


def _header_item(state: BudgetState) -> str:
    values = state.to_json()
    fields = [f"{name}={quote(str(values[name]), safe='$:')}" for name in ("unit", "limit", "left")]
    if state.resets is not None:
        fields.append(f"resets={state.resets}")
    if state.budget.soft:
        fields.append("soft")
    return ";".join([state.budget.period, *fields])


def budget_warnings(config: Config) -> list[str]:
    """What budgets refuse or do not count, since its price is unknown. Lines for people."""
    prices, lines = PriceList(config.prices), list[str]()
    for key in config.keys:
        currencies = hard_currencies(key)
        unknown = [
            f"{provider.name}/{model}"
            for provider in (config.providers if currencies else ())
            for model in _models_of(provider, config)
            if (price := prices.find(model, provider=provider.name, base_url=provider.api_base_url)) is None
            or price.currency not in currencies
        ]
        if unknown:
            wanted = " or ".join(sorted(currencies))
            listed = ", ".join(unknown[:_MOST_NAMED]) + (" and others" if len(unknown) > _MOST_NAMED else "")
            lines.append(
                f"key '{key.name}': it has a budget in {wanted}, so requests for models without a price in {wanted} "
                f"are refused ({listed}); add their prices to `[prices]`"
            )
        search = config.web_search
        if currencies and search is not None and search.price != 0:
            wanted = " or ".join(sorted(currencies))
            if search.price is None or search.currency not in currencies:
                lines.append(
                    f"key '{key.name}': its budget in {wanted} does not count web searches, which have no price in "
                    f"{wanted}; set `price` in `[web_search]`"
                )
    return lines


def _models_of(provider: ProviderConfig, config: Config) -> list[str]:
    """The models that the configuration names: in the provider's list, and in aliases and routes."""
    named = (*config.aliases.values(), *config.routes.targets.values())
    places = [re.split("[/,]", target, maxsplit=1) for targets in named for target in targets]
    pointed = [place[1] for place in places if len(place) == 2 and place[0].lower() == provider.name.lower()]
    return [model for model in dict.fromkeys([*provider.models, *pointed]) if model != "*"]


def hard_currencies(key: GatewayKey) -> set[str]:
    """The currencies in which a key has hard budgets."""
    return {budget.currency for budget in key.budgets if budget.limit is not None and not budget.soft}


def has_hard(key: GatewayKey) -> bool:
    """Whether a budget of the key can refuse a request."""
    return any(not budget.soft for budget in key.budgets)


# --- where the amounts come from -------------------------------------------------------------------------------


def spent_in_books(connection: Connection, counter: BudgetCounter) -> int:
    """What the books of this machine say for a counter."""
    return _spent_in_span(connection, counter.span, counter.key).get((counter.key, counter.unit), 0)


def budgets_in_books(connection: Connection, keys: Iterable[GatewayKey], now: float) -> list[BudgetState]:
    """The budgets of keys, from the books of this machine. Reads them once per period, however many keys there are."""
    spent: dict[Span, dict[tuple[str, Unit], int]] = {}
    states: list[BudgetState] = []
    for key in keys:
        for budget, counter in counters_of(key, now):
            if counter.span not in spent:
                spent[counter.span] = _spent_in_span(connection, counter.span)
            states.append(BudgetState(budget, counter, spent[counter.span].get((counter.key, counter.unit), 0)))
    return states


def _spent_in_span(connection: Connection, span: Span, key: str | None = None) -> dict[tuple[str, Unit], int]:
    """What keys, or this one, used in a period, by key and unit."""
    values: list[Any] = [
        int(span.starts.timestamp() * 1000),
        int(span.ends.timestamp() * 1000) if span.ends is not None else 2**62,
    ]
    also = "key IS NOT NULL"
    if key is not None:
        also = "key = ?"
        values.append(key)
    # In two parts: a sum of SQLite that exceeds 64 bits is an error.
    tokens = "(coalesce(input_tokens, 0) + coalesce(output_tokens, 0))"
    sums = ", ".join(f"sum({what} / {_PART}), sum({what} % {_PART})" for what in ("cost", tokens))
    query = f"SELECT key, currency, {sums} FROM exchanges WHERE started >= ? AND started < ? AND {also}"
    spent: dict[tuple[str, Unit], int] = {}
    for name, currency, *parts in connection.execute(f"{query} GROUP BY key, currency", values):
        cost_high, cost_low, tokens_high, tokens_low = (int(part or 0) for part in parts)
        spent[name, TOKENS] = spent.get((name, TOKENS), 0) + tokens_high * _PART + tokens_low
        if currency is not None:
            spent[name, currency] = cost_high * _PART + cost_low
    return {subject: min(amount, MOST_AMOUNT) for subject, amount in spent.items()}


async def budgets_in_store(store: Store, keys: Iterable[GatewayKey], now: float) -> list[BudgetState]:
    """The budgets of keys, from the counters that gateways share. Raises `StoreUnavailable`."""
    states: list[BudgetState] = []
    for key in keys:
        used: dict[BudgetCounter, int] = {}
        for budget, counter in counters_of(key, now):
            if counter not in used:
                used[counter] = await store.add(counter.name, 0, counter.span.ttl(now))
            states.append(BudgetState(budget, counter, used[counter]))
    return states
