"""The log of repairs: in order, the first ones whole, all of them counted."""

from __future__ import annotations

from moonshim.engine.repair.repair_log import KEPT_REPAIRS, RepairLog
from moonshim.engine.values.events import Repaired


def test_repairs_are_kept_in_order_with_their_choice() -> None:
    log = RepairLog()
    log.add(Repaired("framing", "line_endings"), 0)
    log.add(Repaired("id_invalid", "a -> b"), 2)
    assert log.repairs == [Repaired("framing", "line_endings", 0), Repaired("id_invalid", "a -> b", 2)]


def test_after_the_first_few_hundred_repairs_are_only_counted() -> None:
    log = RepairLog()
    for number in range(KEPT_REPAIRS + 1000):
        log.add(Repaired("framing" if number % 2 else "not_json", str(number)), 0)
    assert [repair.detail for repair in log.repairs] == [str(number) for number in range(KEPT_REPAIRS)]
    assert log.counts == {"framing": (KEPT_REPAIRS + 1000) // 2, "not_json": (KEPT_REPAIRS + 1000) // 2}
