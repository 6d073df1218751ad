"""A conversation -> what was decided for it before: whether its context is long, and which host answered last."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import Struct

from moonshim.config import Target
from moonshim.engine.prepare import ParsedRequest
from moonshim.engine.reasoning_cache import conversation_start
from moonshim.errors import MoonshimError
from moonshim.gateway.observe.record import RequestRecord
from moonshim.store import Store, StoreUnavailable, key_space

__all__ = ["HOST_SECONDS", "ConversationRoute", "RouteMemory"]

HOST_SECONDS: Final = 3600.0
"""For this long after a response its host is preferred. Hosts hold prompt caches for minutes, or an hour."""
_RENEW_SECONDS: Final = 300.0
"""An unchanged record is not written again within this time."""
_FAILED: Final = "routes"


class _Stored(Struct, frozen=True, array_like=True):
    """The record of a conversation: no text, no names."""

    was_long: bool
    target: bytes
    """A digest of the provider and the model that answered last."""
    at: int
    """When, in seconds since 1970."""


_DECODER: Final = msgspec.msgpack.Decoder(_Stored)
_ENCODER: Final = msgspec.msgpack.Encoder()


class ConversationRoute:
    """The record of one conversation, as far as one request is concerned."""

    __slots__ = ("_found", "_key", "_saved", "_stored_under_key")

    def __init__(self, key: str, found: _Stored | None = None, *, is_current: bool = False) -> None:
        self._key, self._found, self._stored_under_key = key, found, is_current
        self._saved = False

    @property
    def was_long(self) -> bool:
        """Whether it has been on the route `long_context`."""
        return self._found is not None and self._found.was_long

    def order(self, targets: Sequence[Target], now: float) -> list[Target]:
        """The targets, with the one first that answered last: its prompt cache may still hold the conversation."""
        found = self._found
        if found is None or now - found.at > HOST_SECONDS:
            return list(targets)
        return sorted(targets, key=lambda target: _digest(target) != found.target)

    def update(self, target: Target, *, is_long: bool, now: float) -> tuple[str, bytes] | None:
        """The key and the record to store for this response, once; None if there is nothing new."""
        if self._saved:
            return None
        self._saved = True
        record = _Stored(self.was_long or is_long, _digest(target), int(now))
        return None if self._has(record) else (self._key, _ENCODER.encode(record))

    def _has(self, record: _Stored) -> bool:
        """Whether the store has the same, written not long ago."""
        found = self._found
        if found is None or not self._stored_under_key or record.at - found.at >= _RENEW_SECONDS:
            return False
        return (found.was_long, found.target) == (record.was_long, record.target)


class RouteMemory:
    """Stores these records, under digests of how conversations begin. All workers share them through the store.

    A conversation is identified by everything up to the first response. Before that is known, what the user said and
    the requested model have to do: such a record is read for the second request only, so that two conversations that
    begin with the same words do not share it for longer. A failing store costs the record, never the request.
    """

    def __init__(self, store: Store, ttl: float) -> None:
        self._store, self._ttl = store, ttl

    async def recall(self, tenant: str, parsed: ParsedRequest, record: RequestRecord) -> ConversationRoute:
        start, space = conversation_start(parsed.request.messages), f"route:{key_space(tenant)}"
        opening = f"{space}:{_hash(start.opening, parsed.request.model)}"
        if start.identity is None:
            return ConversationRoute(opening)
        key = f"{space}:{start.identity}"
        try:
            values = await self._store.get_many([key, opening] if start.has_one_turn else [key])
        except StoreUnavailable:
            record.store_failures.append(_FAILED)
            return ConversationRoute(key)
        found = [_decode(value) for value in values]
        return ConversationRoute(key, found[0] or found[-1], is_current=found[0] is not None)

    async def remember(
        self, route: ConversationRoute, target: Target, record: RequestRecord, *, is_long: bool, now: float
    ) -> None:
        """Store what was decided for a request whose response is complete. Never raises."""
        if (entry := route.update(target, is_long=is_long, now=now)) is None:
            return
        try:
            await self._store.put(*entry, self._ttl)
        except MoonshimError:
            record.store_failures.append(_FAILED)


def _decode(value: bytes | None) -> _Stored | None:
    try:
        return None if value is None else _DECODER.decode(value)
    except msgspec.MsgspecError:
        return None  # of another version


def _digest(target: Target) -> bytes:
    return bytes.fromhex(_hash(target.provider.name, target.model))


def _hash(*texts: str) -> str:
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    return blake2b(b"".join([b"%d:%b" % (len(data), data) for data in encoded]), digest_size=16).hexdigest()
