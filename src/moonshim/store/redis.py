"""Names -> bytes in Redis or Valkey, shared by several gateways.

Uses only commands that both have had for years, and no scripts. Every key begins with `moonshim:` and its space: `v`
values, `e` entries (a hash), `n` counters, `l` leases (a sorted set of holders by the time their lease ends), `x` a
tenant's counters by the time when they expire, `q` a tenant's values and entries by the time when they expire.

Conversations (values and entries with a time to live) may be evicted by a full Redis; counters, leases, and what is
stored forever must not be. So only conversations have a time to live in Redis, and its policy has to be
`volatile-lru`, another one that starts with `volatile-`, or `noeviction`. Counters are deleted by the index of their
tenant.

Each tenant has a quota for its conversations. Its index `q` has one member for each `_UNIT` bytes, so that its length
is what the tenant holds: no sizes to sum up, and none that could go wrong. What expires leaves the index by its score.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.client import Pipeline
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, AuthorizationError, MovedError, RedisError, ResponseError
from redis.exceptions import ConnectionError as NotConnected

from moonshim.errors import InvalidInput
from moonshim.store import FRESH, MOST_ENTRIES, REDIS_KEY_BYTES, StoreUnavailable, tenant_of
from moonshim.store.circuit import Circuit

__all__ = ["RedisServer", "RedisStore"]

_PREFIX: Final = "moonshim:"
_CONNECTIONS: Final = 32
_STAMP: Final = 8
"""Bytes before the value of an entry: its time, in milliseconds."""
_KEPT_ENTRIES: Final = MOST_ENTRIES * 3 // 4
"""How many remain after trimming, so that most writes look at one entry only."""
_SCHEMES: Final = {"valkey": "redis", "valkeys": "rediss"}
_UNIT: Final = 2048
"""Bytes that one member of a tenant's index stands for."""
_OWN_BYTES: Final = 256
"""What a small value takes besides its content, roughly."""
_SWEEP_EVERY: Final = 32
"""How often `add` looks for expired counters of its tenant, in calls."""
_SWEPT: Final = 64
_SWEEP_LATE: Final = 600.0
"""Seconds after which an expired counter is deleted: for a gateway whose clock is behind, it may not be over yet."""
_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.2
_FAILURES: Final = (RedisError, OSError, EOFError, ValueError)
_NOT_A_CLUSTER_CLIENT: Final = (
    "this Redis server is a node of a Redis Cluster; use redis+cluster://HOST:PORT instead of redis://"
)


class RedisServer:
    """One server: its connections, and its circuit breaker."""

    def __init__(self, url: str, patience: float, rest: float, address: tuple[str, int] | None = None) -> None:
        """`address`: another server than the URL names, reached in the same way."""
        scheme, colon, rest_of_url = url.partition(":")
        try:
            pool = BlockingConnectionPool.from_url(
                _SCHEMES.get(scheme.lower(), scheme.lower()) + colon + rest_of_url,
                max_connections=_CONNECTIONS,
                timeout=patience,
                socket_connect_timeout=patience,
                socket_timeout=patience,
                # A connection that was closed while idle is reopened, once.
                retry=Retry(NoBackoff(), 1, supported_errors=(NotConnected,)),
                protocol=2,
            )
        except ValueError:
            raise InvalidInput("not a valid Redis URL", field="store") from None
        if address is not None:
            pool.connection_kwargs.update(host=address[0], port=address[1])
        self._redis = Redis.from_pool(pool)
        self.circuit = Circuit(rest)
        self.options: dict[str, Any] = pool.connection_kwargs

    async def run(self, build: Callable[[Pipeline], Any], *, as_one: bool, asking: bool = False) -> list[Any]:
        """The replies to some commands, in one round trip; `as_one`: atomically (MULTI).

        `asking`: the server is about to take over these keys from another one, and needs an ASKING first.
        """
        async with self._redis.pipeline(transaction=as_one) as pipe:
            build(pipe)
            if asking and as_one:
                await pipe.immediate_execute_command("ASKING")  # type: ignore[no-untyped-call]
            elif asking:
                pipe.command_stack = [one for command in pipe.command_stack for one in ((("ASKING",), {}), command)]
                return list(await pipe.execute())[1::2]
            return list(await pipe.execute())

    async def close(self, patience: float) -> None:
        with contextlib.suppress(RedisError, OSError):  # it is gone already
            async with asyncio.timeout(patience):
                await self._redis.aclose(close_connection_pool=True)


