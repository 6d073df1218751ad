"""A conversation of eight rounds that a Kimi, two models that are none, and the Kimi again share, in two halves.

`python -m tests.agent.eight_rounds` reads lines of JSON (`Half`); each is gone on with in a new process, and answered
with a line of JSON: how its runs ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from moonshim.agent import Agent, HistoryFile, MessageSaved, Provider, RunEnded, tool
from moonshim.config import Timeouts
from moonshim.simulator.faults import FAULTS
from moonshim.simulator.request import SimRequest, Wire
from moonshim.simulator.response import IntendedCall, IntendedResponse

__all__ = ["CLEAN", "HALF", "ONCE", "ROUNDS", "EightRounds", "Half", "Host", "go_on"]

ROUNDS: Final = 8
HALF: Final = 4
CLEAN: Final = "no-fault"
ONCE: Final = frozenset(fault.name for fault in FAULTS.values() if fault.fatal or fault.lost) | {
    "finish-length",  # the host says that it stopped too early, and nothing tells that it did not
    "pause",  # takes a second
}
"""Faults that come once in each stage of the conversation; all others are there all the time."""
_CALLS: Final[tuple[tuple[tuple[str, str], ...], ...]] = (
    (("look", '{"at": 1}'), ("read_file", '{"path": "/ä/\\u00e4 1"}')),
    (("plan", '{"todos":[{"title":"a \\"b\\" {c}","done":false},{"title":"北京 🌙","done":true}],"note":"1\\n2"}'),),
    (("look", '{"at": 3}'), ("look", '{"at": 33}')),
    (("read_file", '{"path":"/tmp/x,]}"}'), ("look", '{"at":4}')),
    (("plan", '{"todos": [], "note": "</done> & so on"}'), ("look", '{"at": -5}')),
    (("read_file", '{"path": "C:\\\\new"}'),),
    (("look", '{"at": 7}'), ("look", '{"at": 77}'), ("look", '{"at": 777}')),
    (("read_file", '{"path": "last"}'),),
)


class EightRounds:
    """Thinks, speaks and calls in each round; then says everything that the tools gave."""

    def reply(self, question: SimRequest) -> IntendedResponse:
        number = 1 + sum(turn.role == "assistant" for turn in question.turns)
        reasoning = f"Thought {number}, with <tags> & 北京." if question.thinking else ""
        if number <= ROUNDS:
            calls = tuple(IntendedCall(name, arguments) for name, arguments in _CALLS[number - 1])
            return IntendedResponse(reasoning=reasoning, text=f"Step {number}.", calls=calls)
        results = " | ".join(result.text for turn in question.turns for result in turn.results)
        return IntendedResponse(reasoning=reasoning, text=f"Done: {results}")


class Todo(Struct):
    title: str
    done: bool


@tool
async def look(at: int) -> str:
    """Look at a number."""
    return f"saw {at}"


@tool
def read_file(path: str) -> str:
    """Read a file."""
    return f"read {path}"


@tool
async def plan(todos: list[Todo], note: str) -> str:
    """Make a plan."""
    return f"planned {[todo.title for todo in todos]} {note}"


TOOLS: Final = [look, read_file, plan]
_HOSTS: Final = {
    ("selfhost", "openai_chat"): ("/v1", None),
    ("selfhost", "anthropic"): ("/anthropic", "vllm"),
    ("moonshot", "openai_chat"): ("/v1", "moonshot"),
    ("moonshot", "anthropic"): ("/anthropic", "moonshot-anthropic"),
}


class Host(Struct, frozen=True):
    """A simulator, and over which wire the Kimi is asked there."""

    behaviour: str
    url: str
    wire: Wire


class Half(Struct, frozen=True):
    """Which half of which conversation. The Kimi answers at the first host and, in the end, at the last."""

    fault: str
    first: Host
    last: Host
    path: str
    second: bool = False


class _Stage(Struct, frozen=True):
    """Who gives the answers from this one on."""

    begins: int
    broken: int
    """The answer in which a fault comes that comes only once."""
    model: str
    host: Host


def _stages(half: Half) -> list[_Stage]:
    fault, first, last = FAULTS.get(half.fault), half.first, half.last
    # One for each wire, since hosts count by its name how often a model was broken.
    kimi = {"openai_chat": "kimi-k2.5", "anthropic": "kimi-k2.6"}
    if fault is not None and "k2" not in fault.families:
        kimi = {"openai_chat": "kimi-k3", "anthropic": "kimi-k3.1-pro"}
    return [
        _Stage(1, 2, kimi[first.wire], first),
        _Stage(3, 3, "plain-1", replace(last, wire="openai_chat")),
        _Stage(5, 6, "plain-1", replace(first, wire="anthropic")),
        _Stage(7, 7, kimi[last.wire], last),
    ]


def _provider(half: Half, stage: _Stage) -> Provider:
    host, fault, name = stage.host, FAULTS.get(half.fault), stage.model
    path, row = _HOSTS[host.behaviour, host.wire]
    family = "other" if name == "plain-1" else name[len("kimi-") :][:2]
    if fault is not None and fault.applies(wire=host.wire, family=family, stream=True):
        name += f"+{fault.name}@{stage.broken}*1" if fault.name in ONCE else f"+{fault.name}"
    hasty = Timeouts(first_byte=0.4, between_bytes=0.4) if half.fault.startswith("stall") else Timeouts()
    return Provider(f"{host.url}{path}", model=name, dialect=host.wire, host=row, attempts=1, timeouts=hasty)


async def go_on(half: Half) -> list[str]:
    """Hold this half of the conversation; how each run ended. A host that fails is asked again."""
    path = Path(half.path)
    with HistoryFile.open(path) if half.second else HistoryFile.create(path) as history:
        stages = {stage.begins: _provider(half, stage) for stage in _stages(half)}
        endings: list[str] = []

        def answers() -> int:
            return sum(message.role == "assistant" for message in history.messages)

        def due() -> Provider:
            return next(provider for begins, provider in reversed(stages.items()) if begins <= answers() + 1)

        try:
            while len(endings) < ROUNDS and (answers() <= ROUNDS if half.second else answers() < HALF):
                agent = Agent(due(), TOOLS, history=history, rounds=-1 if half.second else HALF - answers())
                if not history.messages:
                    steps = agent.run_stream("What is there?")
                elif history.messages[-1].role == "assistant":  # it said that it was done, and was not
                    steps = agent.run_stream("Go on.")
                else:
                    steps = agent.retry_stream()
                async for step in steps:
                    if (
                        isinstance(step, MessageSaved)
                        and step.message.role == "assistant"
                        and agent.provider is not due()
                    ):
                        agent.switch(due())  # in the middle of a run
                    elif isinstance(step, RunEnded):
                        endings.append(f"{step.reason}: {step.detail}")
        finally:
            for provider in stages.values():
                await provider.close()
    return endings


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            endings: list[str] = []
            try:
                endings = asyncio.run(asyncio.wait_for(go_on(msgspec.json.decode(line, type=Half)), 180))
            except BaseException as error:
                endings = [f"{type(error).__name__}: {error}"]
            finally:
                sys.stdout.write(json.dumps({"process": os.getpid(), "endings": endings}) + "\n")
                sys.stdout.flush()
                os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
