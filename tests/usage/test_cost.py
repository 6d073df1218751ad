"""The cost of token counts: cases by hand, with the arithmetic written out."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from moonshim.config import Price
from moonshim.engine.values.conversation import Usage
from moonshim.usage.cost import billed, cost_of, decimal_text, money
from moonshim.usage.record import COST_UNITS

K3 = Price(
    input=Decimal("3.00"),
    output=Decimal("15.00"),
    cached=Decimal("0.30"),
    cache_write=Decimal("3.00"),
    cache_write_1h=Decimal("6.00"),
)
PLAIN = Price(input=Decimal("0.95"), output=Decimal("4.00"))


def units(dollars: str) -> int:
    return int(Decimal(dollars) * COST_UNITS)


@pytest.mark.parametrize(
    ("price", "counts", "dollars"),
    [
        # input, output, cache read, cache write, of that for an hour
        # 1,000 x 3 + 500 x 15 = 3,000 + 7,500 = 10,500 millionths
        (K3, (1000, 500, None, None, None), "0.0105"),
        # 100 fresh x 3 + 900 read x 0.30 = 300 + 270; 10 x 15 = 150
        (K3, (1000, 10, 900, 0, 0), "0.00072"),
        # 200 fresh x 3 + 500 read x 0.30 + 300 written x 3 = 600 + 150 + 900
        (K3, (1000, 0, 500, 300, 0), "0.00165"),
        # 200 fresh x 3 + 500 read x 0.30 + 100 written x 3 + 200 for an hour x 6 = 600 + 150 + 300 + 1,200
        (K3, (1000, 0, 500, 300, 200), "0.00225"),
        # A million written for an hour: 6 dollars, not 6 + 3: a write replaces the price of its input
        (K3, (1_000_000, 0, 0, 1_000_000, 1_000_000), "6"),
        # No prices for the cache: read and write cost what input costs, an hour's write twice as much
        # 400 x 0.95 + 300 x 0.95 + 200 x 0.95 + 100 x 1.90 = 380 + 285 + 190 + 190
        (PLAIN, (1000, 0, 300, 300, 100), "0.001045"),
        # One token of the cheapest kind: 0.30 millionths
        (K3, (1, 0, 1, 0, 0), "0.0000003"),
        (K3, (0, 0, 0, 0, 0), "0"),
    ],
)
def test_cost_by_hand(price: Price, counts: tuple[int | None, ...], dollars: str) -> None:
    names = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cache_write_1h_tokens")
    assert cost_of(price, **dict(zip(names, counts, strict=True))) == units(dollars)


def test_parts_that_exceed_the_whole_are_billed_as_the_whole() -> None:
    # 1,000 read of 600: all 600 were read
    assert cost_of(K3, input_tokens=600, output_tokens=0, cache_read_tokens=1000) == units("0.00018")
    # 900 read and 300 written of 1,000: 900 x 0.30 + 100 x 3
    both = cost_of(K3, input_tokens=1000, output_tokens=0, cache_read_tokens=900, cache_write_tokens=300)
    assert both == units("0.00057")
    # 500 written, of them 900 for an hour: 500 x 6 + 500 x 3
    hour = cost_of(K3, input_tokens=1000, output_tokens=0, cache_write_tokens=500, cache_write_1h_tokens=900)
    assert hour == units("0.0045")


def test_without_a_count_the_cost_is_unknown_and_not_zero() -> None:
    assert cost_of(K3, input_tokens=None, output_tokens=10) is None
    assert cost_of(K3, input_tokens=10, output_tokens=None) is None


@pytest.mark.parametrize(
    ("price", "tokens", "cost"),
    [
        ("0.0000005", 1, 0),  # half a unit: to the even 0
        ("0.0000005", 3, 2),  # one and a half: to the even 2
        ("0.0000005", 5, 2),  # two and a half: to the even 2
        ("0.0000006", 1, 1),
        ("0.0000004", 1, 0),
        ("0.0000004", 2, 1),  # 0.8 of a unit: the sum is rounded, not each token
    ],
)
def test_a_cost_is_rounded_once_half_to_even(price: str, tokens: int, cost: int) -> None:
    """A unit per token is a price of 0.000001 per million."""
    rate = Price(input=Decimal(price), output=Decimal(0))
    assert cost_of(rate, input_tokens=tokens, output_tokens=0) == cost


_PRICES = st.decimals(min_value=0, max_value=1_000_000, places=12)
_COUNTS = st.integers(min_value=0, max_value=2**53)


@given(prices=st.tuples(*[_PRICES] * 5), counts=st.tuples(*[_COUNTS] * 5))
def test_it_agrees_with_decimal_arithmetic(prices: tuple[Decimal, ...], counts: tuple[int, ...]) -> None:
    given_in, given_out, read_price, write_price, hour_price = prices
    price = Price(
        input=given_in, output=given_out, cached=read_price, cache_write=write_price, cache_write_1h=hour_price
    )
    whole, output, read, written, hour = counts
    context = Context(prec=100, rounding=ROUND_HALF_EVEN)
    read_part = min(read, whole)
    write_part = min(written, whole - read_part)
    hour_part = min(hour, write_part)
    parts = [
        (whole - read_part - write_part, given_in),
        (read_part, read_price),
        (write_part - hour_part, write_price),
        (hour_part, hour_price),
        (output, given_out),
    ]
    total = Decimal(0)
    for count, each in parts:
        total = context.add(total, context.multiply(Decimal(count), each))
    exact = context.multiply(total, Decimal(COST_UNITS // 1_000_000))
    cost = cost_of(
        price,
        input_tokens=whole,
        output_tokens=output,
        cache_read_tokens=read,
        cache_write_tokens=written,
        cache_write_1h_tokens=hour,
    )
    rounded = int(exact.to_integral_value(context=context))
    assert cost == (rounded if rounded < 2**63 else None)  # what no database can store is not a cost


OPENROUTER = "https://openrouter.ai/api/v1"


@pytest.mark.parametrize(
    ("cost", "booked"),
    [
        (0.00288, "0.00288"),
        (0.1, "0.10"),
        (3, "3.00"),
        (0, "0.00"),
        (1e-07, "0.0000001"),
        (None, None),
        ("0.1", None),
        (True, None),
        (-0.1, None),
        (float("nan"), None),
        (float("inf"), None),
        (1e300, None),
    ],
)
def test_a_cost_that_the_host_reports_is_taken_as_it_is(cost: Any, booked: str | None) -> None:
    found, currency = billed(Usage(1000, 100, raw={"cost": cost}), None, OPENROUTER)
    assert (None if found is None else decimal_text(found)) == booked
    assert currency == (None if booked is None else "$")


@pytest.mark.parametrize(("cost", "booked"), [(9.0, "9"), (0.0001, "0.0105"), (None, "0.0105")])
def test_the_higher_of_the_price_and_a_reported_cost_is_booked(cost: float | None, booked: str) -> None:
    usage = Usage(1000, 500, raw={} if cost is None else {"cost": cost})
    assert billed(usage, K3, OPENROUTER) == (units(booked), "$")
    assert billed(usage, K3, "http://127.0.0.1:8000/v1", "openrouter") == (units(booked), "$")


def test_a_cost_in_another_currency_cannot_be_compared() -> None:
    price = replace(K3, currency="¥")
    assert billed(Usage(1000, 500, raw={"cost": 9.0}), price, OPENROUTER) == (units("0.0105"), "¥")


def test_other_hosts_cannot_report_a_cost() -> None:
    for price, cost in ((None, None), (K3, units("0.0105"))):
        usage = Usage(1000, 500, raw={"cost": 9.0})
        assert billed(usage, price, "https://free.example/v1")[0] == cost


def test_ten_thousand_small_costs_add_up() -> None:
    # As floats, 10,000 x 0.0000003 is 0.0029999999999996696
    one = cost_of(K3, input_tokens=1, output_tokens=0, cache_read_tokens=1)
    assert one is not None
    assert decimal_text(sum([one] * 10_000)) == "0.003"


@pytest.mark.parametrize(
    ("cost", "text"),
    [
        ("0", "$0.00"),
        ("0.00000000001", "<$0.0001"),
        ("0.00005", "<$0.0001"),
        ("0.00006", "$0.0001"),
        ("0.0123", "$0.0123"),
        ("0.01235", "$0.0124"),
        ("0.01245", "$0.0124"),  # half to even
        ("1", "$1.00"),
        ("1234567.891", "$1,234,567.89"),
    ],
)
def test_money_for_people(cost: str, text: str) -> None:
    assert money(units(cost)) == text


def test_every_digit_for_programs() -> None:
    assert decimal_text(units("0.000000000001")) == "0.000000000001"
    assert decimal_text(units("123456789.1")) == "123456789.10"
