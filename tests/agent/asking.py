"""Running a test in a loop of its own, and asking a provider: what the tests of this folder share."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, TypeVar

from moonshim.agent import AnswerStream, Provider
from moonshim.engine.values.conversation import Message, Text, Tool, ToolCall, ToolResult
from moonshim.engine.values.events import Event
from moonshim.simulator import IntendedCall, IntendedResponse, Model, SimRequest, Simulator

__all__ = ["LIST", "PATIENCE", "Boxes", "Rounds", "boxes_for", "collected", "human", "run", "whole_conversation"]

T = TypeVar("T")
PATIENCE: Final = 120.0
LIST: Final = Tool(
    "ls",
    "Lists a folder.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)


def run(test: Coroutine[Any, Any, T]) -> T:
    """Run a test to its end; one that hangs fails."""

    async def bounded() -> T:
        return await asyncio.wait_for(test, PATIENCE)

    return asyncio.run(bounded())


def human(text: str = "List the files") -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


async def collected(stream: AnswerStream) -> list[Event]:
    return [event async for event in stream]


class Rounds:
    """Thinks and calls in each of three rounds, twice in the second; then says what the tools gave."""

    def reply(self, question: SimRequest) -> IntendedResponse:
        number = question.round
        thought = f"Thought {number}." if question.thinking else ""
        if number > 3:
            given = " | ".join(result.text for turn in question.since for result in turn.results)
            return IntendedResponse(reasoning=thought, text=f"Done: {given}")
        calls = tuple(IntendedCall("ls", json.dumps({"path": f"/{number}/{place}"})) for place in range(1 + number % 2))
        return IntendedResponse(reasoning=thought, text=f"Step {number}.", calls=calls)


async def whole_conversation(provider: Provider) -> list[Message]:
    """An agent in a few lines."""
    history = [Message("system", (Text("Be brief."),)), Message("user", (Text("List the files"),))]
    while True:
        history.append(await provider.complete(history, [LIST]))
        calls = [part for part in history[-1].parts if isinstance(part, ToolCall)]
        if not calls:
            return history
        for call in calls:
            gave = f"{json.loads(call.arguments)['path']} is empty"
            history.append(Message("tool", (ToolResult(call.id, call.name, (Text(gave),)),)))


class Boxes:
    """Simulators that stand for a whole file of tests, each in a thread: to begin and to end one takes a while."""

    def __init__(self, stack: ExitStack, model: Model | None) -> None:
        self._stack, self._model = stack, model
        self._boxes: dict[str, Simulator] = {}

    def of(self, behaviour: str) -> Simulator:
        """The simulator with this behaviour, with no requests recorded."""
        if behaviour not in self._boxes:
            made = Simulator(behaviour=behaviour, model=self._model or "", log=lambda seen: None)
            self._boxes[behaviour] = self._stack.enter_context(made.running())
        self._boxes[behaviour].requests.clear()
        return self._boxes[behaviour]


@contextmanager
def boxes_for(model: Model | None = None) -> Iterator[Boxes]:
    with ExitStack() as stack:
        yield Boxes(stack, model)