class RedisStore:
    """When a method returns, its effect is in Redis.

    A command without a connection is retried until `patience` is over, so nothing is lost when a server restarts. A
    server that does not answer within `patience` is not tried again for `rest` seconds: requests continue without it.

    Lease times use the gateways' clocks, which should agree to a second.
    """

    def __init__(self, url: str, *, patience: float = 1.5, rest: float = 1.0, key_bytes: int = REDIS_KEY_BYTES) -> None:
        """`key_bytes`: how much the conversations of one tenant may take. Beyond it, its oldest are deleted."""
        self._patience = patience
        self._server = RedisServer(url, patience, rest)
        self._most_units = max(1, key_bytes // _UNIT)
        self._adds = 0

    async def check(self) -> None:
        """Raise `InvalidInput` for a server that this store cannot use. One that is down is not an error."""
        with contextlib.suppress(StoreUnavailable):
            (info,) = await self._run_for_key("", lambda pipe: pipe.info("cluster"))
            if info.get("cluster_enabled"):
                raise InvalidInput(_NOT_A_CLUSTER_CLIENT, field="store")

    # --- values ------------------------------------------------------------------------------------------------

    async def get(self, key: str) -> bytes | None:
        return (await self.get_many([key]))[0]

    async def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        if not keys:
            return []
        (found,) = await self._run_for_key(keys[0], lambda pipe: pipe.mget([self._name("v", key) for key in keys]))
        return list(found)

    async def put(self, key: str, value: bytes, ttl: float | None) -> None:
        await self._put(key, value, ttl, lambda pipe, name: pipe.set(name, value, px=_milliseconds(ttl)))

    async def put_new(self, key: str, value: bytes, ttl: float | None) -> bytes:
        def both(pipe: Pipeline, name: bytes) -> None:
            pipe.set(name, value, px=_milliseconds(ttl), nx=True)
            pipe.get(name)

        there = (await self._put(key, value, ttl, both))[1]
        return value if there is None else bytes(there)

    async def _put(self, key: str, value: bytes, ttl: float | None, put: Callable[[Pipeline, bytes], Any]) -> list[Any]:
        name, units = self._name("v", key), self._units(len(value), ttl)
        replies, held = await self._run_each(
            key, lambda pipe: put(pipe, name), self._charging(key, _members(name, 0, units), ttl)
        )
        await self._make_room(key, units, held)
        return replies

    async def touch(self, keys: Sequence[str], ttl: float) -> None:
        if not keys:
            return
        names = {key: self._name("v", key) for key in keys}

        def look(pipe: Pipeline) -> None:
            for name in names.values():
                pipe.pttl(name)
                pipe.strlen(name)

        found = await self._run_for_key(keys[0], look)
        # -1: no expiry; -2: gone.
        old = {
            key: self._units(size, ttl)
            for key, ms, size in zip(names, found[::2], found[1::2], strict=True)
            if 0 <= ms < FRESH * ttl * 1000
        }

        def renew(pipe: Pipeline) -> None:
            for key in old:
                pipe.pexpire(names[key], _milliseconds(ttl) or 1)

        if old:
            members = [member for key, units in old.items() for member in _members(names[key], 0, units)]
            await self._run_for_key(keys[0], renew)
            await self._run_for_key(keys[0], self._charging(keys[0], members, ttl), as_one=True)

    async def delete(self, key: str) -> bool:
        # One by one: a cluster that is moving the slot of several keys refuses a command that names them all.
        return any(await self._run_for_key(key, lambda pipe: [pipe.delete(self._name(space, key)) for space in "venl"]))

    # --- entries -----------------------------------------------------------------------------------------------

    async def put_entry(self, key: str, field: str, value: bytes, ttl: float | None) -> None:
        name, units = self._name("e", key), self._units(len(value), ttl)
        stamped = int(time.time() * 1000).to_bytes(_STAMP, "big") + value

        def put(pipe: Pipeline) -> None:
            pipe.hset(name, _bytes(field), stamped)
            pipe.hlen(name)
            if ttl is None:
                pipe.persist(name)
            else:
                pipe.pexpire(name, _milliseconds(ttl) or 1)

        members = _members(name + _bytes(field), len(name), units)
        replies, held = await self._run_each(key, put, self._charging(key, members, ttl))
        await self._make_room(key, units, held)
        count = replies[1]
        if count > MOST_ENTRIES:
            (stored,) = await self._run_for_key(key, lambda pipe: pipe.hgetall(name))
            newest_first = sorted(stored, key=lambda one: stored[one][:_STAMP], reverse=True)
            await self._run_for_key(key, lambda pipe: [pipe.hdel(name, one) for one in newest_first[_KEPT_ENTRIES:]])

    async def entries(self, key: str) -> dict[str, bytes]:
        return (await self.entries_many([key]))[0]

    async def entries_many(self, keys: Sequence[str]) -> list[dict[str, bytes]]:
        if not keys:
            return []
        stored = await self._run_for_key(keys[0], lambda pipe: [pipe.hgetall(self._name("e", key)) for key in keys])
        return [
            {field.decode("utf-8", "surrogatepass"): value[_STAMP:] for field, value in fields.items()}
            for fields in stored
        ]

    # --- counters and leases -----------------------------------------------------------------------------------

    async def add(self, key: str, amount: int, ttl: float) -> int:
        name, index, now = self._name("n", key), self._index("x", key), time.time()
        self._adds += 1
        sweeps = self._adds % _SWEEP_EVERY == 1

        def list_it(pipe: Pipeline) -> None:
            pipe.zadd(index, {name: now + ttl}, nx=True)
            pipe.zscore(index, name)
            if sweeps:
                pipe.zrangebyscore(index, "-inf", now - _SWEEP_LATE, start=0, num=_SWEPT)

        (total,), (_, until, *swept) = await self._run_each(key, lambda pipe: pipe.incrby(name, amount), list_it)
        over = [other for other in (swept[0] if swept else []) if other != name]

        def tidy(pipe: Pipeline) -> None:
            if until <= now:  # its time was over, and nothing has deleted it
                pipe.set(name, amount)
                pipe.zadd(index, {name: now + ttl})
            for other in over:
                pipe.delete(other)
                pipe.zrem(index, other)

        if until <= now or over:
            await self._run_for_key(key, tidy)
        return amount if until <= now else int(total)

    async def lease(self, key: str, holder: str, limit: int, ttl: float) -> bool:
        name, member, now = self._name("l", key), _bytes(holder), time.time()

        def look(pipe: Pipeline) -> None:
            pipe.zremrangebyscore(name, "-inf", now)
            pipe.zscore(name, member)
            pipe.zcard(name)

        def take(pipe: Pipeline) -> None:
            pipe.zremrangebyscore(name, "-inf", now)
            pipe.zscore(name, member)
            pipe.zadd(name, {member: now + ttl})
            pipe.zcard(name)

        _, held, taken = await self._run_for_key(key, look, as_one=True)
        if held is None and taken >= limit:
            return False
        # Another holder may have come in between, so the slot is taken and counted in one step: of two that want the
        # last one, the second counts one too many and leaves. There is never a holder too many.
        _, held, _, taken = await self._run_for_key(key, take, as_one=True)
        if held is None and taken > limit:
            await self.release(key, holder)
            return False
        return True

    async def release(self, key: str, holder: str) -> None:
        await self._run_for_key(key, lambda pipe: pipe.zrem(self._name("l", key), _bytes(holder)))

    # --- quotas ------------------------------------------------------------------------------------------------

    def _units(self, size: int, ttl: float | None) -> int:
        """How many members of its tenant's index a value of this size has; none if it is stored forever."""
        units = 0 if ttl is None else -(-(size + _OWN_BYTES) // _UNIT)
        if units > self._most_units:
            most = self._most_units * _UNIT
            raise StoreUnavailable(f"a value of {size} bytes does not fit in the store (limit per key: {most} bytes)")
        return units

    def _charging(self, key: str, members: list[bytes], ttl: float | None) -> Callable[[Pipeline], Any]:
        """Commands that add a value to its tenant's index. The third reply is the length of that."""

        def charge(pipe: Pipeline) -> None:
            if members and ttl is not None:
                index, now = self._index("q", key), time.time()
                pipe.zremrangebyscore(index, "-inf", now)
                pipe.zadd(index, dict.fromkeys(members, now + ttl))
                pipe.zcard(index)
                pipe.pexpire(index, _milliseconds(ttl) or 1)

        return charge

    async def _make_room(self, key: str, units: int, replies: Sequence[Any]) -> None:
        """Delete the oldest conversations of a tenant that holds too much: more than needed, so that this is rare."""
        held = int(replies[2]) if replies else 0
        if held <= self._most_units:
            return
        index, surplus = self._index("q", key), held - self._most_units * 15 // 16
        (oldest,) = await self._run_for_key(key, lambda pipe: pipe.zrange(index, 0, min(surplus, held - units) - 1))
        places = {
            (place, int(length)): int(count) for _, count, length, place in (one.split(b"/", 3) for one in oldest)
        }

        def delete(pipe: Pipeline) -> None:
            for (place, length), count in places.items():
                if length:
                    pipe.hdel(place[:length], place[length:])
                else:
                    pipe.delete(place)
                pipe.zrem(index, *_members(place, length, count))

        await self._run_for_key(key, delete)

    def _index(self, space: str, key: str) -> bytes:
        """The name of an index of this key's tenant, on the same server as the key."""
        return self._name(space, f"index:{tenant_of(key)}:")

    async def policy_problem(self) -> str | None:
        """Why a full server would delete counters, if it would; None: it does not, or nothing is known."""
        try:
            (info,) = await self._run_for_key("", lambda pipe: pipe.info("memory"))
        except StoreUnavailable:
            return None
        policy = str(info.get("maxmemory_policy", ""))
        if not int(info.get("maxmemory", 0) or 0) or not policy.startswith("allkeys-"):
            return None
        return (
            f"Redis has the maxmemory-policy {policy}: when it is full, it deletes counters of limits and budgets, and "
            "the signing secret; set volatile-lru"
        )

    # --- whole store -------------------------------------------------------------------------------------------

    async def ping(self) -> None:
        """Writes, since a replica or a full Redis still answers PING."""
        await self.put("ping", b"", 1.0)

    async def close(self) -> None:
        await self._server.close(self._patience)

    async def _run_for_key(self, key: str, build: Callable[[Pipeline], Any], *, as_one: bool = False) -> list[Any]:
        """The replies to some commands for the tenant of this key."""
        server, pause = self._server, _FIRST_PAUSE
        try:
            async with asyncio.timeout(self._patience):
                while True:
                    try:
                        server = await self._server_for(key)
                        return await self._try(server, build, as_one=as_one)
                    except _FAILURES as error:
                        if not (await self._may_pass(error) and server.circuit.is_closed):
                            raise
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)
        except _FAILURES as error:
            server.circuit.settle(answered=isinstance(error, ResponseError))  # it replied, so it is alive
            # Without the text of the error: that can contain the address, and a command's values.
            raise StoreUnavailable(f"Redis request failed: {_error_text(error)}") from None

    async def _run_each(self, key: str, *builds: Callable[[Pipeline], Any]) -> list[list[Any]]:
        """The replies to groups of commands, each for one key of Redis: atomically, in one round trip."""
        sizes: list[int] = []

        def build_all(pipe: Pipeline) -> None:
            sizes.clear()
            for build in builds:
                before = len(pipe.command_stack)
                build(pipe)
                sizes.append(len(pipe.command_stack) - before)

        replies = iter(await self._run_for_key(key, build_all, as_one=True))
        return [list(islice(replies, size)) for size in sizes]

    async def _try(self, server: RedisServer, build: Callable[[Pipeline], Any], *, as_one: bool) -> list[Any]:
        if not server.circuit.lets_through():
            raise StoreUnavailable("Redis is not responding")
        answered = None
        try:
            answers = await server.run(build, as_one=as_one)
            answered = True
        finally:
            server.circuit.settle(answered=answered)
        return answers

    async def _server_for(self, key: str) -> RedisServer:
        return self._server

    async def _may_pass(self, error: Exception) -> bool:
        """Whether the same commands may succeed in a moment."""
        return isinstance(error, NotConnected) and not isinstance(error, (AuthenticationError, AuthorizationError))

    def _name(self, space: str, key: str) -> bytes:
        return _bytes(f"{_PREFIX}{space}:{key}")


def _members(place: bytes, length: int, units: int) -> list[bytes]:
    """A value's members in the index of its tenant. `length`: where the name of an entry begins; 0: it is a value."""
    return [b"%d/%d/%d/%b" % (number, units, length, place) for number in range(units)]


def _error_text(error: Exception) -> str:
    return _NOT_A_CLUSTER_CLIENT if isinstance(error, MovedError) else type(error).__name__


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _milliseconds(ttl: float | None) -> int | None:
    return None if ttl is None else max(1, round(ttl * 1000))
