"""Tool call ids -> valid ids, call by call.

The calls of a history that K2 reads, streaming and non-streaming responses, native calls and calls found in markers all
use the same object: one `assign` per call, in order.

| rule | what happened |
|---|---|
| `id_missing` | the host sent none: one was generated |
| `id_invalid` | it was not `prefix.name:index`, or its index was already used: it was rewritten |
| `id_repeated` | it was already used: it got a suffix |
| `id_normalized` | all ids are rewritten, and this one differed |
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from moonshim.engine.ids.spelling import K2_MAX_INDEX, k2_id, k2_index
from moonshim.engine.values.options import IdRule
from moonshim.engine.values.tool_calls import FoundCall, walk_calls

__all__ = ["IdRepairer"]


class IdRepairer:
    """Assigns ids to the calls of one response, or of one history. One object per response and choice.

    With `k2_repair`, every id is `prefix.name:index` with an index that neither the history nor the response has used;
    a valid one is kept. With `k2` all calls are numbered consecutively. With `unique` no id is used twice, with `keep`
    all are kept; in both cases a missing id is still generated, in the K2 form. An id that this object assigned is kept
    when it comes in again.

    >>> ids = IdRepairer([])
    >>> ids.assign("get_weather", "bad_id"), ids.assign("get_time", "functions.get_time:5")
    (('functions.get_weather:0', 'id_invalid'), ('functions.get_time:5', None))
    """

    def __init__(
        self,
        history: Iterable[Any] | None,
        *,
        policy: IdRule = "k2_repair",
        prefix: str = "functions",
        scope: Literal["conversation", "turn"] = "conversation",
        client_messages: Iterable[Any] | None = None,
    ) -> None:
        """`client_messages` is the history with the client's ids, where `history` has the host's."""
        self._policy: IdRule = policy
        self._prefix = prefix
        self._ids: set[str] = set()
        self._indexes: set[int] = set()
        self._suffixes: dict[str, int] = {}
        self._history: Iterable[Any] | None = history
        """Read on first use: most responses have no calls, and a history may be long."""
        self._client_messages: Iterable[Any] | None = client_messages
        self._counts_history = scope == "conversation"
        self._next = 0
        self._low = 0
        """Where to search for a free index once the largest ones are used up."""

    def _read_history(self) -> None:
        calls = 0
        for seen in walk_calls(self._history):
            calls += isinstance(seen, FoundCall)
            self._record(seen.id)
        # Indexes continue those sent to the host; ids that only the client has merely must not be reused.
        self._ids.update(seen.id for seen in walk_calls(self._client_messages))
        self._history = self._client_messages = None
        if self._counts_history:
            self._next = max(calls, max(self._indexes, default=-1) + 1)
            self._low = min(calls, K2_MAX_INDEX)

    def assign(self, name: str, wire_id: str | None) -> tuple[str, str | None]:
        """The id to deliver for the next call, and the rule that changed it, if any."""
        if self._history is not None:
            self._read_history()
        received = wire_id if wire_id and not wire_id.isspace() else ""
        assigned, rule = self._decide(name, received)
        index = k2_index(assigned, self._prefix)
        self._record(assigned)
        if index is not None and index >= self._next:
            self._next = index + 1
        return assigned, rule

    def _decide(self, name: str, received: str) -> tuple[str, str | None]:
        if self._policy == "k2":
            new_id = self._new_id(name)
            return new_id, None if new_id == received else "id_normalized" if received else "id_missing"
        if not received:
            return self._new_id(name), "id_missing"
        if self._policy == "k2_repair":
            index = k2_index(received, self._prefix, name)
            is_valid = index is not None and index not in self._indexes and received not in self._ids
            return (received, None) if is_valid else (self._new_id(name), "id_invalid")
        if self._policy == "unique" and received in self._ids:
            return self._add_suffix(received), "id_repeated"
        return received, None

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

    def _add_suffix(self, received: str) -> str:
        number = self._suffixes.get(received, 2)
        while f"{received}__{number}" in self._ids:
            number += 1
        self._suffixes[received] = number + 1
        return f"{received}__{number}"

    def _record(self, assigned: str) -> None:
        self._ids.add(assigned)
        index = k2_index(assigned, self._prefix)
        if index is not None:
            self._indexes.add(index)
