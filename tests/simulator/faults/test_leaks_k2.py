"""What leaks from a K2, to the letter."""

from __future__ import annotations

import pytest

from moonshim.simulator.faults.leaks_k2 import FAULTS
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
BEGIN, END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
CALL, ARGUMENTS, CALLED = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
ONE = CALL + "functions.get_weather:0" + ARGUMENTS + '{"city": "Paris"}' + CALLED
TWO = CALL + "functions.Bash:1" + ARGUMENTS + '{"command": "ls"}' + CALLED


def leaked(name: str, *calls: tuple[str, str], **reply: str) -> HostResponse:
    return apply_speech(ROWS[name], answer_to(sim_request(), *(calls or (PARIS,)), **reply))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("markers-in-content", f"I look.{BEGIN}{ONE}{TWO}{END}"),
        ("markers-in-lumps", f"I look.{BEGIN}{ONE}{TWO}{END}"),
        ("call-without-section", f"I look.{ONE}{TWO}"),
        ("section-without-end", f"I look.{BEGIN}{ONE}{TWO}"),
        ("section-half", f"I look.{BEGIN}{ONE}{TWO.removesuffix(CALLED)}"),
        ("two-sections", f"I look.{BEGIN}{ONE}{END}{BEGIN}{TWO}{END}"),
        ("singular-section", f"I look.<|tool_call_section_begin|>{ONE}{TWO}<|tool_call_section_end|>"),
        ("text-behind-markers", f"{BEGIN}{ONE}{TWO}{END}I look."),
        ("argument-marker-misspelled", f"I look.{BEGIN}{ONE}{TWO}{END}".replace("_argument_", "_arguments_")),
        ("id-alone", "I look.\nfunctions.Bash:1"),
        ("arguments-alone", f'I look.{{"command": "ls"}}{CALLED}'),
    ],
)
def test_calls_stand_in_the_text(name: str, text: str) -> None:
    answer = leaked(name, PARIS, LS)
    assert (answer.text, answer.reasoning, answer.calls, answer.finish) == (text, "Let me see.", (), "stop")


def test_pieces_of_the_text_stand_before_in_and_behind_the_section() -> None:
    answer = leaked("text-among-markers", PARIS, LS, text="I look at both of them.")
    assert answer.text == f"I{BEGIN} look{ONE} at{TWO}{END} both of them."
    assert leaked("text-among-markers", text="\n").text == f"{BEGIN}{ONE}{END}\n"


@pytest.mark.parametrize(
    ("name", "reasoning", "text"),
    [
        ("markers-in-reasoning", f"Let me see.{BEGIN}{ONE}{END}", "I look."),
        ("think-never-closed", f"Let me see.I look.{BEGIN}{ONE}{END}", ""),
        ("call-without-section-in-reasoning", f"Let me see.{ONE}", "I look."),
        ("calls-without-ends", f"Let me see.{ONE.removesuffix(CALLED)}", "I look."),
    ],
)
def test_calls_stand_in_the_thought(name: str, reasoning: str, text: str) -> None:
    answer = leaked(name)
    assert (answer.reasoning, answer.text, answer.calls, answer.finish) == (reasoning, text, (), "stop")


