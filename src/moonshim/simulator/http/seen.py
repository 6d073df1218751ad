"""A request that came in, and what became of it: values."""

from __future__ import annotations

from collections.abc import Mapping
from warnings import warn

from msgspec import Struct

from moonshim.simulator.request import Json, SimRequest, Wire
from moonshim.simulator.response import IntendedResponse

__all__ = ["ReceivedRequest", "RecordedRequest"]


class ReceivedRequest(Struct, frozen=True):
    """A request as it came: headers by their lower-case names."""

    wire: Wire
    headers: Mapping[str, str]
    data: bytes


class RecordedRequest(Struct, frozen=True, kw_only=True):
    """What became of it: its problem, or what the model meant."""

    number: int
    """The first request is 1."""
    wire: Wire
    place: str = ""
    """Method and path of what was refused before anybody looked into it: `GET /v1/embeddings`."""
    asked_model: str = ""
    body: Json = {}
    question: SimRequest | None = None
    intended: IntendedResponse | None = None
    status: int = 200
    """0: the connection was dropped before any answer."""
    problem: str | None = None
    """Why it was refused, in the words of the error."""
    faults: tuple[str, ...] = ()
    """Those that were applied, of those that were asked for."""
    missed: tuple[str, ...] = ()
    """Those that were due, and could not show in this answer."""
    imitated: str = ""
    """The wrong identifier of the history that the model wrote its own calls after."""
    hint: str = ""
    """What was meant, perhaps: for the log, since no host says it."""

    @property
    def meant(self) -> IntendedResponse | None:
        """The former name of `intended`."""
        warn("`meant` is called `intended` now", DeprecationWarning, stacklevel=2)
        return self.intended

    @property
    def round(self) -> int | None:
        return None if self.question is None else self.question.round
