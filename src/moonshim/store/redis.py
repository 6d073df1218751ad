"""Names -> bytes in Redis or Valkey, which several gateways share.

Only commands that both have had for years, and no scripts. Every key begins with
`moonshim:` and the space it is in: `v` values, `e` entries (a hash), `n` counters, `l`
leases (a sorted set of holders by the time their lease ends). Everything has a time to
live but what is put for good.
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
from redis.exceptions import ConnectionError as NotConnected
from redis.exceptions import RedisError, ResponseError

from moonshim.errors import InvalidInput
from moonshim.store import FRESH, MOST_ENTRIES, StoreUnavailable
from moonshim.store.circuit import Circuit

__all__ = ["RedisStore"]

_PREFIX: Final = "moonshim:"
_CONNECTIONS: Final = 32
_STAMP: Final = 8
"""Bytes before the value of an entry: when it was put, in milliseconds."""
_KEPT_ENTRIES: Final = MOST_ENTRIES * 3 // 4
"""So many stay when there were too many, so that most writes look at one entry alone."""
_SCHEMES: Final = {"valkey": "redis", "valkeys": "rediss"}


class RedisStore:
    """What a method has answered is in Redis. One that does not answer within `patience` is not waited for again
    before `rest` seconds are over: requests go on at once without it.

    Times of leases are by the clocks of the gateways, which should agree to a second.
    """

    def __init__(self, url: str, *, patience: float = 1.5, rest: float = 1.0) -> None:
        scheme, colon, address = url.partition(":")
        try:
            pool = BlockingConnectionPool.from_url(
                _SCHEMES.get(scheme.lower(), scheme.lower()) + colon + address,
                max_connections=_CONNECTIONS,
                timeout=patience,
                socket_connect_timeout=patience,
                socket_timeout=patience,
                # A connection that was closed while nobody used it is made anew, once.
                retry=Retry(NoBackoff(), 1, supported_errors=(NotConnected,)),
                protocol=2,
            )
        except ValueError:
            raise InvalidInput("this is no address of a Redis server", field="store") from None
        self._redis = Redis.from_pool(pool)
        self._patience = patience
        self._circuit = Circuit(rest)

    # --- values ------------------------------------------------------------------------------------------------

    async def get(self, key: str) -> bytes | None:
        return (await self.get_many([key]))[0]

    async def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        if not keys:
            return []
        (found,) = await self._asked(lambda pipe: pipe.mget([_name("v", key) for key in keys]))
        return list(found)

    async def put(self, key: str, value: bytes, ttl: float | None) -> None:
        await self._asked(lambda pipe: pipe.set(_name("v", key), value, px=_milliseconds(ttl)))

    async def put_new(self, key: str, value: bytes, ttl: float | None) -> bytes:
        name = _name("v", key)

        def both(pipe: Pipeline) -> None:
            pipe.set(name, value, px=_milliseconds(ttl), nx=True)
            pipe.get(name)

        there = (await self._asked(both, as_one=True))[1]
        return value if there is None else bytes(there)

    async def touch(self, keys: Sequence[str], ttl: float) -> None:
        names = [_name("v", key) for key in keys]
        left = await self._asked(lambda pipe: [pipe.pttl(name) for name in names])
        # -1: for good; -2: gone.
        old = [name for name, ms in zip(names, left, strict=True) if 0 <= ms < FRESH * ttl * 1000]
        await self._asked(lambda pipe: [pipe.pexpire(name, _milliseconds(ttl) or 1) for name in old])

    async def delete(self, key: str) -> bool:
        (count,) = await self._asked(lambda pipe: pipe.delete(*(_name(space, key) for space in "venl")))
        return bool(count)

    # --- entries -----------------------------------------------------------------------------------------------

    async def put_entry(self, key: str, field: str, value: bytes, ttl: float) -> None:
        name = _name("e", key)
        stamped = int(time.time() * 1000).to_bytes(_STAMP, "big") + value

        def put(pipe: Pipeline) -> None:
            pipe.hset(name, _bytes(field), stamped)
            pipe.hlen(name)
            pipe.pexpire(name, _milliseconds(ttl) or 1)

        count = (await self._asked(put, as_one=True))[1]
        if count > MOST_ENTRIES:
            (stored,) = await self._asked(lambda pipe: pipe.hgetall(name))
            newest_first = sorted(stored, key=lambda one: stored[one][:_STAMP], reverse=True)
            await self._asked(lambda pipe: [pipe.hdel(name, one) for one in newest_first[_KEPT_ENTRIES:]])

    async def entries(self, key: str) -> dict[str, bytes]:
        return (await self.entries_many([key]))[0]

    async def entries_many(self, keys: Sequence[str]) -> list[dict[str, bytes]]:
        stored = await self._asked(lambda pipe: [pipe.hgetall(_name("e", key)) for key in keys])
        return [
            {field.decode("utf-8", "surrogatepass"): value[_STAMP:] for field, value in fields.items()}
            for fields in stored
        ]

    # --- counters and leases -----------------------------------------------------------------------------------

    async def add(self, key: str, amount: int, ttl: float) -> int:
        name = _name("n", key)

        def count(pipe: Pipeline) -> None:
            pipe.set(name, 0, px=_milliseconds(ttl), nx=True)  # EXPIRE … NX would need Redis 7
            pipe.incrby(name, amount)

        return int((await self._asked(count, as_one=True))[1])

    async def lease(self, key: str, holder: str, limit: int, ttl: float) -> bool:
        name, who, now = _name("l", key), _bytes(holder), time.time()

        def look(pipe: Pipeline) -> None:
            pipe.zremrangebyscore(name, "-inf", now)
            pipe.zscore(name, who)
            pipe.zcard(name)

        def take(pipe: Pipeline) -> None:
            pipe.zremrangebyscore(name, "-inf", now)
            pipe.zscore(name, who)
            pipe.zadd(name, {who: now + ttl})
            pipe.zcard(name)
            pipe.pexpire(name, _milliseconds(ttl) or 1)

        _, held, taken = await self._asked(look, as_one=True)
        if held is None and taken >= limit:
            return False
        # Somebody may have come in between, so the place is taken and counted in one step: of two who want the last
        # one, the second counts one too many and leaves. There is never a holder too many.
        _, held, _, taken, _ = await self._asked(take, as_one=True)
        if held is None and taken > limit:
            await self.release(key, holder)
            return False
        return True

    async def release(self, key: str, holder: str) -> None:
        await self._asked(lambda pipe: pipe.zrem(_name("l", key), _bytes(holder)))

    # --- the whole ---------------------------------------------------------------------------------------------

    async def ping(self) -> None:
        """Writes, since a replica or a full Redis answers PING all the same."""
        await self.put("ping", b"", 1.0)

    async def close(self) -> None:
        with contextlib.suppress(RedisError, OSError):  # it is gone already
            async with asyncio.timeout(self._patience):
                await self._redis.aclose(close_connection_pool=True)

    async def _asked(self, build: Callable[[Pipeline], Any], *, as_one: bool = False) -> list[Any]:
        """The answers to some commands, in one round trip; `as_one`: nobody comes in between (MULTI)."""
        if not self._circuit.lets_through():
            raise StoreUnavailable("Redis did not answer a moment ago")
        answered: bool | None = None
        try:
            async with asyncio.timeout(self._patience), self._redis.pipeline(transaction=as_one) as pipe:
                build(pipe)
                answers = await pipe.execute()
            answered = True
        except (RedisError, OSError, EOFError, ValueError) as error:
            answered = isinstance(error, ResponseError)  # it refused, and so it is alive
            # Without the text of the error: that can name the address, and a command's values.
            raise StoreUnavailable(f"Redis cannot be used: {type(error).__name__}") from None
        finally:
            self._circuit.settle(answered=answered)
        return answers


def _name(space: str, key: str) -> bytes:
    return _bytes(f"{_PREFIX}{space}:{key}")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _milliseconds(ttl: float | None) -> int | None:
    return None if ttl is None else max(1, round(ttl * 1000))
