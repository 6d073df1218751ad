"""Calls that one source has delivered -> whether a call of the other source is a copy of one of them.

Hosts have been seen to send the same calls twice: natively, and as markers in the text. Calls are looked up by their
arguments, so the work is linear in the number of calls.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from moonshim.engine.repair.argument_record import RecordKey
    from moonshim.engine.repair.tool_calls import TrackedCall

__all__ = ["DuplicateWatch", "Source"]

Source: TypeAlias = Literal["native", "markers"]
_Group: TypeAlias = tuple[Source, str]
"""Calls of one source to one tool."""

WATCHED_CALLS: Final = 256
"""How many delivered calls of one source are remembered."""

_OTHER: Final[dict[Source, Source]] = {"native": "markers", "markers": "native"}


class _Delivered:
    """The delivered calls of one group that have no copy yet."""

    __slots__ = ("by_key", "ended", "open")

    def __init__(self) -> None:
        self.open = 0
        """How many have not ended."""
        self.ended: list[TrackedCall] = []
        """Complete calls whose arguments have not been compared yet."""
        self.by_key: dict[RecordKey, int] = {}


class DuplicateWatch:
    """Each delivered call has at most one copy; a call waits while the call that it may be a copy of is open."""

    __slots__ = ("_count", "_delivered", "_open", "_waiting", "_waiting_keys")

    def __init__(self) -> None:
        self._delivered: defaultdict[_Group, _Delivered] = defaultdict(_Delivered)
        self._count: dict[Source, int] = {"native": 0, "markers": 0}
        self._open: set[TrackedCall] = set()
        self._waiting: defaultdict[_Group, dict[TrackedCall, None]] = defaultdict(dict)
        """Calls by the group that they may be copies of, in order."""
        self._waiting_keys: defaultdict[tuple[_Group, RecordKey], deque[TrackedCall]] = defaultdict(deque)

    def may_be_copy(self, call: TrackedCall) -> bool:
        """Whether the other source has delivered calls without a copy."""
        return self._count[_OTHER[call.source]] > 0

    def deliver(self, call: TrackedCall) -> None:
        """A call went out; follow it with `end`."""
        if self._count[call.source] < WATCHED_CALLS:
            self._count[call.source] += 1
            self._open.add(call)
            self._delivered[call.source, call.name or ""].open += 1

    def is_copy(self, call: TrackedCall) -> bool:
        """Whether a call that has ended is a copy of a delivered one, which has then got its copy."""
        delivered = self._delivered.get(group := _rivals_of(call))
        if delivered is None or not call.complete:
            return False
        for one in delivered.ended:
            key = one.arguments.record.key
            delivered.by_key[key] = delivered.by_key.get(key, 0) + 1
        delivered.ended.clear()
        if not delivered.by_key.get(key := call.arguments.record.key):
            return False
        delivered.by_key[key] -= 1
        self._count[group[0]] -= 1
        return True

    def wait(self, call: TrackedCall) -> bool:
        """Hold a call that is not a copy so far, if a delivered one is still open; whether it waits."""
        group = _rivals_of(call)
        if group not in self._delivered or not self._delivered[group].open:
            return False
        self._waiting[group][call] = None
        if call.complete:
            self._waiting_keys[group, call.arguments.record.key].append(call)
        return True

    def end(self, call: TrackedCall) -> tuple[TrackedCall | None, list[TrackedCall]]:
        """A delivered call has ended: the waiting call that is its copy, and those that wait no longer."""
        if call not in self._open:
            return None, []
        self._open.remove(call)
        group = (call.source, call.name or "")
        delivered, waiting = self._delivered[group], self._waiting.get(group)
        delivered.open -= 1
        copy = self._copy_of(call, group) if waiting and call.complete else None
        if copy is not None:
            self._count[call.source] -= 1
        elif call.complete:
            delivered.ended.append(call)
        free: list[TrackedCall] = []
        if waiting and not delivered.open:
            free = list(waiting)
            self._forget(group, free)
        return copy, free

    def release(self) -> list[TrackedCall]:
        """Calls that still wait, in the order of their groups: nothing more will come."""
        free: list[TrackedCall] = []
        for group, waiting in list(self._waiting.items()):
            free += waiting
            self._forget(group, list(waiting))
        return free

    def _copy_of(self, call: TrackedCall, group: _Group) -> TrackedCall | None:
        same = self._waiting_keys.get((group, call.arguments.record.key))
        if not same:
            return None
        copy = same.popleft()
        del self._waiting[group][copy]
        return copy

    def _forget(self, group: _Group, calls: list[TrackedCall]) -> None:
        del self._waiting[group]
        for call in calls:
            if call.complete:
                self._waiting_keys.pop((group, call.arguments.record.key), None)


def _rivals_of(call: TrackedCall) -> _Group:
    return _OTHER[call.source], call.name or ""
