"""Names -> bytes in this process's memory, bounded: the store of a single gateway.

Every tenant has a share. When memory is full, the oldest item of the tenant that holds the most is evicted, with the
new item counted as its tenant's. So a tenant that writes much evicts its own items only. Counters and leases, which
enforce limits, are never evicted for values and entries.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from typing import Final, Literal, TypeAlias

from moonshim.store import MOST_ENTRIES, StoreUnavailable, tenant_of

__all__ = ["MemoryStore"]

_Space: TypeAlias = Literal["value", "entries", "counter", "leases"]
_SPACES: Final[tuple[_Space, ...]] = ("value", "entries", "counter", "leases")
_Name: TypeAlias = tuple[_Space, str]
_Content: TypeAlias = bytes | dict[str, bytes] | int | dict[str, float]

_ITEM: Final = 300
"""Python's overhead per item, so that many small ones are bounded too."""
_PIECE: Final = 150
"""The same for an entry or a lease."""
_SWEPT: Final = 4
"""How many items each write checks for expiry."""


class _Item:
    """What is stored under one name in one space."""

    __slots__ = ("content", "expires", "size")

    def __init__(self, content: _Content, expires: float | None, size: int) -> None:
        self.content = content
        self.expires = expires
        self.size = size


class _Share:
    """What one tenant holds."""

    __slots__ = ("items", "listed", "size")

    def __init__(self) -> None:
        self.items: dict[_Name, _Item] = {}
        """The oldest first."""
        self.size = 0
        self.listed = 0
        """The size under which `_Shares` lists it: at least its own."""


class _Shares:
    """Items by tenant, and which tenant holds the most."""

    def __init__(self) -> None:
        self._shares: dict[str, _Share] = {}
        self._by_size: list[tuple[int, str]] = []
        """A heap, the largest first (sizes are negative). An entry is valid if its size is the tenant's `listed`."""
        self.size = 0

    def names(self) -> list[_Name]:
        return [name for share in self._shares.values() for name in share.items]

    def get(self, name: _Name) -> _Item | None:
        share = self._shares.get(tenant_of(name[1]))
        return None if share is None else share.items.get(name)

    def renew(self, name: _Name) -> None:
        items = self._shares[tenant_of(name[1])].items
        items[name] = items.pop(name)

    def add(self, name: _Name, item: _Item) -> None:
        tenant = tenant_of(name[1])
        share = self._shares.setdefault(tenant, _Share())
        share.items[name] = item
        share.size += item.size
        self.size += item.size
        if share.size > share.listed:
            self._list(tenant, share)
        if len(self._by_size) > 2 * len(self._shares) + 64:
            self._by_size = [(-share.listed, tenant) for tenant, share in self._shares.items()]
            heapify(self._by_size)

    def drop(self, name: _Name) -> None:
        tenant = tenant_of(name[1])
        share = self._shares.get(tenant)
        if share is not None and (item := share.items.pop(name, None)) is not None:
            share.size -= item.size
            self.size -= item.size
            if not share.items:
                del self._shares[tenant]

    def drop_one(self, tenant: str = "", added: int = 0) -> bool:
        """Drop the oldest item of the largest tenant. False: that is `tenant`, only because of what it wants to add."""
        own = self._shares.get(tenant)
        share = self._largest()
        if added and (share is None or (0 if own is None else own.size) + added >= share.size):
            share = own
        if share is None:
            return False
        self.drop(next(iter(share.items)))
        return True

    def _largest(self) -> _Share | None:
        while self._by_size:
            size, tenant = self._by_size[0]
            share = self._shares.get(tenant)
            if share is not None and share.size == -size:
                return share
            heappop(self._by_size)
            if share is not None and share.listed == -size:  # it has shrunk since
                self._list(tenant, share)
        return None

    def _list(self, tenant: str, share: _Share) -> None:
        share.listed = share.size
        heappush(self._by_size, (-share.size, tenant))


