"""Budgets as people see them: warnings about models that a key cannot use, and what is left."""

from __future__ import annotations

from decimal import Decimal

import pytest
from msgspec.structs import replace

from moonshim.config import Budget, Config, GatewayKey, Price, ProviderConfig, Routes, WebSearch
from moonshim.usage.budgets import (
    TOKENS,
    BudgetCounter,
    BudgetState,
    budget_header,
    budget_warnings,
    budgets_in_books,
    span_at,
)
from moonshim.usage.record import COST_UNITS
from tests.usage.books import DAY, NOON, books, record

KEY = GatewayKey(
    name="alice",
    digest="sha256:" + "0" * 64,
    budgets=(
        Budget(period="day", limit=Decimal("1.00")),
        Budget(period="month", limit=Decimal("9.00"), currency="¥"),
        Budget(period="total", tokens=10_000, soft=True),
    ),
)


def test_models_without_a_price_are_reported() -> None:
    own = ProviderConfig(name="own", api_base_url="http://localhost:8000/v1", models=("a", "b", "c", "d"))
    one = Price(input=Decimal(1), output=Decimal(1))
    config = Config(
        providers=(own,),
        keys=(KEY, GatewayKey(name="bob", digest="sha256:" + "1" * 64, budgets=KEY.budgets[2:])),
        prices={"own/a": one, "b": replace(one, currency="¥"), "c": replace(one, currency="€")},
    )
    (line,) = budget_warnings(config)
    assert line.startswith("key 'alice': it has a budget in $ or ¥, so requests for models without a price in $ or ¥ ")
    assert line.endswith("are refused (own/c, own/d); add their prices to `[prices]`")


def test_models_that_only_aliases_and_routes_name_are_reported() -> None:
    config = Config(
        providers=(ProviderConfig(name="own", api_base_url="http://localhost:8000/v1"),),
        aliases={"claude-*": ("own/a", "own/b/c"), "kimi-*": ("own/*",), "gpt-*": ("Own,a",)},
        routes=Routes(think=("own/d",)),
        keys=(KEY,),
        prices={"own/d": Price(input=Decimal(1), output=Decimal(1))},
    )
    (line,) = budget_warnings(config)
    assert "are refused (own/a, own/b/c);" in line


@pytest.mark.parametrize(
    ("search", "is_told"),
    [
        (WebSearch(provider="brave"), True),
        (WebSearch(provider="brave", price=Decimal("0.005"), currency="€"), True),
        (WebSearch(provider="brave", price=Decimal("0.005")), False),
        (WebSearch(provider="command", price=Decimal(0), currency="€"), False),
    ],
)
def test_searches_that_a_budget_does_not_count_are_reported(search: WebSearch, is_told: bool) -> None:
    lines = budget_warnings(Config(keys=(KEY,), web_search=search))
    expected = (
        "key 'alice': its budget in $ or ¥ does not count web searches, which have no price in $ or ¥; set `price` in "
        "`[web_search]`"
    )
    assert lines == ([expected] if is_told else [])


def test_budgets_are_read_from_the_books() -> None:
    database = books(
        None,
        [
            record(1),
            record(2, currency="¥", cost=3 * COST_UNITS, started=NOON - 5 * DAY),
            record(3, started=NOON - 400 * DAY),
            record(4, key="bob"),
            record(5, cost=None, currency=None, input_tokens=None, output_tokens=None, state="in_flight"),
        ],
    )
    states = database.run(lambda connection: budgets_in_books(connection, [KEY], NOON / 1000))
    assert [state.used for state in states] == [COST_UNITS // 2, 3 * COST_UNITS, 3300]
    assert [state.to_json()["left"] for state in states] == ["0.50", "6.00", 6700]
    database.close()


def test_the_header_can_have_any_currency() -> None:
    counter = BudgetCounter("alice", span_at("total", 0), "¥,;=")
    header = budget_header([BudgetState(Budget(period="total", limit=Decimal(1), currency="¥,;="), counter, 0)])
    assert header == "total;unit=%C2%A5%2C%3B%3D;limit=1.00;left=1.00"


def test_a_budget_of_nothing_is_used_up() -> None:
    state = BudgetState(Budget(period="day", limit=Decimal(0)), BudgetCounter("alice", span_at("day", 0), TOKENS), 0)
    assert (state.is_used_up, state.ratio) == (True, 1.0)
