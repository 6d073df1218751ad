"""Fixed markers in text that arrives in pieces: where they are, and how much of an end may become one."""

from __future__ import annotations

import pytest

from moonshim.engine.grammar.shared.markers import MarkerSet, marker_set

MARKERS = MarkerSet(["<|call|>", "<|call_end|>", "<b>", "<bb>", "◁x▷"])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", None),
        ("nothing here", None),
        ("a <|call|> b", ("<|call|>", 2)),
        ("<|call_end|><|call|>", ("<|call_end|>", 0)),
        ("<<b>", ("<b>", 1)),
        ("◁x▷", ("◁x▷", 0)),
        ("<|cal", None),
    ],
)
def test_the_first_marker_is_found(text: str, found: tuple[str, int] | None) -> None:
    marker = MARKERS.find(text)
    assert (marker and (marker.group(), marker.start())) == found


def test_of_markers_that_begin_alike_the_longest_counts() -> None:
    found = MarkerSet(["<a", "<ab", "<abc"]).find("x<abcd")
    assert found is not None
    assert found.group() == "<abc"


def test_a_marker_may_be_asked_for_at_one_place() -> None:
    assert MARKERS.match("x<b>", 1) is not None
    assert MARKERS.match("x<b>", 0) is None


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("", ""),
        ("text", ""),
        ("text <", "<"),
        ("text <|", "<|"),
        ("text <|call", "<|call"),
        ("text <|call_end|", "<|call_end|"),
        ("text <|calm", ""),
        ("<<", "<"),
        ("<b<b", "<b"),
        ("◁", "◁"),
        ("< ", ""),
        ("a <|call|>", ""),
    ],
)
def test_only_an_end_that_may_still_become_a_marker_is_unfinished(text: str, held: str) -> None:
    size = MARKERS.partial_length(text)
    assert text[len(text) - size :] == held


@pytest.mark.parametrize(("start", "size"), [(0, 3), (1, 0), (3, 0)])
def test_an_unfinished_marker_does_not_begin_before_the_start(start: int, size: int) -> None:
    assert MARKERS.partial_length("<|c", start) == size


def test_text_without_a_first_character_of_any_marker_has_none() -> None:
    assert set(MARKERS.starts) == {"<", "◁"}


def test_characters_of_regular_expressions_mean_themselves() -> None:
    markers = MarkerSet(["(.*)", "[x]+"])
    assert markers.find("abc") is None
    assert markers.find("a[x]+") is not None


def test_a_marker_of_one_character_is_never_unfinished() -> None:
    assert MarkerSet(["#"]).partial_length("a#") == 0


def test_the_set_of_the_same_markers_is_made_once() -> None:
    assert marker_set("<a>", "<b>") is marker_set("<a>", "<b>")
