"""Running a test in a loop of its own, and asking a provider: what the tests of this folder share."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from moonshim.agent.asking import AnswerStream
from moonshim.conversation import Tool
from moonshim.events import Event

__all__ = ["LIST", "PATIENCE", "collected", "human", "run"]

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
