"""Questions, models and requests that the tests of the simulator share."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from moonshim.simulator.request import OfferedTool, SimCall, SimRequest, SimResult, SimTurn
from moonshim.simulator.response import HostResponse, IntendedCall, IntendedResponse, NativeCall, TokenTotals

__all__ = ["CHAT_TOOLS", "CITIES", "MEANT", "MESSAGES_TOOLS", "Rounds", "answer", "expected_results", "sim_request"]

CITIES: Final = ("Paris", "Łódź", "北京", "São Paulo", "Ho")
_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "day": {"type": "integer"}},
    "required": ["city"],
}
CHAT_TOOLS: Final[Any] = [
    {"type": "function", "function": {"name": name, "description": "Tells.", "parameters": _SCHEMA}}
    for name in ("weather", "time_of-day")
]
MESSAGES_TOOLS: Final[Any] = [
    {"name": name, "description": "Tells.", "input_schema": _SCHEMA} for name in ("weather", "time_of-day")
]
MEANT: Final = IntendedResponse(
    reasoning="Two cities, one call each.",
    text="Let me look. 👀",
    calls=(IntendedCall("weather", '{"city": "Łódź"}'), IntendedCall("time_of-day", '{"city":"北京","day":2}')),
)


def sim_request(**given: Any) -> SimRequest:
    """What a test is about, and everything else as it usually is."""
    usual: dict[str, Any] = {
        "wire": "openai_chat",
        "model": "kimi-k2.5",
        "generation": "k2.5",
        "turns": (SimTurn(role="user", text="What is the weather?"),),
        "tools": (OfferedTool("weather", schema=_SCHEMA), OfferedTool("time_of-day", schema=_SCHEMA)),
    }
    return SimRequest(**(usual | given))


def rounds_before(*ids: str, name: str = "weather") -> tuple[SimTurn, ...]:
    """A history of one call for each id."""
    turns = [SimTurn(role="user", text="Go on.")]
    for id in ids:
        turns.append(SimTurn(role="assistant", reasoning="", calls=(SimCall(id, name, "{}"),)))
        turns.append(SimTurn(role="tool", results=(SimResult(id, name, "42"),)))
    return tuple(turns)


def answer(**given: Any) -> HostResponse:
    usual: dict[str, Any] = {
        "id": "chatcmpl-1",
        "created": 1,
        "model": "kimi-k2.5",
        "reasoning": MEANT.reasoning,
        "text": MEANT.text,
        "calls": tuple(NativeCall(f"{one.name}:{at}", one.name, one.arguments) for at, one in enumerate(MEANT.calls)),
        "finish": "tool_calls",
        "tally": TokenTotals(100, 64, 30, 8),
        "request": sim_request(stream=True),
        "intended": MEANT,
    }
    return HostResponse(**(usual | given))


class Rounds(Struct, frozen=True):
    """A model that calls both tools at once, so many rounds long, and then says everything that it was told."""

    rounds: int = 5

    def reply(self, sim_request: SimRequest) -> IntendedResponse:
        results = [result.text for turn in sim_request.since for result in turn.results]
        if sim_request.round > self.rounds or not sim_request.tools:
            return IntendedResponse(reasoning="Now I know.", text="I was told: " + ", ".join(results))
        city = CITIES[(sim_request.round - 1) % len(CITIES)]
        arguments = json.dumps({"city": city, "day": sim_request.round}, ensure_ascii=False)
        return IntendedResponse(
            reasoning=f"Round {sim_request.round}: {city}.",
            text=f"I ask about {city}.",
            calls=(IntendedCall("weather", arguments), IntendedCall("time_of-day", arguments)),
        )


def expected_results(rounds: int) -> Sequence[str]:
    """What `Rounds` says in the end, when the tools answer `name(city)`."""
    return [f"{name}({CITIES[at % len(CITIES)]})" for at in range(rounds) for name in ("weather", "time_of-day")]
