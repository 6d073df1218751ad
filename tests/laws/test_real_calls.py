"""A real call in markers arrives whole, also in a conversation that is full of markers, backticks and quotes."""

from __future__ import annotations

from typing import Final

import pytest

from tests.laws.marker_texts import real_calls
from tests.laws.marker_texts.cases import Runner, report
from tests.laws.marker_texts.show import FENCED, MIXED, PARSED, REAL_CALLS

_BLOCKS: Final = 10


@pytest.mark.parametrize("block", range(_BLOCKS))
def test_a_real_call_arrives(block: int) -> None:
    found = [case for number in range(block, REAL_CALLS, _BLOCKS) for case in real_calls.cases(number)]
    faults = Runner().faults(found)
    assert not faults, report(faults, len(found), "real")


def test_a_response_can_quote_one_call_and_make_another() -> None:
    found = [real_calls.mixed(number) for number in range(MIXED)]
    faults = Runner().faults(found)
    assert not faults, report(faults, len(found), "mixed")


def test_a_call_alone_in_a_fence_is_one_only_if_the_host_says_so() -> None:
    found = [real_calls.fenced(number) for number in range(FENCED)]
    faults = Runner().faults(found)
    assert not faults, report(faults, len(found), "fenced")


def test_a_host_that_reads_markers_itself_leaves_none_in_content() -> None:
    found = [real_calls.at_a_parsing_host(number) for number in range(PARSED)]
    faults = Runner().faults(found)
    assert not faults, report(faults, len(found), "parsing-host")
