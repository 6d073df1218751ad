"""Halves of a character that came in two chunks are joined; one that stays alone becomes U+FFFD, and is told."""

from __future__ import annotations

from collections.abc import Hashable

import pytest

from moonshim.engine.frames import FrameOutput
from moonshim.engine.repair.surrogates import SurrogateJoiner

HIGH, LOW = "\ud83d", "\ude00"

JOINED: dict[str, tuple[list[str], list[str], int]] = {
    "text without halves": (["a", "é😀"], ["a", "é😀"], 0),
    "a pair over two texts": (["a" + HIGH, LOW + "b"], ["a", "😀b"], 0),
    "a pair in one text": (["a" + HIGH + LOW], ["a😀"], 0),
    "an empty text between the halves": ([HIGH, "", LOW], ["", "", "😀"], 0),
    "two pairs": ([HIGH, LOW + HIGH, LOW], ["", "😀", "😀"], 0),
    "a first half that stays alone": ([HIGH, "b"], ["", "\ufffdb"], 1),
    "a second half alone": ([LOW + "b"], ["\ufffdb"], 1),
    "a first half twice": ([HIGH, HIGH, LOW], ["", "\ufffd", "😀"], 1),
    "a first half in the middle": (["a" + HIGH + "b"], ["a\ufffdb"], 1),
}


@pytest.mark.parametrize("case", JOINED)
def test_halves_are_joined_over_the_texts_of_a_field(case: str) -> None:
    texts, joined, told = JOINED[case]
    joiner, output = SurrogateJoiner(), FrameOutput()
    assert [joiner.join("text", text, output) for text in texts] == joined
    assert [event.rule for event in output.events] == ["lone_surrogate"] * told  # type: ignore[union-attr]
    assert not joiner.carried


def test_each_field_has_its_own_halves() -> None:
    joiner, output = SurrogateJoiner(), FrameOutput()
    assert joiner.join("text", HIGH, output) == ""
    assert joiner.join("reasoning", "a", output) == "a"
    assert joiner.join((0, "id"), HIGH, output) == ""
    assert joiner.join("text", LOW, output) == "😀"
    assert joiner.join((0, "id"), LOW, output) == "😀"
    assert output.events == []


def test_a_half_is_carried_while_it_waits() -> None:
    joiner = SurrogateJoiner()
    assert not joiner.carried
    joiner.join("text", "a" + HIGH, FrameOutput())
    assert joiner.carried


@pytest.mark.parametrize(
    ("field", "left"),
    [("text", [("text", "\ufffd")]), ("reasoning", [("reasoning", "\ufffd")]), ((0, "id"), [])],
)
def test_at_the_end_a_half_is_told_and_speech_gets_a_character_in_its_place(
    field: Hashable, left: list[tuple[Hashable, str]]
) -> None:
    joiner, output = SurrogateJoiner(), FrameOutput()
    joiner.join(field, HIGH, output)
    assert joiner.flush(output) == left
    assert len(output.events) == 1
    assert not joiner.carried
    assert joiner.flush(output) == []
    assert len(output.events) == 1
