"""The table of all faults: what each row promises, through the same `simulate_response` that answers requests."""

from __future__ import annotations

import re
from itertools import groupby
from typing import Final

import pytest
from msgspec.structs import replace

from moonshim.engine.values.copies import deep_copy
from moonshim.simulator.fault import Fault
from moonshim.simulator.faults import FAULTS, in_order
from moonshim.simulator.host.behaviours import BEHAVIOURS, HostBehaviour
from moonshim.simulator.model.scenario import BUILT_IN
from moonshim.simulator.request import SimCall, SimRequest
from moonshim.simulator.response import HostResponse, IntendedCall, IntendedResponse, TokenTotals
from moonshim.simulator.wire.playback import (
    SimResponse,
    build_host_response,
    can_show,
    error_response,
    simulate_response,
)
from tests.simulator.faults.answers import LS, PARIS, payloads_of, round_of, sim_request

GENERATIONS: Final = {"k2": "k2.5", "k3": "k3", "other": "other"}
NESTED: Final = ("plan", '{"todos":["ä\\n\\\\d 漢字",{"n":1}],"deep":{"x":[true]}}')
WORDS: Final = (
    IntendedResponse(
        reasoning="Let me see.",
        text="I look at 漢字.",
        calls=(IntendedCall(*PARIS), IntendedCall(*NESTED), IntendedCall(*LS)),
    ),
    IntendedResponse(reasoning="Let me see.", calls=(IntendedCall(*NESTED),)),
    IntendedResponse(calls=(IntendedCall("rest", "{}"),)),
    IntendedResponse(reasoning="I know it.", text="It is noon."),
    IntendedResponse(text="It is noon."),
)
HISTORY: Final = round_of(SimCall("functions.Bash:0", *LS), SimCall("functions.get_weather:1", *PARIS))
HOSTS: Final = (BEHAVIOURS["moonshot"], BEHAVIOURS["kimi-coding"], BEHAVIOURS["vllm"])
BY_NAME: Final = pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
CANNOT_SHOW: Final = {("arguments-empty", "anthropic", False)}
"""The whole input of a call is an object: it has no way to be empty."""
CHOICES: Final = {"call-unasked": "none", "choice-ignored": "required", "choice-ignored-first": "required"}
"""The `tool_choice` of a request that shows the fault."""
JSON_MODE: Final = {"response_format": {"type": "json_object"}}
OF_ANSWERS: Final = {name: fault for name, fault in FAULTS.items() if fault.status is None}


def questions(fault: Fault, *, applies: bool = True) -> list[SimRequest]:
    """One for each place where the fault applies, or for each where it does not."""
    return [
        replace(
            sim_request(generation, wire, history=HISTORY, stream=stream),
            tool_choice=CHOICES.get(fault.name, "auto"),
            body=JSON_MODE if fault.name.startswith("json-") else {},
        )
        for family, generation in GENERATIONS.items()
        for wire in ("openai_chat", "anthropic")
        for stream in (True, False)
        if fault.applies(wire=wire, family=family, stream=stream) is applies
    ]


def respond(asked: SimRequest, intended: IntendedResponse, host: HostBehaviour, *faults: Fault) -> SimResponse:
    tally = TokenTotals(prompt=100, cached=10, completion=30, reasoning=5)
    return simulate_response(
        asked, intended, behaviour=host, faults=faults, answer_id="chatcmpl-1", created=1, tally=tally
    )


def bytes_of(response: SimResponse) -> bytes:
    return b"".join(piece for piece in response.pieces if isinstance(piece, bytes))


def host_response(asked: SimRequest, intended: IntendedResponse, host: HostBehaviour = HOSTS[0]) -> HostResponse:
    return build_host_response(asked, intended, behaviour=host, answer_id="chatcmpl-1", created=1, tally=TokenTotals())


@BY_NAME
def test_a_row_says_what_it_does_and_where_it_was_seen(fault: Fault) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", fault.name)
    assert FAULTS[fault.name] is fault
    assert fault.about
    assert fault.about[0] == "`" or fault.about[0].isupper(), "it is a sentence"
    assert fault.seen or fault.group in {"leaks", "arguments"}, "of what models write it is often said without a place"
    assert not fault.about.endswith("."), "lists show it without a full stop"
    assert all((fault.wires, fault.families, fault.ways))
    acts = [fault.status, fault.speech, fault.chunks, fault.whole, fault.frames, fault.headers or None]
    assert any(act is not None for act in acts)
    assert fault.status is None or acts[1:] == [None] * 5, "what comes instead of an answer changes none"


