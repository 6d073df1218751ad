"""Responses <-> the store: each with its own items and a link to the previous response.

A conversation of a hundred responses is stored once, not a hundred times: a response's record holds what its request
added and what was answered. It also lists the ids of the nearest previous responses, so that a chain can be read in
batches rather than one by one.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec
from msgspec import Struct

from moonshim.engine.wire.json_codec import decode_object
from moonshim.gateway.inbound.call import LARGE_BYTES
from moonshim.gateway.inbound.large_json import TooManyValues, encode_large_json, parse_large_json
from moonshim.store import Store, key_space

__all__ = [
    "LARGEST_INPUT",
    "LINKS",
    "LONGEST_CHAIN",
    "UNBOUNDED",
    "BodyWork",
    "ChainBroken",
    "ChainTooLong",
    "StoredResponses",
    "StoredTurn",
    "response_of",
]

T = TypeVar("T")

LONGEST_CHAIN: Final = 2000
LARGEST_INPUT: Final = 64 * 1024 * 1024
"""Bytes: as much as the default limit for request bodies."""
_LARGEST: Final = 32 * 1024 * 1024
MOST_ITEMS: Final = 200_000
"""Items in a whole chain: small items take far more memory than bytes."""
_MOST_VALUES: Final = 2_000_000
"""JSON values in one response: an item that was sent with three is stored with its type, id and status as well."""
LINKS: Final = 64
"""How many previous responses a record lists."""
_ID: Final = re.compile(r"resp_[a-zA-Z0-9_-]{1,250}")
_ITEM: Final = re.compile(r"[a-z]+_([a-zA-Z0-9_-]{1,250})_i?[0-9]{1,9}")


class StoredTurn(Struct, frozen=True, array_like=True):
    """What one response added to its conversation."""

    input: list[dict[str, Any]]
    output: list[dict[str, Any]]
    before: list[str]
    """Ids of the previous responses, nearest first, as many as are listed."""

    def items(self) -> Iterable[dict[str, Any]]:
        """All items that can be referenced."""
        return self.input + self.output


class ChainBroken(Exception):
    """A previous response is missing: deleted, expired, or never stored."""


class ChainTooLong(Exception):
    """The chain has more responses, or more bytes, than one request may have."""


_TURN: Final = msgspec.json.Decoder(StoredTurn)


def response_of(item_id: str) -> str | None:
    """The response that an item belongs to, derived from the id that the gateway gave it.

    >>> response_of("rs_chatcmpl-1_a_0"), response_of("msg_7f_i3"), response_of("something")
    ('resp_chatcmpl-1_a', 'resp_7f', None)
    """
    found = _ITEM.fullmatch(item_id)
    return None if found is None else f"resp_{found[1]}"


class BodyWork(Protocol):
    """Runs the work on referenced items within the limits of the request."""

    async def grow(self, size: int) -> None:
        """Reserve memory for this many more bytes."""

    async def run_work(self, work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run work whose duration grows with the size of the request."""


