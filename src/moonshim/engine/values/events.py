"""Events of a streaming response, as values.

Order: blocks open, grow and close; repairs are reported where they happen; `Finished` or `Failed` comes last, exactly
once. Several calls may be open at a time, because hosts do interleave parallel calls.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from moonshim.engine.values.conversation import Usage
from moonshim.errors import Problem, ProblemKind

__all__ = [
    "BlockClosed",
    "BlockDelta",
    "BlockKind",
    "BlockOpened",
    "BlockSigned",
    "CallPiece",
    "Event",
    "Failed",
    "Finished",
    "Opaque",
    "Repaired",
    "Started",
    "failure_from",
]

BlockKind: TypeAlias = Literal["text", "reasoning", "call"]


class CallPiece(Struct, frozen=True):
    """One entry of a native tool call delta. Empty strings count as absent; an `odd` entry cannot be passed on
    unchanged."""

    index: int | None = None
    id: str | None = None
    name: str | None = None
    arguments: str = ""
    extras: dict[str, Any] = {}
    """Unknown fields; those of `function` under that key."""
    odd: str = ""
    """What is wrong with the entry."""
    is_unlisted: bool = False
    """The host sent the call in a deprecated field for a single call, not in the list of calls."""


class Started(Struct, frozen=True):
    """The response starts, with the host's id for it. If present, it comes first."""

    id: str | None = None
    model: str | None = None
    created: int | None = None
    usage: Usage | None = None
    """Prompt token counts that the host reported before any content (as Messages does)."""


class BlockOpened(Struct, frozen=True):
    """A block of the response starts; `call_id` and `name` are set for calls only."""

    index: int
    kind: BlockKind
    call_id: str | None = None
    name: str | None = None
    wire_extras: dict[str, Any] | None = None
    """Unknown fields of the host's tool call delta, sent with the header."""

    @property
    def is_from_markers(self) -> bool:
        """Whether the call was found in markers rather than in a native delta."""
        return self.kind == "call" and self.wire_extras is None


class BlockDelta(Struct, frozen=True):
    """Text appended to the block; for a call, a fragment of the raw arguments."""

    index: int
    text: str


class BlockSigned(Struct, frozen=True):
    """Data that the host requires back with this reasoning block; comes before the block closes."""

    index: int
    signature: str | None = None
    details: tuple[dict[str, Any], ...] = ()
    """`reasoning_details`, each entry complete and without its streaming index."""
    field: str | None = None
    """The Chat field in which the reasoning was received."""


class BlockClosed(Struct, frozen=True):
    """The block ended; `complete` is False if it was cut off."""

    index: int
    complete: bool = True


class Repaired(Struct, frozen=True):
    """One repair in a response."""

    rule: str
    """The name of the rule (docs/reference/repairs.md)."""
    detail: str = ""
    """What was wrong, or how it changed, for people."""
    choice: int = 0
    """The index of the choice."""


class Finished(Struct, frozen=True):
    """The response ended. `reason` is the repaired finish reason, `raw_reason` the one that the host sent."""

    reason: str
    """Chat's `stop`, `tool_calls`, `length` or `content_filter`, or the host's own value."""
    raw_reason: str | None = None
    stop_sequence: str | None = None
    usage: Usage | None = None


class Failed(Struct, frozen=True):
    """The response ended with an error."""

    code: str
    """The error code: one of Moonshim's (`stream_ended`, `arguments_invalid`, …) or the host's own."""
    message: str
    retryable: bool = True
    """Whether sending the request again can help."""


_KNOWN: Final[frozenset[ProblemKind]] = frozenset({"context_overflow", "rate_limit", "quota"})
"""Problems that people and clients act on, whatever code the host uses."""


def failure_from(problem: Problem) -> Failed:
    """The event that ends a response that failed with this problem."""
    code = problem.kind if problem.kind in _KNOWN else problem.code or problem.kind
    return Failed(code, problem.message, problem.retryable)


class Opaque(Struct, frozen=True):
    """A payload without a canonical form; passed on if the client uses the host's dialect."""

    payload: dict[str, Any]


Event: TypeAlias = (
    Started | BlockOpened | BlockDelta | BlockSigned | BlockClosed | Repaired | Finished | Failed | Opaque
)
