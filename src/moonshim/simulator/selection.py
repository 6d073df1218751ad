"""Names in a request or a setting -> the faults and the scenario that they select, and when.

    kimi-k2.5                             only the model
    kimi-k2.5+markers-in-content          a fault, in every response
    kimi-k2.5+cut-off@3                   only in the third response to the user's last message
    kimi-k2.5+overloaded*2                only in the first two responses that it applies to
    kimi-k2.5+five-rounds+split-bytes     a scenario and a fault

In a header or a setting they are separated by commas: `cut-off@3*1, five-rounds`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

from msgspec import Struct

from moonshim.errors import InvalidInput
from moonshim.simulator.fault import Fault
from moonshim.simulator.faults import FAULTS
from moonshim.simulator.model.scenario import BUILT_IN
from moonshim.simulator.request import Wire
from moonshim.simulator.settings import SimulatorSettings

__all__ = ["RequestedFaults", "ScheduledFault", "UnknownName", "chaos_pick", "read_model", "read_names"]

_WRITTEN: Final = re.compile(r"(?P<name>[^@*\s]+)(?:@(?P<round>[1-9]\d{0,8}))?(?:\*(?P<times>[1-9]\d{0,8}))?")
_BETWEEN: Final = re.compile(r"[,+]")
_NEAREST: Final = 3
_SHOWN: Final = 60


class UnknownName(InvalidInput):
    """Neither a fault nor a scenario has this name, or it is malformed."""

    code = "unknown_name"


class ScheduledFault(Struct, frozen=True):
    """A fault, and when it is applied."""

    fault: Fault
    round: int | None = None
    """Only in this response to the user's last message, from 1."""
    times: int | None = None
    """Only in this many responses."""

    def is_due(self, round_: int, times_shown: int) -> bool:
        """Whether it applies in this round, after having been applied `shown` times."""
        return self.round in {None, round_} and (self.times is None or times_shown < self.times)

    def __str__(self) -> str:
        at = "" if self.round is None else f"@{self.round}"
        return f"{self.fault.name}{at}" + ("" if self.times is None else f"*{self.times}")


class RequestedFaults(Struct, frozen=True):
    """What the name of a model selects."""

    model: str
    faults: tuple[ScheduledFault, ...] = ()
    scenario: str | None = None


def read_model(name: str) -> RequestedFaults:
    """
    >>> requested = read_model("kimi-k2.5+cut-off@3+five-rounds")
    >>> requested.model, [str(one) for one in requested.faults], requested.scenario
    ('kimi-k2.5', ['cut-off@3'], 'five-rounds')
    """
    model, _, rest = name.partition("+")
    faults, scenario = read_names(rest)
    return RequestedFaults(model, faults, scenario)


def read_names(names: str) -> tuple[tuple[ScheduledFault, ...], str | None]:
    """
    >>> read_names("overloaded*2, unicode")[1]
    'unicode'
    >>> read_names("coding-gaet")
    Traceback (most recent call last):
    ...
    moonshim.simulator.selection.UnknownName: unknown fault or scenario 'coding-gaet' (did you mean 'coding-gate'?)
    """
    faults: list[ScheduledFault] = []
    scenarios: list[str] = []
    for written in filter(None, (word.strip() for word in _BETWEEN.split(names))):
        if written in BUILT_IN:
            scenarios.append(written)
        else:
            faults.append(_parse_fault(written))
    if len(set(scenarios)) > 1:
        raise UnknownName(f"choose one scenario per request, not several: {', '.join(scenarios)}")
    return tuple(faults), scenarios[0] if scenarios else None


def chaos_pick(settings: SimulatorSettings, number: int, wire: Wire, family: str, stream: bool) -> Fault | None:
    """The additional fault that chaos adds to the response of this number: deterministic for a seed and number."""
    if _share(settings.seed, number, "whether") >= settings.chaos:
        return None
    fitting = [fault for fault in FAULTS.values() if fault.applies(wire=wire, family=family, stream=stream)]
    return fitting[int(_share(settings.seed, number, "which") * len(fitting))] if fitting else None


def _share(seed: int, number: int, what: str) -> float:
    """A pseudo-random number in [0, 1), derived from its arguments."""
    digest = hashlib.blake2b(f"{seed}/{number}/{what}".encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big") / 2**48


def _parse_fault(written: str) -> ScheduledFault:
    found = _WRITTEN.fullmatch(written)
    if found is None:
        raise UnknownName(f"'{_short(written)}' is not a valid fault; write `cut-off`, `cut-off@3` or `cut-off*2`")
    name = found["name"]
    if name in BUILT_IN:
        raise UnknownName(f"'{name}' is a scenario, which covers every round: write it without @ and *")
    if name not in FAULTS:
        raise UnknownName(f"unknown fault or scenario '{_short(name)}'{_nearest(name, [*FAULTS, *BUILT_IN])}")
    return ScheduledFault(FAULTS[name], _number(found["round"]), _number(found["times"]))


def _number(digits: str | None) -> int | None:
    return None if digits is None else int(digits)


def _nearest(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name.lower()[:_SHOWN], known, n=_NEAREST) or _sharing_a_word(name, known)[:_NEAREST]
    if not close:
        return "; run `moonshim simulate faults` for a list"
    names = " or ".join(f"'{one}'" for one in close)
    return f" (did you mean {names}?)"


def _sharing_a_word(name: str, known: Sequence[str]) -> list[str]:
    """Names that share a word with it; those whose word is rare come first.

    >>> _sharing_a_word("html-error", ["error-in-stream", "error-event", "html-502", "stall"])
    ['html-502', 'error-in-stream', 'error-event']
    """
    holders = {word: [one for one in known if word in one.split("-")] for word in name.lower().split("-")}
    rarest = sorted((found for word, found in holders.items() if len(word) > 2), key=len)
    return list(dict.fromkeys(one for found in rarest for one in found))


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
