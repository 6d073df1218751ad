"""Running a test in a loop of its own, and asking a provider: what the tests of this folder share."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, TypeVar

from moonshim.agent.asking import AnswerStream
from moonshim.conversation import Tool
from moonshim.events import Event
from moonshim.simulator import Model, Simulator

__all__ = ["LIST", "PATIENCE", "Boxes", "boxes_for", "collected", "human", "run"]

T = TypeVar("T")
PATIENCE: Final = 30.0
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


class Boxes:
    """Simulators that stand for a whole file of tests, each in a thread: to begin and to end one takes a while."""

    def __init__(self, stack: ExitStack, model: Model | None) -> None:
        self._stack, self._model = stack, model
        self._boxes: dict[str, Simulator] = {}

    def of(self, nature: str) -> Simulator:
        """The one of this nature, as if nobody had asked it before."""
        if nature not in self._boxes:
            made = Simulator(nature=nature, model=self._model or "", log=lambda seen: None)
            self._boxes[nature] = self._stack.enter_context(made.running())
        self._boxes[nature].requests.clear()
        return self._boxes[nature]


@contextmanager
def boxes_for(model: Model | None = None) -> Iterator[Boxes]:
    with ExitStack() as stack:
        yield Boxes(stack, model)
