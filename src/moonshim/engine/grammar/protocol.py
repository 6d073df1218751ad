"""What a grammar finds in text: speech in one of two channels, and calls."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

__all__ = ["CallDelta", "CallEnded", "CallStarted", "Channel", "Grammar", "GrammarEvent", "Notice", "TextFound"]

Channel: TypeAlias = Literal["text", "reasoning"]


class TextFound(Struct, frozen=True, gc=False):
    """Text without markers, in the channel where it belongs."""

    channel: Channel
    text: str


class CallStarted(Struct, frozen=True, gc=False):
    """A call begins. `header` is what stood where the identifier belongs, `name` a name that needs no guess.

    `opened` is False when no arguments marker came: such a header is a call only if
    its name is beyond doubt.
    """

    channel: Channel
    header: str
    name: str | None = None
    opened: bool = True


class CallDelta(Struct, frozen=True, gc=False):
    """The arguments of the open call grow by this text."""

    text: str


class CallEnded(Struct, frozen=True, gc=False):
    """The open call is over; `closed` tells whether its own end, or a marker after it, was seen."""

    closed: bool


class Notice(Struct, frozen=True, gc=False):
    """A marker was taken away that belonged to nothing, or text was moved: worth a `Repaired`."""

    rule: str
    detail: str


GrammarEvent: TypeAlias = TextFound | CallStarted | CallDelta | CallEnded | Notice


class Grammar(Protocol):
    """Reads one text field of one response. Chunking is invisible; `held` is all that is kept back as text."""

    tags_are_text: bool
    """Set when the host sends reasoning in a field of its own: `<think>` in the text is then only text."""

    @property
    def held(self) -> str: ...

    def feed(self, text: str) -> list[GrammarEvent]: ...

    def flush(self) -> list[GrammarEvent]: ...