@pytest.mark.parametrize(
    ("name", "slot"),
    [
        ("slot-number", "2"),
        ("slot-call-number", "call00002"),
        ("slot-no-name", ":2"),
        ("slot-spaced-colon", "functions.get_weather : 2"),
        ("slot-wide-colon", "functions.get_weather\uff1a2"),
        ("slot-glued", "functionsget_weather2"),
        ("slot-no-colon", "functions.get_weather2"),
        ("slot-underscores", "functions_get_weather_2"),
        ("slot-dots", "functions.get_weather.2"),
        ("slot-no-number", "functions.get_weather"),
        ("slot-name-colon", "get_weather:2"),
        ("slot-name-underscore", "get_weather_2"),
        ("slot-newline", "functions.\nget_weather:2"),
        ("slot-white-space", "\nfunctions.get_weather:2 \n"),
    ],
)
def test_the_place_of_the_identifier_goes_on_from_the_history(name: str, slot: str) -> None:
    earlier = round_of(SimCall("functions.Bash:0", *LS), SimCall("functions.Bash:1", *LS))
    answer = apply_speech(ROWS[name], answer_to(sim_request(history=earlier), PARIS, text=""))
    assert answer.text == f'{BEGIN}{CALL}{slot}{ARGUMENTS}{{"city": "Paris"}}{CALLED}{END}'


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("no-number", "functions.get_weather" + ARGUMENTS + '{"city": "Paris"}'),
        ("dots", "functions.get_weather.0" + ARGUMENTS + '{"city": "Paris"}'),
        ("call-number", "\ncall00000" + ARGUMENTS + '{"city": "Paris"}'),
        ("spaced", "functions.get_weather:0" + ARGUMENTS + ' \n{"city": "Paris"}'),
        ("listed", "functions.get_weather:0" + ARGUMENTS + '[{"city": "Paris"}]'),
        ("unclosed", "functions.get_weather:0" + ARGUMENTS + '{"city": "Paris"'),
    ],
)
def test_a_parser_that_gives_up_has_taken_the_first_markers(name: str, text: str) -> None:
    answer = leaked(f"swallowed-{name}", PARIS, LS)
    assert answer.text.startswith(f"I look.{text}{CALLED}{CALL}")
    assert answer.text.endswith(CALLED + END)
    assert (answer.calls, answer.finish) == ((), "stop")


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("slot-call-hex", '{"city": "Paris"}'),
        ("slot-call-hex-wrapped", '{"name": "get_weather", "arguments": {"city": "Paris"}}'),
        ("slot-call-hex-beside", '{"name": "get_weather", "city": "Paris"}'),
    ],
)
def test_where_the_identifier_is_foreign_the_name_is_nowhere_or_in_the_arguments(name: str, given: str) -> None:
    slot, _, rest = leaked(name, text="").text.removeprefix(BEGIN + CALL).partition(ARGUMENTS)
    assert slot.startswith("call_")
    assert len(slot) == len("call_59adf5614cfe4f4b8a71be54")
    assert rest == given + CALLED + END


def test_a_name_beside_the_arguments_never_takes_the_place_of_one() -> None:
    text = leaked("slot-call-hex-beside", ("find", '{"name": "x"}'), ("rest", "{}"), text="").text
    assert '{"name": "find", "arguments": {"name": "x"}}' in text
    assert ARGUMENTS + '{"name": "rest"}' in text


def test_each_call_comes_twice() -> None:
    answer = leaked("markers-and-native")
    assert answer.text == f"I look.{BEGIN}{ONE}{END}"
    assert [call.name for call in answer.calls] == ["get_weather"]
    assert answer.finish == "tool_calls"


def test_of_several_calls_the_first_half_leaks() -> None:
    answer = leaked("markers-half-native", PARIS, LS)
    assert answer.text == f"I look.{BEGIN}{ONE}{END}"
    assert [(call.id, call.name) for call in answer.calls] == [("functions.Bash:1", "Bash")]
    assert answer.finish == "tool_calls"


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_an_answer_says_that_it_calls_and_its_list_is_empty(stream: bool) -> None:
    fault, answer = ROWS["markers-in-content-called"], answer_to(sim_request(stream=stream), PARIS)
    sent = payloads_of(fault, answer)
    choices = [chunk["choices"][0] for chunk in sent if chunk["choices"]] if stream else sent["choices"]
    ended = [choice for choice in choices if choice["finish_reason"]]
    assert [choice["finish_reason"] for choice in ended] == ["tool_calls"]
    assert [choice.get("delta", choice.get("message"))["tool_calls"] for choice in ended] == [[]]


def test_markers_come_by_the_character_and_in_lumps() -> None:
    def pieces(name: str) -> list[str]:
        sent = payloads_of(ROWS[name], answer_to(sim_request(stream=True), PARIS, LS))
        return [text for chunk in sent if chunk["choices"] and (text := chunk["choices"][0]["delta"].get("content"))]

    assert set(map(len, pieces("markers-by-character"))) == {1}
    assert any(piece.count("<|tool_call_") > 1 for piece in pieces("markers-in-lumps"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("markers-cut-off", f'I look.{BEGIN}{ONE}{CALL}functions.Bash:1{ARGUMENTS}{{"comman'),
        ("markers-cut-off-in-slot", f"I look.{BEGIN}{ONE}{CALL}function"),
    ],
)
def test_an_answer_is_cut_off_in_its_last_call(name: str, text: str) -> None:
    answer = leaked(name, PARIS, LS)
    assert (answer.text, answer.finish) == (text, "length")
    assert ROWS[name].fatal
    ended = leaked(name.replace("cut-off", "end"), PARIS, LS)
    assert (ended.text, ended.finish) == (text, "stop")


def test_tags_of_thoughts_stand_in_the_text() -> None:
    assert leaked("think-end-in-content").text == "</think>I look."
    inline = leaked("think-tags-in-content")
    assert (inline.text, inline.reasoning) == ("<think>Let me see.</think>I look.", "")
    assert inline.finish == "tool_calls"
