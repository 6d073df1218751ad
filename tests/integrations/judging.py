"""What a simulated host was sent in a conversation -> everything that is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from moonshim.simulator import Simulator

__all__ = ["AT_A_READING_HOST", "FAULTS", "ROUNDS", "five_rounds", "problems_at"]

ROUNDS: Final = 5
AT_A_READING_HOST: Final = ("ids-openai@2", "ids-underscores@3", "ids-same@4", "markers-in-reasoning@5")
"""Moonshot's own parser reads the calls in its text: markers there may be a quotation."""
FAULTS: Final = ("markers-in-content@1", "ids-openai@2", "ids-underscores@3", "ids-same@4", "markers-in-reasoning@5")


def five_rounds(behaviour: str, faults: tuple[str, ...] | None = None) -> Simulator:
    """A host whose model calls tools in five rounds, and each of whose answers is wrong in another way."""
    usual = AT_A_READING_HOST if behaviour == "moonshot" else FAULTS
    return Simulator(behaviour=behaviour, faults=usual if faults is None else faults, scenario="five-rounds")


def problems_at(server: Simulator, answer: str) -> list[str]:
    """Where it was refused something, or the history that came last does not say all that the model meant."""
    return list(_problems(server, answer))


def _problems(server: Simulator, answer: str) -> Iterator[str]:
    yield from (f"refused: {seen.problem}" for seen in server.refusals)
    asked = list(server.requests)
    if len(asked) != ROUNDS + 1 or (question := asked[-1].request) is None:
        yield f"{len(asked)} requests, not {ROUNDS + 1}"
        return
    shown = {name for seen in asked for name in seen.faults}
    yield from (f"{fault} never showed" for fault in server.settings.faults if fault.partition("@")[0] not in shown)
    intended = [seen.intended for seen in asked if seen.intended is not None]
    if answer.strip() != intended[-1].text.strip():
        yield f"the answer is {answer!r}, where {intended[-1].text!r} was meant"
    turns = [turn for turn in question.turns if turn.role == "assistant"]
    for number, (turn, one) in enumerate(zip(turns, intended[:-1], strict=True), 1):
        said, right = _said(turn), _said(one)
        if said != right:
            yield f"round {number} came back as {said}, where {right} was meant"
    ids = [call.id for call in question.history]
    if len(set(ids)) != len(ids):
        yield f"ids come again: {ids}"
    # A host of one's own reads ids as they are; the others write them anew.
    k2 = [f"functions.{call.name}:{number}" for number, call in enumerate(question.history)]
    if server.settings.behaviour == "selfhost" and ids != k2:
        yield f"K2 does not know these ids: {ids}"
    results = [result for turn in question.turns for result in turn.results]
    if [result.call_id for result in results] != ids or not all(result.text for result in results):
        yield f"the results are {results}"


def _said(one: Any) -> tuple[str, str, list[tuple[str, Any]]]:
    return one.reasoning, one.text.strip(), [(call.name, json.loads(call.arguments)) for call in one.calls]
