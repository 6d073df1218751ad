"""`budgets` of a gateway key -> what it may spend per day, per month or in total, each checked."""

from __future__ import annotations

from typing import Final, get_args

from moonshim.config.model import Budget, BudgetPeriod
from moonshim.config.tables.table import Table

__all__ = ["read_budgets"]

MOST_BUDGETS: Final = 8
"""Every response to the key lists them in a header."""
_DECIMALS: Final = 6
_MOST_MONEY: Final = 1_000_000
"""Counters are 64-bit integers of trillionths."""
_MOST_TOKENS: Final = 10**15
_LONGEST_CURRENCY: Final = 8


def read_budgets(table: Table) -> tuple[Budget, ...]:
    """The budgets of one key."""
    inner = table.tables("budgets") or []
    if len(inner) > MOST_BUDGETS:
        table.error("budgets", f"a key can have at most {MOST_BUDGETS} budgets")
    budgets: list[Budget] = []
    for one in inner:
        budget = _read_budget(one)
        if budget is None:
            continue
        if any(_subject(budget) == _subject(other) for other in budgets):
            kind = "soft" if budget.soft else "hard"
            unit = "tokens" if budget.limit is None else budget.currency
            one.problems.add(one.path, f"duplicate: this key already has a {kind} {budget.period} budget in {unit}")
        budgets.append(budget)
    return tuple(budgets)


def _read_budget(table: Table) -> Budget | None:
    before = table.problems.count
    words = get_args(BudgetPeriod)
    period = table.choice("period", words)
    limit = table.decimal("limit", places=_DECIMALS, most=_MOST_MONEY)
    tokens = table.integer("tokens", most=_MOST_TOKENS)
    currency, soft = table.text("currency"), table.flag("soft")
    table.close()
    if "period" not in table:
        table.problems.add(table.path, f"`period` is required: {', '.join(words)}")
    if "limit" in table and "tokens" in table:
        table.error("tokens", "set only one of `limit` (money) and `tokens`; a second budget can have the other")
    if "limit" not in table and "tokens" not in table:
        table.problems.add(table.path, "`limit` (money) or `tokens` is required")
    if currency is not None and "tokens" in table:
        table.error("currency", "only a budget with `limit` has a currency")
    if currency is not None and (len(currency) > _LONGEST_CURRENCY or not currency.isprintable() or " " in currency):
        table.error("currency", f"must be a symbol or a code of at most {_LONGEST_CURRENCY} characters")
    if currency == "tokens":
        table.error("currency", "set `tokens` instead of `limit` for a budget in tokens")
    if table.problems.count > before or period is None or (limit is None and tokens is None):
        return None
    return Budget(
        period=period,  # type: ignore[arg-type]  # `choice` has checked it
        limit=limit,
        currency=currency or "$",
        tokens=tokens,
        soft=soft is True,
    )


def _subject(budget: Budget) -> tuple[object, ...]:
    return budget.period, budget.limit is None, budget.currency, budget.soft
