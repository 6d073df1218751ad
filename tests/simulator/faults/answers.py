"""Questions and answers for faults to act on, made by hand and by hypothesis, and the ways to write them."""

from __future__ import annotations

import json
from typing import Any, Final

from hypothesis import strategies as st
from msgspec.structs import replace

from moonshim.simulator.fault import Fault
from moonshim.simulator.host.ids import ID_PROFILES, IdPlace
from moonshim.simulator.request import Json, OfferedTool, SimCall, SimRequest, SimResult, SimTurn, Wire
from moonshim.simulator.response import HostResponse, IntendedCall, IntendedResponse, NativeCall
from moonshim.simulator.wire.chat import chat_chunks, chat_whole
from moonshim.simulator.wire.messages import messages_events, messages_whole
from tests.support.streams import MARKERS

__all__ = [
    "LS",
    "PARIS",
    "TOOLS",
    "WIRES",
    "answer_to",
    "answers",
    "apply_speech",
    "by_name",
    "payloads_of",
    "round_of",
    "sim_request",
]

WIRES: Final[tuple[Wire, ...]] = ("openai_chat", "anthropic")
PARIS: Final = ("get_weather", '{"city": "Paris"}')
LS: Final = ("Bash", '{"command": "ls"}')
TOOLS: Final[dict[str, Json]] = {
    "get_weather": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "Bash": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    "plan": {
        "type": "object",
        "properties": {"todos": {"type": "array"}, "deep": {"type": "object"}, "share": {"type": "number"}},
        "required": ["todos"],
    },
    "rest": {"type": "object", "properties": {}},
}


def round_of(*calls: SimCall) -> tuple[SimTurn, SimTurn]:
    """A turn that calls, and the one with what came of it."""
    results = tuple(SimResult(call.id, call.name, f"result of {call.name}") for call in calls)
    return SimTurn(role="assistant", reasoning="Hm.", calls=calls), SimTurn(role="tool", results=results)


def sim_request(
    generation: str = "k2.5",
    wire: Wire = "openai_chat",
    *,
    history: tuple[SimTurn, ...] = (),
    stream: bool = False,
    tools: bool = True,
) -> SimRequest:
    return SimRequest(
        wire=wire,
        model=f"kimi-{generation}",
        generation=generation,
        turns=(SimTurn(role="user", text="Do it."), *history),
        tools=tuple(OfferedTool(name, "", schema) for name, schema in TOOLS.items()) if tools else (),
        stream=stream,
    )


def answer_to(
    asked: SimRequest, *calls: tuple[str, str], text: str = "I look.", reasoning: str = "Let me see."
) -> HostResponse:
    """The answer as it should be."""
    profile, before = ID_PROFILES["k2" if asked.family == "k2" else "moonshot-k3"], len(asked.history)
    places = [
        IdPlace(name=name, number=before + at, position=at, answer_id="chatcmpl-1")
        for at, (name, _) in enumerate(calls)
    ]
    return HostResponse(
        id="chatcmpl-1",
        created=1,
        model=asked.model,
        reasoning=reasoning,
        text=text,
        calls=tuple(NativeCall(profile(place), *call) for place, call in zip(places, calls, strict=True)),
        finish="tool_calls" if calls else "stop",
        request=asked,
        intended=IntendedResponse(reasoning=reasoning, text=text, calls=tuple(IntendedCall(*call) for call in calls)),
    )


def apply_speech(fault: Fault, answer: HostResponse) -> HostResponse:
    return fault.speech(answer) if fault.speech is not None else answer


def payloads_of(fault: Fault, answer: HostResponse) -> Any:
    """The payloads that are sent: a list for a stream, else one."""
    reply, chat = apply_speech(fault, answer), answer.request.wire == "openai_chat"
    if answer.request.stream:
        chunks = chat_chunks(reply) if chat else messages_events(reply)
        return chunks if fault.chunks is None else fault.chunks(chunks, reply)
    whole = chat_whole(reply) if chat else messages_whole(reply)
    return whole if fault.whole is None else fault.whole(whole, reply)


def by_name(faults: tuple[Fault, ...]) -> dict[str, Fault]:
    return {fault.name: fault for fault in faults}


# --- anything at all ---------------------------------------------------------------------------------------------

_words: Final = st.one_of(
    st.text(max_size=12), st.sampled_from((*MARKERS, '"', "\\", "\n", "}", "<|open|>argument", "[DONE]"))
)
_texts: Final = st.lists(_words, max_size=3).map("".join)
_values: Final = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), _texts),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(_texts, inner, max_size=2)),
    max_leaves=5,
)
_objects: Final = st.dictionaries(_texts, _values, max_size=3)
_arguments: Final = st.one_of(
    _objects.map(json.dumps),
    _objects.map(lambda given: json.dumps(given, ensure_ascii=False, indent=1)),
    # What another fault has left.
    _texts,
)
_names: Final = st.one_of(st.sampled_from(tuple(TOOLS)), st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,9}", fullmatch=True))
_calls: Final = st.lists(st.tuples(_names, _arguments), max_size=3)
_ids: Final = st.one_of(_texts, st.sampled_from(("functions.Bash:0", "call_0a1b", "Bash_0", "", "7", "call00003")))
_rounds: Final = st.lists(
    st.lists(st.builds(SimCall, _ids, _names, _arguments), min_size=1, max_size=2).map(lambda calls: round_of(*calls)),
    max_size=3,
).map(lambda rounds: tuple(turn for one in rounds for turn in one))


@st.composite
def answers(draw: st.DrawFn, *, calls: bool = True) -> HostResponse:
    """Any answer, on either wire, to a model of either family."""
    asked = sim_request(
        draw(st.sampled_from(("k2", "k2.5", "k3"))),
        draw(st.sampled_from(WIRES)),
        history=draw(_rounds),
        stream=draw(st.booleans()),
        tools=draw(st.booleans()),
    )
    given = draw(_calls) if calls else []
    answer = answer_to(asked, *given, text=draw(_texts), reasoning=draw(_texts))
    return replace(answer, finish=draw(st.sampled_from((answer.finish, "length"))))
