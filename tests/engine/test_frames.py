"""Held frames: text that was held back is booked to the frame it came in; no frame waits longer than needed."""

from __future__ import annotations

from itertools import pairwise, product

import pytest

from moonshim.engine.frames import FrameOutput, HeldFrames, grow_block
from moonshim.engine.grammar.shared.markers import MarkerSet
from moonshim.engine.values.events import BlockDelta, BlockOpened, Repaired


class Street:
    """Held frames; each tells what was booked to it."""

    def __init__(self) -> None:
        self.held_frames = HeldFrames()
        self.held = ""
        self.outputs: list[FrameOutput] = []

    def read(self, said: str, after: str) -> None:
        """A new frame came; with it this was said, and now this is held."""
        self.outputs.append(FrameOutput())
        before, self.held = self.held, after
        self.held_frames.resolve(before, said, after, grow_block(0), self.outputs[-1])

    @property
    def booked(self) -> list[str]:
        return [
            "".join(event.text for event in output.events if isinstance(event, BlockDelta)) for output in self.outputs
        ]

    @property
    def waiting(self) -> list[int]:
        return [output.waiting for output in self.outputs]


# for each frame: what was said with it, what is held then; at the end: what was booked to each, which ones wait
SCRIPTS: dict[str, tuple[list[tuple[str, str]], list[str], list[int]]] = {
    "nothing is held": ([("abc", ""), ("def", "")], ["abc", "def"], [0, 0]),
    "a frame that said nothing": ([("", "")], [""], [0]),
    "the end of a frame is held": ([("ab", "<")], ["ab"], [1]),
    "what was held was ordinary": ([("ab", "<"), ("< c", "")], ["ab<", " c"], [0, 0]),
    "all of a frame is held, then ordinary": ([("", "<|"), ("<| c", "")], ["<|", " c"], [0, 0]),
    "what was held became a marker": ([("ab", "<"), ("", "")], ["ab", ""], [0, 0]),
    "a marker, and other text behind it": ([("ab", "<"), ("cd", "")], ["ab", "cd"], [0, 0]),
    "a marker, and a new tail": ([("ab", "<|tool"), ("", "<")], ["ab", ""], [0, 1]),
    "a second frame is held too": ([("ab", "<"), ("", "<|to")], ["ab", ""], [1, 1]),
    "both frames were ordinary": ([("ab", "<"), ("", "<|to"), ("<|to x", "")], ["ab<", "|to", " x"], [0, 0, 0]),
    "both frames were a marker": ([("ab", "<"), ("", "<|to"), ("", "")], ["ab", "", ""], [0, 0, 0]),
    "the old tail is said, a new one held": ([("a", "<"), ("<b", "<")], ["a<", "b"], [0, 1]),
    "only the first of two frames is released": ([("", "<"), ("<", "<")], ["<", ""], [0, 1]),
    "a frame is released in part": ([("", "aa"), ("a", "aa")], ["a", ""], [1, 1]),
    "a frame is released in two parts": ([("", "aa"), ("a", "aa"), ("aac", "")], ["aa", "a", "c"], [0, 0, 0]),
    "the rest of a frame became a marker": ([("", "aa"), ("a", "aa"), ("", "")], ["a", "", ""], [0, 0, 0]),
    "a frame that brought nothing while one waits": ([("", "<"), ("", "<"), ("<x", "")], ["<", "", "x"], [0, 0, 0]),
}


@pytest.mark.parametrize("case", SCRIPTS)
def test_text_is_booked_to_the_frame_it_came_in(case: str) -> None:
    frames, booked, waiting = SCRIPTS[case]
    street = Street()
    for said, after in frames:
        street.read(said, after)
    assert street.booked == booked
    assert street.waiting == waiting


def test_ordinary_text_leaves_in_the_very_frames_it_came_in_however_it_was_cut() -> None:
    markers = MarkerSet(["aab"])
    for letters in product("ac", repeat=6):
        text = "".join(letters)
        for cuts in product([False, True], repeat=5):
            at = [0, *(place for place, cut in enumerate(cuts, 1) if cut), 6]
            street, frames = Street(), [text[a:b] for a, b in pairwise(at)]
            for frame in frames:
                seen = street.held + frame
                tail = len(seen) - markers.partial_length(seen)
                street.read(seen[:tail], seen[tail:])
            street.read(street.held, "")
            assert street.booked == [*frames, ""]
            assert not any(street.waiting)


def test_frames_that_leave_go_without_what_is_held_and_it_goes_out_with_a_later_one() -> None:
    street = Street()
    street.read("a", "<")
    street.held_frames.release_all()
    assert street.waiting == [0]
    street.read("<b", "")
    assert street.booked == ["a", "<b"]


def test_loose_text_goes_out_with_the_first_frame_that_waits() -> None:
    street = Street()
    street.read("a", "<")
    street.held_frames.release_all()
    street.read("", "<|")
    assert street.waiting == [0, 1]
    street.read("<|c", "")
    assert street.booked == ["a", "<|", "c"]
    assert street.waiting == [0, 0, 0]


def test_no_loose_character_is_lost_when_only_a_part_is_released() -> None:
    street = Street()
    street.read("", "aa")
    street.held_frames.release_all()
    for said, after in (("a", "aa"), ("a", "aa"), ("aac", "")):
        street.read(said, after)
    assert "".join(street.booked) == "aaaac"
    assert not any(street.waiting)


def test_an_output_waits_once_for_each_text_it_is_held_for() -> None:
    one, other, output = HeldFrames(), HeldFrames(), FrameOutput()
    one.hold(output, 1)
    other.hold(output, 2)
    assert output.waiting == 2
    one.release_all()
    assert output.waiting == 1
    other.resolve("<|", "<|", "", grow_block(3), FrameOutput())
    assert output.waiting == 0
    assert output.events == [BlockDelta(3, "<|")]


def test_releasing_twice_is_releasing_once() -> None:
    held_frames, output = HeldFrames(), FrameOutput()
    held_frames.hold(output, 1)
    held_frames.release_all()
    held_frames.release_all()
    assert output.waiting == 0


def test_the_size_of_an_output_counts_its_text_and_what_is_held_but_no_other_event() -> None:
    held_frames = HeldFrames()
    output = FrameOutput([BlockOpened(0, "text"), BlockDelta(0, "ab"), Repaired("framing"), BlockDelta(0, "c")])
    assert output.size == 3
    held_frames.hold(output, 2)
    assert output.size == 5
