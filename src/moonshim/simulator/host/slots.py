"""The name and number of a call -> what a K2 writes in the id's place, correctly and in each wrong form.

Self-hosted servers show the model the ids of the history as the client sent them, and it writes more of the same kind.
The id is the only place that has the call's name, so a parser that cannot read it drops the call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from msgspec import Struct

from moonshim.simulator.host.ids import fingerprint

__all__ = ["SLOTS", "Place", "Slot", "canonical"]


class Place(Struct, frozen=True):
    """Identifies a call. `number` counts over the whole conversation, `seed` is the response's own id."""

    name: str
    number: int
    seed: str = ""


Slot: TypeAlias = Callable[[Place], str]


def canonical(place: Place) -> str:
    """
    >>> canonical(Place("read_file", 3))
    'functions.read_file:3'
    """
    return f"functions.{place.name}:{place.number}"


SLOTS: Final[dict[str, Slot]] = {
    "number": lambda place: f"{place.number}",
    "call-number": lambda place: f"call{place.number:05}",
    "call-hex": lambda place: f"call_{fingerprint(place.seed, place.number)[:24]}",
    "toolu": lambda place: f"toolu_{fingerprint(place.seed, place.number)[:24]}",
    "no-name": lambda place: f":{place.number}",
    "glued": lambda place: f"functions{place.name}{place.number}",
    "no-colon": lambda place: f"functions.{place.name}{place.number}",
    "underscores": lambda place: f"functions_{place.name}_{place.number}",
    "dots": lambda place: f"functions.{place.name}.{place.number}",
    "no-number": lambda place: f"functions.{place.name}",
    "name-colon": lambda place: f"{place.name}:{place.number}",
    "name-underscore": lambda place: f"{place.name}_{place.number}",
    "spaced-colon": lambda place: f"functions.{place.name} : {place.number}",
    "wide-colon": lambda place: f"functions.{place.name}\uff1a{place.number}",
    "newline": lambda place: f"functions.\n{place.name}:{place.number}",
    "white-space": lambda place: f"\nfunctions.{place.name}:{place.number} \n",
}
"""Every wrong form that was seen, by name. The first five do not contain the tool's name."""
