"""A stream of a kind, at several lengths -> the memory that each takes, measured where nothing else happens.

`tracemalloc` counts for the whole process. In one that runs tests there are the threads of pytest-xdist, callbacks of
the garbage collector, and caches that fill up whenever they like; what they allocate looks as if the stream had. So
the tests start this file in a process of its own, which has nothing in it but the interpreter, Moonshim and the stream.
"""

from __future__ import annotations

import gc
import json
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

import moonshim
import moonshim.engine.repair.schema  # loaded when it is first needed, which is not what a stream takes
from tests.laws.workloads import KINDS
from tests.support.streams import chunk, split_bytes, sse

__all__ = ["HELD", "HOARDED", "IN_PIECES", "Feeds", "Hoarder", "run"]

HOARDED: Final = "plain text that is hoarded"
IN_PIECES: Final = "one frame in pieces"
HELD: Final = {
    f"{name}, below the limit": replace(kind, options=kind.options | {"buffer_limit": 1 << 20})
    for name, kind in KINDS.items()
    if "buffer_limit" in kind.options
}
"""The kinds that are held on purpose, with more room than they need."""
_COLLECT: Final = 256
"""Frames between two collections."""


class Feeds(Protocol):
    def feed(self, data: bytes, /) -> bytes: ...
    def flush(self) -> bytes: ...


class Hoarder:
    """Keeps all that came, and looks through it again with every frame."""

    def __init__(self) -> None:
        self._data = b""
        self._frames: list[bytes] = []

    def feed(self, data: bytes) -> bytes:
        self._data = self._data + data
        self._frames.append(data)
        for frame in self._frames:
            len(frame)
        return data

    def flush(self) -> bytes:
        return b""


class _Stream(NamedTuple):
    mender: Callable[[], Feeds]
    frames: Callable[[int, int], Sequence[bytes]]
    """How many characters, in pieces of which size -> the stream."""


def _in_pieces(size: int, step: int) -> list[bytes]:
    return split_bytes(sse([chunk({"content": "word " * (size // 5)})]), step)


_STREAMS: Final = {
    **{name: _Stream(kind.mender, kind.frames) for name, kind in (KINDS | HELD).items()},
    IN_PIECES: _Stream(lambda: moonshim.Mender(model="kimi-k2.5"), _in_pieces),
    HOARDED: _Stream(Hoarder, KINDS["plain text"].frames),
}


def run(mender: Feeds, frames: Sequence[bytes]) -> None:
    for frame in frames:
        mender.feed(frame)
    mender.flush()


def _copied(mender: Callable[[], Feeds], frames: Sequence[bytes]) -> int:
    """What was allocated at most in each step, summed up: a copy of what is held shows, however few calls it takes."""
    one = mender()
    total = 0
    for frame in frames:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        one.feed(frame)
        total += max(0, tracemalloc.get_traced_memory()[1] - before)
    return total


def _peak(mender: Callable[[], Feeds], frames: Sequence[bytes]) -> int:
    """The most memory that a stream had at any time."""
    one = mender()
    for place, frame in enumerate(frames, 1):
        one.feed(frame)
        if place % _COLLECT == 0:
            # The interpreter keeps small objects for later use: that is no memory of ours.
            gc.collect()
    one.flush()
    return tracemalloc.get_traced_memory()[1]


def _held(mender: Callable[[], Feeds], frames: Sequence[bytes]) -> int:
    """The memory that a stream has before its last two frames, which end it."""
    one = mender()
    for frame in frames[:-2]:
        one.feed(frame)
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


_MEASURES: Final = {"copied": _copied, "held": _held, "peak": _peak}


def _assert_quiet() -> None:
    noisy = {"_pytest", "hypothesis", "xdist"} & sys.modules.keys()
    assert not noisy, f"this process measures, and has {noisy} in it"
    threads = len(sys._current_frames())
    assert threads == 1, f"this process measures, and has {threads} threads"
    assert not gc.callbacks, "this process measures, and something runs with every collection"


def main(measure: str, name: str, step: int, sizes: Sequence[int]) -> list[int]:
    _assert_quiet()
    stream = _STREAMS[name]
    # From here on garbage is collected where the measure says so, and nowhere else.
    gc.collect()
    gc.freeze()
    gc.disable()
    # What is made once and kept (imported modules, caches, small objects for later use) is there before anything is
    # measured. The text is cut elsewhere, so that pieces that were remembered would not serve for the next stream.
    run(stream.mender(), stream.frames(max(sizes), step + 1))
    found: list[int] = []
    for size in sizes:
        frames = stream.frames(size, step)
        tracemalloc.start()
        found.append(_MEASURES[measure](stream.mender, frames))
        tracemalloc.stop()
    return found


if __name__ == "__main__":
    asked, of, by, *lengths = sys.argv[1:]
    json.dump(main(asked, of, int(by), [int(length) for length in lengths]), sys.stdout)
