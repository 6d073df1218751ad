"""The identifiers of an answer's calls become right ones, one call after the other.

Streaming and whole responses use the same object, and so do native calls and calls
that were read from markers: one call of `assign` for each, in the order of delivery.

| rule | what happened |
|---|---|
| `id_missing` | the host sent none: one was made |
| `id_invalid` | it was not `prefix.name:index`, or its index was used before: it was rewritten |
| `id_repeated` | it was used before: it got a suffix |
| `id_normalized` | all are rewritten, and this one was a different one |
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from moonshim.engine.ids.spelling import K2_MAX_INDEX, k2_id, k2_index
from moonshim.engine.values.tool_calls import CallSeen, walk_calls

__all__ = ["IdRepairer"]


class IdRepairer:
    """Identifiers for the calls of one answer. One object for each answer (and each choice of it).

    With `k2` every identifier that comes out is `prefix.name:index`, with an index that
    neither the history nor the answer has used; a right one stays as it is. With `unique`
    none comes out twice, with `keep` all stay; in both, and whenever `repair` is off, one
    that is missing is still made, in the K2 form. `normalize_all` counts all calls
    through, whatever the policy. What it gave out, it leaves alone when it comes in again.

    >>> ids = IdRepairer([], policy="k2")
    >>> ids.assign("get_weather", "bad_id"), ids.assign("get_time", "functions.get_time:5")
    (('functions.get_weather:0', 'id_invalid'), ('functions.get_time:5', None))
    """

    def __init__(
        self,
        history: Iterable[Any] | None,
        *,
        policy: Literal["k2", "unique", "keep"] = "k2",
        prefix: str = "functions",
        normalize_all: bool = False,
        repair: bool = True,
        scope: Literal["conversation", "turn"] = "conversation",
        client_messages: Iterable[Any] | None = None,
    ) -> None:
        """`client_messages` is the history with the client's identifiers, where `history` has those of the host."""
        self._policy: Literal["k2", "unique", "keep"] = policy if repair else "keep"
        self._prefix = prefix
        self._normalize_all = normalize_all
        self._ids: set[str] = set()
        self._indexes: set[int] = set()
        self._suffixes: dict[str, int] = {}
        self._history: Iterable[Any] | None = history
        """Not read yet: most answers have no calls, and a history may be long."""
        self._client_messages: Iterable[Any] | None = client_messages
        self._counts_history = scope == "conversation"
        self._next = 0
        self._low = 0
        """Where to look when somebody has used up the far end of the numbers."""

    def _read_history(self) -> None:
        calls = 0
        for seen in walk_calls(self._history):
            calls += isinstance(seen, CallSeen)
            self._note(seen.id)
        # Numbers are counted as the host was shown them; what the client has must only not come again.
        self._ids.update(seen.id for seen in walk_calls(self._client_messages))
        self._history = self._client_messages = None
        if self._counts_history:
            self._next = max(calls, max(self._indexes, default=-1) + 1)
            self._low = min(calls, K2_MAX_INDEX)

    def assign(self, name: str, wire_id: str | None) -> tuple[str, str | None]:
        """The identifier to deliver for the next call, and the rule that changed it, if one did."""
        if self._history is not None:
            self._read_history()
        came = wire_id if wire_id and not wire_id.isspace() else ""
        given, rule = self._decide(name, came)
        index = k2_index(given, self._prefix)
        self._note(given)
        if index is not None and index >= self._next:
            self._next = index + 1
        return given, rule

    def _decide(self, name: str, came: str) -> tuple[str, str | None]:
        if self._normalize_all:
            made = self._new_id(name)
            return made, None if made == came else "id_normalized" if came else "id_missing"
        if not came:
            return self._new_id(name), "id_missing"
        if self._policy == "k2":
            index = k2_index(came, self._prefix, name)
            right = index is not None and index not in self._indexes and came not in self._ids
            return (came, None) if right else (self._new_id(name), "id_invalid")
        if self._policy == "unique" and came in self._ids:
            return self._add_suffix(came), "id_repeated"
        return came, None

    def _new_id(self, name: str) -> str:
        while self._is_used(name, self._next):
            self._next += 1
        if self._next <= K2_MAX_INDEX:
            return k2_id(name, self._next, self._prefix)
        while self._is_used(name, self._low):
            self._low += 1
        return k2_id(name, self._low, self._prefix)

    def _is_used(self, name: str, index: int) -> bool:
        return index in self._indexes or k2_id(name, index, self._prefix) in self._ids

    def _add_suffix(self, came: str) -> str:
        number = self._suffixes.get(came, 2)
        while f"{came}__{number}" in self._ids:
            number += 1
        self._suffixes[came] = number + 1
        return f"{came}__{number}"

    def _note(self, given: str) -> None:
        self._ids.add(given)
        index = k2_index(given, self._prefix)
        if index is not None:
            self._indexes.add(index)
