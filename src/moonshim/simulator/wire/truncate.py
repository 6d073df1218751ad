"""The response that a model intends -> the part that it writes: up to the token limit, or to a stop sequence."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from moonshim.simulator.request import SimRequest
from moonshim.simulator.response import IntendedCall, IntendedResponse
from moonshim.simulator.wire.chunking import pieces

__all__ = ["TruncatedResponse", "think_longer", "truncate"]

_AROUND_A_CALL: Final = 4
"""Tokens that name a call and frame its arguments, whatever its name."""


class TruncatedResponse(Struct, frozen=True):
    """What is left, its finish reason in Chat's terms, and the stop sequence that ended it."""

    intended: IntendedResponse
    finish: str
    stopped_by: str | None = None


def truncate(intended: IntendedResponse, request: SimRequest) -> TruncatedResponse:
    """Reasoning comes first and shares the tokens; a call may be cut in the middle of its arguments, as hosts do.

    A request that turns thinking off gets no reasoning.

    >>> request = SimRequest(wire="openai_chat", model="kimi-k3", generation="k3", turns=(), max_tokens=2)
    >>> truncate(IntendedResponse(text="one two three"), request)
    TruncatedResponse(intended=IntendedResponse(reasoning='', text='one two', calls=()), finish='length',
                      stopped_by=None)
    """
    stopped_by = None
    if not request.thinking:
        intended = replace(intended, reasoning="")
    at, word = _first_stop(intended.text, _stops(request))
    if word is not None:
        intended, stopped_by = replace(intended, text=intended.text[:at], calls=()), word
    if request.max_tokens is None:
        return TruncatedResponse(intended, _finish(intended), stopped_by)
    short = _within_tokens(intended, request.max_tokens)
    return (
        TruncatedResponse(short, "length")
        if short != intended
        else TruncatedResponse(intended, _finish(intended), stopped_by)
    )


def think_longer(reasoning: str, tokens: int) -> str:
    """The reasoning, with words before it until it has so many tokens.

    >>> think_longer("I see.", 5), think_longer("I see.", 2)
    ('hm hm I see.', 'I see.')
    """
    missing = tokens - len(pieces(reasoning, "tokens"))
    return f"{'hm ' * missing}{reasoning}".strip() if missing > 0 else reasoning


def _stops(request: SimRequest) -> list[str]:
    given: Any = request.body.get("stop" if request.wire == "openai_chat" else "stop_sequences")
    if isinstance(given, str):
        given = [given]
    return [one for one in given if isinstance(one, str) and one] if isinstance(given, list) else []


def _finish(intended: IntendedResponse) -> str:
    return "tool_calls" if intended.calls else "stop"


def _first_stop(text: str, stops: list[str]) -> tuple[int, str | None]:
    found = [(text.find(stop), stop) for stop in stops if stop in text]
    return min(found, default=(0, None))


def _within_tokens(intended: IntendedResponse, tokens: int) -> IntendedResponse:
    reasoning = pieces(intended.reasoning, "tokens")[:tokens]
    tokens -= len(reasoning)
    text = pieces(intended.text, "tokens")[:tokens]
    tokens -= len(text)
    calls: list[IntendedCall] = []
    for call in intended.calls:
        tokens -= _AROUND_A_CALL
        if tokens <= 0:
            break
        arguments = pieces(call.arguments, "tokens")[:tokens]
        tokens -= len(arguments)
        calls.append(IntendedCall(call.name, "".join(arguments)))
    return IntendedResponse(reasoning="".join(reasoning), text="".join(text), calls=tuple(calls))
