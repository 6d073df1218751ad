"""What holds for every fault of leaks, identifiers and arguments, whatever is said."""

from __future__ import annotations

import json
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moonshim.engine.wire.json_codec import encode
from moonshim.simulator.fault import Fault
from moonshim.simulator.faults import arguments, ids, leaks_k2, leaks_k3
from moonshim.simulator.request import SimCall, Wire
from moonshim.simulator.response import HostResponse
from tests.simulator.faults.answers import (
    LS,
    PARIS,
    WIRES,
    answer_to,
    answers,
    apply_speech,
    by_name,
    payloads_of,
    round_of,
    sim_request,
)
from tests.support.looped import looped
from tests.support.profiles import examples

FAULTS: Final = by_name((*leaks_k2.FAULTS, *leaks_k3.FAULTS, *ids.FAULTS, *arguments.FAULTS))
AS_IT_SHOULD_BE: Final = {("anthropic", False): {"ids-k2", "arguments-empty"}}
"""What is no fault of K2's own identifiers, and what the whole input of a call, which is an object, cannot show."""
faults: Final = st.sampled_from(tuple(FAULTS.values()))


def missing(fault: Fault, answer: HostResponse) -> bool:
    """Whether the answer has not what the fault needs to show."""
    has = {"": True, "calls": answer.calls, "reasoning": answer.reasoning, "parallel": answer.calls[1:]}
    return not has[fault.needs]


def test_no_two_faults_share_a_name() -> None:
    modules = (leaks_k2, leaks_k3, ids, arguments)
    assert len(FAULTS) == sum(len(module.FAULTS) for module in modules)


@settings(max_examples=examples(40))
@given(answers())
def test_any_answer_goes_wrong_in_every_way_and_can_be_sent(answer: HostResponse) -> None:
    for fault in FAULTS.values():
        reply = apply_speech(fault, answer)
        assert (reply.intended, reply.request, reply.id) == (answer.intended, answer.request, answer.id)
        assert reply == apply_speech(fault, answer)
        assert json.loads(encode(payloads_of(fault, answer))) is not None
        if missing(fault, answer):
            assert reply == answer, fault.name


@given(answers(), faults, faults)
def test_a_fault_behind_another_raises_nothing(answer: HostResponse, first: Fault, second: Fault) -> None:
    assert payloads_of(second, apply_speech(first, answer))


@settings(max_examples=examples(40))
@given(answers(calls=False))
def test_an_answer_without_calls_is_left_alone_by_what_needs_them(answer: HostResponse) -> None:
    for fault in FAULTS.values():
        if fault.needs in ("calls", "parallel"):
            assert apply_speech(fault, answer) == answer, fault.name


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
@looped("wire", WIRES)
@looped("stream", [True, False])
def test_every_fault_shows(fault: Fault, wire: Wire, stream: bool) -> None:
    generation = {"k2": "k2.5", "k3": "k3"}[fault.families[0]]
    asked = sim_request(generation, wire, history=round_of(SimCall("functions.Bash:0", *LS)), stream=stream)
    awkward = ("plan", r'{"todos": [{"a": "b\nc"}], "pattern": "\\d+\\x1b"}')
    answer = answer_to(asked, PARIS, awkward, ("rest", "{}"))
    right = payloads_of(Fault(name="none", group="ids", about=""), answer)
    assert (payloads_of(fault, answer) == right) is (fault.name in AS_IT_SHOULD_BE.get((wire, stream), {"ids-k2"}))
