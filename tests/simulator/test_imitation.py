"""A K2 that is shown wrong identifiers, and what it writes in the third round."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import openai
import pytest
from hypothesis import given

from moonshim.simulator import Simulator
from moonshim.simulator.host.imitation import imitate
from moonshim.simulator.request import SimCall, SimTurn
from moonshim.simulator.response import HostResponse
from tests.simulator.faults.answers import LS, PARIS, TOOLS, answer_to, answers, round_of, sim_request

BEGIN = "<|tool_calls_section_begin|><|tool_call_begin|>"
END = "<|tool_call_end|><|tool_calls_section_end|>"
ARGUMENTS = "<|tool_call_argument_begin|>"


def rounds(*ids: str, name: str = "Bash") -> tuple[SimTurn, ...]:
    """One round with one call for each identifier."""
    return tuple(turn for given in ids for turn in round_of(SimCall(given, name, "{}")))


def request_after(history: tuple[SimTurn, ...], generation: str = "k2.5") -> HostResponse:
    return answer_to(sim_request(generation, history=history), LS)


def slot(answer: HostResponse) -> str:
    """What stands in the place of the identifier; the answer has leaked."""
    assert (answer.calls, answer.finish) == ((), "stop")
    assert answer.text.startswith("I look." + BEGIN)
    assert answer.text.endswith(ARGUMENTS + '{"command": "ls"}' + END)
    return answer.text.removeprefix("I look." + BEGIN).partition(ARGUMENTS)[0]


@pytest.mark.parametrize("wrong", [(), ("call_0a1b",)])
def test_the_first_two_rounds_work(wrong: tuple[str, ...]) -> None:
    answer = request_after(rounds(*wrong))
    assert imitate(answer) == answer


@pytest.mark.parametrize(
    ("displayed", "written"),
    [
        (("call_functionsBash0", "call_functionsBash1"), "functionsBash2"),
        (("functionsBash0", "functionsBash4"), "functionsBash5"),
        (("functions_Bash_0", "functions_Bash_1"), "functions_Bash_2"),
        (("Bash_0", "Bash_1"), "Bash_2"),
        (("Bash:0", "Bash:1"), "Bash:2"),
        (("call00002", "call00003"), "call00004"),
        (("0", "1"), "2"),
        (("functions.Bash.0", "functions.Bash.1"), "functions.Bash.2"),
        (("functions.Bash0", "functions.Bash1"), "functions.Bash2"),
        (("functions.Bash", "functions.Bash"), "functions.Bash"),
    ],
)
def test_the_third_round_is_written_as_the_history_was(displayed: tuple[str, ...], written: str) -> None:
    assert slot(imitate(request_after(rounds(*displayed)))) == written


@pytest.mark.parametrize(
    "displayed", ["call_59adf5614cfe", "toolu_01A09q90", "chatcmpl-tool-8f", "9f8e-uuid", "", "hist_tool_x"]
)
def test_what_has_no_name_is_imitated_by_hexadecimals(displayed: str) -> None:
    written = slot(imitate(request_after(rounds(displayed, displayed))))
    assert written.startswith("call_")
    assert len(written) == len("call_59adf5614cfe4f4b8a71be54")


def test_the_number_of_a_tool_is_no_number_of_a_call() -> None:
    history = rounds("functions.base64", "functions.base64", name="base64")
    written = imitate(answer_to(sim_request(history=history), ("base64", "{}"), text="")).text
    assert written == BEGIN + "functions.base64" + ARGUMENTS + "{}" + END


def test_every_call_of_the_answer_is_broken_and_counted_on() -> None:
    answer = imitate(answer_to(sim_request(history=rounds("Bash_0", "Bash_1")), PARIS, LS))
    assert [part.partition(ARGUMENTS)[0] for part in answer.text.split("<|tool_call_begin|>")[1:]] == [
        "get_weather_2",
        "Bash_3",
    ]


def test_the_last_wrong_identifier_is_the_one_that_is_imitated() -> None:
    assert slot(imitate(request_after(rounds("call_0a1b", "functions.Bash:1", "Bash_7")))) == "Bash_8"


def test_it_recovers_when_the_history_is_right_again() -> None:
    wrong = request_after(rounds("call_0a", "call_0b", "call_0c"))
    assert imitate(wrong) != wrong
    right = request_after(rounds("functions.Bash:0", "functions.Bash:1", "functions.Bash:2"))
    assert imitate(right) == right


def test_numbers_count_over_the_whole_conversation() -> None:
    parallel = (*round_of(SimCall("functions.a:0", "a", "{}"), SimCall("functions.b:1", "b", "{}")), *rounds())
    right = request_after((*parallel, *round_of(SimCall("functions.a:2", "a", "{}"))))
    assert imitate(right) == right


def test_a_wrong_number_alone_is_still_read_and_goes_on_wrong() -> None:
    answer = imitate(request_after(rounds("functions.Bash:0", "functions.Bash:0", "functions.Bash:0")))
    assert [call.id for call in answer.calls] == ["functions.Bash:1"]
    assert (answer.text, answer.finish) == ("I look.", "tool_calls")


@pytest.mark.parametrize("generation", ["k3", "k3.1", "other"])
def test_only_k2_sees_identifiers(generation: str) -> None:
    answer = request_after(rounds("call_0a", "call_0b", "call_0c"), generation)
    assert imitate(answer) == answer


@given(answers())
def test_any_history_can_be_imitated(answer: HostResponse) -> None:
    after = imitate(answer)
    assert after == imitate(answer)
    assert after.intended == answer.intended
    if not answer.calls or answer.request.family != "k2":
        assert after == answer


# --- on a real socket, with the official package -----------------------------------------------------------------


def conversation(rename: Callable[[str], str]) -> list[tuple[str, str]]:
    """Five rounds with a client that keeps its calls under other identifiers: how each answer ended, and its text."""
    tool: Any = {"type": "function", "function": {"name": "get_weather", "parameters": TOOLS["get_weather"]}}
    messages: list[Any] = [{"role": "user", "content": "What is the weather?"}]
    received: list[tuple[str, str]] = []
    with Simulator(behaviour="selfhost", scenario="five-rounds").running() as server:
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="k") as client:
            for _ in range(6):
                answer = client.chat.completions.create(model="kimi-k2.5", messages=messages, tools=[tool])
                (choice,) = answer.choices
                received.append((choice.finish_reason, choice.message.content or ""))
                reply = choice.message.model_dump(exclude_none=True)
                messages.append(reply)
                for call in reply.get("tool_calls", ()):
                    call["id"] = rename(call["id"])
                    messages.append({"role": "tool", "tool_call_id": call["id"], "content": "sunny"})
                if "tool_calls" not in reply:
                    break
        assert not server.refusals
    return received


def test_what_is_imitated_is_known_to_whoever_asks_why() -> None:
    history: list[Any] = [{"role": "user", "content": "Hi"}]
    for number in range(2):
        call = {"id": f"call_{number}", "type": "function", "function": {"name": "Bash", "arguments": "{}"}}
        history += [
            {"role": "assistant", "content": "", "reasoning_content": "x", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": "nothing"},
        ]
    tool: Any = {"type": "function", "function": {"name": "Bash", "parameters": {"type": "object", "properties": {}}}}
    with Simulator(behaviour="selfhost", scenario="five-rounds").running() as server:
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="k") as client:
            for messages in (history[:3], history):
                client.chat.completions.create(model="kimi-k2.5", messages=messages, tools=[tool])
        assert [seen.imitated for seen in server.requests] == ["", "call_1"]


def test_a_client_that_keeps_identifiers_as_they_are_gets_through() -> None:
    received = conversation(lambda id_: id_)
    assert [finish for finish, _ in received] == ["tool_calls"] * 5 + ["stop"]
    assert "sunny" in received[-1][1]


def test_a_client_that_strips_dots_and_colons_gets_markers_in_the_third_round() -> None:
    received = conversation(lambda id_: "call_" + re.sub(r"\W", "", id_))
    assert [finish for finish, _ in received] == ["tool_calls", "tool_calls", "stop"]
    assert "<|tool_call_begin|>functionsget_weather3<|tool_call_argument_begin|>" in received[-1][1]
