"""The interface of a rule that needs further rounds: what it takes from a round, and what it asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct

from moonshim.engine.values.conversation import Message, Part
from moonshim.engine.values.events import Event, Failed, Finished
from moonshim.engine.values.searches import ClientEvent, SearchError, SearchResult
from moonshim.engine.values.verdicts import Verdict

__all__ = [
    "MAX_ROUNDS",
    "JudgeOutcome",
    "JudgeWanted",
    "NextRound",
    "Outcome",
    "RoundEnd",
    "RoundRule",
    "SearchOutcome",
    "SearchWanted",
    "Wanted",
]

MAX_ROUNDS = 10
"""Requests to the host in one exchange."""


class SearchWanted(Struct, frozen=True):
    """A search that the shell has to run."""

    id: str
    query: str
    allowed: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()


class SearchOutcome(Struct, frozen=True):
    """What became of a search."""

    id: str
    results: tuple[SearchResult, ...] = ()
    error: SearchError | None = None


class JudgeWanted(Struct, frozen=True):
    """The verdicts about all calls that `Exchange.take_calls` has given."""


class JudgeOutcome(Struct, frozen=True):
    """The verdicts, by the index of the call's block."""

    verdicts: Mapping[int, Verdict]


Wanted: TypeAlias = SearchWanted | JudgeWanted
"""Something that the shell has to do before the exchange goes on."""
Outcome: TypeAlias = SearchOutcome | JudgeOutcome
"""What became of it."""


class RoundEnd(Struct, frozen=True):
    """A round ended well: what the client gets now, and how the exchange goes on."""

    events: Sequence[ClientEvent] = ()
    wanted: tuple[Wanted, ...] | None = None
    """What the shell has to do, which may be nothing, before `RoundRule.resume`; None: the response is complete."""
    finished: Finished | None = None
    """How the response ends, if not as the round did."""
    failed: Failed | None = None
    """The response must not reach the client, and ends in this error."""


class NextRound(Struct, frozen=True):
    """What the client gets, and what the host is sent next."""

    events: Sequence[ClientEvent] = ()
    messages: tuple[Message, ...] = ()
    """They follow the conversation so far; empty: there is no further round, and the response ends as the round did."""
    keeps_choice: bool = True
    """False: the forced tool was called, so the next round is free to answer."""
    stops_thinking: bool = False
    """The next round does without thinking, where the model can: then more hosts obey a forced call."""


class RoundRule(Protocol):
    """Takes the events of each round, and decides whether there is another. One object for each exchange.

    Blocks are numbered over all rounds. A rule gets every event of a block or none.
    """

    def feed(self, event: Event) -> Sequence[ClientEvent]:
        """What the client gets for this event."""

    def end(self, finished: Finished, message: Message, rounds: int) -> RoundEnd:
        """A round ended well, and this is its message; `rounds` counts it."""

    def resume(self, outcomes: Sequence[Outcome]) -> NextRound:
        """What was wanted is done."""

    @property
    def has_fallback(self) -> bool:
        """Whether the response can end well without the next round."""

    def abandon(self, message: Message) -> RoundEnd:
        """The next round failed: how the response ends without it, as there is a fallback. `message` is as much of its
        message as came; that of the round before, if nothing did."""

    def visible(self, message: Message) -> Sequence[Part]:
        """What the client has of the message of a round."""