class _Unbounded:
    """No limits, no threads."""

    async def grow(self, size: int) -> None:
        pass

    async def run_work(self, work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        return work(*args, **kwargs)


UNBOUNDED: Final[BodyWork] = _Unbounded()


class StoredResponses:
    """The stored responses of all tenants; each tenant sees only its own. Raises `StoreUnavailable`.

    A record that cannot be read (written by another version, or damaged) counts as missing.
    """

    def __init__(self, store: Store, ttl: float, limit: int = LARGEST_INPUT) -> None:
        self._store = store
        self._ttl = ttl
        self._limit = limit
        """Maximum bytes to read for one request."""

    async def put(
        self,
        tenant: str,
        id: str,
        turn: StoredTurn,
        about: dict[str, Any],
        rests_on: Sequence[str] = (),
        work: BodyWork = UNBOUNDED,
    ) -> bool:
        """Store a response, and keep the ones before it alive for as long. False: it is too large, or has no id of its
        own."""
        if _ID.fullmatch(id) is None or id in rests_on:
            return False
        space = key_space(tenant)
        data = await work.run_work(encode_large_json, [turn.input, turn.output, turn.before], msgspec.json.encode)
        answered = msgspec.json.encode(about)
        if len(data) + len(answered) > _LARGEST:
            return False
        await asyncio.gather(
            self._store.put(_turn_key(space, id), data, self._ttl),
            self._store.put(_about_key(space, id), answered, self._ttl),
            self._store.touch([_turn_key(space, one) for one in rests_on], self._ttl),
        )
        return True

    async def get(self, tenant: str, id: str, work: BodyWork = UNBOUNDED) -> tuple[StoredTurn, dict[str, Any]] | None:
        """A response: its own items, and the rest of its record."""
        if _ID.fullmatch(id) is None:
            return None
        space = key_space(tenant)
        data, answered = await self._store.get_many([_turn_key(space, id), _about_key(space, id)])
        await work.grow(len(data or b"") + len(answered or b""))
        turn, about = await work.run_work(_turn, data), decode_object(answered or b"")
        return None if turn is None or about is None else (turn, about)

    async def turns(self, tenant: str, ids: Sequence[str], work: BodyWork = UNBOUNDED) -> dict[str, StoredTurn]:
        """The records of these responses, as far as they exist."""
        names, space = [id for id in dict.fromkeys(ids) if _ID.fullmatch(id) is not None], key_space(tenant)
        turns, size = dict[str, StoredTurn](), 0
        if len(names) > LONGEST_CHAIN:
            raise ChainTooLong
        for start in range(0, len(names), LINKS):
            batch = names[start : start + LINKS]
            found = await self._store.get_many([_turn_key(space, id) for id in batch])
            added = sum(map(len, filter(None, found)))
            size += added
            if size > self._limit:
                raise ChainTooLong
            await work.grow(added)
            read = zip(batch, await work.run_work(_turns, found), strict=True)
            turns |= {id: turn for id, turn in read if turn is not None}
        return turns

    async def chain(self, tenant: str, id: str, work: BodyWork = UNBOUNDED) -> dict[str, StoredTurn]:
        """A response and all that precede it, newest first."""
        space, chain, size, items = key_space(tenant), dict[str, StoredTurn](), 0, 0
        batch = [id] if _ID.fullmatch(id) is not None else []
        if not batch:
            raise ChainBroken
        while batch:
            found = await self._store.get_many([_turn_key(space, one) for one in batch])
            added = sum(map(len, filter(None, found)))
            size += added
            if len(chain) + len(found) > LONGEST_CHAIN or size > self._limit:
                raise ChainTooLong
            await work.grow(added)
            for one, turn in zip(batch, await work.run_work(_turns, found), strict=True):
                if turn is None or one in chain:
                    raise ChainBroken
                chain[one] = turn
                items += len(turn.input) + len(turn.output)
            if items > MOST_ITEMS:
                raise ChainTooLong
            batch = chain[batch[-1]].before
        return chain

    async def delete(self, tenant: str, id: str) -> bool:
        if _ID.fullmatch(id) is None:
            return False
        space = key_space(tenant)
        gone = await asyncio.gather(self._store.delete(_turn_key(space, id)), self._store.delete(_about_key(space, id)))
        return any(gone)


def _turns(found: Sequence[bytes | None]) -> list[StoredTurn | None]:
    return list(map(_turn, found))


def _turn(data: bytes | None) -> StoredTurn | None:
    try:
        if data is None or len(data) <= LARGE_BYTES:
            return None if data is None else _TURN.decode(data)
        # This program wrote these lists: validating them again would cost the time that this saves.
        return StoredTurn(*parse_large_json([data], _MOST_VALUES))
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, TooManyValues):
        return None


def _turn_key(space: str, id: str) -> str:
    return f"turn:{space}:{id}"


def _about_key(space: str, id: str) -> str:
    return f"response:{space}:{id}"
