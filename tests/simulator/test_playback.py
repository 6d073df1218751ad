"""The bytes of an answer: the ids of its host, the faults at their places, the same for the same arguments."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from moonshim.simulator.fault import CUT, Fault, Stall, Status
from moonshim.simulator.faults import FAULTS
from moonshim.simulator.host.behaviours import BEHAVIOURS
from moonshim.simulator.request import Json, SimRequest
from moonshim.simulator.response import HostResponse, IntendedResponse, TokenTotals
from moonshim.simulator.wire.playback import SimResponse, error_response, simulate_response
from tests.simulator.asking import MEANT, rounds_before, sim_request
from tests.support.looped import looped

STREAM = sim_request(stream=True)
GENERATIONS = {"k2": "k2.5", "k3": "k3", "other": "other"}


def respond(
    asked: SimRequest = STREAM, *faults: Fault, behaviour: str = "moonshot", intended: IntendedResponse = MEANT
) -> SimResponse:
    made = simulate_response(
        asked, intended, behaviour=BEHAVIOURS[behaviour], faults=faults, answer_id="chatcmpl-1", created=7
    )
    assert made.status == 200
    return made


def data(
    asked: SimRequest = STREAM, *faults: Fault, behaviour: str = "moonshot", intended: IntendedResponse = MEANT
) -> bytes:
    return b"".join(
        piece
        for piece in respond(asked, *faults, behaviour=behaviour, intended=intended).pieces
        if isinstance(piece, bytes)
    )


def message(asked: SimRequest, *, behaviour: str = "moonshot", intended: IntendedResponse = MEANT) -> Json:
    found: Json = json.loads(data(replace(asked, stream=False), behaviour=behaviour, intended=intended))
    return found["choices"][0]["message"] if asked.wire == "openai_chat" else found


def test_the_same_arguments_make_the_same_bytes() -> None:
    assert data() == data()


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_says_of_what_kind_it_is_and_how_to_find_it(stream: bool) -> None:
    kind = "text/event-stream" if stream else "application/json"
    chat, messages = (respond(sim_request(wire=wire, stream=stream)).headers for wire in ("openai_chat", "anthropic"))
    assert chat["content-type"].startswith(kind)
    assert len(chat["x-trace-id"]) == 32
    assert messages["request-id"].startswith("req_")


# -- behaviours--------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("behaviour", "generation", "ids"),
    [
        ("moonshot", "k2.5", ["weather:1", "time_of-day:2"]),
        ("moonshot", "k3", ["weather_1", "time_of-day_2"]),
        ("selfhost", "k2", ["functions.weather:1", "functions.time_of-day:2"]),
        ("fireworks", "k3.1", ["weather:0", "time_of-day:1"]),
    ],
)
def test_calls_are_numbered_as_the_host_does(behaviour: str, generation: str, ids: list[str]) -> None:
    asked = sim_request(generation=generation, turns=rounds_before("functions.weather:0"))
    assert [call["id"] for call in message(asked, behaviour=behaviour)["tool_calls"]] == ids


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
@pytest.mark.parametrize("generation", GENERATIONS.values())
def test_ids_on_messages_are_such_as_messages_allows(behaviour: str, generation: str) -> None:
    if not BEHAVIOURS[behaviour].renames_on_messages and generation.startswith("k2"):
        return  # these put K2's own ids there, whatever Messages allows
    uses = message(sim_request(wire="anthropic", generation=generation), behaviour=behaviour)["content"][-2:]
    assert all(use["id"].replace("_", "").isalnum() for use in uses)


def test_a_self_host_shows_the_model_wrong_ids_until_it_writes_them_itself() -> None:
    asked = sim_request(turns=rounds_before("call_aaaa", "call_bbbb"))
    assert "tool_calls" not in message(asked, behaviour="selfhost")
    assert "<|tool_call_begin|>" in message(asked, behaviour="selfhost")["content"]
    assert [call["id"] for call in message(asked)["tool_calls"]] == ["weather:2", "time_of-day:3"]


@pytest.mark.parametrize(
    ("behaviour", "kinds"),
    [
        ("selfhost", ["thinking", "text"]),
        ("vllm", ["thinking", "text"]),
        ("moonshot", ["thinking", "text", "tool_use", "tool_use"]),
        ("fireworks", ["thinking", "text", "tool_use", "tool_use"]),
    ],
)
def test_on_messages_wrong_ids_are_imitated_where_they_reach_the_model(behaviour: str, kinds: list[str]) -> None:
    asked = sim_request(wire="anthropic", turns=rounds_before("toolu_aaaa", "toolu_bbbb", "toolu_cccc"))
    assert [block["type"] for block in message(asked, behaviour=behaviour)["content"]] == kinds


def test_thoughts_are_told_only_by_a_model_that_thinks() -> None:
    assert "reasoning_content" in message(sim_request())
    assert "reasoning_content" not in message(sim_request(thinking=False))
    assert message(sim_request(wire="anthropic", thinking=False))["content"][0]["type"] == "text"


def test_thoughts_on_messages_are_signed_by_hosts_that_sign() -> None:
    assert b"signature_delta" not in data(sim_request(wire="anthropic", stream=True))
    assert b"signature_delta" in data(sim_request(wire="anthropic", stream=True), behaviour="kimi-coding")


def test_nobody_is_told_of_more_tokens_than_were_allowed() -> None:
    made = simulate_response(
        sim_request(max_tokens=5),
        MEANT,
        behaviour=BEHAVIOURS["moonshot"],
        answer_id="chatcmpl-1",
        created=7,
        tally=TokenTotals(50, 0, 40, 30),
    )
    (whole,) = made.pieces
    assert isinstance(whole, bytes)
    assert json.loads(whole)["usage"]["completion_tokens"] == 5
    assert json.loads(whole)["choices"][0]["finish_reason"] == "length"


# -- faults ------------------------------------------------------------------------------------------------------


def fault(name: str = "test", **given: Any) -> Fault:
    return Fault(**({"name": name, "group": "calls", "about": ""} | given))


def says(word: str) -> Callable[[HostResponse], HostResponse]:
    return lambda answer: replace(answer, text=answer.text + word)


def marks(word: str) -> Callable[[list[Json], HostResponse], list[Json]]:
    return lambda payloads, answer: [*payloads, {"mark": word, "text": answer.text}]


def test_faults_of_one_place_act_one_after_the_other() -> None:
    both = (fault("a", speech=says("A"), chunks=marks("1")), fault("b", speech=says("B"), chunks=marks("2")))
    *_, one, two, _ = data(STREAM, *both).split(b"\n\n")[:-1]
    assert b'"mark":"1"' in one
    assert b'"mark":"2"' in two
    assert MEANT.text.encode() + b"AB" in one
    assert respond(STREAM, *both).faults == ("a", "b")


def test_a_fault_of_the_whole_answer_is_not_one_of_the_stream() -> None:
    both = fault(chunks=marks("streamed"), whole=lambda payload, answer: {"mark": "whole"})
    assert b"streamed" in data(STREAM, both)
    assert json.loads(data(sim_request(), both)) == {"mark": "whole"}


@pytest.mark.parametrize(
    "unfit",
    [
        {"wires": ("anthropic",)},
        {"families": ("k3",)},
        {"ways": ("whole",)},
    ],
)
def test_a_fault_that_does_not_fit_changes_nothing_and_is_not_told(unfit: Json) -> None:
    assert respond(STREAM, fault(speech=says("A"), **unfit)) == respond()


@pytest.mark.parametrize(
    ("needs", "intended"),
    [
        ("calls", IntendedResponse(text="Hi")),
        ("reasoning", IntendedResponse(text="Hi")),
        ("parallel", IntendedResponse(calls=MEANT.calls[:1])),
    ],
)
def test_a_fault_that_needs_what_the_answer_has_not_changes_nothing(needs: str, intended: IntendedResponse) -> None:
    needy = fault(speech=says("A"), needs=needs)
    assert respond(STREAM, needy, intended=intended).faults == ()
    assert respond(STREAM, needy).faults == ("test",)


def test_headers_are_what_a_fault_says() -> None:
    assert respond(STREAM, fault(headers={"content-type": "text/plain"})).headers["content-type"] == "text/plain"


def test_what_stalls_or_cuts_acts_behind_everything_else() -> None:
    stalls = fault("stalls", frames=lambda frames, answer: [*frames[:2], Stall(1), *frames[2:]])
    splits = fault("splits", frames=lambda frames, answer: [half for one in frames for half in (one[:9], one[9:])])
    cuts = fault("cuts", frames=lambda frames, answer: [*frames[:1], CUT])
    assert respond(STREAM, stalls, splits).pieces == respond(STREAM, splits, stalls).pieces
    pieces = respond(STREAM, stalls, splits, cuts).pieces
    assert [type(piece) for piece in pieces[:2]] == [bytes, str]


def test_a_whole_answer_is_one_frame_on_the_line() -> None:
    halves = fault(frames=lambda frames, answer: [frames[0][:10], CUT])
    assert len(respond(sim_request()).pieces) == 1
    assert respond(sim_request(), halves).pieces[1] == CUT


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.status is None])
@looped("family", ["k2", "k3"])
def test_every_fault_can_be_played_wherever_it_applies(name: str, family: str) -> None:
    displayed = 0
    for wire in ("openai_chat", "anthropic"):
        for stream in (True, False):
            asked = sim_request(wire=wire, stream=stream, generation=GENERATIONS[family])
            if FAULTS[name].applies(wire=asked.wire, family=family, stream=stream):
                made = respond(asked, FAULTS[name])
                assert made.faults == (name,)
                assert made != respond(asked)
                displayed += 1
    assert displayed or family not in FAULTS[name].families


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.status is not None])
def test_every_status_can_be_told(name: str) -> None:
    status = FAULTS[name].status
    assert status is not None
    for wire in FAULTS[name].wires:
        assert error_response(status, wire).status == (status.status if status.body is not None else 0)


# -- instead of an answer ----------------------------------------------------------------------------------------


def test_a_status_is_told_in_the_dialect() -> None:
    status = Status(status=429, headers={"retry-after": "1"}, body={"error": {}}, messages_body={"type": "error"})
    assert error_response(status, "openai_chat").pieces == [b'{"error":{}}']
    assert error_response(status, "anthropic").pieces == [b'{"type":"error"}']
    assert error_response(status, "anthropic").headers["retry-after"] == "1"


def test_bytes_are_told_as_they_are() -> None:
    received = error_response(Status(status=502, body=b"<html>"), "openai_chat")
    assert (received.status, received.pieces) == (502, [b"<html>"])
    assert received.headers["content-type"].startswith("text/html")


def test_no_body_at_all_drops_the_connection() -> None:
    assert error_response(Status(status=200), "openai_chat").pieces == [CUT]
    assert error_response(Status(status=200), "openai_chat").status == 0
