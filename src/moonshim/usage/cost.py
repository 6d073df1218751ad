"""Token counts and a price -> a cost, as an integer; and a cost -> text. Integers only: floats would not add up."""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from moonshim.config import Price
from moonshim.engine.values.conversation import Usage
from moonshim.usage.prices import SearchFee, reported_currency
from moonshim.usage.record import COST_UNITS

__all__ = ["add_searches", "billed", "cost_of", "decimal_text", "exact_money", "money"]

_MILLION: Final = 1_000_000
_MOST: Final = 2**63 - 1
"""The largest integer of a database, about nine million dollars."""
_LONG_WRITE: Final = 2
"""Moonshot bills an hour of caching at twice the price of input."""


def cost_of(
    price: Price,
    *,
    input_tokens: int | None,
    output_tokens: int | None,
    cache_read_tokens: int | None = None,
    cache_write_tokens: int | None = None,
    cache_write_1h_tokens: int | None = None,
) -> int | None:
    """The cost in units of `COST_UNITS`, rounded once, half to even; None if a count that it needs is unknown, or so
    large that the host must be wrong.

    Reads and writes are parts of the input, and an hour's writes are a part of the writes. A host that reports a part
    larger than the whole is billed for the whole at most: reads count first, then writes, then the rest.

    >>> price = Price(input=Decimal("3"), output=Decimal("15"), cached=Decimal("0.30"))
    >>> cost_of(price, input_tokens=1000, output_tokens=10, cache_read_tokens=900)  # 100 x 3 + 900 x 0.30 + 10 x 15
    720000000
    """
    if input_tokens is None or output_tokens is None:
        return None
    read = min(cache_read_tokens or 0, input_tokens)
    written = min(cache_write_tokens or 0, input_tokens - read)
    long = min(cache_write_1h_tokens or 0, written)
    rates = _rates(price)
    counts = (input_tokens - read - written, read, written - long, long, output_tokens)
    total = sum(count * rate for count, rate in zip(counts, rates, strict=True))
    whole, rest = divmod(total, _MILLION)
    is_more = rest * 2 > _MILLION or (rest * 2 == _MILLION and whole % 2 == 1)
    cost = whole + is_more
    return cost if cost <= _MOST else None


@lru_cache(1024)
def _rates(price: Price) -> tuple[int, ...]:
    """A million tokens each, in units: fresh input, cache read, cache write, cache write for an hour, output."""
    read = price.input if price.cached is None else price.cached
    write = price.input if price.cache_write is None else price.cache_write
    long = price.input * _LONG_WRITE if price.cache_write_1h is None else price.cache_write_1h
    return tuple(int(one * COST_UNITS) for one in (price.input, read, write, long, price.output))


def billed(usage: Usage, price: Price | None, base_url: str, host: str | None = None) -> tuple[int | None, str | None]:
    """The cost of a response and its currency, by the price or as its host reports it, whichever is higher: a price
    table does not know what a host added. `host`: its name, where the address does not show it. None: unknown.

    >>> billed(Usage(1000, 10, raw={"cost": 0.0123}), None, "https://openrouter.ai/api/v1")
    (12300000000, '$')
    >>> billed(Usage(1000, 10, raw={"cost": 0.0123}), None, "http://localhost:8000/v1")
    (None, None)
    """
    currency = reported_currency(base_url, host)
    reported = None if currency is None else _reported(usage.raw.get("cost"))
    if price is None:
        return reported, None if reported is None else currency
    cost = cost_of(
        price,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        cache_write_1h_tokens=usage.cache_write_1h_tokens,
    )
    if reported is not None and currency == price.currency:
        cost = max(cost or 0, reported)
    return cost, None if cost is None else price.currency


def add_searches(
    cost: int | None, currency: str | None, searches: int, fee: SearchFee | None
) -> tuple[int | None, int]:
    """The cost of an exchange with its web searches, and how many searches have no price in its currency: a record has
    one currency. Without the price of the tokens, the whole cost stays unknown.

    >>> fee = SearchFee(Decimal("0.005"), "$")
    >>> add_searches(1_000, "$", 2, fee), add_searches(1_000, "¥", 2, fee), add_searches(1_000, "$", 2, None)
    ((10000001000, 0), (1000, 2), (1000, 2))
    """
    if not searches or (fee is not None and not fee.amount):
        return cost, 0
    if fee is None:
        return cost, searches
    if cost is None:
        return None, 0
    if currency != fee.currency:
        return cost, searches
    total = cost + searches * int(fee.amount * COST_UNITS)
    return (total, 0) if total <= _MOST else (cost, searches)


def _reported(value: Any) -> int | None:
    """A float of JSON is written with the fewest digits that give it: those that the host sent."""
    if type(value) not in (int, float) or not 0 <= value <= _MOST // COST_UNITS:
        return None
    return int((Decimal(repr(value)) * COST_UNITS).to_integral_value())


def money(cost: int, currency: str = "$") -> str:
    """A cost for people: two decimals, four below one.

    >>> money(1_234_000_000), money(12_500_000_000_000), money(0), money(7_000_000), money(3_000_000_000_000, "EUR")
    ('$0.0012', '$12.50', '$0.00', '<$0.0001', 'EUR 3.00')
    """
    sign = _sign(currency)
    if 0 < cost <= COST_UNITS // 20_000:
        return f"<{sign}0.0001"
    places = 2 if cost >= COST_UNITS or not cost else 4
    return f"{sign}{Decimal(cost) / COST_UNITS:,.{places}f}"


def exact_money(cost: int, currency: str = "$") -> str:
    """An amount that someone chose, for people: every digit.

    >>> exact_money(10_950_000_000), exact_money(5_000_000_000_000, "EUR")
    ('$0.01095', 'EUR 5.00')
    """
    return f"{_sign(currency)}{decimal_text(cost)}"


def _sign(currency: str) -> str:
    return f"{currency} " if currency[-1:].isalpha() else currency


def decimal_text(cost: int) -> str:
    """A cost for programs: every digit, and at least two decimals.

    >>> decimal_text(1_234_000_000), decimal_text(12_500_000_000_000), decimal_text(0)
    ('0.001234', '12.50', '0.00')
    """
    whole, part = divmod(cost, COST_UNITS)
    digits = f"{part:012d}".rstrip("0")
    return f"{whole}.{digits:0<2}"
