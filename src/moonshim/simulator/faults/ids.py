"""Correct ids and names of calls -> those that each host gives them instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from moonshim.simulator.fault import Fault, Speech
from moonshim.simulator.host.ids import ID_PROFILES, IdPlace
from moonshim.simulator.host.markers import CALL_END
from moonshim.simulator.request import Json
from moonshim.simulator.response import HostResponse, NativeCall

__all__ = ["FAULTS"]


# --- wrong ids -------------------------------------------------------------------------------------------------------


def _places(answer: HostResponse) -> list[IdPlace]:
    first = len(answer.request.history)
    return [
        IdPlace(name=call.name, number=first + at, position=at, answer_id=answer.id)
        for at, call in enumerate(answer.calls)
    ]


def _rename_ids(profile: Callable[[IdPlace], str]) -> Speech:
    def speech(answer: HostResponse) -> HostResponse:
        named = zip(answer.calls, _places(answer), strict=True)
        return replace(answer, calls=tuple(replace(call, id=profile(place)) for call, place in named))

    return speech


def _reuse_earlier_ids(answer: HostResponse) -> HostResponse:
    """The counter was reset: ids of the history are used again, the oldest first."""
    used = list(dict.fromkeys(call.id for call in answer.request.history if call.id))
    again = tuple(replace(call, id=id_) for call, id_ in zip(answer.calls, used, strict=False))
    return replace(answer, calls=(*again, *answer.calls[len(again) :]))


def _share_one_id(answer: HostResponse) -> HostResponse:
    return replace(answer, calls=tuple(replace(call, id=answer.calls[0].id) for call in answer.calls))


# --- wrong names -----------------------------------------------------------------------------------------------------


def _rename_calls(name: Callable[[NativeCall], str]) -> Speech:
    return lambda answer: replace(answer, calls=tuple(replace(call, name=name(call)) for call in answer.calls))


def _name_in_id(answer: HostResponse) -> HostResponse:
    """The parser has left everything in the id."""
    canonical = _rename_ids(ID_PROFILES["k2"])(answer)
    return _rename_calls(lambda call: "")(canonical)


def _arguments_in_id(answer: HostResponse) -> HostResponse:
    """The parser looked for a marker before the arguments that the model did not write."""
    named = _rename_ids(ID_PROFILES["k2"])(answer)
    calls = (replace(call, id=f"{call.id} {call.arguments}{CALL_END}", arguments="") for call in named.calls)
    return replace(named, calls=tuple(calls))


# --- missing ids -----------------------------------------------------------------------------------------------------


def _remove_all_ids(payload: Json, answer: HostResponse) -> Json:
    """Remove ids from calls in either dialect: `tool_calls` of a message or delta, `tool_use` of a block."""
    return {key: _remove_ids(key, value) for key, value in payload.items()}


def _remove_ids(key: str, value: Any) -> Any:
    if key == "tool_calls" and isinstance(value, list):
        return [_remove_id(entry) for entry in value]
    if isinstance(value, dict):
        if value.get("type") == "tool_use":
            return _remove_id(value)
        return {inner: _remove_ids(inner, part) for inner, part in value.items()} if key in _OUTSIDE else value
    if isinstance(value, list) and key in _OUTSIDE:
        return [_remove_ids(key, part) for part in value]
    return value


_OUTSIDE: Final = frozenset({"choices", "content", "content_block", "delta", "message"})


def _remove_id(entry: Any) -> Any:
    return {key: value for key, value in entry.items() if key != "id"} if isinstance(entry, dict) else entry


# --- the table ---------------------------------------------------------------------------------------------------


def _row(name: str, about: str, seen: str, speech: Speech | None, **more: Any) -> Fault:
    return Fault(name=name, group="ids", about=about, seen=seen, speech=speech, **{"needs": "calls", **more})


_PROFILES: Final = {
    "k2": ("`functions.name:number`, numbered across the conversation", "K2 itself, vLLM, SGLang"),
    "moonshot-k2": ("`name:number`, numbered across the conversation", "Moonshot, for K2"),
    "moonshot-k3": ("`name_number`, numbered across the conversation", "Moonshot, for K3; smg#2103"),
    "fireworks-k3": ("`name:number`, numbered from 0 in each response, so that they repeat", "fireconnect#16"),
    "openai": ("`call_` plus hex digits", "several hosts"),
    "vllm": ("`chatcmpl-tool-` plus hex digits", "vLLM, for K3"),
    "anthropic": ("`toolu_` plus hex digits", "gateways with a Messages endpoint"),
    "kimi-anthropic": ("`tool_` plus hex digits", "openclaw#41297"),
}

FAULTS: Final[tuple[Fault, ...]] = (
    *(
        _row(f"ids-{name}", f"Call ids are {form}", seen, _rename_ids(ID_PROFILES[name]))
        for name, (form, seen) in _PROFILES.items()
    ),
    _row("ids-number", "Call ids are plain numbers", "sglang#23950", _rename_ids(lambda place: str(place.number))),
    _row(
        "ids-call-number",
        "Call ids look like `call00003`",
        "sglang#25362",
        _rename_ids(lambda place: f"call{place.number:05}"),
    ),
    _row(
        "ids-underscores",
        "Call ids look like `functions_Bash_0`",
        "kimi-cli#2527",
        _rename_ids(lambda place: f"functions_{place.name}_{place.number}"),
    ),
    _row("ids-said-again", "The ids of earlier calls are reused, as after a rewind", "cindy#1001", _reuse_earlier_ids),
    _row("ids-same", "Parallel calls share one id", "openclaw#84730", _share_one_id, needs="parallel"),
    _row("ids-empty", "Call ids are empty strings", "openclaw#65924", _rename_ids(lambda place: "")),
    _row(
        "ids-missing",
        "Calls have no id",
        "hosts whose parser finds no id",
        None,
        chunks=lambda chunks, answer: [_remove_all_ids(chunk, answer) for chunk in chunks],
        whole=_remove_all_ids,
    ),
    _row(
        "name-dotted",
        "Tool names have a `functions.` prefix: `functions.Bash`",
        "kimi-cli#2527",
        _rename_calls(lambda call: f"functions.{call.name}"),
    ),
    _row(
        "name-underscored",
        "Tool names have a `functions_` prefix: `functions_Bash`",
        "kimi-cli#2527",
        _rename_calls(lambda call: f"functions_{call.name}"),
    ),
    _row("name-in-id", "The tool name is empty and appears only in the id", "forgecode#1141", _name_in_id),
    _row(
        "arguments-in-id",
        "The arguments of a call and its end marker are in its id",
        "vLLM's Python parser, where the model writes no marker before the arguments",
        _arguments_in_id,
        wires=("openai_chat",),
        families=("k2",),
    ),
)
