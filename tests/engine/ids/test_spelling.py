"""How each form spells an identifier, and that no two ever meet."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.engine.ids.spelling import (
    CanonicalIds,
    UniqueIds,
    anthropic_id,
    canonical_id,
    k2_id,
    k2_index,
    mistral_id,
    standard_id,
)
from tests.engine.ids.counting import steps

STANDARD = {
    "hist_tool_q1": "call_q1",
    "call_q1": "call_q1",
    "toolu_q1": "call_q1",
    "other_q1": "call_other_q1",
    "hist_tool_a-1.b:2": "call_a-1b2",
    "call_q.1": "call_q1",
    "functions.ls:3": "call_functionsls3",
    "call_call_q": "call_call_q",
    "": "call_",
}
CANONICAL = {
    "hist_tool_q1": "hist_tool_q1",
    "call_q1": "hist_tool_q1",
    "toolu_q1": "hist_tool_q1",
    "other_q": "hist_tool_other_q",
    "call_q.1": "hist_tool_q1",
    "functions.ls:3": "hist_tool_functionsls3",
    "": "hist_tool_",
}
ANTHROPIC = {
    "call_q1": "toolu_q1",
    "hist_tool_q1": "toolu_q1",
    "toolu_q1": "toolu_q1",
    "call_q.1": "toolu_q-1",
    "functions.ls:0": "toolu_functions-ls-0",
    "srvtoolu_01": "srvtoolu_01",
    "": "toolu_empty",
}


@pytest.mark.parametrize(("id", "expected"), STANDARD.items())
def test_the_standard_form(id: str, expected: str) -> None:
    assert standard_id(id) == expected


@pytest.mark.parametrize(("id", "expected"), CANONICAL.items())
def test_the_canonical_form(id: str, expected: str) -> None:
    assert canonical_id(id) == expected


@pytest.mark.parametrize(("id", "expected"), ANTHROPIC.items())
def test_the_anthropic_form(id: str, expected: str) -> None:
    assert anthropic_id(id) == expected


def test_the_mistral_form_keeps_what_is_right_already() -> None:
    assert mistral_id("D681PevKs") == "D681PevKs"
    assert mistral_id("call_abcd") != mistral_id("call_abce")


@given(st.text(max_size=80), st.sampled_from(["", "_2", "_31"]))
def test_every_form_is_right_for_any_identifier(id: str, mark: str) -> None:
    assert re.fullmatch(r"hist_tool_[A-Za-z0-9_-]*", canonical_id(id))
    assert re.fullmatch(r"call_[A-Za-z0-9_-]{0,35}", standard_id(id, mark))
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", anthropic_id(id, mark))
    assert re.fullmatch(r"[A-Za-z0-9]{9}", mistral_id(id, mark))


@given(st.text(max_size=80))
def test_the_canonical_form_and_the_standard_one_are_stable(id: str) -> None:
    assert canonical_id(canonical_id(id)) == canonical_id(id)
    assert standard_id(canonical_id(id)) == standard_id(standard_id(canonical_id(id)))


def test_long_identifiers_that_begin_alike_stay_apart() -> None:
    one, two = "call_" + "a" * 100, "call_" + "a" * 101
    assert len({standard_id(one), standard_id(two), standard_id(one, "_2")}) == 3
    assert len({anthropic_id(one), anthropic_id(two), anthropic_id(one, "_2")}) == 3


K2 = {
    "functions.ls:0": 0,
    "functions.a.b-c:3": 3,
    "functions.a:b:7": 7,
    "functions.ls:999999999": 999_999_999,
    "functions.ls:1000000000": None,
    "functions.ls:007": None,
    "functions.ls:-1": None,
    "functions.ls:٣": None,
    "functions.ls: 3": None,
    "functions.ls:3\n": None,
    "functions.ls:": None,
    "functions.ls": None,
    "functions.:3": None,
    "functions:3": None,
    "ls:3": None,
    "": None,
}


@pytest.mark.parametrize(("id", "index"), K2.items())
def test_the_index_of_a_k2_identifier(id: str, index: int | None) -> None:
    assert k2_index(id) == index


@given(st.text(min_size=1, max_size=8), st.integers(0, 999_999_999), st.sampled_from(["functions", "fn", ""]))
def test_a_k2_identifier_is_read_back(name: str, index: int, prefix: str) -> None:
    assert k2_index(k2_id(name, index, prefix), prefix) == index
    assert k2_index(k2_id(name, index, prefix), prefix, name) == index


def test_a_call_without_a_name_has_an_identifier_that_is_read_back() -> None:
    assert k2_index(k2_id("", 4), name="") == 4


def test_two_wire_identifiers_that_would_become_equal_stay_apart() -> None:
    ids = CanonicalIds()
    assert ids.resolve("call_a.b") == "hist_tool_ab"
    assert ids.resolve("call_ab") == "hist_tool_ab_2"
    assert ids.resolve("toolu_ab") == "hist_tool_ab_3"
    assert ids.resolve("call_a.b") == "hist_tool_ab"
    assert ids.resolve("hist_tool_ab_2") == "hist_tool_ab_2_2"
    assert ids.new("call_ab") == "hist_tool_ab_4"


@given(st.lists(st.text(alphabet="ab._2-", max_size=6), max_size=20))
def test_canonical_identifiers_are_equal_exactly_when_the_wire_ones_are(wires: list[str]) -> None:
    ids = CanonicalIds()
    assert len({ids.resolve(wire) for wire in wires}) == len(set(wires))
    again = CanonicalIds()
    assert [again.resolve(wire) for wire in wires] == [ids.resolve(wire) for wire in wires]


def test_giving_out_the_same_identifier_often_is_linear() -> None:
    def take(count: int) -> int:
        ids = UniqueIds()
        return steps(lambda: [ids.take(lambda mark: "x" + mark) for _ in range(count)])

    assert take(2000) <= 2.1 * take(1000)