class MemoryStore:
    """Holds at most `limit` bytes, of which counters and leases take at most half. Values without a ttl stay."""

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._state = _Shares()
        self._counts = _Shares()
        self._for_good: dict[_Name, _Item] = {}
        self._for_good_size = 0
        self._to_sweep: deque[_Name] = deque()

    @property
    def size(self) -> int:
        """In bytes, including keys and an estimate of Python's overhead."""
        return self._state.size + self._counts.size + self._for_good_size

    # --- values ------------------------------------------------------------------------------------------------

    async def get(self, key: str) -> bytes | None:
        return self._value(key)

    async def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        return [self._value(key) for key in keys]

    def _value(self, key: str) -> bytes | None:
        item = self._find(("value", key))
        return None if item is None else item.content  # type: ignore[return-value]  # by its space

    async def put(self, key: str, value: bytes, ttl: float | None) -> None:
        self._put(("value", key), value, ttl, len(value))

    async def put_new(self, key: str, value: bytes, ttl: float | None) -> bytes:
        there = self._value(key)
        if there is None:
            self._put(("value", key), value, ttl, len(value))
            return value
        return there

    async def touch(self, keys: Sequence[str], ttl: float) -> None:
        for key in keys:
            name: _Name = ("value", key)
            item = self._find(name)
            if item is not None and item.expires is not None:
                item.expires = self._clock() + ttl
                self._state.renew(name)

    async def delete(self, key: str) -> bool:
        there = [space for space in _SPACES if self._find((space, key)) is not None]
        for space in there:
            self._drop((space, key))
        return bool(there)

    # --- entries -----------------------------------------------------------------------------------------------

    async def put_entry(self, key: str, field: str, value: bytes, ttl: float | None) -> None:
        fields = self._entries(key)
        fields.pop(field, None)
        fields[field] = value
        while len(fields) > MOST_ENTRIES:
            del fields[next(iter(fields))]
        size = sum(_PIECE + _length(name) + len(entry) for name, entry in fields.items())
        self._put(("entries", key), fields, ttl, size)

    async def entries(self, key: str) -> dict[str, bytes]:
        return self._entries(key)

    async def entries_many(self, keys: Sequence[str]) -> list[dict[str, bytes]]:
        return [self._entries(key) for key in keys]

    def _entries(self, key: str) -> dict[str, bytes]:
        item = self._find(("entries", key))
        return {} if item is None else dict(item.content)  # type: ignore[arg-type]  # by its space

    # --- counters and leases -----------------------------------------------------------------------------------

    async def add(self, key: str, amount: int, ttl: float) -> int:
        item = self._find(("counter", key))
        if item is None:
            self._put(("counter", key), amount, ttl, 0)
            return amount
        assert isinstance(item.content, int)
        item.content += amount
        return item.content

    async def lease(self, key: str, holder: str, limit: int, ttl: float) -> bool:
        holders = self._holders(key)
        if holder not in holders and len(holders) >= limit:
            return False
        holders[holder] = self._clock() + ttl
        self._put_holders(key, holders)
        return True

    async def release(self, key: str, holder: str) -> None:
        holders = self._holders(key)
        if holders.pop(holder, None) is not None:
            self._put_holders(key, holders)

    def _holders(self, key: str) -> dict[str, float]:
        item, now = self._find(("leases", key)), self._clock()
        if item is None:
            return {}
        assert isinstance(item.content, dict)
        return {name: until for name, until in item.content.items() if isinstance(until, float) and until > now}

    def _put_holders(self, key: str, holders: dict[str, float]) -> None:
        if holders:
            left = max(holders.values()) - self._clock()
            self._put(("leases", key), holders, left, sum(_PIECE + _length(name) for name in holders))
        else:
            self._drop(("leases", key))

    # --- whole store -------------------------------------------------------------------------------------------

    async def ping(self) -> None:
        pass

    async def close(self) -> None:
        self._state, self._counts = _Shares(), _Shares()
        self._for_good.clear()
        self._for_good_size = 0
        self._to_sweep.clear()

    def _shares(self, name: _Name) -> _Shares:
        return self._counts if name[0] in ("counter", "leases") else self._state

    def _find(self, name: _Name) -> _Item | None:
        item = self._shares(name).get(name)
        if item is None:
            return self._for_good.get(name)
        if item.expires is not None and item.expires <= self._clock():
            self._drop(name)
            return None
        return item

    def _put(self, name: _Name, content: _Content, ttl: float | None, size: int) -> None:
        size += _ITEM + _length(name[1])
        self._drop(name)
        self._sweep()
        self._make_room(name, size)
        if ttl is None:
            self._for_good[name] = _Item(content, None, size)
            self._for_good_size += size
        else:
            self._shares(name).add(name, _Item(content, self._clock() + ttl, size))

    def _make_room(self, name: _Name, size: int) -> None:
        shares, tenant = self._shares(name), tenant_of(name[1])
        most = self._limit // 2 if shares is self._counts else self._limit
        fits = size <= most
        while fits and shares.size + size > most:
            fits = shares.drop_one(tenant, size)
        while fits and self.size + size > self._limit:
            fits = self._state.drop_one(tenant, size) if shares is self._state else self._state.drop_one()
        if not fits:
            raise StoreUnavailable(f"a value of {size} bytes does not fit in the store (limit: {most} bytes)")

    def _drop(self, name: _Name) -> None:
        self._shares(name).drop(name)
        if (item := self._for_good.pop(name, None)) is not None:
            self._for_good_size -= item.size

    def _sweep(self) -> None:
        """Check a few items, in turn: expired ones that are never read again must not wait until memory is full."""
        if not self._to_sweep:
            self._to_sweep.extend(self._state.names() + self._counts.names())
        for _ in range(min(_SWEPT, len(self._to_sweep))):
            self._find(self._to_sweep.popleft())


def _length(key: str) -> int:
    return len(key) if key.isascii() else len(key.encode("utf-8", "surrogatepass"))
