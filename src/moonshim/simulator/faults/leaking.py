"""A response whose parser failed -> the same response with its calls as raw text; what the leaks of all families
share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from msgspec.structs import replace

from moonshim.simulator.fault import Speech
from moonshim.simulator.host.slots import Place, Slot, canonical
from moonshim.simulator.request import Json, SimCall
from moonshim.simulator.response import Cut, HostResponse, NativeCall

__all__ = ["Channel", "Write", "add_leak", "empty_list", "empty_lists", "ending", "leak", "leak_half", "raw_calls"]

Channel: TypeAlias = Literal["text", "reasoning"]
Write: TypeAlias = Callable[[Sequence[SimCall]], str]
"""Calls -> the raw text in which the model wrote them."""


def raw_calls(answer: HostResponse, slot: Slot = canonical) -> tuple[SimCall, ...]:
    """The calls as the model wrote them, before any parser: numbering continues from the history."""
    first = len(answer.request.history)
    names = [_name(answer, at, call) for at, call in enumerate(answer.calls)]
    places = [Place(name, first + at, answer.id) for at, name in enumerate(names)]
    return tuple(
        SimCall(slot(place), place.name, call.arguments) for place, call in zip(places, answer.calls, strict=True)
    )


def ending(answer: HostResponse, finish: str) -> str:
    """The finish reason of a response whose calls are not reported; `length` stays."""
    return answer.finish if answer.finish == "length" else finish


def add_leak(
    answer: HostResponse,
    raw: str,
    *,
    into: Channel = "text",
    finish: str = "stop",
    calls: tuple[NativeCall, ...] = (),
    cut: Cut | None = None,
) -> HostResponse:
    """Append raw text to what is in the channel already; `calls` are those that the parser did find."""
    changed = replace(answer, calls=calls, finish=ending(answer, finish), cut=cut or answer.cut)
    if into == "text":
        return replace(changed, text=answer.text + raw)
    return replace(changed, reasoning=answer.reasoning + raw)


def leak(
    write: Write,
    *,
    into: Channel = "text",
    finish: str = "stop",
    slot: Slot = canonical,
    native: bool = False,
    cut: Cut | None = None,
) -> Speech:
    """Every call leaks. `native`: the parser found them as well, so that each appears twice."""

    def speech(answer: HostResponse) -> HostResponse:
        if not answer.calls:
            return answer
        native_calls = answer.calls if native else ()
        return add_leak(answer, write(raw_calls(answer, slot)), into=into, finish=finish, calls=native_calls, cut=cut)

    return speech


def leak_half(write: Write, *, into: Channel = "text") -> Speech:
    """The first half leaks, the others are parsed, so that their order stays the same."""

    def speech(answer: HostResponse) -> HostResponse:
        half = len(answer.calls) // 2
        if not half:
            return answer
        raw = write(raw_calls(answer)[:half])
        return add_leak(answer, raw, into=into, finish="tool_calls", calls=answer.calls[half:])

    return speech


def _name(answer: HostResponse, at: int, call: NativeCall) -> str:
    """The model has written a name, even where the host has lost it."""
    return call.name or (answer.intended.calls[at].name if at < len(answer.intended.calls) else "")


def empty_lists(chunks: list[Json], answer: HostResponse) -> list[Json]:
    """Chat: the last delta has an empty list of calls."""
    return [_add_empty_list(chunk, "delta", answer) for chunk in chunks]


def empty_list(payload: Json, answer: HostResponse) -> Json:
    """The same in a non-streaming response."""
    return _add_empty_list(payload, "message", answer)


def _add_empty_list(payload: Json, field: str, answer: HostResponse) -> Json:
    choices = payload.get("choices")
    if answer.calls or not answer.intended.calls or not choices or not choices[0].get("finish_reason"):
        return payload
    first = choices[0] | {field: (choices[0].get(field) or {}) | {"tool_calls": []}}
    return payload | {"choices": [first, *choices[1:]]}
