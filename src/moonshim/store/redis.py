"""Names -> bytes in Redis or Valkey, shared by several gateways.

Uses only commands that both have had for years, and no scripts. Every key begins with `moonshim:` and its space: `v`
values, `e` entries (a hash), `n` counters, `l` leases (a sorted set of holders by the time their lease ends).
Everything has a time to live except values stored forever.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.client import Pipeline
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, AuthorizationError, MovedError, RedisError, ResponseError
from redis.exceptions import ConnectionError as NotConnected

from moonshim.errors import InvalidInput
from moonshim.store import FRESH, MOST_ENTRIES, StoreUnavailable
from moonshim.store.circuit import Circuit

__all__ = ["RedisServer", "RedisStore"]

_PREFIX: Final = "moonshim:"
_CONNECTIONS: Final = 32
_STAMP: Final = 8
"""Bytes before the value of an entry: its time, in milliseconds."""
_KEPT_ENTRIES: Final = MOST_ENTRIES * 3 // 4
"""How many remain after trimming, so that most writes look at one entry only."""
_SCHEMES: Final = {"valkey": "redis", "valkeys": "rediss"}
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

    def __init__(self, url: str, *, patience: float = 1.5, rest: float = 1.0) -> None:
        self._patience = patience
        self._server = RedisServer(url, patience, rest)

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
        await self._run_for_key(key, lambda pipe: pipe.set(self._name("v", key), value, px=_milliseconds(ttl)))

    async def put_new(self, key: str, value: bytes, ttl: float | None) -> bytes:
        name = self._name("v", key)

        def both(pipe: Pipeline) -> None:
            pipe.set(name, value, px=_milliseconds(ttl), nx=True)
            pipe.get(name)

        there = (await self._run_for_key(key, both, as_one=True))[1]
        return value if there is None else bytes(there)

    async def touch(self, keys: Sequence[str], ttl: float) -> None:
        if not keys:
            return
        names = [self._name("v", key) for key in keys]
        left = await self._run_for_key(keys[0], lambda pipe: [pipe.pttl(name) for name in names])
        # -1: no expiry; -2: gone.
        old = [name for name, ms in zip(names, left, strict=True) if 0 <= ms < FRESH * ttl * 1000]
        await self._run_for_key(keys[0], lambda pipe: [pipe.pexpire(name, _milliseconds(ttl) or 1) for name in old])

    async def delete(self, key: str) -> bool:
        # One by one: a cluster that is moving the slot of several keys refuses a command that names them all.
        return any(await self._run_for_key(key, lambda pipe: [pipe.delete(self._name(space, key)) for space in "venl"]))

    # --- entries -----------------------------------------------------------------------------------------------

    async def put_entry(self, key: str, field: str, value: bytes, ttl: float) -> None:
        name = self._name("e", key)
        stamped = int(time.time() * 1000).to_bytes(_STAMP, "big") + value

        def put(pipe: Pipeline) -> None:
            pipe.hset(name, _bytes(field), stamped)
            pipe.hlen(name)
            pipe.pexpire(name, _milliseconds(ttl) or 1)

        count = (await self._run_for_key(key, put, as_one=True))[1]
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
        name = self._name("n", key)

        def count(pipe: Pipeline) -> None:
            pipe.set(name, 0, px=_milliseconds(ttl), nx=True)  # EXPIRE … NX would need Redis 7
            pipe.incrby(name, amount)

        return int((await self._run_for_key(key, count, as_one=True))[1])

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
            pipe.pexpire(name, _milliseconds(ttl) or 1)

        _, held, taken = await self._run_for_key(key, look, as_one=True)
        if held is None and taken >= limit:
            return False
        # Another holder may have come in between, so the slot is taken and counted in one step: of two that want the
        # last one, the second counts one too many and leaves. There is never a holder too many.
        _, held, _, taken, _ = await self._run_for_key(key, take, as_one=True)
        if held is None and taken > limit:
            await self.release(key, holder)
            return False
        return True

    async def release(self, key: str, holder: str) -> None:
        await self._run_for_key(key, lambda pipe: pipe.zrem(self._name("l", key), _bytes(holder)))

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


def _error_text(error: Exception) -> str:
    return _NOT_A_CLUSTER_CLIENT if isinstance(error, MovedError) else type(error).__name__


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _milliseconds(ttl: float | None) -> int | None:
    return None if ttl is None else max(1, round(ttl * 1000))
