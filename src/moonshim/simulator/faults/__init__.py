"""The faults by name: everything that hosts have been seen to do wrong."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Final

from moonshim.simulator.fault import Fault
from moonshim.simulator.faults import (
    answers,
    arguments,
    calls,
    endings,
    errors,
    frames,
    ids,
    leaks_k2,
    leaks_k3,
    messages,
    reasoning,
)

__all__ = ["FAULTS", "in_order"]

_MODULES: Final = (leaks_k2, leaks_k3, ids, arguments, calls, reasoning, answers, messages, endings, frames, errors)
"""In a host's order: content, chunks, ending, encoding, transport."""

FAULTS: Final[dict[str, Fault]] = {
    fault.name: fault for fault in chain.from_iterable(module.FAULTS for module in _MODULES)
}
"""All faults by name, in the order in which they are applied. `moonshim simulate faults` lists them."""

_PLACES: Final = {name: place for place, name in enumerate(FAULTS)}


def in_order(faults: Iterable[Fault]) -> list[Fault]:
    """Each fault once, in the order of the table: the order in which they combine, however they were named.

    >>> [fault.name for fault in in_order([FAULTS["split-bytes"], FAULTS["no-space"], FAULTS["split-bytes"]])]
    ['no-space', 'split-bytes']
    """
    once = {fault.name: fault for fault in faults}
    return sorted(once.values(), key=lambda fault: _PLACES.get(fault.name, -1))
