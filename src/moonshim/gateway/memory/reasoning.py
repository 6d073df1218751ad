"""Turns whose reasoning a client has dropped -> that reasoning, from the store."""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from typing import Final

from moonshim.engine.prepare import ParsedRequest
from moonshim.engine.reasoning_cache import ConversationIndex, LostTurn, cache_entry, lookup
from moonshim.engine.values.conversation import Message, Reasoning, Request
from moonshim.errors import MoonshimError
from moonshim.gateway.observe.record import RequestRecord
from moonshim.store import Store, StoreUnavailable

__all__ = ["ReasoningMemory", "key_space"]

_MOST: Final = 1000
"""Maximum number of turns in one conversation to look up, newest first."""
_STEP: Final = 200
"""The oldest turns are given up in batches of this size, since each time the host's prompt cache has to start over."""
_AT_ONCE: Final = 200


def key_space(tenant: str) -> str:
    """A tenant's prefix in the store's keys. Its length is fixed, so that no tenant's name can reach into another's
    keys."""
    return blake2b(tenant.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


class ReasoningMemory:
    """Stores the reasoning of responses and looks it up again. A failing store costs the reasoning, never the request.

    A lookup waits for entries that this process is still writing, because a client may send its next request before the
    last one is stored.
    """

    def __init__(self, store: Store, ttl: float) -> None:
        self._store = store
        self._ttl = ttl
        self._pending_writes: dict[str, asyncio.Future[None]] = {}

    async def recall(self, tenant: str, parsed: ParsedRequest, record: RequestRecord) -> dict[int, Reasoning]:
        """The reasoning that the messages of this request have lost, by message index."""
        lost = _newest(parsed.lost_turns())
        if not lost:
            return {}
        space = key_space(tenant)
        names = list(dict.fromkeys(_store_key(space, turn.key) for turn in lost))
        if self._pending_writes and (
            waited := [self._pending_writes[name] for name in names if name in self._pending_writes]
        ):
            await asyncio.wait(waited)
        try:
            batches = [names[start : start + _AT_ONCE] for start in range(0, len(names), _AT_ONCE)]
            found = await asyncio.gather(*map(self._store.entries_many, batches))
        except StoreUnavailable:
            record.store_failures.append("recall")
            return {}
        entries_by_key = dict(zip(names, (entries for batch in found for entries in batch), strict=True))
        thoughts = ((turn.index, lookup(turn, entries_by_key[_store_key(space, turn.key)])) for turn in lost)
        return {index: thought for index, thought in thoughts if thought is not None}

    async def remember(
        self, tenant: str, parsed: Request | ConversationIndex, message: Message, record: RequestRecord
    ) -> None:
        """Store the reasoning of a response to a request, both as the client sees them. Never raises."""
        try:
            entry = cache_entry(parsed, message)
            if entry is None:
                return
            name = _store_key(key_space(tenant), entry.key)
            done = self._pending_writes[name] = asyncio.get_running_loop().create_future()
            try:
                await self._store.put_entry(name, entry.field, entry.value, self._ttl)
            finally:
                done.set_result(None)
                if self._pending_writes.get(name) is done:
                    del self._pending_writes[name]
        except (MoonshimError, RecursionError):
            record.store_failures.append("remember")


def _newest(lost: list[LostTurn]) -> list[LostTurn]:
    if len(lost) <= _MOST:
        return lost
    return lost[-(-(len(lost) - _MOST) // _STEP) * _STEP :]


def _store_key(space: str, key: str) -> str:
    return f"recall:{space}:{key}"
