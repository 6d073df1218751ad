"""One Redis server for the tests of a worker, and a way to run a test with any store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from moonshim.store.redis import RedisStore
from tests.store.opened import KINDS, Opened, opened
from tests.support.redis_server import RedisCluster, RedisServer, running_cluster, running_redis


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    with running_redis() as server:
        yield server


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[RedisCluster]:
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture(params=KINDS)
def with_store(
    request: pytest.FixtureRequest, tmp_path: Path, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[Opened], Awaitable[None]]], None]:
    """Runs an async test with a fresh store of every kind, which waits for its server on a busy machine."""
    monkeypatch.setattr(RedisStore.__init__, "__kwdefaults__", {"patience": 60.0, "rest": 1.0})

    def run(test: Callable[[Opened], Awaitable[None]]) -> None:
        async def whole() -> None:
            async with opened(request.param, tmp_path, server) as one:
                await test(one)

        server: RedisServer | RedisCluster = redis_server
        if request.param == "redis-cluster":
            server = request.getfixturevalue("redis_cluster")
        if request.param.startswith("redis"):
            server.empty()
        asyncio.run(whole())

    return run
