"""What can happen while a response streams, as values.

The order is: blocks open, grow and close; repairs are told where they happen;
`Finished` or `Failed` comes last, once. Several calls may be open at a time, as
hosts do send parallel calls interleaved.
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
    "failed_by",
]

BlockKind: TypeAlias = Literal["text", "reasoning", "call"]


class CallPiece(Struct, frozen=True):
    """One entry of a native tool delta. Empty strings count as absent; what is `odd` cannot stay as it is."""

    index: int | None = None
    id: str | None = None
    name: str | None = None
    arguments: str = ""
    extras: dict[str, Any] = {}
    """Fields that we do not know; those of its `function` under that name."""
    odd: str = ""
    """What is odd about the entry, in words."""


class Started(Struct, frozen=True):
    """The answer begins, under the host's own name for it. Comes first where it comes at all."""

    id: str | None = None
    model: str | None = None
    created: int | None = None
    usage: Usage | None = None
    """What the host said of the prompt's tokens before it said anything else (Messages does)."""


class BlockOpened(Struct, frozen=True):
    """A block of the answer begins; `call_id` and `name` belong to calls alone."""

    index: int
    kind: BlockKind
    call_id: str | None = None
    name: str | None = None
    wire_extras: dict[str, Any] | None = None
    """Fields of the host's own tool delta that we do not know: they go out with the header."""

    @property
    def is_from_markers(self) -> bool:
        """Whether this is a call that no delta of the host's own tells."""
        return self.kind == "call" and self.wire_extras is None


class BlockDelta(Struct, frozen=True):
    """The block grows by this text; for a call it is a piece of the raw arguments."""

    index: int
    text: str


class BlockSigned(Struct, frozen=True):
    """What the host wants back beside this block of reasoning; comes before the block closes."""

    index: int
    signature: str | None = None
    details: tuple[dict[str, Any], ...] = ()
    """`reasoning_details`, each entry whole and without its streaming index."""
    field: str | None = None
    """The name of the field that the reasoning came in, from a Chat host."""


class BlockClosed(Struct, frozen=True):
    """The block is whole, or as whole as it will ever be (`complete` is False then)."""

    index: int
    complete: bool = True


class Repaired(Struct, frozen=True):
    """Something was put right: by which rule, and what a person would want to know of it."""

    rule: str
    detail: str = ""
    choice: int = 0


class Finished(Struct, frozen=True):
    """The answer is over; `reason` is the mended reason, `raw_reason` what the host said."""

    reason: str
    """In the words of Chat: `stop`, `tool_calls`, `length`, `content_filter`, or what the host said."""
    raw_reason: str | None = None
    stop_sequence: str | None = None
    usage: Usage | None = None


class Failed(Struct, frozen=True):
    """The answer broke off. `retryable` tells whether asking again can help."""

    code: str
    message: str
    retryable: bool = True


_PASSING: Final[frozenset[ProblemKind]] = frozenset({"rate_limit", "overloaded", "timeout", "server"})
"""Problems that may be gone when somebody asks again."""
_KNOWN: Final[frozenset[ProblemKind]] = frozenset({"context_overflow", "rate_limit", "quota"})
"""Problems that people and clients act on, whatever the host calls them."""


def failed_by(problem: Problem) -> Failed:
    """How an answer ends that broke off for this reason."""
    code = problem.kind if problem.kind in _KNOWN else problem.code or problem.kind
    return Failed(code, problem.message, problem.kind in _PASSING and not problem.permanent)


class Opaque(Struct, frozen=True):
    """A payload that says something we have no word for; it goes on where the client speaks the host's dialect."""

    payload: dict[str, Any]


Event: TypeAlias = (
    Started | BlockOpened | BlockDelta | BlockSigned | BlockClosed | Repaired | Finished | Failed | Opaque
)
