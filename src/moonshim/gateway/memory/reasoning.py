"""Turns whose reasoning a client has dropped -> that reasoning, from where it was filed when it was thought."""

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
"""How many lost turns of one conversation are asked for at most, the newest."""
_STEP: Final = 200
"""The oldest are given up so many at a time: each time the host's prompt cache starts anew."""
_AT_ONCE: Final = 200


def key_space(tenant: str) -> str:
    """What stands for a tenant in the keys of the store: of one length, so that no name can reach into another's."""
    return blake2b(tenant.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


class ReasoningMemory:
    """Files the reasoning of answers, and finds it again. A store that fails costs the reasoning, never the request.

    What is being filed in this process is waited for when it is asked for: a client may send
    its next request before the last one is filed.
    """

    def __init__(self, store: Store, ttl: float) -> None:
        self._store = store
        self._ttl = ttl
        self._pending_writes: dict[str, asyncio.Future[None]] = {}

    async def recall(self, tenant: str, parsed: ParsedRequest, record: RequestRecord) -> dict[int, Reasoning]:
        """The reasoning that the turns of this request have lost, by the index of their message."""
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
        """File what was thought in the answer to a request, both as the client knows them. Never raises."""
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
