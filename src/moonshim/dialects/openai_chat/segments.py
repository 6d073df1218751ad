"""Events of one choice -> the deltas that tell them, as few as keep the order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from msgspec import Struct

from moonshim.dialects.openai_chat.delta import Piece
from moonshim.events import BlockClosed, BlockDelta, BlockOpened, Event, Failed, Finished, Repaired

__all__ = ["Segment", "SegmentBuilder"]


class Segment(Struct):
    """What one delta says. Within it the order is reasoning, content, calls."""

    reasoning: str = ""
    content: str = ""
    calls: list[Piece] = []
    ending: Finished | Failed | None = None

    @property
    def says_nothing(self) -> bool:
        return not (self.reasoning or self.content or self.calls)


class SegmentBuilder:
    """Keeps what spans frames: which channel speaks. `numbers` tells the number of each call by its block."""

    __slots__ = ("_channel", "_numbers")

    def __init__(self, numbers: Mapping[int, int]) -> None:
        self._channel = "text"
        self._numbers = numbers

    def build(self, events: list[Event]) -> list[Segment]:
        segments: list[Segment] = []
        for event in events:
            match event:
                case BlockOpened(index=index, kind="call", call_id=call_id, name=name):
                    extras = event.wire_extras
                    piece = Piece(self._numbers[index], call_id, name, "", extras or {}, extras is None)
                    self._for_call(segments, native=extras is not None).calls.append(piece)
                case BlockOpened(kind=kind):
                    self._channel = kind
                case BlockDelta(index=index, text=text) if index in self._numbers:
                    self._grow_call(segments, self._numbers[index], text)
                case BlockDelta(text=text):
                    self._speak(segments, text)
                case Finished() | Failed():
                    (segments[-1] if segments else _added(segments)).ending = event
                case BlockClosed() | Repaired():
                    pass
                case _:
                    assert_never(event)
        return segments

    def _speak(self, segments: list[Segment], text: str) -> None:
        last = segments[-1] if segments else _added(segments)
        if last.calls or (self._channel == "reasoning" and last.content):
            last = _added(segments)
        if self._channel == "reasoning":
            last.reasoning += text
        else:
            last.content += text

    def _for_call(self, segments: list[Segment], *, native: bool) -> Segment:
        """The host's own entries stay together in one delta; a call from markers gets its own header."""
        if not segments or (not native and not segments[-1].says_nothing):
            return _added(segments)
        return segments[-1]

    def _grow_call(self, segments: list[Segment], number: int, text: str) -> None:
        last = segments[-1] if segments else _added(segments)
        for place, piece in enumerate(last.calls):
            if piece.index == number and not (piece.odd and piece.id):
                last.calls[place] = Piece(number, piece.id, piece.name, piece.arguments + text, piece.extras)
                return
        if any(piece.odd for piece in last.calls):
            last = _added(segments)
        last.calls.append(Piece(number, None, None, text))


def _added(segments: list[Segment]) -> Segment:
    segments.append(Segment(calls=[]))
    return segments[-1]
