"""Leaks, identifiers and arguments that hosts get wrong, through the engine: what was meant, or an honest end."""

from __future__ import annotations

import json
from typing import Final

import pytest

from moonshim import KimiOptions, Mended, Mender, mend_response
from moonshim.engine.prepare import prepare_request
from moonshim.engine.values.conversation import Message, Reasoning, Text, ToolCall
from moonshim.engine.values.events import Failed, Finished
from moonshim.simulator.fault import Fault
from moonshim.simulator.faults import arguments, ids, leaks_k2, leaks_k3
from moonshim.simulator.request import Json, Wire
from moonshim.simulator.response import HostResponse
from moonshim.simulator.wire.chat import chat_frames
from moonshim.simulator.wire.messages import messages_frames
from tests.simulator.faults.answers import LS, PARIS, TOOLS, WIRES, answer_to, by_name, payloads_of, sim_request
from tests.support.looped import looped
from tests.support.streams import find_markers

FAULTS: Final = by_name((*leaks_k2.FAULTS, *leaks_k3.FAULTS, *ids.FAULTS, *arguments.FAULTS))
CASES: Final = [(name, family) for name, fault in FAULTS.items() for family in fault.families]
AWKWARD: Final = (
    "Bash",
    json.dumps({"command": "a\n\\d \\x1b 😀 <|tool_call_end|> <|sep|> </think> é"}, ensure_ascii=False),
)
TYPED: Final = ("plan", '{"todos":[{"title":"[a]","n":1.5},null],"deep":{"x":[true,"1"]},"share":0.25}')
TEXT: Final = "I look at it, <at> all of it."

TEXT_IN_THOUGHT: Final = {"think-never-closed", "xtml-think-never-closed"}
"""Nothing tells where the thought ends and the text begins."""
THOUGHT_IN_TEXT: Final = {"xtml-reasoning-in-content"}
NAMELESS: Final = {
    *("slot-number", "slot-call-number", "slot-call-hex", "slot-toolu", "slot-no-name"),
    *("swallowed-call-number", "xtml-no-tool"),
}
"""The tool is found by its arguments, if only one fits: a call without any says nothing."""
WRITTEN_ANEW: Final = {"slot-call-hex-beside"}
"""The name is taken out from among the arguments, and the white space behind it may be its own."""
BRACE_ALONE: Final = {"arguments-unclosed", "swallowed-unclosed"}
"""An object that is nothing but its first brace may have lost more than its last."""
NAME_IN_TEXT: Final = {name for name in FAULTS if name.startswith("swallowed-")}
"""Nothing is held back for the sake of a name without its marker: what has left stays in the text."""
NO_MARKERS: Final = {"arguments-in-id"}
"""The arguments end at a marker: whether one is part of them, nothing tells."""


def asked_by_client(wire: Wire, model: str, *, stream: bool) -> Json:
    chat = wire == "openai_chat"
    tools = [
        {"type": "function", "function": {"name": name, "parameters": schema}}
        if chat
        else {"name": name, "input_schema": schema}
        for name, schema in TOOLS.items()
    ]
    messages = [{"role": "user", "content": "Do it."}]
    return {"model": model, "messages": messages, "tools": tools, "stream": stream, "max_tokens": 1000}


def mend(fault: Fault, answer: HostResponse) -> tuple[Message, Finished | Failed | None]:
    wire, stream = answer.request.wire, answer.request.stream
    body = asked_by_client(wire, answer.model, stream=stream)
    options = KimiOptions.mending(repair_arguments="schema")
    plan = prepare_request(body, dialect=wire, upstream=wire, host="generic", options=options).plan
    sent = payloads_of(fault, answer)
    if not stream:
        whole: Mended = mend_response(sent, plan=plan)
        return whole.message, whole.ending
    mender = Mender(plan=plan)
    for frame in chat_frames(sent) if wire == "openai_chat" else messages_frames(sent):
        mender.feed(frame)
    mender.flush()
    return mender.message, mender.ending


def texts(message: Message, kind: type[Text | Reasoning]) -> str:
    return "".join(
        part.text for part in message.parts if isinstance(part, (Text, Reasoning)) and isinstance(part, kind)
    )


def calls(message: Message) -> list[ToolCall]:
    return [part for part in message.parts if isinstance(part, ToolCall)]


@looped("wire", WIRES)
@looped("stream", [True, False])
@pytest.mark.parametrize(("name", "family"), CASES)
def test_the_client_sees_what_was_meant(name: str, family: str, wire: Wire, stream: bool) -> None:
    fault = FAULTS[name]
    if wire not in fault.wires:
        return
    awkward = LS if name in NO_MARKERS else AWKWARD
    intended = [PARIS, awkward, TYPED, *([] if name in NAMELESS | BRACE_ALONE else [("rest", "{}")])]
    answer = answer_to(sim_request({"k2": "k2.5", "k3": "k3"}[family], wire, stream=stream), *intended, text=TEXT)
    message, ending = mend(fault, answer)
    found = calls(message)
    assert not find_markers([texts(message, Text), texts(message, Reasoning)])
    if fault.fatal or fault.lost:
        assert isinstance(ending, Failed) or (ending is not None and ending.reason == "length")
        return
    assert [call.name for call in found] == [tool for tool, _ in intended]
    assert [json.loads(call.arguments) for call in found] == [json.loads(given) for _, given in intended]
    assert len({call.id for call in found} - {""}) == len(intended)
    assert isinstance(ending, Finished)
    assert ending.reason == "tool_calls"
    if name not in TEXT_IN_THOUGHT | THOUGHT_IN_TEXT:
        text = texts(message, Text).strip()
        assert text.startswith(answer.intended.text) if name in NAME_IN_TEXT else text == answer.intended.text
        assert texts(message, Reasoning).strip() == answer.intended.reasoning


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(("name", "family"), [case for case in CASES if FAULTS[case[0]].needs in ("", "reasoning")])
def test_an_answer_without_calls_is_told_as_it_was_meant(name: str, family: str, wire: Wire) -> None:
    answer = answer_to(sim_request({"k2": "k2.5", "k3": "k3"}[family], wire, stream=True))
    message, ending = mend(FAULTS[name], answer)
    assert not calls(message)
    assert isinstance(ending, Finished)
    assert ending.reason == "stop"
    if name not in THOUGHT_IN_TEXT:
        assert texts(message, Text) == answer.intended.text
        assert texts(message, Reasoning) == answer.intended.reasoning


@pytest.mark.parametrize(
    "name", [fault.name for fault in leaks_k2.FAULTS if not fault.fatal and fault.name not in WRITTEN_ANEW]
)
def test_arguments_of_k2_that_were_right_stay_as_they_were_to_the_byte(name: str) -> None:
    spaced = ("get_weather", '{ "city" :\t"Paris" }')
    message, _ = mend(FAULTS[name], answer_to(sim_request(stream=True), spaced, LS))
    assert [call.arguments for call in calls(message)] == [spaced[1], LS[1]]
