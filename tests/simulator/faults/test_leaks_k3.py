"""What leaks from a K3, to the letter."""

from __future__ import annotations

import pytest

from moonshim.simulator.faults.leaks_k3 import FAULTS
from moonshim.simulator.request import SimCall
from moonshim.simulator.response import HostResponse
from tests.simulator.faults.answers import LS, PARIS, answer_to, apply_speech, by_name, round_of, sim_request

ROWS = by_name(FAULTS)
CALL = (
    '<|open|>call tool="get_weather" index="1"<|sep|><|open|>argument key="city" type="string"<|sep|>Paris'
    "<|close|>argument<|sep|><|close|>call<|sep|>"
)
AS_JSON = (
    '<|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|><|open|>json type="object"<|sep|>'
    '{"city": "Paris"}<|close|>json<|sep|><|close|>call<|sep|><|close|>tools<|sep|>'
)
K2_CALL = '<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Paris"}<|tool_call_end|>'
GLUED = (
    '<|open|>tools<|sep|><|open|>calltool="get_weather"index="1"<|sep|><|open|>argumentkey="city"type="string"<|sep|>'
    "Paris<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"
)
TOOLS = f"<|open|>tools<|sep|>{CALL}<|close|>tools<|sep|>"


def leaked(name: str, *calls: tuple[str, str], **reply: str) -> HostResponse:
    return apply_speech(ROWS[f"xtml-{name}"], answer_to(sim_request("k3"), *(calls or (PARIS,)), **reply))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("in-content", f"I look.{TOOLS}"),
        ("to-the-end", f"I look.{TOOLS}<|close|>message<|sep|><|end_of_msg|>"),
        ("without-end", f"I look.<|open|>tools<|sep|>{CALL}"),
        ("orphan-response-end-in-content", f"I look.<|close|>response<|sep|>{TOOLS}"),
        ("response-in-content", f"<|open|>response<|sep|>I look.<|close|>response<|sep|>{TOOLS}"),
        ("json", f"I look.{AS_JSON}"),
        ("name-attribute", f"I look.{TOOLS}".replace(" tool=", " name=")),
        ("no-tool", f"I look.{TOOLS}".replace(' tool="get_weather"', "")),
        ("wrong-argument-end", f"I look.{TOOLS}".replace("<|close|>argument", "<|close|>arg")),
        ("no-key", f"I look.{TOOLS}".replace(' key="city"', "")),
        ("glued-attributes", f"I look.{GLUED}"),
        ("k2-calls", f"I look.<|open|>tools<|sep|>{K2_CALL}<|close|>tools<|sep|>"),
        ("k2", f"I look.<|tool_calls_section_begin|>{K2_CALL}<|tool_calls_section_end|>"),
        ("ends", f"I look.{TOOLS.partition('ris<')[0]}"),
        ("ends-in-tag", 'I look.<|open|>tools<|sep|><|open|>call tool="get_weather" index="1"'),
    ],
)
def test_calls_stand_in_the_text(name: str, text: str) -> None:
    answer = leaked(name)
    assert (answer.text, answer.reasoning, answer.calls, answer.finish) == (text, "Let me see.", (), "stop")


@pytest.mark.parametrize(
    ("name", "reasoning", "text"),
    [
        ("in-reasoning", f"Let me see.{TOOLS}<|close|>think<|sep|><|close|>message<|sep|>", "I look."),
        ("think-never-closed", f"Let me see.I look.<|close|>response<|sep|>{TOOLS}<|close|>message<|sep|>", ""),
        (
            "sep-elided",
            f"Let me see.<|close|>think<|open|>response<|sep|>I look.<|close|>response<|sep|>{TOOLS}",
            "",
        ),
        (
            "spaced",
            "Let me see.<|close|> think<|sep|><|open|> response<|sep|>I look.<|close|> response<|sep|>"
            + TOOLS.replace("<|open|>", "<|open|> ").replace("<|close|>", "<|close|> "),
            "",
        ),
    ],
)
def test_calls_stand_in_the_thought(name: str, reasoning: str, text: str) -> None:
    answer = leaked(name)
    assert (answer.reasoning, answer.text, answer.calls, answer.finish) == (reasoning, text, (), "stop")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("message-end-in-content", "I look.<|close|>message<|sep|><|end_of_msg|>"),
        ("orphan-response-end", "I look.<|close|>response<|sep|>"),
        ("response-begun-in-content", "<|open|>response<|sep|>I look."),
    ],
)
def test_marks_stand_around_the_text_and_the_calls_are_found(name: str, text: str) -> None:
    answer = leaked(name)
    assert (answer.text, answer.finish) == (text, "tool_calls")
    assert [call.name for call in answer.calls] == ["get_weather"]


def test_values_are_typed_and_strings_raw() -> None:
    given = r'{"s": "a\n<|close|>x", "n": 1.5, "b": true, "z": null, "l": [1, {"a": "b"}], "o": {}, "k\"": ""}'
    text = leaked("in-content", ("plan", given), text="").text
    for part in (
        'key="s" type="string"<|sep|>a\n<|close|>x<|close|>argument',
        'key="n" type="number"<|sep|>1.5<',
        'key="b" type="boolean"<|sep|>true<',
        'key="z" type="null"<|sep|>null<',
        'key="l" type="array"<|sep|>[1, {"a": "b"}]<',
        'key="o" type="object"<|sep|>{}<',
        'key="k&quot;" type="string"<|sep|><',
    ):
        assert part in text


def test_each_call_comes_twice_or_half_of_them_leak() -> None:
    twice = leaked("and-native")
    assert (twice.text, len(twice.calls), twice.finish) == (f"I look.{TOOLS}", 1, "tool_calls")
    half = leaked("half-native", PARIS, LS)
    assert (half.text, [call.name for call in half.calls]) == (f"I look.{TOOLS}", ["Bash"])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cut-off", f"I look.{TOOLS.partition('ris<')[0]}"),
        ("cut-off-in-tag", 'I look.<|open|>tools<|sep|><|open|>call tool="get_weather" index="1"'),
        ("cut-off-dropped", "I look."),
    ],
)
def test_an_answer_is_cut_off_in_its_last_call(name: str, text: str) -> None:
    answer = leaked(name)
    assert (answer.text, answer.calls, answer.finish) == (text, (), "length")
    fault = ROWS[f"xtml-{name}"]
    assert (fault.fatal, fault.lost) == ((False, True) if name == "cut-off-dropped" else (True, False))


def test_a_call_without_arguments_is_cut_off_behind_its_begin() -> None:
    text = leaked("cut-off", ("rest", "{}"), text="").text
    assert text == '<|open|>tools<|sep|><|open|>call tool="rest" index="1"<|sep|>'


def test_where_no_tool_is_declared_the_model_calls_as_its_history_did() -> None:
    earlier = round_of(SimCall("Bash_0", *LS), SimCall("get_weather_1", *PARIS))
    fault = ROWS["xtml-undeclared"]
    undeclared = answer_to(sim_request("k3", history=earlier, tools=False))
    assert apply_speech(fault, undeclared).text == f"I look.{TOOLS}"
    assert apply_speech(fault, undeclared).finish == "stop"
    declared = answer_to(sim_request("k3", history=earlier))
    assert apply_speech(fault, declared) == declared


def test_a_thought_is_the_beginning_of_the_text() -> None:
    answer = leaked("reasoning-in-content")
    assert (answer.text, answer.reasoning) == ("Let me see.\n\nI look.", "")
