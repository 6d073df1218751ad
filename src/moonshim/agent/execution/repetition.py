"""The calls and results of each round -> the calls that are repeated without effect."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from moonshim.engine.values.conversation import ToolCall, ToolResult

__all__ = ["Repeating"]


class Repeating:
    """Counts in how many consecutive rounds each call had the same result. A call whose result changes is polling."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self._times: dict[tuple[str, str], int] = {}
        self._results: dict[tuple[str, str], list[Any]] = {}

    def begin_round(self, calls: Sequence[ToolCall]) -> str:
        """Start a round. Returns the name of a call that was repeated despite a warning, if there is one."""
        names = {_call_key(call): call.name for call in calls}
        self._times = {what: self._times.get(what, 0) for what in names}
        return next((names[what] for what, times in self._times.items() if 0 < self.bound < times), "")

    def is_too_often(self, call: ToolCall) -> bool:
        return 0 < self.bound <= self._times[_call_key(call)]

    def end_round(self, ended: Iterable[tuple[ToolCall, ToolResult]]) -> None:
        """Record the results of the calls passed to `begin_round`."""
        results: dict[tuple[str, str], list[Any]] = {}
        for call, result in ended:
            results.setdefault(_call_key(call), []).append((result.parts, result.is_error))
        for what, times in self._times.items():
            was_refused = 0 < self.bound <= times
            is_same = was_refused or self._results.get(what) == results[what]
            self._times[what] = times + 1 if is_same else 1
        self._results = results


def _call_key(call: ToolCall) -> tuple[str, str]:
    """The same for calls that differ only in white space or in the order of their arguments."""
    try:
        return call.name, json.dumps(json.loads(call.arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return call.name, call.arguments
