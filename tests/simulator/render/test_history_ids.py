"""Which ids a model would have written, and what renaming makes of those that it would not have."""

from __future__ import annotations

from moonshim.simulator.render.history_ids import HistoryId, history_ids, rename_ids
from moonshim.simulator.request import SimCall, SimResult, SimTurn


def ai(*ids: str, name: str = "ls") -> SimTurn:
    return SimTurn(role="assistant", calls=tuple(SimCall(id, name, "{}") for id in ids))


def received(*ids: str) -> SimTurn:
    return SimTurn(role="tool", results=tuple(SimResult(id, "ls", "x") for id in ids))


def displayed(*turns: SimTurn) -> list[str]:
    return [
        id
        for turn in rename_ids(turns)
        for id in (*(call.id for call in turn.calls), *(result.call_id for result in turn.results))
    ]


def test_the_index_counts_over_the_whole_conversation() -> None:
    assert displayed(ai("a", "b"), received("b", "a"), ai("c", name="cat"), received("c")) == [
        "functions.ls:0",
        "functions.ls:1",
        "functions.ls:1",
        "functions.ls:0",
        "functions.cat:2",
        "functions.cat:2",
    ]


def test_an_id_that_comes_again_names_the_oldest_call_without_a_result() -> None:
    assert displayed(ai("x"), received("x"), ai("x"), received("x")) == [
        "functions.ls:0",
        "functions.ls:0",
        "functions.ls:1",
        "functions.ls:1",
    ]
    assert displayed(ai("x", "x"), received("x", "x")) == [
        "functions.ls:0",
        "functions.ls:1",
        "functions.ls:0",
        "functions.ls:1",
    ]


def test_a_result_of_no_call_keeps_what_it_has() -> None:
    assert displayed(received("nobody")) == ["nobody"]
    assert history_ids((received("nobody"),)) == [HistoryId(0, "nobody", "")]


def test_what_is_right_stays() -> None:
    turns = (SimTurn(role="user", text="Hi"), ai("functions.ls:0"), received("functions.ls:0"))
    assert rename_ids(turns) == turns
    assert {(one.place, one.sent == one.right) for one in history_ids(turns)} == {(1, True), (2, True)}
