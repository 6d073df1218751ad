"""Law 7: work is linear in the input, and memory per stream is bounded."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Final, Protocol

import pytest

import moonshim
from tests.profiles import PROFILE
from tests.properties.scripts import TOOLS
from tests.properties.workloads import KINDS, Workload
from tests.streams import chunk, sse

_FRAMES: Final = 100 if PROFILE == "quick" else 250
"""Frames of the shortest stream; it is compared with one four times as long."""
_PER_DOUBLING: Final = 2.3
_LONG: Final = 100_000 if PROFILE == "quick" else 300_000
_STEP: Final = 256
_MEMORY: Final = 64 * 1024


class Feeds(Protocol):
    def feed(self, data: bytes, /) -> bytes: ...
    def flush(self) -> bytes: ...


def run(mender: Feeds, frames: Sequence[bytes]) -> None:
    for frame in frames:
        mender.feed(frame)
    mender.flush()


def calls_made(work: Callable[[], object]) -> int:
    """How many functions were called, in Python and in C."""
    count = 0

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    gc.disable()
    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(before)
        gc.enable()
    return count


def bytes_copied(mender: Feeds, frames: Sequence[bytes]) -> int:
    """What was allocated at most in each step, summed up: a copy of what is held shows, however few calls it takes."""
    total = 0
    tracemalloc.start()
    try:
        for frame in frames:
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            mender.feed(frame)
            total += max(0, tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
    return total


def assert_linear(measure: Callable[[int], int], size: int) -> None:
    once, twice, four = (measure(size * factor) for factor in (1, 2, 4))
    assert four <= once * _PER_DOUBLING**2, f"{once} -> {twice} -> {four}"
    assert four <= twice * (_PER_DOUBLING + 0.2), f"{once} -> {twice} -> {four}"


def _work(kind: Workload, size: int) -> int:
    mender, frames = kind.mender(), kind.frames(size)
    return calls_made(lambda: run(mender, frames))


@pytest.mark.parametrize("name", KINDS)
def test_the_number_of_calls_grows_with_the_input(name: str) -> None:
    kind = KINDS[name]
    _work(kind, 50 * kind.step)
    assert_linear(lambda size: _work(kind, size), _FRAMES * kind.step)


@pytest.mark.parametrize("name", KINDS)
def test_what_is_copied_grows_with_the_input(name: str) -> None:
    kind = KINDS[name]
    bytes_copied(kind.mender(), kind.frames(50 * kind.step))

    def copied(size: int) -> int:
        # What the interpreter or another thread allocates meanwhile only adds: the least of two is ours.
        return min(bytes_copied(kind.mender(), kind.frames(size)) for _ in range(2))

    assert_linear(copied, _FRAMES * kind.step)


def peak(mender: Callable[[], Feeds], frames: Sequence[bytes]) -> int:
    """The most memory that a stream had at any time; of two streams the lesser, since noise only adds."""
    return min(_peak_once(mender, frames) for _ in range(2))


def _peak_once(mender: Callable[[], Feeds], frames: Sequence[bytes]) -> int:
    gc.freeze()
    tracemalloc.start()
    try:
        one = mender()
        for place, frame in enumerate(frames):
            one.feed(frame)
            if place % 256 == 0:
                # The interpreter keeps small objects for later use: that is no memory of ours.
                gc.collect()
        one.flush()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.unfreeze()


@pytest.mark.parametrize("name", KINDS)
def test_memory_does_not_grow_with_the_input(name: str) -> None:
    kind = KINDS[name]
    frames = kind.frames(_LONG, step=_STEP)
    run(kind.mender(), frames[:50])
    used = peak(kind.mender, frames)
    assert used <= _MEMORY + kind.kept(frames), f"{used} bytes"


# -- in one go -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "words and words ",
        "<|tool_call_begin|>",
        "<",
        "{",
        "read:0 ",
        "</think>",
        "<|open|>",
        "   ",
        "\\",
        "functions.",
    ],
)
@pytest.mark.parametrize("model", ["kimi-k2.5", "kimi-k3", "kimi-for-coding"])
def test_one_huge_frame_is_linear(text: str, model: str) -> None:
    def work(size: int) -> int:
        data = sse([chunk({"content": "<|tool_call_begin|>x" + text * size}), chunk({}, "stop")])
        mender = moonshim.Mender(model=model, tools=list(TOOLS))
        return calls_made(lambda: run(mender, [data]))

    assert_linear(work, 500)


def test_many_bytes_of_one_frame_are_read_once() -> None:
    def copied(size: int) -> int:
        data = sse([chunk({"content": "word " * size})])
        return bytes_copied(moonshim.Mender(model="kimi-k2.5"), [data[at : at + 16] for at in range(0, len(data), 16)])

    assert_linear(copied, 1_000)


def _history(count: int) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    for place in range(count):
        function = {"name": "read", "arguments": "{}"}
        entry = {"id": f"functions.read:{place % 7}", "type": "function", "function": function}
        turns.append({"role": "assistant", "content": None, "tool_calls": [entry]})
        turns.append({"role": "tool", "tool_call_id": entry["id"], "content": "done"})
    return turns


def test_a_long_history_is_read_once() -> None:
    frames = KINDS["native calls"].frames(600)

    def work(count: int) -> int:
        history = _history(count)
        return calls_made(lambda: run(moonshim.Mender(model="kimi-k2.5", tools=list(TOOLS), history=history), frames))

    assert_linear(work, 1_250)


# -- the measures themselves -----------------------------------------------------------------------------------


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


def test_a_mender_that_begins_anew_with_every_frame_would_be_found_out() -> None:
    frames = KINDS["plain text"].frames
    with pytest.raises(AssertionError):
        assert_linear(lambda size: calls_made(lambda: run(Hoarder(), frames(size))), 4 * _FRAMES)
    with pytest.raises(AssertionError):
        assert_linear(lambda size: bytes_copied(Hoarder(), frames(size)), 4 * _FRAMES)
    assert peak(Hoarder, frames(3_000)) > _MEMORY
