"""Turns -> the same with the ids that a K2 would have written, and the list of those that it would not have."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator

import msgspec
from msgspec import Struct

from moonshim.simulator.request import SimCall, SimResult, SimTurn

__all__ = ["HistoryId", "history_ids", "rename_ids"]


class HistoryId(Struct, frozen=True):
    """An id that the client sent, of a call or of its result, and the one that the model itself would have written."""

    place: int
    """Index of its turn."""
    sent: str
    right: str
    """Empty for a result that belongs to no call."""


def rename_ids(turns: tuple[SimTurn, ...]) -> tuple[SimTurn, ...]:
    """Rename ids as Moonshot does: `functions.name:index`, where the index counts all calls of the conversation from 0.

    A result gets the id of its call; one that belongs to no call keeps its own.

    >>> calls = SimTurn(role="assistant", calls=(SimCall("call_9f", "ls", "{}"),))
    >>> results = SimTurn(role="tool", results=(SimResult("call_9f", "ls", "a.py"),))
    >>> [turn.calls or turn.results for turn in rename_ids((calls, results))]
    [(SimCall(id='functions.ls:0', name='ls', arguments='{}'),),
     (SimResult(call_id='functions.ls:0', name='ls', text='a.py', is_error=False, parts=()),)]
    """
    right = iter(history_ids(turns))
    return tuple(_rename_turn(turn, right) if turn.calls or turn.results else turn for turn in turns)


def history_ids(turns: tuple[SimTurn, ...]) -> list[HistoryId]:
    """Every id of the history in order, those of a turn's calls before those of its results."""
    return list(_walk(turns))


def _walk(turns: tuple[SimTurn, ...]) -> Iterator[HistoryId]:
    count = 0
    # A repeated id names the oldest call without a result, or else the one that got the last result.
    waiting: defaultdict[str, deque[str]] = defaultdict(deque)
    answered: dict[str, str] = {}
    for place, turn in enumerate(turns):
        for call in turn.calls:
            right = f"functions.{call.name}:{count}"
            waiting[call.id].append(right)
            count += 1
            yield HistoryId(place, call.id, right)
        for result in turn.results:
            if names := waiting.get(result.call_id):
                answered[result.call_id] = names.popleft()
            yield HistoryId(place, result.call_id, answered.get(result.call_id, ""))


def _rename_turn(turn: SimTurn, right: Iterator[HistoryId]) -> SimTurn:
    def rename_call(value: SimCall) -> SimCall:
        return msgspec.structs.replace(value, id=next(right).right)

    def rename_result(value: SimResult) -> SimResult:
        return msgspec.structs.replace(value, call_id=next(right).right or value.call_id)

    calls = tuple(map(rename_call, turn.calls))
    return msgspec.structs.replace(turn, calls=calls, results=tuple(map(rename_result, turn.results)))
