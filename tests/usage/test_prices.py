"""The price of a model: what the file says, else what the shipped list says, else unknown."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from urllib.parse import urlsplit

import pytest

from moonshim.config import Price
from moonshim.usage.prices import LISTED, PriceList
from scripts.price_table import BEGIN, END, PAGE, table

SHIPPED = PriceList({})


def flat(price: int) -> Price:
    return Price(input=Decimal(price), output=Decimal(price))


def test_a_configured_price_is_found_by_the_nearest_name() -> None:
    prices = PriceList({"kimi-*": flat(1), "Kimi-K3*": flat(3), "kimi-k3": flat(5), "p/kimi-k3": flat(7)})
    requested = [("kimi-k2.5", "p"), ("kimi-k3-pro", "p"), ("kimi-k3", "q"), ("kimi-k3", "p"), ("KIMI-K2.5", "p")]
    found = [prices.find(model, provider=provider, base_url="https://h") for model, provider in requested]
    assert [price.input if price else None for price in found] == [1, 3, 5, 7, 1]
    assert prices.find("gpt-5", provider="p", base_url="https://h") is None


def test_a_configured_price_overrides_the_shipped_one() -> None:
    address = "https://api.moonshot.ai/v1"
    own = PriceList({"moonshot/kimi-k3": flat(1)})
    found = own.find("kimi-k3", provider="moonshot", base_url=address)
    assert found is not None
    assert (found.input, found.cached) == (Decimal(1), None)  # not mixed with the shipped price for reads
    other = own.find("kimi-k2.6", provider="moonshot", base_url=address)
    assert other is not None
    assert other.input == Decimal("0.95")


@pytest.mark.parametrize(
    ("address", "model", "currency", "rates"),
    [
        ("https://api.moonshot.ai/v1", "kimi-k3", "$", ("3.00", "15.00", "0.30", "3.00", "6.00")),
        ("https://api.moonshot.ai/anthropic", "kimi-k3.1-pro", "$", ("2", "10", "0.20", "2", "4")),
        ("https://api.moonshot.cn/v1", "kimi-k3", "¥", ("20", "100", "2", "20", "40")),
        ("api.moonshot.ai", "kimi-k3", None, None),  # without a scheme, it is not an address
        ("https://API.MOONSHOT.AI./v1", "Kimi-K3", "$", ("3.00", "15.00", "0.30", "3.00", "6.00")),
        ("https://api.together.ai/v1", "moonshotai/Kimi-K2.6", "$", ("1.20", "4.50", "0.20", None, None)),
    ],
)
def test_shipped_prices_go_by_the_address(
    address: str, model: str, currency: str | None, rates: tuple[str | None, ...] | None
) -> None:
    price = SHIPPED.find(model, provider="any", base_url=address)
    if rates is None:
        assert price is None
        return
    assert price is not None
    shown = (price.input, price.output, price.cached, price.cache_write, price.cache_write_1h)
    assert shown == tuple(None if rate is None else Decimal(rate) for rate in rates)
    assert price.currency == currency


@pytest.mark.parametrize(
    ("address", "model"),
    [
        ("https://api.kimi.com/coding/v1", "kimi-for-coding"),  # a plan: unknown, not free
        ("https://api.kimi.ai/coding/v1", "k3"),
        ("https://openrouter.ai/api/v1", "moonshotai/kimi-k3"),  # depends on who serves it
        ("http://localhost:8000/v1", "kimi-k3"),
        ("https://moonshot.ai.example.com/v1", "kimi-k3"),
        ("https://notmoonshot.ai/v1", "kimi-k3"),
        ("https://api.moonshot.cn/v1", "kimi-k3.1-pro"),
        ("https://api.moonshot.ai/v1", "kimi-k9"),
        ("http://[broken", "kimi-k3"),
        ("", ""),
    ],
)
def test_an_unknown_price_is_unknown(address: str, model: str) -> None:
    assert SHIPPED.find(model, provider="moonshot", base_url=address) is None


def test_clients_cannot_fill_the_memory_with_names() -> None:
    prices = PriceList({})
    for number in range(5000):
        prices.find(f"model-{number}", provider="p", base_url="https://h")
    assert len(prices._found) <= 1024


def test_every_row_of_the_list_is_complete() -> None:
    names = [(domain, model) for row in LISTED for domain in row.domains for model in row.models]
    assert len(names) == len(set(names))
    for row in LISTED:
        assert all(model == model.lower() for model in row.models), row
        assert date.fromisoformat(row.seen) <= date.today(), row
        assert urlsplit(row.source).scheme == "https", row
        assert row.via is None or urlsplit(row.via).scheme == "https", row
        price = row.price
        assert price.cached is not None, row
        assert 0 < price.cached <= price.input < price.output, row
        assert (price.cache_write is None) == (price.cache_write_1h is None), row


def test_the_page_lists_the_shipped_prices() -> None:
    written = PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0]
    assert written == table(), "run: python -m scripts.price_table"
