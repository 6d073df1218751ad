"""Law 7: work is linear in the input, and memory per stream is bounded."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Final, Literal

import pytest

import moonshim
from tests.laws.measure import HELD, HOARDED, IN_PIECES, Hoarder, run
from tests.laws.scripts import TOOLS
from tests.laws.workloads import KINDS, Workload
from tests.support.profiles import PROFILE
from tests.support.streams import chunk, sse

_FRAMES: Final = 100 if PROFILE == "quick" else 250
"""Frames of the shortest stream; it is compared with one four times as long."""
_PER_DOUBLING: Final = 2.3
_LONG: Final = 100_000 if PROFILE == "quick" else 300_000
_STEP: Final = 256
_MEMORY: Final = 80 * 1024

Measured = Callable[[Literal["copied", "held", "peak"], str, int, Sequence[int]], list[int]]
"""What is measured, the kind of stream, by how many characters, how many in all -> the bytes, for each of these sizes.

Each answer is from a process of its own: see `measure.py`."""


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


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        # A set of strings takes more or less room with another seed.
        "PYTHONHASHSEED": "0",
        # So many processes would spend most of their time on compiling the same modules, if nobody kept the results.
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(tmp_path_factory.mktemp("compiled")),
    }

    def ask(measure: str, name: str, step: int, sizes: Sequence[int]) -> list[int]:
        command = [sys.executable, "-m", "tests.laws.measure", measure, name, str(step), *map(str, sizes)]
        found = json.loads(subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True).stdout)
        assert isinstance(found, list)
        return found

    return ask


def doubled(size: int) -> tuple[int, int, int]:
    return size, 2 * size, 4 * size


def assert_in_line(once: int, twice: int, four: int) -> None:
    assert four <= once * _PER_DOUBLING**2, f"{once} -> {twice} -> {four}"
    assert four <= twice * (_PER_DOUBLING + 0.2), f"{once} -> {twice} -> {four}"


def assert_linear(measure: Callable[[int], int], size: int) -> None:
    assert_in_line(*map(measure, doubled(size)))


def _work(kind: Workload, size: int) -> int:
    mender, frames = kind.mender(), kind.frames(size)
    return calls_made(lambda: run(mender, frames))


@pytest.mark.parametrize("name", KINDS)
def test_the_number_of_calls_grows_with_the_input(name: str) -> None:
    kind = KINDS[name]
    _work(kind, 50 * kind.step)
    assert_linear(lambda size: _work(kind, size), _FRAMES * kind.step)


@pytest.mark.parametrize("name", KINDS)
def test_what_is_copied_grows_with_the_input(name: str, measured: Measured) -> None:
    step = KINDS[name].step
    assert_in_line(*measured("copied", name, step, doubled(_FRAMES * step)))


@pytest.mark.parametrize("name", KINDS)
def test_memory_does_not_grow_with_the_input(name: str, measured: Measured) -> None:
    kind = KINDS[name]
    (used,) = measured("peak", name, _STEP, [_LONG])
    assert used <= _MEMORY + kind.kept(kind.frames(_LONG, _STEP)), f"{used} bytes"


@pytest.mark.parametrize("name", HELD)
def test_held_text_takes_at_most_twice_its_size(name: str, measured: Measured) -> None:
    less, more = measured("held", name, 4, [20_000, 60_000])
    assert more - less <= 2 * 40_000, f"{more - less} bytes for 40,000 characters"


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


def test_many_bytes_of_one_frame_are_read_once(measured: Measured) -> None:
    assert_in_line(*measured("copied", IN_PIECES, 16, doubled(5_000)))


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


def test_a_mender_that_begins_anew_with_every_frame_would_be_found_out(measured: Measured) -> None:
    kind = KINDS["plain text"]
    with pytest.raises(AssertionError, match="->"):
        assert_linear(lambda size: calls_made(lambda: run(Hoarder(), kind.frames(size))), 4 * _FRAMES)
    copied = measured("copied", HOARDED, kind.step, doubled(_FRAMES * kind.step))
    with pytest.raises(AssertionError, match="->"):
        assert_in_line(*copied)
    (used,) = measured("peak", HOARDED, _STEP, [_LONG])
    assert used > _MEMORY
