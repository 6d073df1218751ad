"""`[prices]`: what a million tokens cost, by the names under which people know a model."""

from __future__ import annotations

import pytest

from moonshim.config import Config, ConfigError, Price, parse_config
from moonshim.config.tables.prices import price_of

PROVIDER = '[[providers]]\nname = "p"\napi_base_url = "https://h"\n'


def toml(text: str) -> Config:
    return parse_config(PROVIDER + text, suffix=".toml", environ={}, source="c.toml")


def test_a_price_is_found_by_the_nearest_name() -> None:
    prices = toml(
        '[prices]\n"kimi-*" = { input = 1, output = 2 }\n"Kimi-K3*" = { input = 3, output = 4, cached = 0.5 }\n'
        '"kimi-k3" = { input = 5, output = 6 }\n"p/kimi-k3" = { input = 7, output = 8, currency = "€" }'
    ).prices
    asked = [("kimi-k2.5", "p"), ("kimi-k3-pro", "p"), ("kimi-k3", "q"), ("kimi-k3", "p")]
    found = [price_of(prices, model, provider) for model, provider in asked]
    assert [price.input for price in found if price] == [1, 3, 5, 7]
    assert found[1] == Price(input=3, output=4, cached=0.5)
    assert found[3] == Price(input=7, output=8, currency="€")
    assert price_of(prices, "gpt-5", "p") is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[prices]\nk = 3", "c.toml:5: prices.k: this must be a table"),
        ("[prices]\nk = { input = 1 }", "a price needs an `output`"),
        ("[prices]\nk = { input = -1, output = 1 }", "this must be at least 0"),
        ("[prices]\nk = { input = 1, output = 1, ouput = 2 }", "did you mean `output`?"),
    ],
)
def test_what_is_no_price_is_told(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        toml(text)
    assert told in str(caught.value)