def test_no_name_is_that_of_a_scenario_too() -> None:
    assert not FAULTS.keys() & BUILT_IN.keys()


def test_groups_stand_together() -> None:
    groups = [group for group, _ in groupby(FAULTS.values(), lambda fault: fault.group)]
    assert len(groups) == len(set(groups)) == 10


def test_faults_are_played_in_the_order_of_the_table_and_once() -> None:
    asked = [FAULTS[name] for name in ("split-bytes", "cut-off", "markers-in-content", "no-space", "cut-off")]
    assert [one.name for one in in_order(asked)] == ["markers-in-content", "no-space", "split-bytes", "cut-off"]


@pytest.mark.parametrize("fault", OF_ANSWERS.values(), ids=OF_ANSWERS.keys())
def test_a_fault_shows_wherever_it_applies(fault: Fault) -> None:
    for asked in questions(fault):
        fitting = [
            (respond(asked, intended, host, fault), respond(asked, intended, host))
            for intended in WORDS
            for host in HOSTS
            if can_show(fault, host_response(asked, intended, host))
        ]
        assert all(wrong.faults == (fault.name,) for wrong, _ in fitting)
        if (fault.name, asked.wire, asked.stream) in CANNOT_SHOW:
            continue
        assert any((wrong.pieces, wrong.headers) != (right.pieces, right.headers) for wrong, right in fitting), asked


@pytest.mark.parametrize("fault", OF_ANSWERS.values(), ids=OF_ANSWERS.keys())
def test_a_fault_leaves_alone_what_it_does_not_apply_to(fault: Fault) -> None:
    for asked in questions(fault, applies=False):
        for intended in WORDS:
            assert respond(asked, intended, HOSTS[0], fault) == respond(asked, intended, HOSTS[0])


@pytest.mark.parametrize("fault", OF_ANSWERS.values(), ids=OF_ANSWERS.keys())
def test_a_fault_leaves_alone_what_has_not_what_it_needs(fault: Fault) -> None:
    for asked in questions(fault):
        for intended in WORDS:
            answer = host_response(asked, intended)
            if not can_show(fault, answer):
                assert payloads_of(fault, answer) == payloads_of(NOTHING, answer)


NOTHING: Final = Fault(name="nothing", group="calls", about="nothing goes wrong")


@pytest.mark.parametrize("fault", OF_ANSWERS.values(), ids=OF_ANSWERS.keys())
def test_a_fault_changes_nothing_that_it_was_given(fault: Fault) -> None:
    for asked in questions(fault):
        for intended in WORDS:
            answer = host_response(asked, intended)
            given = payloads_of(NOTHING, answer)
            before = deep_copy(given)
            if asked.stream and fault.chunks is not None:
                fault.chunks(given, answer)
            if not asked.stream and fault.whole is not None:
                fault.whole(given, answer)
            assert given == before


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("wire", ["openai_chat", "anthropic"])
@pytest.mark.parametrize("family", ["k2", "k3"])
def test_any_two_neighbours_of_a_kind_can_go_wrong_at_once(family: str, wire: str, stream: bool) -> None:
    here = [fault for fault in OF_ANSWERS.values() if questions_of(fault, family, wire, stream)]
    asked = questions_of(here[0], family, wire, stream)[0]
    for first, second in zip(here, [*here[7:], *here[:7]], strict=True):
        for intended in WORDS[:2]:
            assert respond(asked, intended, HOSTS[0], *in_order((first, second))).pieces


def questions_of(fault: Fault, family: str, wire: str, stream: bool) -> list[SimRequest]:
    return [asked for asked in questions(fault) if (asked.family, asked.wire, asked.stream) == (family, wire, stream)]


@pytest.mark.parametrize("fault", [one for one in FAULTS.values() if one.status], ids=lambda one: one.name)
def test_a_status_is_told_in_the_words_of_each_dialect(fault: Fault) -> None:
    assert fault.fatal
    assert fault.status is not None
    chat, messages = error_response(fault.status, "openai_chat"), error_response(fault.status, "anthropic")
    assert chat.status == messages.status == (fault.status.status if fault.status.body is not None else 0)
    if isinstance(fault.status.body, dict):
        assert [b'"type":"error"' in bytes_of(one) for one in (chat, messages)] == [False, True]
