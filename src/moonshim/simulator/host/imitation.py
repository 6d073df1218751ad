"""A response of a K2 that has seen wrong ids -> its calls with wrong ids of the same kind.

A self-hosted server shows the model the ids of the history as the client sent them. Two rounds of wrong ones do no
harm; from the third on, the model writes ids of their kind, in the only place that has a call's name. The host's parser
drops such a call, and its markers are left in the text. Moonshot rewrites ids before the model sees them, and K3 never
sees an id at all.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec.structs import replace

from moonshim.simulator.faults.leaking import add_leak
from moonshim.simulator.host.markers import k2_section
from moonshim.simulator.host.slots import SLOTS, Place, canonical
from moonshim.simulator.request import SimCall, SimRequest
from moonshim.simulator.response import HostResponse

__all__ = ["ROUNDS_THAT_WORK", "imitate", "imitated_call"]

ROUNDS_THAT_WORK: Final = 2
"""Rounds with wrong ids that the history may have before the model writes wrong ids itself."""

_KINDS: Final[tuple[tuple[str, str], ...]] = (
    (r"[0-9]+", "number"),
    (r"call[_-]?[0-9]{1,9}", "call-number"),
    (r"functions\..+:[0-9]+", "canonical"),
    (r"functions\..+\.[0-9]+", "dots"),
    (r"functions\.NAME", "no-number"),
    (r"functions\..+[0-9]", "no-colon"),
    (r"functions\..+", "no-number"),
    (r"(?:call_)?functions_.+_[0-9]+", "underscores"),
    (r"(?:call_)?functions.*[0-9]", "glued"),
    (r"NAME:[0-9]+", "name-colon"),
    (r"NAME_[0-9]+", "name-underscore"),
)
"""The kind of an id, the first that matches; anything else is treated like `call_…`."""
_NUMBER: Final = re.compile(r"[0-9]{1,9}\Z")


def imitated_call(answer: HostResponse) -> SimCall | None:
    """The call of the history that the model imitates; None: it writes correct ids."""
    wrong = _wrong_calls(answer.request)
    if answer.request.family != "k2" or not answer.calls or len(wrong) < ROUNDS_THAT_WORK:
        return None
    return wrong[-1]


def imitate(answer: HostResponse) -> HostResponse:
    """The response, changed if the history has more wrong ids than the model tolerates."""
    copied = imitated_call(answer)
    if copied is None:
        return answer
    kind = _kind(copied)
    places = _places(answer, copied)
    if kind == "canonical":
        # Only the number is wrong: the parser reads it, and ids continue from a wrong one.
        calls = zip(answer.calls, places, strict=True)
        return replace(answer, calls=tuple(replace(call, id=canonical(place)) for call, place in calls))
    written = [
        SimCall(SLOTS[kind](place), place.name, call.arguments)
        for place, call in zip(places, answer.calls, strict=True)
    ]
    return add_leak(answer, k2_section(written))


def _wrong_calls(request: SimRequest) -> list[SimCall]:
    """The last call with a wrong id, of each round that has one."""
    wrong, number = [], 0
    for turn in request.turns:
        found = [call for at, call in enumerate(turn.calls, number) if call.id != canonical(Place(call.name, at))]
        wrong += found[-1:]
        number += len(turn.calls)
    return wrong


def _kind(copied: SimCall) -> str:
    name = re.escape(copied.name)
    fits = (kind for pattern, kind in _KINDS if re.fullmatch(pattern.replace("NAME", name), copied.id, re.DOTALL))
    return next(fits, "call-hex")


def _places(answer: HostResponse, copied: SimCall) -> list[Place]:
    """The model continues counting from the last number that it has seen."""
    number = _NUMBER.search(copied.id)
    first = int(number.group()) + 1 if number else len(answer.request.history)
    return [Place(call.name, first + at, answer.id) for at, call in enumerate(answer.calls)]
