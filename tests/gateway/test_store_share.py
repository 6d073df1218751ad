"""One key that fills the store takes nothing from other keys: not their conversations, and not their limits."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import aiohttp
from redis import Redis

from moonshim.config import Budget, GatewayKey, UsageBooks
from moonshim.gateway.inbound.auth import new_key
from tests.support.gateway.hosts import Host, HostRequest, Peer, run, whole
from tests.support.gateway.running import MODEL, config_for, running
from tests.support.playing import Thought, chat_answer
from tests.support.redis_server import RedisServer, running_redis

KIB: Final = 1024


async def answers(peer: Peer, asked: HostRequest) -> None:
    number = f"chatcmpl-{hash(asked.body) % 10**9}"
    await peer.send(whole(json.dumps(chat_answer(Thought({}), "Hello.", []).whole | {"id": number}).encode()))


async def fill_the_store(**given: Any) -> None:
    """Two keys; one of them stores 3.2 MiB while the store may hold 1.5."""
    (flooding, flooding_digest), (quiet, quiet_digest) = new_key(), new_key()
    keys = (
        GatewayKey(name="flooding", digest=flooding_digest, requests_per_minute=17),
        GatewayKey(name="quiet", digest=quiet_digest, requests_per_minute=3),
    )
    async with (
        Host(answers) as host,
        running(config_for(host.url, keys=keys, **given)) as server,
        aiohttp.ClientSession(server.url) as client,
    ):

        async def respond(key: str, **body: Any) -> tuple[int, Any]:
            headers = {"x-api-key": key}
            async with client.post("/v1/responses", json={"model": MODEL, **body}, headers=headers) as answer:
                assert "x-moonshim-lost" not in answer.headers
                return answer.status, await answer.json()

        server.state.limiter._clock = lambda: 600.0  # however long this takes, it is one minute
        _, first = await respond(quiet, input="Remember this.")
        for number in range(16):
            status, last = await respond(flooding, input=f"{number}" + "x" * 200 * KIB)
            assert status == 200
        assert (await respond(flooding, input="again", previous_response_id=last["id"]))[0] == 200
        assert [(await respond(quiet, input="More.", previous_response_id=first["id"]))[0] for _ in range(3)] == [
            200,
            200,
            429,
        ]
        assert (await respond(flooding, input="one more"))[0] == 429


def test_a_key_that_fills_the_memory_takes_nothing_from_other_keys() -> None:
    run(fill_the_store(store="memory:", memory_bytes=1500 * KIB))


def test_a_key_that_fills_the_sqlite_file_takes_nothing_from_other_keys(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    run(fill_the_store(store=f"sqlite:{path}", sqlite_bytes=1500 * KIB))
    assert path.stat().st_size < 2000 * KIB


def test_a_key_that_fills_its_part_of_redis_takes_nothing_from_other_keys() -> None:
    with running_redis() as redis:
        run(fill_the_store(store=redis.url, redis_key_bytes=1500 * KIB))


def test_a_redis_that_is_full_opens_no_limit_and_no_budget(tmp_path: Path) -> None:
    """It deletes nothing and takes nothing: each process goes on with its own count."""
    # Not the books of other tests: what a key with this name used in them would count as well.
    books = UsageBooks(file=str(tmp_path / "usage.db"))
    text, digest = new_key()
    key = GatewayKey(
        name="ci",
        digest=digest,
        requests_per_minute=30,
        concurrent_streams=2,
        budgets=(Budget(period="day", tokens=1000),),
    )

    async def test(redis: RedisServer) -> None:
        release = asyncio.Event()

        async def answer(peer: Peer, asked: HostRequest) -> None:
            if b"Wait." in asked.body:
                await release.wait()
            await answers(peer, asked)

        async with (
            Host(answer) as host,
            running(config_for(host.url, keys=(key,), store=redis.url, usage=books)) as server,
            aiohttp.ClientSession(server.url) as client,
        ):

            async def respond(text: str, key: str = text) -> tuple[int, str]:
                body = {"model": MODEL, "input": text, "max_output_tokens": 10}
                async with client.post("/v1/responses", json=body, headers={"x-api-key": key}) as answer:
                    return answer.status, answer.headers.get("x-moonshim-lost", "")

            assert await respond("Hello.") == (200, "")
            with Redis(port=redis.port) as admin:
                admin.config_set("maxmemory", 1)
            waiting = [asyncio.create_task(respond("Wait.")) for _ in range(8)]
            while sum(task.done() for task in waiting) < 6:
                await asyncio.sleep(0.01)
            release.set()
            ended = await asyncio.gather(*waiting)
            assert sorted(status for status, _ in ended) == [200] * 2 + [429] * 6
            assert all("limits" in lost for _, lost in ended)
            statuses = []
            for _ in range(12):
                status, lost = await respond("More.")
                statuses.append(status)
                assert "budgets" in lost
            # A response has 116 tokens: 9 of them reach the budget, and 3 were there before.
            assert statuses == [200] * 6 + [429] * 6

    with running_redis("--maxmemory-policy", "noeviction") as redis:
        run(test(redis))
