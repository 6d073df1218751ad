"""The store in a Redis Cluster of three servers: where keys are, slots that move, and a server that is down."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from redis import Redis
from redis.crc import key_slot

from moonshim.errors import InvalidInput
from moonshim.store import Store, StoreUnavailable, open_store
from moonshim.store.redis_cluster import ClusterStore
from tests.store.opened import until
from tests.support.redis_server import RedisCluster, RedisServer, running_cluster

TENANTS = [f"{number:024x}" for number in range(20)]


@pytest.fixture
def cluster() -> Iterator[RedisCluster]:
    """One that the test may change."""
    with running_cluster() as one:
        yield one


async def write(store: Store, tenant: str) -> None:
    await store.put(f"turn:{tenant}:1", b"1", 60)
    await store.put(f"response:{tenant}:1", b"2", 60)
    await store.put_entry(f"recall:{tenant}:key", "field", b"3", 60)
    await store.add(f"limits:{tenant}:requests", 4, 60)
    await store.lease(f"limits:{tenant}:streams", "me", 1, 60)


async def assert_all_there(store: Store, tenant: str) -> None:
    assert await store.get_many([f"turn:{tenant}:1", f"response:{tenant}:1"]) == [b"1", b"2"]
    assert await store.entries_many([f"recall:{tenant}:key", f"recall:{tenant}:no"]) == [{"field": b"3"}, {}]
    assert await store.add(f"limits:{tenant}:requests", 0, 60) == 4
    assert not await store.lease(f"limits:{tenant}:streams", "you", 1, 60)


def keys_of(node: RedisServer) -> list[bytes]:
    with Redis(port=node.port) as client:
        return list(client.scan_iter())


def test_all_keys_of_a_tenant_have_one_slot_and_tenants_are_spread(redis_cluster: RedisCluster) -> None:
    redis_cluster.empty()

    async def run() -> None:
        store = await open_store(redis_cluster.url, memory_bytes=1)
        for tenant in TENANTS:
            await write(store, tenant)
        for tenant in TENANTS:
            await assert_all_there(store, tenant)
        await store.touch([f"turn:{tenant}:1" for tenant in TENANTS], 600)
        assert None not in await store.get_many([f"turn:{tenant}:1" for tenant in TENANTS])
        await store.close()

    asyncio.run(run())
    keys = [keys_of(node) for node in redis_cluster.nodes]
    assert all(keys)
    for tenant in TENANTS:
        own = [key for some in keys for key in some if tenant.encode() in key]
        assert len(own) == 7
        assert len({key_slot(key) for key in own}) == 1


def test_an_address_of_the_other_kind_is_refused_with_the_right_one(
    redis_server: RedisServer, redis_cluster: RedisCluster
) -> None:
    async def run() -> None:
        with pytest.raises(InvalidInput, match=r"redis\+cluster://"):
            await open_store(redis_cluster.nodes[1].url, memory_bytes=1)
        with pytest.raises(InvalidInput, match="not a node of a Redis Cluster"):
            await open_store(redis_server.url.replace("redis:", "redis+cluster:"), memory_bytes=1)
        with pytest.raises(InvalidInput, match="no numbered databases"):
            await open_store(f"{redis_cluster.url}/3", memory_bytes=1)

    asyncio.run(run())


def test_several_servers_may_be_named_and_one_of_them_may_be_down(redis_cluster: RedisCluster) -> None:
    async def run() -> None:
        ports = [1, *(node.port for node in redis_cluster.nodes)]
        store = await open_store("redis+cluster://" + ",".join(f"127.0.0.1:{port}" for port in ports), memory_bytes=1)
        await store.put("turn:a:1", b"x", 60)
        assert await store.get("turn:a:1") == b"x"
        await store.close()

    asyncio.run(run())


def test_a_slot_may_be_moved_while_it_is_used(cluster: RedisCluster) -> None:
    tenant = TENANTS[0]
    slot = key_slot(f"{{{tenant}}}".encode())

    async def run() -> None:
        store = await open_store(cluster.url, memory_bytes=1)
        await write(store, tenant)
        (old,) = (node for node in cluster.nodes if any(tenant.encode() in key for key in keys_of(node)))
        new = next(node for node in cluster.nodes if node is not old)
        names = {node: cluster.run(node, "CLUSTER", "MYID").decode() for node in cluster.nodes}
        cluster.run(new, "CLUSTER", "SETSLOT", slot, "IMPORTING", names[old])
        cluster.run(old, "CLUSTER", "SETSLOT", slot, "MIGRATING", names[new])
        for key in keys_of(old):  # of no other tenant
            cluster.run(old, "MIGRATE", "127.0.0.1", new.port, key, 0, 5000)
        # The keys are there already, and the slot is not: the server says so for each command.
        await assert_all_there(store, tenant)
        assert await store.get_many([f"turn:{tenant}:1", f"turn:{tenant}:9"]) == [b"1", None]
        await store.put(f"turn:{tenant}:2", b"during", 60)
        await store.put(f"turn:{tenant}:3", b"gone", 60)
        assert await store.delete(f"turn:{tenant}:3")
        for node in (new, old, *cluster.nodes):
            cluster.run(node, "CLUSTER", "SETSLOT", slot, "NODE", names[new])
        await assert_all_there(store, tenant)
        assert await store.get(f"turn:{tenant}:2") == b"during"
        await store.close()

    asyncio.run(run())


def test_a_server_that_is_down_costs_only_its_tenants(cluster: RedisCluster) -> None:
    for node in cluster.nodes:  # or else all of them stop when one does
        cluster.run(node, "CONFIG", "SET", "cluster-require-full-coverage", "no")

    async def run() -> None:
        store = ClusterStore(cluster.url, patience=0.5, rest=0.05)
        for tenant in TENANTS:
            await write(store, tenant)
        lost = {key.split(b"}")[0].split(b"{")[1].decode() for key in keys_of(cluster.nodes[0])}
        assert 0 < len(lost) < len(TENANTS)
        cluster.nodes[0].stop()
        for tenant in TENANTS:
            if tenant in lost:
                with pytest.raises(StoreUnavailable):
                    await store.get(f"turn:{tenant}:1")
            else:
                await assert_all_there(store, tenant)
        cluster.nodes[0].start("--cluster-enabled", "yes", "--cluster-config-file", cluster.nodes[0].cluster_file)

        async def works() -> bool:
            try:
                await store.put(f"turn:{min(lost)}:1", b"again", 60)
            except StoreUnavailable:
                return False
            return True

        await until(works)
        await store.close()

    asyncio.run(run())
