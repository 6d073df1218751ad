"""What one incoming frame turned into, and which frames wait for text that is still held back.

A clean stream must leave as it came, frame by frame, even where a frame ends in a
`<` that might have been a marker. So a frame whose last characters are undecided
waits; once they turn out to be ordinary, they are booked to the frame they came
in, and it leaves untouched.
"""

from __future__ import annotations

from collections.abc import Callable

from moonshim.engine.values.events import BlockDelta, Event

__all__ = ["FrameOutput", "HeldFrames", "Listener", "Observer"]

Observer = Callable[[Event], None]
Listener = Callable[[int, str], None]
"""Is told which block grew, and by what."""


class FrameOutput:
    """The events that one frame gave for one choice; it is final when nothing is `waiting`."""

    __slots__ = ("_observe", "events", "held", "waiting")

    def __init__(self, observe: Observer | None = None) -> None:
        self.events: list[Event] = []
        self.waiting: int = 0
        self.held: int = 0
        """How many characters of its frame are held back."""
        self._observe = observe

    @property
    def size(self) -> int:
        """How many characters its frame would keep waiting: what it says, which may have come before it, and holds."""
        return self.held + sum(len(event.text) for event in self.events if isinstance(event, BlockDelta))

    def put(self, event: Event) -> None:
        self.events.append(event)
        if self._observe is not None:
            self._observe(event)


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
    return lambda text, output: output.put(BlockDelta(index, text))
