"""Addresses of stores, right and wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from moonshim.errors import InvalidInput
from moonshim.store import open_store, store_kind

RIGHT = {
    "memory:": "memory",
    "memory://": "memory",
    "sqlite:moonshim.db": "sqlite",
    "sqlite:/var/lib/moonshim/state.db": "sqlite",
    "sqlite:///var/lib/moonshim/state.db": "sqlite",
    "sqlite:~/state.db": "sqlite",
    "redis://localhost": "redis",
    "REDIS://:pass@localhost:6380/2": "redis",
    "rediss://user:pass@cache.example:6380/0": "redis",
    "valkey://localhost:6379": "redis",
    "unix:///run/redis.sock?db=1": "redis",
}
WRONG = {
    "": "unknown store",
    "memory": "unknown store",
    "postgres://u:hush@h/db": "unknown store",
    "memory:/tmp/file": "unexpected text after 'memory:'",
    "sqlite:": "missing file path",
    "sqlite::memory:": "missing file path",
    "sqlite://state.db": "third slash",
    "redis:localhost": "missing // after 'redis:'",
}


@pytest.mark.parametrize(("url", "kind"), RIGHT.items(), ids=RIGHT.keys())
def test_an_address_names_its_store(url: str, kind: str) -> None:
    assert store_kind(url) == kind


@pytest.mark.parametrize(("url", "says"), WRONG.items(), ids=WRONG.keys())
def test_a_wrong_address_is_told_without_repeating_it(url: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says) as told:
        asyncio.run(open_store(url, memory_bytes=1000))
    assert "hush" not in str(told.value)
    assert told.value.field == "store"


def test_a_port_that_is_none_is_told_without_the_password() -> None:
    with pytest.raises(InvalidInput) as told:
        asyncio.run(open_store("redis://:hush@localhost:port/0", memory_bytes=1000))
    assert "hush" not in str(told.value)


def test_a_path_with_three_slashes_is_absolute(tmp_path: Path) -> None:
    async def run() -> None:
        await (await open_store(f"sqlite://{tmp_path}/here.db", memory_bytes=1)).close()

    asyncio.run(run())
    assert (tmp_path / "here.db").is_file()
