"""What a host says while it answers, read from its dialect and not yet mended.

Each dialect's decoder turns the payloads of a stream (or one whole response) into these
values, in the order of the wire. Nothing is judged here: `repair` does that.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import Struct

from moonshim.engine.grammar.protocol import Channel, Notice
from moonshim.engine.values.conversation import Usage
from moonshim.engine.values.events import CallPiece, Failed

__all__ = [
    "BlockEnded",
    "FinishReported",
    "OnlyText",
    "ResponseStarted",
    "SignatureReported",
    "StreamEnded",
    "TextDelta",
    "ToolCallEnded",
    "UnknownPayload",
    "UpstreamEvent",
    "UpstreamFailed",
    "UsageReported",
]


class ResponseStarted(Struct, frozen=True):
    """The answer begins."""

    id: str | None = None
    model: str | None = None
    created: int | None = None
    usage: Usage | None = None


class TextDelta(Struct, frozen=True, gc=False):
    """A piece of text in one of the two channels."""

    channel: Channel
    text: str


class BlockEnded(Struct, frozen=True):
    """The host ended a block of speech: what it says next is another one."""


class ToolCallEnded(Struct, frozen=True, gc=False):
    """The host says that this native call is whole; `index` is that of its pieces."""

    index: int


class SignatureReported(Struct, frozen=True):
    """What the host wants back beside the reasoning that it is telling, or has just told."""

    signature: str | None = None
    details: tuple[dict[str, Any], ...] = ()
    field: str | None = None
    """The name of a Chat host's reasoning field."""


class UsageReported(Struct, frozen=True):
    """Tokens spent so far; a later one takes its place."""

    usage: Usage


class FinishReported(Struct, frozen=True):
    """The answer is over: `reason` in the words of Chat, `raw` as the host said it."""

    reason: str | None
    raw: str | None = None
    stop_sequence: str | None = None


class StreamEnded(Struct, frozen=True):
    """The host says that the stream is over (`[DONE]`, `message_stop`)."""


class UpstreamFailed(Struct, frozen=True):
    """The host tells an error in the middle of its answer."""

    failed: Failed


class UnknownPayload(Struct, frozen=True):
    """A payload that the dialect's decoder has no word for. `known` is False when it should be reported."""

    payload: dict[str, Any]
    known: bool = False


class OnlyText(Struct, frozen=True):
    """All that a payload says is one text: where that stands in it, and whose it is."""

    path: tuple[str | int, ...]
    channel: Channel | None = None
    """None: it is a piece of a native call's arguments."""
    index: int = -1
    """The index of that call's pieces."""


UpstreamEvent: TypeAlias = (
    ResponseStarted
    | TextDelta
    | BlockEnded
    | CallPiece
    | ToolCallEnded
    | SignatureReported
    | UsageReported
    | FinishReported
    | StreamEnded
    | UpstreamFailed
    | Notice
    | UnknownPayload
)
