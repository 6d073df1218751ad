"""The usage of each response -> the usage of a conversation: tokens, cost where prices are known, repairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from moonshim.config import Price
from moonshim.engine.values.conversation import Usage
from moonshim.engine.values.events import Repaired
from moonshim.usage.cost import billed, money
from moonshim.usage.record import COST_UNITS

__all__ = ["UsageTotals"]


class UsageTotals:
    """Counts since it was created. What no host reported is omitted."""

    def __init__(self) -> None:
        self.answers = 0
        self.input, self.output, self.cached, self.reasoning = 0, 0, 0, 0
        self.is_counted = False
        self.repairs: Counter[str] = Counter()
        self._costs: dict[str, int] = {}
        self._unknown = False

    def add(self, usage: Usage | None, price: Price | None, base_url: str = "") -> None:
        """Add a finished response of the host at this address."""
        self.answers += 1
        if usage is None:
            return
        self.is_counted = True
        self.input += usage.input_tokens or 0
        self.output += usage.output_tokens or 0
        self.cached += usage.cached_tokens or 0
        self.reasoning += usage.reasoning_tokens or 0
        cost, currency = billed(usage, price, base_url)
        if cost is None or currency is None:
            self._unknown = True
        else:
            self._costs[currency] = self._costs.get(currency, 0) + cost

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
        return {currency: cost / COST_UNITS for currency, cost in self._costs.items()}
