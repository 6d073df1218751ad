"""`[prices]`: what a million tokens cost, exactly as written."""

from __future__ import annotations

from decimal import Decimal

import pytest

from moonshim.config import Config, ConfigError, Price, parse_config

PROVIDER = '[[providers]]\nname = "p"\napi_base_url = "https://h"\n'


def toml(text: str, **environ: str) -> Config:
    return parse_config(PROVIDER + text, suffix=".toml", environ=environ, source="c.toml")


def test_every_price_is_the_decimal_that_was_written() -> None:
    prices = toml(
        '[prices]\n"a" = { input = 0.1, output = 3, cached = "0.0123456789", cache_write = 0.10, '
        'cache_write_1h = 1e-3, search = 0.005, currency = "€" }\n"b" = { input = "0.30", output = "${OUT}" }',
        OUT=" 0.7 ",
    ).prices
    assert prices["a"] == Price(
        input=Decimal("0.1"),
        output=Decimal(3),
        cached=Decimal("0.0123456789"),
        cache_write=Decimal("0.1"),
        cache_write_1h=Decimal("0.001"),
        search=Decimal("0.005"),
        currency="€",
    )
    assert prices["b"] == Price(input=Decimal("0.3"), output=Decimal("0.7"))
    assert prices["b"].input * 3 == Decimal("0.9")  # as floats, this would be 0.8999999999999999


def test_prices_in_json_are_exact_too() -> None:
    text = '{"providers": [{"name": "p", "api_base_url": "https://h"}], "prices": {"k": {"input": 0.1, "output": 0.7}}}'
    price = parse_config(text, suffix=".json", environ={}, source="c.json").prices["k"]
    assert (price.input, price.output) == (Decimal("0.1"), Decimal("0.7"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("k = 3", "c.toml:5: prices.k: expected a table"),
        ("k = { input = 1 }", "`output` is required: the price per million tokens"),
        ("k = { input = -1, output = 1 }", "c.toml:5: prices.k.input: must be at least 0 and at most 1000000"),
        ('k = { input = "-0.01", output = 1 }', "must be at least 0 and at most 1000000"),
        ("k = { input = nan, output = 1 }", "must be at least 0 and at most 1000000"),
        ('k = { input = "NaN", output = 1 }', "must be at least 0 and at most 1000000"),
        ("k = { input = inf, output = 1 }", "must be at least 0 and at most 1000000"),
        ('k = { input = "1e999999", output = 1 }', "must be at least 0 and at most 1000000"),
        ("k = { input = 1000000.01, output = 1 }", "must be at least 0 and at most 1000000"),
        ('k = { input = "1e-13", output = 1 }', "must have at most 12 decimals"),
        ('k = { input = "3 dollars", output = 1 }', 'expected a number, such as "5.00"'),
        ('k = { input = "", output = 1 }', 'expected a number, such as "5.00"'),
        ("k = { input = true, output = 1 }", "expected a number, got a boolean"),
        ("k = { input = [1], output = 1 }", "expected a number, got a list"),
        ("k = { input = 1, output = 1, ouput = 2 }", "did you mean 'output'?"),
        ("k = { input = 1, output = 1, cache_writes = 2 }", "did you mean 'cache_write'?"),
        (
            'k = { input = 1, output = 1, currency = "US dollars" }',
            "expected a symbol or a code of at most 8 characters",
        ),
    ],
)
def test_an_invalid_price_is_reported(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        toml(f"[prices]\n{text}")
    assert message in str(caught.value)
