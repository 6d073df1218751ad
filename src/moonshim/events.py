"""What can happen while a response streams, as values.

The order is: blocks open, grow and close; repairs are told where they happen;
`Finished` or `Failed` comes last, once. Several calls may be open at a time, as
hosts do send parallel calls interleaved.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

__all__ = [
    "BlockClosed",
    "BlockDelta",
    "BlockKind",
    "BlockOpened",
    "Event",
    "Failed",
    "Finished",
    "Repaired",
]

BlockKind: TypeAlias = Literal["text", "reasoning", "call"]


class BlockOpened(Struct, frozen=True):
    """A block of the answer begins; `call_id` and `name` belong to calls alone."""

    index: int
    kind: BlockKind
    call_id: str | None = None
    name: str | None = None
    wire_extras: dict[str, Any] | None = None
    """Fields of the host's own tool delta that we do not know: they go out with the header."""


class BlockDelta(Struct, frozen=True):
    """The block grows by this text; for a call it is a piece of the raw arguments."""

    index: int
    text: str


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
    raw_reason: str | None = None


class Failed(Struct, frozen=True):
    """The answer broke off. `retryable` tells whether asking again can help."""

    code: str
    message: str
    retryable: bool = True


Event: TypeAlias = BlockOpened | BlockDelta | BlockClosed | Repaired | Finished | Failed
