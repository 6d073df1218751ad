"""Two gateways on one Redis Cluster: conversations go on at either, and a key has one limit for both."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import aiohttp
import pytest

from moonshim.config import GatewayKey
from moonshim.errors import InvalidInput
from moonshim.gateway.inbound.auth import new_key
from tests.support.gateway.hosts import Host, HostRequest, Peer, run, whole
from tests.support.gateway.running import MODEL, config_for, running
from tests.support.playing import Thought, chat_answer
from tests.support.redis_server import RedisCluster, running_cluster

ANSWER: Final = json.dumps(chat_answer(Thought({}), "Hello.", []).whole).encode()


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with running_cluster() as one:
        yield one


async def answers(peer: Peer, asked: HostRequest) -> None:
    await peer.send(whole(ANSWER))


def test_conversations_and_limits_are_shared_by_all_gateways_on_a_cluster(cluster: RedisCluster) -> None:
    made = {f"key {number}": new_key() for number in range(10)}
    keys = tuple(
        GatewayKey(name=name, digest=digest, requests_per_minute=3, concurrent_streams=1)
        for name, (_, digest) in made.items()
    )

    async def test() -> None:
        async with Host(answers) as host:
            config = config_for(host.url, keys=keys, store=cluster.url)
            async with running(config) as first, running(config) as second, aiohttp.ClientSession() as client:
                for server in (first, second):
                    server.state.limiter._clock = lambda: 600.0  # however long this takes, it is one minute

                async def respond(server: Any, key: str, **body: Any) -> tuple[int, Any]:
                    url, headers = f"{server.url}/v1/responses", {"x-api-key": key}
                    async with client.post(url, json={"model": MODEL, **body}, headers=headers) as answer:
                        assert "x-moonshim-lost" not in answer.headers
                        return answer.status, await answer.json()

                for name, (key, _) in made.items():
                    status, answer = await respond(first, key, input=f"I am {name}.")
                    assert status == 200
                    for server in (second, first):
                        status, answer = await respond(server, key, input="x", previous_response_id=answer["id"])
                        assert (status, f"I am {name}." in host.requests[-1].body.decode()) == (200, True)
                    assert (await respond(second, key, input="x"))[0] == 429

    run(test())


def test_a_gateway_does_not_start_on_a_node_of_a_cluster_as_if_it_were_alone(cluster: RedisCluster) -> None:
    async def test() -> None:
        async with Host(answers) as host:
            with pytest.raises(InvalidInput, match=r"redis\+cluster://HOST:PORT instead of redis://"):
                async with running(config_for(host.url, store=cluster.nodes[0].url)):
                    pass

    run(test())
