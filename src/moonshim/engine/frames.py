"""A payload of the host on its way through the engine: what was read in it, and what leaves for it.

A clean stream must leave as it came, frame by frame, even where a frame ends in a
`<` that might have started a marker. So a frame whose last characters are undecided
waits; once they turn out to be ordinary, they are booked to the frame they came
in, and it leaves untouched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from msgspec import Struct

from moonshim.engine.upstream_events import UpstreamEvent
from moonshim.engine.values.events import BlockDelta, Event, Failed

__all__ = ["FrameOutput", "HeldFrames", "HostFrame", "Part", "Released", "grow_block"]

Origin = TypeVar("Origin")


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


class Part(FrameOutput, eq=False):
    """One choice of a payload: what was read in it, and the events that leave for it."""

    index: int = 0
    """The index of the choice."""
    numbers: Mapping[int, int] = {}
    """The number of each call, by its block."""
    read: list[UpstreamEvent] = []
    ids: list[str | None] | None = None
    """Where native calls are not to be touched: the identifier to write for each piece, None to leave it."""
    summary: Callable[[], list[Any]] | None = None
    """Gives the calls of the choice so far, each with its number, where its last chunk is to repeat them."""


class HostFrame(Struct, Generic[Origin], eq=False):
    """A payload of the host, or something that has no payload (a comment), or what is added at the end."""

    origin: Origin | None
    """Where it came from (the bytes, say); None for what the host did not send."""
    payload: dict[str, Any] | None
    read: list[UpstreamEvent] = []
    """All that was read in the payload, for every choice."""
    parts: list[Part] = []
    size: int = 0
    """How many characters of text came in it."""
    passes: bool = False
    """It leaves as it came: it contains nothing that the engine knows."""
    failed: Failed | None = None
    """The error that it reports."""


class Released(Struct, Generic[Origin]):
    """A frame that leaves: as it came (`payloads` is None), or as these payloads."""

    origin: Origin | None
    payloads: list[dict[str, Any]] | None = None


class HeldFrames:
    """The frames that wait for one held text, each with its share of it."""

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
        What of `before` was said goes to those who wait for it; the rest of `said`
        is the frame's own. Whoever waits for text that became part of a marker waits
        no longer.
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
        """The frame waits for so many of its characters."""
        output.waiting += 1
        output.held += share
        self._waiting.append((output, share))

    def release_all(self) -> None:
        """Nobody waits any longer: what is held will go out with a later frame."""
        for waiting, _ in self._waiting:
            waiting.waiting -= 1
        self._waiting.clear()


def grow_block(index: int) -> Callable[[str, FrameOutput], None]:
    """A `write` for the block of a call."""
    return lambda text, output: output.events.append(BlockDelta(index, text))
