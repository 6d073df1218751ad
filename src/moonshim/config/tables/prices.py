"""`[prices]` -> the price of a million tokens of a model, as exact decimals; and what other tables have of prices."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from moonshim.config.model import Price
from moonshim.config.tables.table import Table

__all__ = ["read_amount", "read_currency", "read_prices"]

_AMOUNTS: Final = ("input", "output", "cached", "cache_write", "cache_write_1h", "search")
_DECIMALS: Final = 12
"""As many as costs have."""
_MOST: Final = 1_000_000
_LONGEST_CURRENCY: Final = 8


def read_prices(table: Table | None) -> dict[str, Price]:
    prices: dict[str, Price] = {}
    for name in table or ():
        assert table is not None
        inner = table.table(name)
        assert inner is not None
        amounts = {key: read_amount(inner, key) for key in _AMOUNTS}
        currency = read_currency(inner)
        for key in ("input", "output"):
            if key not in inner and isinstance(table.raw(name), dict):
                inner.problems.add(inner.path, f"`{key}` is required: the price per million tokens")
        inner.close()
        given, returned = amounts.pop("input"), amounts.pop("output")
        if given is not None and returned is not None:
            prices[name] = Price(input=given, output=returned, currency=currency, **amounts)
    return prices


def read_amount(table: Table, key: str) -> Decimal | None:
    return table.decimal(key, places=_DECIMALS, most=_MOST)


def read_currency(table: Table) -> str:
    currency = table.text("currency") or "$"
    if len(currency) > _LONGEST_CURRENCY or not currency.isprintable() or not currency.strip():
        table.error("currency", f"expected a symbol or a code of at most {_LONGEST_CURRENCY} characters, as € or EUR")
    return currency.strip()
