"""A bounded, thread-safe store in memory for the reasoning and the responses of the clients of one process."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Final

from moonshim.engine.prepare import ParsedRequest
from moonshim.engine.reasoning_cache import CacheEntry, ReasoningLookup, store_key
from moonshim.engine.values.conversation import Reasoning
from moonshim.errors import InvalidInput

__all__ = ["DEFAULT_BYTES", "Memory"]

DEFAULT_BYTES: Final = 64 * 1024 * 1024
_ITEM: Final = 300
"""Overhead of a value in Python, in bytes, so that many small values are bounded too."""
_MOST_FIELDS: Final = 64
"""Maximum number of fields under one key: a client may repeat the same turn many times."""


class Memory:
    """Stores reasoning and responses for HTTP clients, so that later requests can refer to them.

    Clients that share a memory can continue each other's conversations: pass the same one to a client and to its async
    counterpart. It can be used from several threads. When it is full, the least recently used entries are dropped.
    """

    def __init__(self, limit: int = DEFAULT_BYTES) -> None:
        """Create an empty memory.

        Args:
            limit: The maximum size in bytes; 64 MiB by default. With 0, nothing is stored.

        Raises:
            InvalidInput: The limit is negative or not an integer.
        """
        if not isinstance(limit, int) or limit < 0:
            raise InvalidInput(f"limit must be a number of bytes (0 or more), not {limit!r}", field="limit")
        self._limit = limit
        self._items: OrderedDict[str, dict[str, bytes]] = OrderedDict()
        """The least recently used first."""
        self._lock = Lock()
        self.size: int = 0
        """The current size in bytes, including an estimate of Python's overhead."""

    def recall(self, space: str, parsed: ParsedRequest) -> dict[int, Reasoning]:
        """Return the reasoning that is missing in the messages of a request, by message index."""
        wanted = ReasoningLookup(parsed.lost_turns(), space)
        return wanted.resolve({key: self.get(key) for key in wanted.keys})

    def remember(self, space: str, entry: CacheEntry) -> None:
        """Store the reasoning of a response."""
        self.put(store_key(space, entry.key), entry.field, entry.value)

    def get(self, key: str) -> dict[str, bytes]:
        """Return all values under a key, by field."""
        with self._lock:
            if key not in self._items:
                return {}
            self._items.move_to_end(key)
            return dict(self._items[key])

    def put(self, key: str, field: str, value: bytes) -> None:
        """Store a value, and drop old entries if the memory is full."""
        with self._lock:
            fields = self._items.setdefault(key, {})
            self._items.move_to_end(key)
            self._drop(key, fields, field)
            fields[field] = value
            self.size += _size(key, field, value)
            while len(fields) > _MOST_FIELDS:
                self._drop(key, fields, next(iter(fields)))
            while self.size > self._limit:
                oldest, fields = self._items.popitem(last=False)
                self.size -= sum(_size(oldest, name, kept) for name, kept in fields.items())

    def _drop(self, key: str, fields: dict[str, bytes], field: str) -> None:
        kept = fields.pop(field, None)
        if kept is not None:
            self.size -= _size(key, field, kept)


def _size(key: str, field: str, value: bytes) -> int:
    return _ITEM + len(key) + len(field) + len(value)
