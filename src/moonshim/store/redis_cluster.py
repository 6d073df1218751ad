"""Names -> bytes in a Redis Cluster: all keys of one tenant share one hash slot, and so one server.

An operation for one tenant is one round trip to one server, as with a single Redis. Keys have the tenant as their hash
tag: `moonshim:{tenant}:v:turn:tenant:id`.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from redis.asyncio.client import Pipeline
from redis.crc import key_slot
from redis.exceptions import AskError, ClusterDownError, MovedError, RedisError, TryAgainError
from redis.exceptions import ConnectionError as NotConnected

from moonshim.errors import InvalidInput
from moonshim.store import REDIS_KEY_BYTES, StoreUnavailable, tenant_of
from moonshim.store.redis import RedisServer, RedisStore

__all__ = ["ClusterStore"]

T = TypeVar("T")

_ADDRESS: Final = re.compile(r"(\w+)\+cluster://((?:[^/?#]*@)?)([^/?#]*)(.*)", re.DOTALL | re.IGNORECASE)
_NO_TENANT: Final = "moonshim"
_REFRESH_SECONDS: Final = 0.1
"""Minimum time between two requests for the slot table, however many commands fail."""


class ClusterStore(RedisStore):
    """As `RedisStore`, but with separate servers: one that is down affects only its tenants."""

    def __init__(self, url: str, *, patience: float = 1.5, rest: float = 1.0, key_bytes: int = REDIS_KEY_BYTES) -> None:
        """`url`: `redis+cluster://HOST:PORT`, or several servers separated by commas."""
        urls = _start_urls(url)
        super().__init__(urls[0], patience=patience, rest=rest, key_bytes=key_bytes)
        if self._server.options.get("db"):
            raise InvalidInput(
                "a Redis Cluster has no numbered databases; remove everything after the port", field="store"
            )
        self._rest = rest
        self._start = [self._server, *(RedisServer(one, patience, rest) for one in urls[1:])]
        self._url = urls[0]
        self._nodes: dict[tuple[str, int], RedisServer] = {}
        self._slots: list[tuple[range, RedisServer]] = []
        self._looked_at = -_REFRESH_SECONDS
        self._looking = asyncio.Lock()

    async def check(self) -> None:
        with contextlib.suppress(RedisError, OSError):
            (info,) = await self._server.run(lambda pipe: pipe.info("cluster"), as_one=False)
            if not info.get("cluster_enabled"):
                raise InvalidInput(
                    "this Redis server is not a node of a Redis Cluster; use redis:// instead of redis+cluster://",
                    field="store",
                )

    # --- several keys: by tenant -------------------------------------------------------------------------------

    async def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        async def got(some: Sequence[str]) -> list[bytes | None]:
            return await self._run_for_key(some[0], lambda pipe: [pipe.get(self._name("v", key)) for key in some])

        return await self._by_tenant(got, keys)

    async def entries_many(self, keys: Sequence[str]) -> list[dict[str, bytes]]:
        return await self._by_tenant(super().entries_many, keys)

    async def touch(self, keys: Sequence[str], ttl: float) -> None:
        async def touch_some(some: Sequence[str]) -> list[None]:
            await super(ClusterStore, self).touch(some, ttl)
            return [None] * len(some)

        await self._by_tenant(touch_some, keys)

    async def _by_tenant(self, ask: Callable[[Sequence[str]], Awaitable[list[T]]], keys: Sequence[str]) -> list[T]:
        """Split an operation on several keys by tenant; almost always there is only one."""
        groups = dict[str, list[str]]()
        for key in keys:
            groups.setdefault(_tag(key), []).append(key)
        answers = dict[str, T]()
        for some in groups.values():
            answers |= zip(some, await ask(some), strict=True)
        return [answers[key] for key in keys]

    # --- servers -----------------------------------------------------------------------------------------------

    def _name(self, space: str, key: str) -> bytes:
        return f"moonshim:{{{_tag(key)}}}:{space}:{key}".encode("utf-8", "surrogatepass")

    async def _server_for(self, key: str) -> RedisServer:
        if not self._slots:
            await self._look()
        slot = key_slot(self._name("v", key))
        for slots, server in self._slots:
            if slot in slots:
                return server
        raise ClusterDownError("no server serves this slot")

    async def _look(self) -> None:
        """Refresh the slot table, at most once in a while: ask the known servers one after the other."""
        async with self._looking:
            if self._slots and time.monotonic() - self._looked_at < _REFRESH_SECONDS:
                return
            if not self._server.circuit.lets_through():
                raise StoreUnavailable("Redis is not responding")
            rows: list[Any] | None = None
            try:
                rows = await self._ask_for_slots()
            finally:
                self._looked_at = time.monotonic()
                self._server.circuit.settle(answered=None if rows is None else True)

    async def _ask_for_slots(self) -> list[Any]:
        known = sorted((*self._nodes.values(), *self._start), key=lambda server: not server.circuit.is_closed)
        for server in known:
            with contextlib.suppress(RedisError, OSError):
                async with asyncio.timeout(self._patience / 3):
                    (rows,) = await server.run(lambda pipe: pipe.execute_command("CLUSTER", "SLOTS"), as_one=False)
                self._slots = [(range(row[0], row[1] + 1), self._node(_address(row[2], server))) for row in rows]
                used = [one for _, one in self._slots]
                for address in [address for address, one in self._nodes.items() if one not in used]:
                    await self._nodes.pop(address).close(self._patience)
                return list(rows)
        raise NotConnected("no server of the cluster responds")

    def _node(self, address: tuple[str, int]) -> RedisServer:
        if address not in self._nodes:
            self._nodes[address] = RedisServer(self._url, self._patience, self._rest, address)
        return self._nodes[address]

    async def _run_each(self, key: str, *builds: Callable[[Pipeline], Any]) -> list[list[Any]]:
        """One by one: while a slot is moved, its keys are on two servers, and a transaction on several is refused."""
        return [await self._run_for_key(key, build, as_one=True) for build in builds]

    async def _try(self, server: RedisServer, build: Callable[[Pipeline], Any], *, as_one: bool) -> list[Any]:
        try:
            return await super()._try(server, build, as_one=as_one)
        except MovedError:
            raise
        except AskError as error:  # the slot is being moved, and these keys are there already
            return await self._node((str(error.host), int(error.port))).run(build, as_one=as_one, asking=True)

    async def _may_pass(self, error: Exception) -> bool:
        if not isinstance(error, (AskError, ClusterDownError, TryAgainError)) and not await super()._may_pass(error):
            return False
        with contextlib.suppress(StoreUnavailable, NotConnected):
            await self._look()
        return True

    async def close(self) -> None:
        for server in {*self._start, *self._nodes.values()}:
            await server.close(self._patience)


def _start_urls(url: str) -> list[str]:
    parts = _ADDRESS.fullmatch(url)
    if parts is None:
        raise InvalidInput("not a valid Redis Cluster URL", field="store")
    scheme, user, servers, rest = parts.groups()
    return [f"{scheme}://{user}{server}{rest}" for server in servers.split(",")]


def _tag(key: str) -> str:
    return tenant_of(key).replace("}", "") or _NO_TENANT


def _address(row: list[Any], reporter: RedisServer) -> tuple[str, int]:
    """A server's address as reported by another one; without a name, it is the server that reported it."""
    return (row[0] or b"").decode() or str(reporter.options["host"]), int(row[1])
