"""Calls and results in order, of either dialect -> Moonshot's objections to their ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from msgspec import Struct

from moonshim.simulator.rules.contracts import Contract
from moonshim.simulator.rules.objection import Objection

__all__ = ["CallsAndResults", "check_pairs"]


class CallsAndResults(Struct, frozen=True):
    """The calls and results of one message."""

    calls: tuple[tuple[str, str], ...]
    """Ids and names."""
    results: tuple[str, ...]
    continues: bool
    """More results of the same calls may follow in the next message: Chat has one result per message."""


def check_pairs(messages: list[CallsAndResults], of: Contract, *, positional: bool) -> Iterator[Objection]:
    """In Moonshot's order: calls without results, repeated ids, results without calls.

    `positional`: where the model sees ids unchanged, they must be the ones that it would have written.
    """
    unanswered, lost = _pairs(messages, of)
    yield from unanswered
    yield from _ids(messages, of, positional and of.positional_ids)
    yield from lost


def _pairs(messages: list[CallsAndResults], of: Contract) -> tuple[list[Objection], list[Objection]]:
    """Results directly follow the message with their calls, one for each."""
    unanswered: list[Objection] = []
    lost: list[Objection] = []
    waiting: Counter[str] = Counter()
    for message in messages:
        for id in message.results:
            if waiting[id] > 0:
                waiting[id] -= 1
            else:
                lost.append(_unmatched_result(id, of, waiting))
        if message.continues:
            continue
        if waiting.total():
            unanswered.append(of.objection(_unanswered(waiting)))
        waiting = Counter(id for id, _ in message.calls)
    if waiting.total():
        unanswered.append(of.objection(_unanswered(waiting)))
    return unanswered, lost


def _unanswered(waiting: Counter[str]) -> str:
    return (
        "an assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        f"The following tool_call_ids did not have response messages: {', '.join(waiting.elements())}"
    )


def _unmatched_result(id: str, of: Contract, waiting: Counter[str]) -> Objection:
    """Two spaces where there is no id, as Moonshot writes it."""
    message = f"tool_call_id {id} is not found"
    if of.host.resolves_results and of.generation.family == "k3" and not waiting.total():
        return Objection(message)
    return of.objection(message)


def _ids(messages: list[CallsAndResults], of: Contract, positional: bool) -> Iterator[Objection]:
    seen: set[str] = set()
    calls = [call for message in messages for call in message.calls]
    for number, (id, name) in enumerate(calls):
        right = f"functions.{name}:{number}"
        if of.unique_ids and id in seen:
            yield Objection(f"Invalid request: tool call id {id} is duplicated")
        elif positional and id != right:
            yield Objection(f"this host passes ids to the model unchanged: {id} must be {right}", ours=True)
        seen.add(id)
