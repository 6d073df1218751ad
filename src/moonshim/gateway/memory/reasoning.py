"""Turns whose reasoning a client has dropped -> that reasoning, from the store."""

from __future__ import annotations

import asyncio

from moonshim.engine.prepare import ParsedRequest
from moonshim.engine.reasoning_cache import MAX_LOST_TURNS, CacheEntry, ReasoningLookup, store_key
from moonshim.engine.values.conversation import Reasoning
from moonshim.errors import MoonshimError
from moonshim.gateway.observe.record import RequestRecord
from moonshim.store import Store, StoreUnavailable, key_space

__all__ = ["ReasoningMemory"]


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
        lost = parsed.lost_turns()
        if not lost:
            return {}
        wanted = ReasoningLookup(lost, _recall_space(tenant), limit=MAX_LOST_TURNS)
        if self._pending_writes and (
            pending := [self._pending_writes[key] for key in wanted.keys if key in self._pending_writes]
        ):
            await asyncio.wait(pending)
        try:
            found = await asyncio.gather(*map(self._store.entries_many, wanted.batches()))
        except StoreUnavailable:
            record.store_failures.append("recall")
            return {}
        entries = (entries for batch in found for entries in batch)
        return wanted.resolve(dict(zip(wanted.keys, entries, strict=True)))

    async def remember(self, tenant: str, entry: CacheEntry, record: RequestRecord) -> None:
        """Store the reasoning of a response. Never raises."""
        key = store_key(_recall_space(tenant), entry.key)
        written = self._pending_writes[key] = asyncio.get_running_loop().create_future()
        try:
            await self._store.put_entry(key, entry.field, entry.value, self._ttl)
        except MoonshimError:
            record.store_failures.append("remember")
        finally:
            written.set_result(None)
            if self._pending_writes.get(key) is written:
                del self._pending_writes[key]


def _recall_space(tenant: str) -> str:
    return f"recall:{key_space(tenant)}"
