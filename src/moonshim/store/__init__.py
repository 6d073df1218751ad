"""A URL -> a store: what the gateway has to remember, on one machine or on many."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias

from moonshim.errors import InvalidInput, MoonshimError

__all__ = [
    "FRESH",
    "MOST_ENTRIES",
    "REDIS_KEY_BYTES",
    "SQLITE_BYTES",
    "Store",
    "StoreKind",
    "StoreUnavailable",
    "eviction_problem",
    "key_space",
    "open_store",
    "store_kind",
    "tenant_of",
]

StoreKind: TypeAlias = Literal["memory", "sqlite", "redis"]
"""`memory`: one process; `sqlite`: the processes of one machine; `redis`: many machines."""
FRESH: Final = 0.9
"""An entry with this fraction of its time left is not touched."""
SQLITE_BYTES: Final = 4 * 1024 * 1024 * 1024
"""Default size limit of a SQLite file."""
REDIS_KEY_BYTES: Final = 64 * 1024 * 1024
"""Default size limit of the conversations of one gateway key in Redis."""
MOST_ENTRIES: Final = 64
"""Maximum number of entries under one key, since they are always read together."""

_KINDS: Final[dict[str, StoreKind]] = {
    "memory": "memory",
    "sqlite": "sqlite",
    "redis": "redis",
    "rediss": "redis",
    "valkey": "redis",
    "valkeys": "redis",
    "unix": "redis",
    "redis+cluster": "redis",
    "rediss+cluster": "redis",
    "valkey+cluster": "redis",
    "valkeys+cluster": "redis",
}
_NO_REDIS: Final = "this store requires the redis package; install moonshim[redis]"
_FORMS: Final = "memory:, sqlite:PATH, redis://HOST:PORT/DB, rediss://… (TLS), valkey://…, redis+cluster://HOST:PORT or unix://SOCKET"


class StoreUnavailable(MoonshimError):
    """The store cannot be reached, or is full. Requests continue without it, and report what they lost."""

    code = "store_unavailable"
    status = 503
    retryable = True


class Store(Protocol):
    """Bytes under names, each for a time. Every method may raise `StoreUnavailable`, and nothing else.

    Keys have the form `kind:tenant:name`: a full store evicts from the tenant that holds the most.

    A value may disappear before its time (memory is bounded), but is never returned after it. Counters, leases, and
    what is stored forever are never evicted for others. Values, entries, counters and leases are separate spaces: the
    same key in two of them is two things, which only `delete` removes together.
    """

    async def get(self, key: str) -> bytes | None: ...

    async def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """The same for several keys, in one round trip."""

    async def put(self, key: str, value: bytes, ttl: float | None) -> None:
        """`ttl` in seconds; None: forever."""

    async def put_new(self, key: str, value: bytes, ttl: float | None) -> bytes:
        """Store it unless there is a value; return the current value. Concurrent callers get the same one."""

    async def touch(self, keys: Sequence[str], ttl: float) -> None:
        """Extend values that still exist, and expire, to `ttl` from now.

        A value with nine tenths of that time left may be skipped: frequent touching must not cost a write each time.
        """

    async def delete(self, key: str) -> bool:
        """Whether there was a value. Removes entries (`put_entry`), counter and leases of that key too."""

    async def put_entry(self, key: str, field: str, value: bytes, ttl: float | None) -> None:
        """One of several values under a key, each with its own name; the whole key lives `ttl` from now; None: forever.

        Beyond `MOST_ENTRIES`, the oldest are removed.
        """

    async def entries(self, key: str) -> dict[str, bytes]: ...

    async def entries_many(self, keys: Sequence[str]) -> list[dict[str, bytes]]:
        """The same for several keys, in one round trip."""

    async def add(self, key: str, amount: int, ttl: float) -> int:
        """Add to a counter; return the sum. It expires `ttl` after the first amount."""

    async def lease(self, key: str, holder: str, limit: int, ttl: float) -> bool:
        """Be one of at most `limit` holders for `ttl` seconds; a holder renews its lease. False: all are taken."""

    async def release(self, key: str, holder: str) -> None: ...

    async def ping(self) -> None:
        """Raises `StoreUnavailable` if nothing could be stored now."""

    async def close(self) -> None: ...


def key_space(tenant: str) -> str:
    """A tenant's prefix in the store's keys. Its length is fixed, so that no tenant's name can reach into another's
    keys."""
    return blake2b(tenant.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def tenant_of(key: str) -> str:
    """The tenant that a key belongs to; "" if it belongs to none.

    >>> tenant_of("turn:1f2e:resp_7"), tenant_of("secret")
    ('1f2e', '')
    """
    parts = key.split(":", 2)
    return parts[1] if len(parts) == 3 else ""


def store_kind(url: str) -> StoreKind:
    """The kind of store that a URL selects; `InvalidInput` if there is none.

    >>> store_kind("sqlite:state/moonshim.db"), store_kind("valkey://localhost")
    ('sqlite', 'redis')
    """
    # The URL may contain a password, so messages repeat only its scheme.
    scheme, colon, rest = url.partition(":")
    kind = _KINDS.get(scheme.lower())
    if kind is None or not colon:
        raise InvalidInput(f"unknown store; use {_FORMS}", field="store")
    if kind == "memory" and rest.strip("/"):
        raise InvalidInput("unexpected text after 'memory:'; set its size with memory_bytes", field="store")
    if kind == "redis" and not rest.startswith("//"):
        raise InvalidInput(f"missing // after '{scheme}:'; use {_FORMS}", field="store")
    if kind == "sqlite":
        _sqlite_path(rest)
    return kind


def _sqlite_path(rest: str) -> Path:
    """The file of `sqlite:PATH`; `sqlite:///PATH` is an absolute path, as in other URLs."""
    if rest.startswith("//"):
        rest = rest[2:]
        if not rest.startswith("/"):
            raise InvalidInput("missing third slash; use sqlite:PATH or sqlite:///PATH", field="store")
    if not rest or rest.startswith(":") or "\0" in rest:
        raise InvalidInput("missing file path after 'sqlite:'; use memory: for a store without a file", field="store")
    return Path(rest).expanduser()


def store_problem(url: str) -> str | None:
    """Why `open_store` would refuse this address, as far as that can be found without creating or changing a file."""
    kind = store_kind(url)
    if kind == "sqlite":
        from moonshim.store.sqlite import file_problem

        return file_problem(_sqlite_path(url.partition(":")[2]))
    if kind == "redis" and find_spec("redis") is None:
        return _NO_REDIS
    return None


async def open_store(
    url: str, *, memory_bytes: int, sqlite_bytes: int = SQLITE_BYTES, redis_key_bytes: int = REDIS_KEY_BYTES
) -> Store:
    """The store at that address. Invalid addresses, and files that are not a store of Moonshim, raise `InvalidInput`.

    A Redis that is down is not an error here: it may come back. A mismatch between a cluster and the address is one.
    """
    kind = store_kind(url)
    if kind == "memory":
        from moonshim.store.memory import MemoryStore

        return MemoryStore(memory_bytes)
    if kind == "sqlite":
        from moonshim.store.sqlite import SqliteStore

        return await SqliteStore.open(_sqlite_path(url.partition(":")[2]), limit=sqlite_bytes)
    try:
        from moonshim.store.redis import RedisStore
        from moonshim.store.redis_cluster import ClusterStore
    except ImportError as error:
        raise InvalidInput(_NO_REDIS, field="store") from error
    store = (ClusterStore if "+cluster:" in url.lower() else RedisStore)(url, key_bytes=redis_key_bytes)
    try:
        await store.check()
    except BaseException:
        await store.close()
        raise
    return store


async def eviction_problem(store: Store) -> str | None:
    """Why the store may delete counters and the signing secret when it is full; None: it does not, or is not known."""
    check = getattr(store, "policy_problem", None)
    return None if check is None else await check()
