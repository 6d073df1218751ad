"""What a grammar finds in text: text in one of two channels, and calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

__all__ = [
    "CallDelta",
    "CallEnded",
    "CallLost",
    "CallResumed",
    "CallStarted",
    "Channel",
    "Grammar",
    "GrammarEvent",
    "Notice",
    "OrphanStarted",
    "Skim",
    "TextFound",
]

Channel: TypeAlias = Literal["text", "reasoning"]


class TextFound(Struct, frozen=True, gc=False):
    """Text without markers, in its channel."""

    channel: Channel
    text: str


class CallStarted(Struct, frozen=True, gc=False):
    """A call starts. `header` is the text in the place of the id, `name` a certain name.

    `opened` is False when there was no arguments marker: such a header is a call only if its name is certain.
    """

    channel: Channel
    header: str
    name: str | None = None
    opened: bool = True


class OrphanStarted(Struct, frozen=True, gc=False):
    """A call starts with its arguments. Its header is at the end of this line of text, which is out already."""

    channel: Channel
    line: str


class CallDelta(Struct, frozen=True, gc=False):
    """Text appended to the arguments of the open call."""

    text: str


class CallEnded(Struct, frozen=True, gc=False):
    """The open call ended; `closed`: whether its own end, or a later marker, was seen."""

    closed: bool


class CallLost(Struct, frozen=True, gc=False):
    """A marker shows a call that cannot be read. `raw` is its text with the markers, `rest` what of it is not out yet.

    Where tools are declared the response ends in an error; elsewhere `rest` is text.
    """

    channel: Channel
    raw: str
    rest: str


class CallResumed(Struct, frozen=True, gc=False):
    """The text that follows belongs to the arguments of the host's own last call (`Grammar.resume`)."""


class Notice(Struct, frozen=True, gc=False):
    """A stray marker was dropped, or text was moved: reported as `Repaired`."""

    rule: str
    detail: str


GrammarEvent: TypeAlias = (
    TextFound | CallStarted | OrphanStarted | CallResumed | CallDelta | CallEnded | CallLost | Notice
)


Skim: TypeAlias = Callable[[str], bool]
"""Reads text if all of it is certainly text in the field's own channel, without events for it; False: nothing was
done."""


class Grammar(Protocol):
    """Parses one text field of one response. Chunking is invisible; `held` is everything that is held back as text."""

    tags_are_text: bool
    """Set when the host sends reasoning in its own field: `<think>` in the text is then ordinary text."""

    @property
    def held(self) -> str: ...

    def feed(self, text: str) -> list[GrammarEvent]: ...

    def flush(self) -> list[GrammarEvent]: ...
