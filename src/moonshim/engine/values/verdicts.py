"""What a judge says about the calls of a response, as values.

Clients that ask for it (Claude Code's auto mode) get a verdict for each call before they run it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

__all__ = ["CallToJudge", "CallsJudged", "Outcome", "Reason", "Verdict"]

Outcome: TypeAlias = Literal["flagged", "not_flagged"]

Reason: TypeAlias = Literal[
    "judged", "never_asked", "too_long", "incomplete", "failed", "slow", "over_budget", "not_in_form"
]
"""Who or what decided: `judged`, the model. Without the model: `never_asked`, a tool for which clients need no
permission; `too_long`, arguments that cannot be shown whole; `incomplete`, a call that was cut off. Instead of a
verdict of the model: `failed`, `slow`, `over_budget`, `not_in_form`."""


class CallToJudge(Struct, frozen=True):
    """A call of the model."""

    index: int
    """The index of its block in the response."""
    name: str
    arguments: str
    """As the model wrote them."""
    complete: bool = True


class Verdict(Struct, frozen=True):
    """What was decided about one call. Everything that is no clear permission is `flagged`."""

    outcome: Outcome
    reason: Reason
    explanation: str = ""
    """For people and for the model whose call was refused."""


class CallsJudged(Struct, frozen=True):
    """Comes before the end of a response whose client asked for verdicts."""

    verdicts: Mapping[int, Verdict]
    """By the index of the call's block. A call that is missing here is flagged."""
    unsupported: tuple[str, ...] = ()
    """Other checks that the client asked for."""
