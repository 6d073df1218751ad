"""Texts are cut in several ways, and are the same text when they are put together."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.simulator.response import Cut
from moonshim.simulator.wire.chunking import pieces

MARKERS = ("<|tool_calls_section_begin|>", "<|tool_call_argument_begin|>", "<|open|>", "</think>", "<think>")


@pytest.mark.parametrize("cut", get_args(Cut))
@given(text=st.text() | st.lists(st.sampled_from((*MARKERS, "a", " ", "<|", "|>", "7", "\n"))).map("".join))
def test_the_pieces_of_a_text_are_the_text(text: str, cut: Cut) -> None:
    assert "".join(pieces(text, cut)) == text
    assert all(pieces(text, cut))


@pytest.mark.parametrize("marker", MARKERS)
def test_a_marker_is_one_token(marker: str) -> None:
    assert pieces(f"x{marker}{marker}y", "tokens") == ["x", marker, marker, "y"]
