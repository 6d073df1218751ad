"""The calls of each round -> those that come again and again, with the same arguments."""

from __future__ import annotations

import json
from collections.abc import Sequence

from moonshim.conversation import ToolCall

__all__ = ["Repeating"]


class Repeating:
    """Counts in how many rounds in a row each call has come."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self._times: dict[tuple[str, str], int] = {}

    def count(self, calls: Sequence[ToolCall]) -> str:
        """One more round. The name of a call that came again although the model was told; otherwise nothing."""
        names = {_what(call): call.name for call in calls}
        self._times = {what: self._times.get(what, 0) + 1 for what in names}
        return next((names[what] for what, times in self._times.items() if 0 < self.bound < times - 1), "")

    def is_too_often(self, call: ToolCall) -> bool:
        return 0 < self.bound < self._times[_what(call)]


def _what(call: ToolCall) -> tuple[str, str]:
    """The same for calls that differ in blanks or in the order of their arguments only."""
    try:
        return call.name, json.dumps(json.loads(call.arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return call.name, call.arguments
