"""Values for one request: as it was received, and as it is recorded with its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from msgspec import Struct

from moonshim.compat import FormerName
from moonshim.simulator.request import Json, SimRequest, Wire
from moonshim.simulator.response import IntendedResponse, TokenTotals

__all__ = ["ReceivedRequest", "RecordedRequest"]


class ReceivedRequest(Struct, frozen=True):
    """A request as received: headers by their lower-case names."""

    wire: Wire
    headers: Mapping[str, str]
    data: bytes


class RecordedRequest(Struct, frozen=True, kw_only=True):
    """The outcome: the problem with it, or the response that the model intended."""

    number: int
    """The first request is 1."""
    wire: Wire
    place: str = ""
    """Method and path of a request that was refused before its body was read: `GET /v1/embeddings`."""
    asked_model: str = ""
    headers: dict[str, str] = {}
    """By their lower-case names, without those that have a key in them."""
    body: Json = {}
    request: SimRequest | None = None
    intended: IntendedResponse | None = None
    status: int = 200
    """0: the connection was dropped before any response."""
    problem: str | None = None
    """Why it was refused, in the words of the error."""
    tally: TokenTotals | None = None
    """The tokens that the response reports; None: there was no response."""
    faults: tuple[str, ...] = ()
    """The requested faults that were applied."""
    missed: tuple[str, ...] = ()
    """The faults that were due but could not show in this response."""
    imitated: str = ""
    """The wrong id in the history that the model copied for its own calls."""
    hint: str = ""
    """A suggestion for the log; hosts do not send one."""

    meant: ClassVar[FormerName] = FormerName("intended")
    question: ClassVar[FormerName] = FormerName("request")

    @property
    def round(self) -> int | None:
        return None if self.request is None else self.request.round
