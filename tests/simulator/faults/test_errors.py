"""Answers that fail, in the words of those who were seen to fail so."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from moonshim.simulator.fault import CUT, Piece, Stall
from moonshim.simulator.faults.errors import FAULTS
from moonshim.simulator.host import refusals
from moonshim.simulator.host.behaviours import BEHAVIOURS
from moonshim.simulator.request import Wire
from moonshim.simulator.wire.playback import SimResponse, error_response, simulate_response
from tests.simulator.faults.answers import PARIS, WIRES, answer_to, by_name, sim_request

ROWS: Final = by_name(FAULTS)
OVERLOADED: Final = "The engine is currently overloaded, please try again later"


def respond(name: str, wire: Wire = "openai_chat") -> SimResponse:
    status = ROWS[name].status
    assert status is not None
    return error_response(status, wire)


def body_of(name: str, wire: Wire = "openai_chat") -> Any:
    (piece,) = respond(name, wire).pieces
    assert isinstance(piece, bytes)
    return json.loads(piece)


def pieces_of(name: str, wire: Wire = "openai_chat", *, stream: bool = True) -> list[Piece]:
    asked = answer_to(sim_request(wire=wire, stream=stream), PARIS)
    faults = [ROWS[name]] if name else []
    host = BEHAVIOURS["moonshot"]
    return simulate_response(
        asked.request, asked.intended, behaviour=host, faults=faults, answer_id="chatcmpl-1", created=1
    ).pieces


def data_of(name: str, wire: Wire = "openai_chat", *, stream: bool = True) -> bytes:
    return b"".join(piece for piece in pieces_of(name, wire, stream=stream) if isinstance(piece, bytes))


@pytest.mark.parametrize(
    ("name", "status", "kind", "words"),
    [
        ("overloaded", 429, "engine_overloaded_error", OVERLOADED),
        ("rate-limited", 429, "rate_limit_reached_error", "too many requests"),
        ("rate-limited-retry-after", 429, "rate_limit_reached_error", "max RPM: 20"),
        ("quota", 429, "exceeded_current_quota_error", "You exceeded your current token quota"),
        ("billing-cycle", 403, "access_terminated_error", "your usage limit for this billing cycle"),
        ("suspended", 429, "exceeded_current_quota_error", "is suspended due to insufficient balance"),
        ("unauthorized", 401, "invalid_authentication_error", "Invalid Authentication"),
        ("coding-gate", 403, "access_terminated_error", "only available for Coding Agents such as Kimi CLI"),
        ("context-overflow", 400, "invalid_request_error", "exceeded model token limit: 262144 (requested: 300000)"),
        ("too-large", 413, "invalid_request_error", "Request exceeds the maximum size"),
    ],
)
def test_the_bodies_are_those_of_moonshot(name: str, status: int, kind: str, words: str) -> None:
    error = body_of(name)["error"]
    assert respond(name).status == status
    assert error.keys() == {"message", "type"}
    assert error["type"] == kind
    assert words in error["message"]
    there = body_of(name, "anthropic")
    assert (there["type"], there["error"]["message"]) == ("error", error["message"])


@pytest.mark.parametrize("name", ["overloaded", "rate-limited"])
def test_only_some_say_when_to_come_again(name: str) -> None:
    assert "retry-after" not in respond(name).headers
    assert respond(f"{name}-retry-after").headers["retry-after"] == "1"


def test_a_host_in_between_wraps_the_error() -> None:
    error = body_of("openrouter-quota")["error"]
    assert error["message"] == "Provider returned error"
    assert json.loads(error["metadata"]["raw"])["error"]["type"] == "exceeded_current_quota_error"


@pytest.mark.parametrize("status", [500, 502, 503, 504, 529])
def test_the_host_fails_with_each_status(status: int) -> None:
    assert respond(f"status-{status}").status == status


@pytest.mark.parametrize(("name", "status"), [("html-502", 502), ("html-200", 200)])
def test_a_page_comes_in_the_place_of_an_answer(name: str, status: int) -> None:
    response = respond(name)
    assert (response.status, response.headers["content-type"]) == (status, "text/html")
    (piece,) = response.pieces
    assert isinstance(piece, bytes)
    assert b"</html>" in piece


def test_nothing_comes_or_an_error_that_calls_itself_an_answer() -> None:
    assert (respond("empty-body").status, respond("empty-body").pieces) == (200, [b""])
    assert (respond("error-in-200").status, body_of("error-in-200")["error"]["message"]) == (200, OVERLOADED)
    assert (respond("no-headers").status, respond("no-headers").pieces) == (0, [CUT])


@pytest.mark.parametrize(
    "name", ["error-in-stream", "error-object", "error-text", "error-in-chunk", "error-without-choices"]
)
def test_an_error_comes_in_the_middle_of_a_stream(name: str) -> None:
    *before, last, done = data_of(name).split(b"\n\n")[:-1]
    assert done == b"data: [DONE]"
    assert "error" in json.loads(last.removeprefix(b"data: ")) or b'"object":"error"' in last
    assert b"\n\n".join(before) in data_of("")
    assert b'"finish_reason":"tool_calls"' not in data_of(name)


@pytest.mark.parametrize("name", ["error-in-stream", "error-first"])
def test_errors_of_messages_are_events(name: str) -> None:
    last = data_of(name, "anthropic").split(b"\n\n")[-2]
    assert last.startswith(b"event: error\ndata: ")
    assert json.loads(last.partition(b"data: ")[2])["error"]["type"] == "overloaded_error"


def test_an_error_comes_first_or_in_no_frame_or_is_no_json() -> None:
    assert data_of("error-first").startswith(b'data: {"error":')
    assert data_of("error-unframed").endswith(
        b'\n\n{"error":{"message":"Internal server error","type":"server_error"}}'
    )
    assert data_of("error-no-json").endswith(b"\n\ndata: error: engine failed\n\n")


@pytest.mark.parametrize("wire", WIRES)
def test_the_connection_drops(wire: Wire) -> None:
    assert pieces_of("no-body", wire) == [CUT]
    whole = data_of("", wire)
    for name in ("cut-off", "cut-inside"):
        assert pieces_of(name, wire)[-1] == CUT
        assert whole.startswith(data_of(name, wire))
        assert data_of(name, wire).endswith(b"\n\n") is (name == "cut-off")


@pytest.mark.parametrize("wire", WIRES)
def test_the_answer_ends_early_as_if_all_was_said(wire: Wire) -> None:
    for name in ("ends-early", "truncated"):
        assert CUT not in pieces_of(name, wire)
        assert data_of("", wire).startswith(data_of(name, wire))
    whole = data_of("truncated", wire, stream=False)
    assert data_of("", wire, stream=False).startswith(whole)
    with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
        json.loads(whole)


def test_nothing_comes_for_a_while_or_ever_again() -> None:
    stalls = {name: [one for one in pieces_of(name) if isinstance(one, Stall)] for name in ("stall", "pause")}
    assert stalls["stall"][0].seconds > 600 > 3 > stalls["pause"][0].seconds
    assert isinstance(pieces_of("stall-at-first")[0], Stall)
    assert data_of("pause") == data_of("")
    assert [ROWS[name].fatal for name in ("stall", "stall-at-first", "pause")] == [True, True, False]


@pytest.mark.parametrize("wire", WIRES)
def test_what_the_rules_refuse_too_is_refused_in_the_same_words(wire: Wire) -> None:
    refused = {"unauthorized": refusals.NO_KEY, "coding-gate": refusals.OTHER_AGENT, "too-large": refusals.TOO_LARGE}
    for name, objection in refused.items():
        same = error_response(refusals.refusal(objection, wire=wire, behaviour=BEHAVIOURS["moonshot"]), wire)
        assert (respond(name, wire).status, respond(name, wire).pieces) == (same.status, same.pieces)
