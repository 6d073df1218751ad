"""What a host sends during a response: decoded from its dialect, not yet repaired.

Each dialect's decoder turns the payloads of a stream, or one complete response, into these values, in wire order.
Nothing is validated here: `repair` does that.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import Struct

from moonshim.engine.grammar.protocol import Channel, Notice
from moonshim.engine.values.conversation import Usage
from moonshim.engine.values.events import CallPiece, Failed

__all__ = [
    "BlockEnded",
    "ChoiceSelected",
    "FinishReported",
    "LogprobsReported",
    "OnlyText",
    "ResponseStarted",
    "SignatureReported",
    "StreamEnded",
    "TextDelta",
    "ToolCallEnded",
    "UnknownFields",
    "UnknownPayload",
    "UpstreamEvent",
    "UpstreamFailed",
    "UsageReported",
]


class ResponseStarted(Struct, frozen=True):
    """The response starts."""

    id: str | None = None
    model: str | None = None
    created: int | None = None
    usage: Usage | None = None


class ChoiceSelected(Struct, frozen=True, gc=False):
    """What follows in this payload belongs to this choice; without it, to the first."""

    index: int


class TextDelta(Struct, frozen=True, gc=False):
    """Text in one of the two channels."""

    channel: Channel
    text: str


class BlockEnded(Struct, frozen=True):
    """The host ended a text block: what follows is another one."""


class ToolCallEnded(Struct, frozen=True, gc=False):
    """The host marked this native call as complete; `index` is that of its deltas."""

    index: int


class SignatureReported(Struct, frozen=True):
    """Data that the host requires back with the current, or just completed, reasoning."""

    signature: str | None = None
    details: tuple[dict[str, Any], ...] = ()
    field: str | None = None
    """The reasoning field of a Chat host."""


class UsageReported(Struct, frozen=True):
    """Tokens used so far; a later event replaces it."""

    usage: Usage


class FinishReported(Struct, frozen=True):
    """The response is complete: `reason` in Chat's terms, `raw` as received."""

    reason: str | None
    raw: str | None = None
    stop_sequence: str | None = None


class LogprobsReported(Struct, frozen=True):
    """The probabilities of the tokens in this payload: only a client that speaks the host's dialect gets them."""

    logprobs: dict[str, Any]


class StreamEnded(Struct, frozen=True):
    """The host ended the stream (`[DONE]`, `message_stop`)."""


class UpstreamFailed(Struct, frozen=True):
    """The host reported an error in the middle of its response."""

    failed: Failed
    choice: int | None = None
    """The only choice that failed; None: all of them."""


class UnknownPayload(Struct, frozen=True):
    """A payload that the dialect's decoder does not know. `known` is False if it should be reported."""

    payload: dict[str, Any]
    known: bool = False
    detail: str = ""
    """What to report of it; the payload itself if there is nothing better."""


class UnknownFields(Struct, frozen=True):
    """Fields beside those that the decoder reads: only a client that speaks the host's dialect gets them."""

    fields: dict[str, Any]


class OnlyText(Struct, frozen=True):
    """A payload that contains nothing but one text: its position, and what it belongs to."""

    path: tuple[str | int, ...]
    channel: Channel | None = None
    """None: a fragment of a native call's arguments."""
    index: int = -1
    """The index of that call's deltas."""


UpstreamEvent: TypeAlias = (
    ResponseStarted
    | ChoiceSelected
    | TextDelta
    | BlockEnded
    | CallPiece
    | ToolCallEnded
    | SignatureReported
    | UsageReported
    | FinishReported
    | LogprobsReported
    | StreamEnded
    | UpstreamFailed
    | Notice
    | UnknownFields
    | UnknownPayload
)
