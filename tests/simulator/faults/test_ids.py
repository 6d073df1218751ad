"""Under which identifiers and names hosts tell their calls."""

from __future__ import annotations

import re
from typing import Any

import pytest

from moonshim.simulator.faults.ids import FAULTS
from moonshim.simulator.request import SimCall
from moonshim.simulator.response import HostResponse
from tests.simulator.faults.answers import (
    LS,
    PARIS,
    answer_to,
    apply_speech,
    by_name,
    payloads_of,
    round_of,
    sim_request,
)

ROWS = by_name(FAULTS)
EARLIER = round_of(SimCall("functions.Bash:0", *LS), SimCall("functions.Bash:1", *LS))


def calls_after(name: str, generation: str = "k2.5") -> HostResponse:
    return apply_speech(ROWS[name], answer_to(sim_request(generation, history=EARLIER), PARIS, LS))


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("ids-k2", r"functions\.get_weather:2 functions\.Bash:3"),
        ("ids-moonshot-k2", r"get_weather:2 Bash:3"),
        ("ids-moonshot-k3", r"get_weather_2 Bash_3"),
        ("ids-fireworks-k3", r"get_weather:0 Bash:1"),
        ("ids-openai", r"call_[0-9a-f]{24} call_[0-9a-f]{24}"),
        ("ids-vllm", r"chatcmpl-tool-[0-9a-f]{32} chatcmpl-tool-[0-9a-f]{32}"),
        ("ids-anthropic", r"toolu_[0-9a-f]{24} toolu_[0-9a-f]{24}"),
        ("ids-kimi-anthropic", r"tool_\w{24} tool_\w{24}"),
        ("ids-number", r"2 3"),
        ("ids-call-number", r"call00002 call00003"),
        ("ids-underscores", r"functions_get_weather_2 functions_Bash_3"),
        ("ids-said-again", r"functions\.Bash:0 functions\.Bash:1"),
        ("ids-same", r"functions\.get_weather:2 functions\.get_weather:2"),
        ("ids-empty", r" "),
    ],
)
def test_calls_are_named_as_that_host_does(name: str, ids: str) -> None:
    answer = calls_after(name)
    assert re.fullmatch(ids, " ".join(call.id for call in answer.calls))
    assert [(call.name, call.arguments) for call in answer.calls] == [PARIS, LS]
    assert answer.finish == "tool_calls"


def test_random_identifiers_differ_within_an_answer() -> None:
    for name in ("ids-openai", "ids-vllm", "ids-anthropic", "ids-kimi-anthropic"):
        first, second = calls_after(name).calls
        assert first.id != second.id


def test_what_comes_again_goes_on_as_it_should_when_the_history_has_no_more() -> None:
    asked = sim_request(history=round_of(SimCall("Bash:0", *LS)))
    answer = apply_speech(ROWS["ids-said-again"], answer_to(asked, LS, LS))
    assert [call.id for call in answer.calls] == ["Bash:0", "functions.Bash:2"]


@pytest.mark.parametrize(
    ("name", "names", "ids"),
    [
        ("name-dotted", ["functions.get_weather", "functions.Bash"], None),
        ("name-underscored", ["functions_get_weather", "functions_Bash"], None),
        ("name-in-id", ["", ""], ["functions.get_weather:2", "functions.Bash:3"]),
    ],
)
def test_names_are_told_in_disguise(name: str, names: list[str], ids: list[str] | None) -> None:
    answer = calls_after(name)
    assert [call.name for call in answer.calls] == names
    assert ids is None or [call.id for call in answer.calls] == ids


def test_arguments_are_in_the_id() -> None:
    first, _ = calls_after("arguments-in-id").calls
    assert first.id == 'functions.get_weather:2 {"city": "Paris"}<|tool_call_end|>'
    assert (first.name, first.arguments) == ("get_weather", "")


def ids_of_calls(sent: Any) -> list[str | None]:
    """Every entry of a call in what is sent, in either dialect: its identifier, or None."""
    if isinstance(sent, list):
        return [found for part in sent for found in ids_of_calls(part)]
    if not isinstance(sent, dict):
        return []
    if sent.get("type") in ("function", "tool_use"):
        return [sent.get("id")]
    return [found for part in sent.values() for found in ids_of_calls(part)]


@pytest.mark.parametrize("wire", ["openai_chat", "anthropic"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_calls_have_no_identifier_at_all(wire: Any, stream: bool) -> None:
    answer = answer_to(sim_request(wire=wire, stream=stream), PARIS, ("Bash", '{"type": "tool_use", "id": "kept"}'))
    assert ids_of_calls(payloads_of(ROWS["ids-k2"], answer))[:2] == ["functions.get_weather:0", "functions.Bash:1"]
    sent = payloads_of(ROWS["ids-missing"], answer)
    assert [found for found in ids_of_calls(sent) if found != "kept"] == [None, None]
    first = sent[0] if stream else sent
    assert (first.get("id") or first["message"]["id"]) == "chatcmpl-1", "the answer itself keeps its name"
    if not stream and wire == "anthropic":
        assert sent["content"][-1]["input"] == {"type": "tool_use", "id": "kept"}, "arguments are the client's"
