"""Names -> bytes in this process's memory, bounded: the store of a gateway that runs alone."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

from moonshim.store import MOST_ENTRIES, StoreUnavailable

__all__ = ["MemoryStore"]

_Space: TypeAlias = Literal["value", "entries", "counter", "leases"]
_SPACES: Final[tuple[_Space, ...]] = ("value", "entries", "counter", "leases")
_Name: TypeAlias = tuple[_Space, str]
_Content: TypeAlias = bytes | dict[str, bytes] | int | dict[str, float]

_ITEM: Final = 300
"""What an item costs in Python beside its bytes, so that many small ones are bounded too."""
_PIECE: Final = 150
"""The same for an entry or a lease."""
_SWEPT: Final = 4
"""How many items each write looks at for some whose time is over."""


class _Item:
    """What is under one name in one space."""

    __slots__ = ("content", "expires", "size")

    def __init__(self, content: _Content, expires: float | None, size: int) -> None:
        self.content = content
        self.expires = expires
        self.size = size


class MemoryStore:
    """Holds at most `limit` bytes; what was written or renewed longest ago goes first, but nothing that is for good."""

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._items: dict[_Name, _Item] = {}
        """The oldest first."""
        self._for_good: dict[_Name, _Item] = {}
        self._to_sweep: deque[_Name] = deque()
        self.size = 0
        """In bytes, keys and an estimate of what Python needs included."""

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
                self._items[name] = self._items.pop(name)

    async def delete(self, key: str) -> bool:
        there = [space for space in _SPACES if self._find((space, key)) is not None]
        for space in there:
            self._drop((space, key))
        return bool(there)

    # --- entries -----------------------------------------------------------------------------------------------

    async def put_entry(self, key: str, field: str, value: bytes, ttl: float) -> None:
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

    # --- the whole ---------------------------------------------------------------------------------------------

    async def ping(self) -> None:
        pass

    async def close(self) -> None:
        self._items.clear()
        self._for_good.clear()
        self._to_sweep.clear()
        self.size = 0

    def _find(self, name: _Name) -> _Item | None:
        item = self._items.get(name) or self._for_good.get(name)
        if item is not None and item.expires is not None and item.expires <= self._clock():
            self._drop(name)
            return None
        return item

    def _put(self, name: _Name, content: _Content, ttl: float | None, size: int) -> None:
        size += _ITEM + _length(name[1])
        self._drop(name)
        if size > self._limit:
            raise StoreUnavailable(f"{size} bytes are more than the store may hold ({self._limit})")
        self._sweep()
        while self.size + size > self._limit and self._items:
            self._drop(next(iter(self._items)))
        if ttl is None:
            self._for_good[name] = _Item(content, None, size)
        else:
            self._items[name] = _Item(content, self._clock() + ttl, size)
        self.size += size

    def _drop(self, name: _Name) -> None:
        item = self._items.pop(name, None) or self._for_good.pop(name, None)
        if item is not None:
            self.size -= item.size

    def _sweep(self) -> None:
        """Look at a few items, in turn: what is over and never asked for again must not wait until memory is full."""
        if not self._to_sweep:
            self._to_sweep.extend(self._items)
        for _ in range(min(_SWEPT, len(self._to_sweep))):
            self._find(self._to_sweep.popleft())


def _length(key: str) -> int:
    return len(key) if key.isascii() else len(key.encode("utf-8", "surrogatepass"))
