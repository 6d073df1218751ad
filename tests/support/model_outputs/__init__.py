"""A seed -> outputs of Kimi models, clean and malformed, with the calls that the model meant.

    for output in model_outputs("k2", 100, seed=1):
        send(output.output)             # what the model writes
        verdict(output, received)       # right, error, lost or wrong

Everything is deterministic: the same arguments give the same outputs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from random import Random
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from tests.support.model_outputs.cases import (
    GENERATIONS,
    DeclaredTool,
    Deviation,
    Generation,
    MeantCall,
    ModelOutput,
    spell,
)
from tests.support.model_outputs.k2 import K2_DEVIATIONS
from tests.support.model_outputs.k3 import K3_DEVIATIONS
from tests.support.streams import parse_payloads, read_chunks, read_sse

__all__ = [
    "DEVIATIONS",
    "GENERATIONS",
    "VERDICTS",
    "DeclaredTool",
    "Generation",
    "MeantCall",
    "ModelOutput",
    "Received",
    "Verdict",
    "model_outputs",
    "received_from",
    "verdict",
]

Verdict: TypeAlias = Literal["right", "error", "lost", "wrong"]
VERDICTS: Final[tuple[Verdict, ...]] = ("right", "error", "lost", "wrong")
DEVIATIONS: Final[Mapping[Generation, Mapping[str, Deviation]]] = {"k2": K2_DEVIATIONS, "k3": K3_DEVIATIONS}


def model_outputs(
    generation: Generation, number: int, *, seed: int = 0, deviations: Sequence[str] | None = None
) -> list[ModelOutput]:
    """As many outputs, with every deviation of the table (or these) about equally often, in random order."""
    table = DEVIATIONS[generation]
    chosen = list(islice(_shuffled(list(deviations or table), Random(f"{generation} {seed}")), number))
    return [spell(generation, name, table, Random(f"{generation} {seed} {at}")) for at, name in enumerate(chosen)]


def _shuffled(names: list[str], random: Random) -> Iterator[str]:
    while True:
        random.shuffle(names)
        yield from names


class Received(Struct, frozen=True, kw_only=True):
    """What a client has after a response."""

    calls: tuple[tuple[str, str], ...]
    """Name and arguments of each."""
    finish: str | None
    error: str | None = None
    """The message of an error, during the response or instead of it."""


def received_from(stream: bytes) -> Received:
    """What a strict client has after this Chat stream."""
    choice = read_chunks(parse_payloads(read_sse(stream)))[0]
    calls = tuple((call.name, call.arguments) for call in choice.calls)
    return Received(calls=calls, finish=choice.finish, error=choice.error["message"] if choice.error else None)


def verdict(output: ModelOutput, received: Received) -> Verdict:
    """What the response means for an agent.

    right: every call with its name and arguments, and the finish reason that belongs to them.
    error: an error, or a finish reason that shows that the response is incomplete. The client can ask again.
    lost: the response ends well, and a call is missing or changed.
    wrong: lost, and there is a call that the model never meant.

    Nothing but an error is right for an output that is not readable: whatever arrives is a guess.
    """
    if received.error is not None or received.finish in ("length", "error", "content_filter"):
        return "error"
    unmeant = [call for call in received.calls if not any(_is_same(call, meant) for meant in output.calls)]
    missing = [meant for meant in output.calls if not any(_is_same(call, meant) for call in received.calls)]
    finish = "tool_calls" if output.calls else "stop"
    complete = not unmeant and not missing and len(received.calls) == len(output.calls)
    if complete and received.finish == finish and output.readable:
        return "right"
    return "wrong" if unmeant else "lost"


def _is_same(call: tuple[str, str], meant: MeantCall) -> bool:
    name, arguments = call
    try:
        return name == meant.name and bool(json.loads(arguments or "{}") == meant.arguments)
    except ValueError:
        return False
