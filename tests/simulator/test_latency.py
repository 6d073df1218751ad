"""Every piece has its moment, counted from the beginning."""

from __future__ import annotations

import pytest

from moonshim.simulator.fault import CUT, Piece, Stall
from moonshim.simulator.http.latency import Latency


def test_without_a_speed_everything_is_due_at_once() -> None:
    assert [moment for moment, _ in Latency().moments([b"a", b"b"], 1000)] == [0, 0]


def test_the_first_piece_waits_for_the_first_token() -> None:
    assert next(iter(Latency(0, 250).moments([b"a"], 1)))[0] == 0.25


@pytest.mark.parametrize("count", [2, 100, 5000])
def test_an_answer_takes_as_long_however_it_is_cut(count: int) -> None:
    moments = [moment for moment, _ in Latency(50).moments([b"x"] * count, 200)]
    assert moments[-1] == pytest.approx(4 * (count - 1) / count)


def test_what_comes_behind_a_stall_is_due_later() -> None:
    pieces: list[Piece] = [b"a", Stall(3), b"b", CUT]
    assert [moment for moment, _ in Latency(1).moments(pieces, 2)] == [0, 0, 4, 5]


def test_an_answer_that_comes_at_once_is_there_when_its_last_token_is() -> None:
    assert Latency(10, 500).whole(20) == 2.5
