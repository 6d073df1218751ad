"""A process that holds a conversation and keeps it in a file: to be killed, or to run out of room.

`python -m tests.agent.talking_process URL PATH` says each of its steps, and waits for a line before the next one.
`python -m tests.agent.talking_process URL PATH ROOM` may write so many bytes, and has room again after its first run.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from pathlib import Path
from typing import Final

from moonshim.agent import Agent, HistoryFile, Provider, RunEnded, SaveFailed, tool

__all__ = ["TOOLS", "provider_for"]

_NO_BOUND: Final = resource.RLIM_INFINITY


@tool
async def look(path: str) -> str:
    return f"seen {path}"


TOOLS: Final = [look]


def provider_for(url: str) -> Provider:
    return Provider(f"{url}/v1", host="moonshot", model="kimi-k2.5", attempts=1)


async def step_by_step(url: str, path: Path) -> None:
    async with provider_for(url) as provider:
        agent = Agent(provider, TOOLS, history=HistoryFile.create(path))
        async for step in agent.run_stream("Look"):
            sys.stdout.write(f"{type(step).__name__}\n")
            sys.stdout.flush()
            sys.stdin.readline()


async def with_little_room(url: str, path: Path, room: int) -> None:
    async with provider_for(url) as provider:
        with HistoryFile.create(path) as history:
            agent = Agent(provider, TOOLS, history=history)
            for words, bound in (("Look", room), ("Thanks", _NO_BOUND)):
                resource.setrlimit(resource.RLIMIT_FSIZE, (bound, _NO_BOUND))
                async for step in agent.run_stream(words):
                    match step:
                        case SaveFailed(detail=detail):
                            sys.stdout.write(f"not kept: {detail}\n")
                        case RunEnded(reason=reason):
                            sys.stdout.write(f"{reason}, kept: {history.is_kept}, {len(history.messages)} messages\n")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        asyncio.run(step_by_step(sys.argv[1], Path(sys.argv[2])))
    else:
        asyncio.run(with_little_room(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
