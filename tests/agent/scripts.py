"""Models that say what a test wants, agents that ask them over a real socket, and what a history must be like."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct

from moonshim.agent import Agent, Provider, RunEnded, Step
from moonshim.agent.history import History
from moonshim.engine.values.conversation import Reasoning, Text, ToolCall, ToolResult
from moonshim.simulator import IntendedCall, IntendedResponse, SimRequest, Simulator

__all__ = [
    "Script",
    "Talk",
    "called",
    "calls_in",
    "check_can_go_on",
    "ending",
    "results_in",
    "said",
    "steps_of",
    "talk",
]


class Script(Struct, frozen=True):
    """Says one thing after the other; the last one again and again. How far it is shows in the conversation."""

    says: tuple[IntendedResponse, ...]

    def reply(self, question: SimRequest) -> IntendedResponse:
        before = sum(turn.role == "assistant" for turn in question.turns)
        return self.says[min(before, len(self.says) - 1)]


def called(*calls: tuple[str, str], text: str = "", reasoning: str = "I call.") -> IntendedResponse:
    return IntendedResponse(
        reasoning=reasoning, text=text, calls=tuple(IntendedCall(name, arguments) for name, arguments in calls)
    )


def said(text: str = "Done.", reasoning: str = "I answer.") -> IntendedResponse:
    return IntendedResponse(reasoning=reasoning, text=text)


class Talk(Struct, frozen=True):
    """An agent, and the host that it asks."""

    agent: Agent
    server: Simulator
    provider: Provider


@asynccontextmanager
async def talk(
    says: Sequence[IntendedResponse] = (),
    tools: Sequence[Any] = (),
    *,
    model: str = "kimi-k2.5",
    attempts: int = 1,
    **given: Any,
) -> AsyncIterator[Talk]:
    """An agent on a strict host. What is no argument of the host is one of the agent."""
    names = ("behaviour", "faults", "scenario", "tokens_per_second")
    host = {name: given.pop(name) for name in names if name in given}
    if says:
        host["model"] = Script(tuple(says))
    async with Simulator(**host) as server:
        row = {"selfhost": "vllm"}.get(server.settings.behaviour, server.settings.behaviour)
        async with Provider(
            f"{server.url}/v1", model=model, host=row, attempts=attempts, random=lambda: 0.0
        ) as provider:
            yield Talk(Agent(provider, tools, **given), server, provider)


async def steps_of(steps: AsyncIterator[Step]) -> list[Step]:
    return [step async for step in steps]


def ending(steps: Sequence[Step]) -> RunEnded:
    last = steps[-1]
    assert isinstance(last, RunEnded)
    assert sum(isinstance(step, RunEnded) for step in steps) == 1
    return last


def calls_in(history: History) -> list[ToolCall]:
    return [part for message in history.messages for part in message.parts if isinstance(part, ToolCall)]


def results_in(history: History) -> list[str]:
    """The texts that tools gave, in order."""
    return [
        "".join(one.text for one in part.parts if isinstance(one, Text))
        for message in history.messages
        for part in message.parts
        if isinstance(part, ToolResult)
    ]


def check_can_go_on(history: History, *, thinking: bool = True) -> None:
    """Every call is answered right behind its message, once, in order; no identifier comes twice; nothing is empty.

    `thinking`: whether all the models that answered think; then no call is without its thoughts.
    """
    messages = list(history.messages)
    seen: set[str] = set()
    waiting: list[str] = []
    for message in messages:
        assert message.parts
        if message.role == "tool":
            for part in message.parts:
                assert isinstance(part, ToolResult)
                assert part.call_id == waiting.pop(0)
            continue
        assert not waiting
        if message.role == "assistant":
            assert any(isinstance(part, ToolCall) or (isinstance(part, Text) and part.text) for part in message.parts)
            thought = any(isinstance(part, Reasoning) for part in message.parts)
            waiting = [part.id for part in message.parts if isinstance(part, ToolCall)]
            assert thought or not thinking or not waiting
            assert all(id.startswith("hist_tool_") for id in waiting)
            assert not seen & set(waiting)
            seen |= set(waiting)
    assert not waiting
