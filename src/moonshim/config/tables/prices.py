"""`[prices]` -> the price of a million tokens of a model, to show the cost of a chat."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from moonshim.config.model import Price
from moonshim.config.tables.table import Table

__all__ = ["price_of", "read_prices"]


def read_prices(table: Table | None) -> dict[str, Price]:
    prices: dict[str, Price] = {}
    for name in table or ():
        assert table is not None
        inner = table.table(name)
        assert inner is not None
        given, returned, cached = inner.number("input"), inner.number("output"), inner.number("cached")
        currency = inner.text("currency") or "$"
        for key in ("input", "output"):
            if key not in inner:
                inner.problems.add(inner.path, f"a price needs an `{key}`, for a million tokens")
        inner.close()
        if given is not None and returned is not None:
            prices[name] = Price(input=given, output=returned, cached=cached, currency=currency)
    return prices


def price_of(prices: Mapping[str, Price], model: str, provider: str = "") -> Price | None:
    """The price of a model: as `provider/model`, as `model`, then by patterns, the longest first.

    >>> price_of({"kimi-*": Price(input=1, output=4), "kimi-k3": Price(input=2, output=8)}, "kimi-k3").input
    2
    """
    names = (f"{provider}/{model}", model)
    found = next((prices[name] for name in names if name in prices), None)
    if found is not None:
        return found
    patterns = sorted(prices, key=len, reverse=True)
    return next((prices[one] for one in patterns for name in names if fnmatchcase(name.lower(), one.lower())), None)
