"""The repairs of a response in order: the first ones whole, the rest counted by rule."""

from __future__ import annotations

from collections import Counter

from moonshim.engine.values.events import Repaired

__all__ = ["KEPT_REPAIRS", "RepairLog"]

KEPT_REPAIRS = 256


class RepairLog:
    """Bounded: a stream of a million repairs costs no more than one of a few hundred."""

    __slots__ = ("counts", "repairs")

    def __init__(self) -> None:
        self.repairs: list[Repaired] = []
        self.counts: Counter[str] = Counter()

    def add(self, repair: Repaired, choice: int) -> None:
        self.counts[repair.rule] += 1
        if len(self.repairs) < KEPT_REPAIRS:
            self.repairs.append(Repaired(repair.rule, repair.detail, choice) if choice else repair)
