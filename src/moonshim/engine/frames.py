"""A payload of the host on its way through the engine: what was read in it, and what leaves for it.

A clean stream must leave as it came, frame by frame, even where a frame ends in a
`<` that might have started a marker. So a frame whose last characters are undecided
waits; once they turn out to be ordinary, they are booked to the frame they came
in, and it leaves untouched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

from moonshim.engine.upstream_events import UpstreamEvent
from moonshim.engine.values.events import BlockDelta, BlockOpened, Event, Failed

__all__ = ["ChoicePart", "FrameOutput", "FrameQueue", "HeldFrames", "HostFrame", "Released", "grow_block"]

Origin = TypeVar("Origin")
_MAX_WAITING: Final = 64


class FrameOutput(Struct, eq=False):
    """The events that one frame gave for one choice; it is final when nothing is `waiting`."""

    events: list[Event] = []
    waiting: int = 0
    held: int = 0
    """How many characters of its frame are held back."""

    @property
    def size(self) -> int:
        """How many characters its frame would keep waiting: what it brings, which may have come earlier, and holds."""
        return self.held + sum(len(event.text) for event in self.events if isinstance(event, BlockDelta))


class ChoicePart(FrameOutput, eq=False):
    """One choice of a payload: what was read in it, and the events that leave for it."""

    index: int = 0
    """The index of the choice."""
    numbers: Mapping[int, int] = {}
    """The number of each call, by its block."""
    read: list[UpstreamEvent] = []
    ids: list[str | None] = []
    """Where native deltas are left alone: the identifier to write for each piece, None to leave it."""
    summary: Callable[[], list[Any]] | None = None
    """Gives the calls of the choice so far, each with its number, where its last chunk is to repeat them."""


class HostFrame(Struct, Generic[Origin], eq=False):
    """A payload of the host, or something that has no payload (a comment), or what is added at the end."""

    origin: Origin | None
    """Where it came from (the bytes, say); None for what the host did not send."""
    payload: dict[str, Any] | None
    read: list[UpstreamEvent] = []
    """All that was read in the payload, for every choice."""
    parts: list[ChoicePart] = []
    size: int = 0
    """How many characters of text came in it."""
    is_unknown: bool = False
    """The decoder cannot read the payload. A writer that keeps frames sends it unchanged."""
    failed: Failed | None = None
    """The error that it reports."""

    @property
    def has_marker_call(self) -> bool:
        """Whether a call from markers starts in it, and something in it is undecided."""
        events = (event for part in self.parts for event in part.events)
        return any(part.waiting for part in self.parts) and any(
            isinstance(event, BlockOpened) and event.is_from_markers for event in events
        )

    def count_text(self) -> None:
        """It waits: what came before it and leaves with it waits too, and counts to its size."""
        self.size = max(self.size, sum(part.size for part in self.parts))


class FrameQueue(Generic[Origin]):
    """The frames that have not left, in order. One that waits holds back those after it."""

    __slots__ = ("frames", "size")

    def __init__(self) -> None:
        self.frames: deque[HostFrame[Origin]] = deque()
        self.size = 0
        """How many characters of text wait."""

    def append(self, frame: HostFrame[Origin]) -> None:
        self.frames.append(frame)
        self.size += frame.size

    @property
    def is_full(self) -> bool:
        """Whether more frames wait than is worth it."""
        return len(self.frames) > _MAX_WAITING

    def awaited(self) -> set[int]:
        """The indexes of the choices that frames wait for."""
        return {part.index for frame in self.frames for part in frame.parts if part.waiting}

    def take_ready(self) -> list[HostFrame[Origin]]:
        """The frames up to the first that waits."""
        ready: list[HostFrame[Origin]] = []
        while self.frames:
            frame = self.frames[0]
            for part in frame.parts:
                if part.waiting:
                    return ready
            ready.append(self.frames.popleft())
            self.size -= frame.size
        return ready


class Released(Struct, Generic[Origin]):
    """A frame that leaves: as it came (`payloads` is None), or as these payloads."""

    origin: Origin | None
    payloads: list[dict[str, Any]] | None = None


class HeldFrames:
    """The frames that wait for one held piece of text, each with its share of the characters."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[tuple[FrameOutput, int]] = []

    @property
    def is_awaited(self) -> bool:
        return bool(self._waiting)

    def resolve(
        self, before: str, said: str, after: str, write: Callable[[str, FrameOutput], None], output: FrameOutput
    ) -> None:
        """Book `said` to the frames it came in.

        `before` was held, then the frame's own text was read, and now `after` is held.
        The part of `before` that was written goes to the frames that wait for it; the rest
        of `said` belongs to the current frame. A frame that waits for text which became part
        of a marker stops waiting.
        """
        released = len(before) if said.startswith(before) else len(said) if before.startswith(said) else 0
        still = before[released:] if len(said) == released and after.startswith(before[released:]) else ""
        waiting_frames, self._waiting = self._waiting, []
        unbooked = released
        loose = len(before) - sum(size for _, size in waiting_frames)
        for place, (waiting, size) in enumerate(waiting_frames):
            share = min(size + (loose if place == 0 else 0), unbooked)
            if share:
                write(said[released - unbooked : released - unbooked + share], waiting)
                unbooked -= share
            left = size - share
            waiting.held -= size
            if left > 0 and still:
                self._waiting.append((waiting, left))
                waiting.held += left
            else:
                waiting.waiting -= 1
        if len(said) > released - unbooked:
            write(said[released - unbooked :], output)
        fresh = len(after) - len(still)
        if fresh > 0:
            self.hold(output, fresh)

    def hold(self, output: FrameOutput, share: int) -> None:
        """Make the frame wait for `share` of its characters."""
        output.waiting += 1
        output.held += share
        self._waiting.append((output, share))

    def release_all(self) -> None:
        """Stop all waiting: the held text goes out with a later frame."""
        for waiting, _ in self._waiting:
            waiting.waiting -= 1
        self._waiting.clear()


def grow_block(index: int) -> Callable[[str, FrameOutput], None]:
    """A `write` for the block of a call."""
    return lambda text, output: output.events.append(BlockDelta(index, text))
