"""Events of one choice -> the deltas that tell them, as few as keep the order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, assert_never

from msgspec import Struct
from msgspec.structs import replace

from moonshim.engine.values.events import (
    BlockClosed,
    BlockDelta,
    BlockKind,
    BlockOpened,
    BlockSigned,
    CallPiece,
    Event,
    Failed,
    Finished,
    Opaque,
    Repaired,
    Started,
)

__all__ = ["Segment", "SegmentBuilder"]

_REMEMBERED: Final = 256
"""How many blocks of speech are remembered; more than frames can wait."""


class Segment(Struct):
    """What one delta says. Within it the order is reasoning, content, calls."""

    reasoning: str = ""
    content: str = ""
    calls: list[CallPiece] = []
    ending: Finished | Failed | None = None

    @property
    def says_nothing(self) -> bool:
        return not (self.reasoning or self.content or self.calls)


class SegmentBuilder:
    """Keeps what spans frames: the kind of each block.

    `numbers` has the number of each call by its block, `names` the client's names of
    the tools that have another name at the host. With `skips_native` the host's own calls
    are left out: its own deltas carry them.
    """

    __slots__ = ("_growing", "_has_header", "_names", "_pieces", "_skipped", "_skips_native", "kinds", "numbers")

    def __init__(
        self, numbers: Mapping[int, int], names: Mapping[str, str] | None = None, *, skips_native: bool = False
    ) -> None:
        self.kinds: dict[int, BlockKind] = {}
        """The kind of each block of text, as far as it is remembered."""
        self.numbers: Mapping[int, int] = numbers
        self._skips_native = skips_native
        self._skipped: set[int] = set()
        self._names = names or {}
        self._growing: dict[int, list[str]] = {}
        """The arguments of each call in the last segment, by its number."""
        self._has_header = False
        """Whether the last segment has the header of a call from markers."""
        self._pieces: list[tuple[Segment, int, list[str]]] = []
        """All arguments: the segment, the place of the call in it, and the pieces."""

    def build(self, events: list[Event]) -> list[Segment]:
        segments: list[Segment] = []
        for event in _merged(events):
            match event:
                case BlockOpened(index=index, kind="call", call_id=call_id, name=name):
                    native = not event.is_from_markers
                    if native and self._skips_native:
                        self._skipped.add(index)
                        continue
                    odd = "" if native else "read from markers"
                    name = self._names.get(name or "", name)
                    number = self.numbers[index]
                    piece = CallPiece(number, call_id, name, "", event.wire_extras or {}, odd)
                    segment = self._for_call(segments, native=native)
                    self._has_header |= not native
                    self._add_call(segment, piece, grows=native)
                case BlockOpened(index=index, kind=kind):
                    self._remember(index, kind)
                case BlockDelta(index=index, text=text) if index in self.numbers:
                    if index in self._skipped:
                        continue
                    self._grow_call(segments, self.numbers[index], text)
                case BlockDelta(index=index, text=text):
                    self._speak(segments, self.kinds[index], text)
                case Finished() | Failed():
                    (segments[-1] if segments else self._added(segments)).ending = event
                case BlockClosed() | Repaired() | Started() | BlockSigned() | Opaque():
                    pass
                case _:
                    assert_never(event)
        for segment, place, pieces in self._pieces:
            if pieces:
                segment.calls[place] = replace(segment.calls[place], arguments="".join(pieces))
        self._growing, self._has_header, self._pieces = {}, False, []
        return segments

    def _remember(self, index: int, kind: BlockKind) -> None:
        self.kinds[index] = kind
        if len(self.kinds) > _REMEMBERED:
            # Only frames that wait can still tell of an older block, and they are few.
            del self.kinds[next(iter(self.kinds))]

    def _speak(self, segments: list[Segment], kind: BlockKind, text: str) -> None:
        last = segments[-1] if segments else self._added(segments)
        if last.calls or (kind == "reasoning" and last.content):
            last = self._added(segments)
        if kind == "reasoning":
            last.reasoning += text
        else:
            last.content += text

    def _for_call(self, segments: list[Segment], *, native: bool) -> Segment:
        """The host's own entries stay together in one delta; a call from markers gets its own header."""
        if not segments or (not native and not segments[-1].says_nothing):
            return self._added(segments)
        return segments[-1]

    def _grow_call(self, segments: list[Segment], number: int, text: str) -> None:
        last = segments[-1] if segments else self._added(segments)
        if number not in self._growing:
            if self._has_header:
                last = self._added(segments)
            self._add_call(last, CallPiece(number, None, None, ""), grows=True)
        self._growing[number].append(text)

    def _add_call(self, segment: Segment, piece: CallPiece, *, grows: bool) -> None:
        if grows and piece.index is not None and piece.index not in self._growing:
            self._growing[piece.index] = pieces = list[str]()
            self._pieces.append((segment, len(segment.calls), pieces))
        segment.calls.append(piece)

    def _added(self, segments: list[Segment]) -> Segment:
        self._growing, self._has_header = {}, False
        segments.append(Segment(calls=[]))
        return segments[-1]


def _merged(events: list[Event]) -> list[Event]:
    """Pieces of one block that follow each other as one piece: adding up strings one by one is not linear."""
    if len(events) < 3:
        return events
    merged: list[Event] = []
    pieces: list[str] = []
    for event in events:
        if isinstance(event, Repaired):
            continue
        last = merged[-1] if merged else None
        if isinstance(event, BlockDelta) and isinstance(last, BlockDelta) and last.index == event.index:
            pieces.append(event.text)
            continue
        if len(pieces) > 1 and isinstance(last, BlockDelta):
            merged[-1] = BlockDelta(last.index, "".join(pieces))
        merged.append(event)
        pieces = [event.text] if isinstance(event, BlockDelta) else []
    if len(pieces) > 1 and isinstance(merged[-1], BlockDelta):
        merged[-1] = BlockDelta(merged[-1].index, "".join(pieces))
    return merged
