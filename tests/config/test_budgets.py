"""`budgets` of a key: what can be written, and what each mistake is answered."""

from __future__ import annotations

from decimal import Decimal

import pytest

from moonshim.config import Budget
from moonshim.config.problems import ConfigError
from tests.config.texts import PROVIDER, toml


def key_with(budgets: str) -> str:
    return f'{PROVIDER}\n[[keys]]\nname = "ci"\ndigest = "sha256:{"0" * 64}"\nbudgets = {budgets}\n'


def budgets_of(text: str) -> tuple[Budget, ...]:
    return toml(key_with(text)).keys[0].budgets


def test_budgets_are_read_exactly() -> None:
    assert budgets_of(
        '[{ period = "day", limit = "5.10" }, { period = "month", tokens = 2_000_000, soft = true },'
        ' { period = "total", limit = 0.1, currency = "¥" }, { period = "day", limit = 3, soft = true }]'
    ) == (
        Budget(period="day", limit=Decimal("5.10")),
        Budget(period="month", tokens=2_000_000, soft=True),
        Budget(period="total", limit=Decimal("0.1"), currency="¥"),
        Budget(period="day", limit=Decimal(3), soft=True),
    )


def test_budgets_can_be_tables_of_their_own() -> None:
    text = key_with("[]").replace("budgets = []", '[[keys.budgets]]\nperiod = "day"\ntokens = 10')
    assert toml(text).keys[0].budgets == (Budget(period="day", tokens=10),)


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ('{ limit = "5" }', "`period` is required: day, month, total"),
        ('{ period = "week", limit = "5" }', "period: expected one of day, month, total"),
        ('{ period = "day" }', "`limit` (money) or `tokens` is required"),
        ('{ period = "day", limit = "5", tokens = 5 }', "tokens: set only one of `limit` (money) and `tokens`"),
        ('{ period = "day", limit = "-5" }', "limit: must be at least 0 and at most 1000000"),
        ('{ period = "day", limit = "NaN" }', "limit: must be at least 0 and at most 1000000"),
        ('{ period = "day", limit = "1e99999999" }', "limit: must be at least 0 and at most 1000000"),
        ('{ period = "day", limit = "five" }', 'limit: expected a number, such as "5.00"'),
        ('{ period = "day", limit = "0.0000001" }', "limit: must have at most 6 decimals"),
        ('{ period = "day", limit = true }', "limit: expected a number, got a boolean"),
        ('{ period = "day", tokens = 0 }', "tokens: must be at least 1"),
        ('{ period = "day", tokens = 1.5 }', "tokens: expected an integer"),
        ('{ period = "day", tokens = 5, currency = "$" }', "currency: only a budget with `limit` has a currency"),
        ('{ period = "day", limit = "5", currency = "US dollars" }', "currency: must be a symbol or a code"),
        ('{ period = "day", limit = "5", currency = "tokens" }', "currency: set `tokens` instead of `limit`"),
        ('{ period = "day", limit = "5", hard = true }', "unknown key 'hard'"),
    ],
)
def test_a_mistake_is_named_with_its_place(budget: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        budgets_of(f"[{budget}]")
    (problem,) = caught.value.problems
    assert "budgets[0]" in problem
    assert message in problem


def test_a_key_whose_name_the_books_cannot_have_is_an_error() -> None:
    """They would count its budget under another name."""
    assert toml(key_with("[]").replace('"ci"', f'"{"n" * 128}"')).keys[0].name == "n" * 128
    with pytest.raises(ConfigError, match="name: must have at most 128 characters"):
        toml(key_with("[]").replace('"ci"', f'"{"n" * 129}"'))


def test_two_budgets_of_the_same_kind_are_an_error() -> None:
    with pytest.raises(ConfigError, match="already has a hard day budget in tokens"):
        budgets_of('[{ period = "day", tokens = 5 }, { period = "day", tokens = 6 }]')


def test_the_number_of_budgets_is_bounded() -> None:
    with pytest.raises(ConfigError, match="at most 8 budgets"):
        budgets_of("[" + ", ".join(f'{{ period = "day", limit = 1, currency = "C{n}" }}' for n in range(9)) + "]")
