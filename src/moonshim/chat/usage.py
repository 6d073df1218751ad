"""The usage of each response -> the usage of a conversation: tokens, cost where prices are known, repairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from moonshim.config import Price
from moonshim.engine.values.conversation import Usage
from moonshim.engine.values.events import Repaired

__all__ = ["UsageTotals", "cost_of", "money"]

_MILLION = 1_000_000


def cost_of(usage: Usage, price: Price) -> float:
    """The cost of a response.

    >>> cost_of(Usage(1_000_000, 500_000, 400_000), Price(input=1, output=4, cached=0.5))
    2.8
    """
    cached = min(usage.cached_tokens or 0, usage.input_tokens or 0)
    fresh = (usage.input_tokens or 0) - cached
    each = price.input if price.cached is None else price.cached
    return (fresh * price.input + cached * each + (usage.output_tokens or 0) * price.output) / _MILLION


def money(amount: float, currency: str = "$") -> str:
    """
    >>> money(0.00123), money(12.5), money(0)
    ('$0.0012', '$12.50', '$0.00')
    """
    return f"{currency}{amount:.2f}" if amount >= 1 or not amount else f"{currency}{amount:.4f}"


class UsageTotals:
    """Counts since it was created. What no host reported is omitted."""

    def __init__(self) -> None:
        self.answers = 0
        self.input, self.output, self.cached, self.reasoning = 0, 0, 0, 0
        self.is_counted = False
        self.repairs: Counter[str] = Counter()
        self._costs: dict[str, float] = {}
        self._unknown = False

    def add(self, usage: Usage | None, price: Price | None) -> None:
        """Add a finished response."""
        self.answers += 1
        if usage is None:
            return
        self.is_counted = True
        self.input += usage.input_tokens or 0
        self.output += usage.output_tokens or 0
        self.cached += usage.cached_tokens or 0
        self.reasoning += usage.reasoning_tokens or 0
        if price is None:
            self._unknown = True
        else:
            self._costs[price.currency] = self._costs.get(price.currency, 0.0) + cost_of(usage, price)

    def add_repairs(self, repairs: Iterable[Repaired]) -> None:
        self.repairs.update(repaired.rule for repaired in repairs)

    @property
    def cost(self) -> str:
        """In every currency used; empty if nothing is known, `more than …` if not everything is."""
        shown = " and ".join(money(amount, currency) for currency, amount in self._costs.items())
        return f"more than {shown}" if shown and self._unknown else shown

    @property
    def amounts(self) -> dict[str, float]:
        """The costs by currency."""
        return dict(self._costs)
