"""Limits hold before the work is done: nobody over a limit makes the gateway read, hold or parse anything."""

from __future__ import annotations

import asyncio
import gc
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from threading import Event
from typing import Any, Final

import aiohttp

from moonshim.config import GatewayKey, Limits
from moonshim.gateway.inbound.admission import LargeWork
from moonshim.gateway.inbound.auth import new_key
from tests.support.gateway.hosts import Host, HostRequest, Peer, run, whole
from tests.support.gateway.running import MODEL, Running, config_for, running
from tests.support.playing import Thought, chat_answer

ANSWER: Final = json.dumps(chat_answer(Thought({}), "Hello.", []).whole).encode()
MIB: Final = 1024 * 1024
SMALL: Final[dict[str, Any]] = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}


async def answers(peer: Peer, asked: HostRequest) -> None:
    await peer.send(whole(ANSWER))


@asynccontextmanager
async def gateway(limits: Limits, **of_key: Any) -> AsyncIterator[tuple[Running, str, str]]:
    """A gateway with two keys: one with these limits, one with none."""
    (limited, digest), (free, other) = new_key(), new_key()
    keys = GatewayKey(name="limited", digest=digest, **of_key), GatewayKey(name="free", digest=other)
    async with Host(answers) as host, running(config_for(host.url, keys=keys, limits=limits)) as server:
        yield server, limited, free


async def upload(
    server: Running, key: str, size: int, path: str = "/v1/chat/completions"
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Begin a request that announces `size` bytes, and send its headers alone."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nx-api-key: {key}\r\ncontent-length: {size}\r\n\r\n"
    writer.write(head.encode())
    return reader, writer


async def unfinished(server: Running, key: str) -> asyncio.StreamWriter:
    """A request of one MiB whose last bytes do not come; it holds the rest."""
    _, writer = await upload(server, key, MIB)
    writer.write(b"x" * (MIB - 10))
    await writer.drain()
    while server.state.body_memory.total < MIB - 10:
        await asyncio.sleep(0.001)
    return writer


async def status(reader: asyncio.StreamReader) -> int:
    return int((await reader.readline()).split()[1])


async def post(client: aiohttp.ClientSession, key: str, body: bytes, path: str = "/v1/chat/completions") -> Any:
    headers = {"x-api-key": key, "content-type": "application/json"}
    async with client.post(path, data=io.BytesIO(body), headers=headers) as answer:
        return answer.status, answer.headers, await answer.json()


def test_a_key_over_its_rate_is_refused_before_its_body_is_sent() -> None:
    async def test() -> None:
        async with gateway(Limits(), requests_per_minute=1) as (server, limited, _):
            async with aiohttp.ClientSession(server.url) as client:
                assert (await post(client, limited, json.dumps(SMALL).encode()))[0] == 200
            for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/messages/count_tokens"):
                reader, writer = await upload(server, limited, 60 * MIB, path)
                assert await status(reader) == 429  # and not a byte of the body was sent
                writer.close()

    run(test())


def test_a_client_that_goes_on_asking_over_its_limit_is_answered_less_often() -> None:
    async def test() -> None:
        async with (
            gateway(Limits(), requests_per_minute=1) as (server, limited, free),
            aiohttp.ClientSession(server.url) as client,
        ):
            begun = asyncio.get_running_loop().time()
            body = json.dumps(SMALL).encode()
            answered = await asyncio.gather(*(post(client, limited, body) for _ in range(80)))
            assert sorted(status for status, _, _ in answered) == [200] + [429] * 79
            assert asyncio.get_running_loop().time() - begun > 0.5  # fifty at once, and fifty a second
            assert (await post(client, free, body))[0] == 200

    run(test())


def test_the_memory_of_a_large_request_does_not_wait_for_the_garbage_collector() -> None:
    accepted = {"model": MODEL, "messages": [{"role": "user", "content": "x" * 10}] * 20_000}
    refused = {"model": MODEL, "messages": [{"role": "user", "content": "x"}] * 80_000}

    async def test() -> None:
        async with gateway(Limits()) as (server, limited, _), aiohttp.ClientSession(server.url) as client:
            gc.unfreeze()
            gc.collect()  # the garbage of earlier tests is not of these requests
            gc.set_debug(gc.DEBUG_SAVEALL)
            try:
                for body, expected in ((accepted, 200), (refused, 413)):
                    assert (await post(client, limited, json.dumps(body).encode()))[0] == expected
                while server.state.body_memory.total:
                    await asyncio.sleep(0.001)
                gc.unfreeze()
                gc.collect()
                assert [one for one in gc.garbage if isinstance(one, list | tuple | dict) and len(one) > 1000] == []
            finally:
                gc.set_debug(0)
                gc.garbage.clear()
                gc.freeze()

    run(test())


def test_reading_stored_responses_counts_against_the_limits_of_a_key() -> None:
    async def test() -> None:
        async with (
            gateway(Limits(), requests_per_minute=3) as (server, limited, _),
            aiohttp.ClientSession(server.url, headers={"x-api-key": limited}) as client,
        ):
            async with client.post("/v1/responses", json={"model": MODEL, "input": "hi"}) as answer:
                id = (await answer.json())["id"]
            statuses = []
            for path in (f"/v1/responses/{id}/input_items", f"/v1/responses/{id}", f"/v1/responses/{id}/input_items"):
                async with client.get(path) as answer:
                    statuses.append(answer.status)
            assert statuses == [200, 200, 429]
            async with client.get("/v1/models") as answer:  # which clients ask for at any time
                assert answer.status == 200

    run(test())


def test_unfinished_uploads_of_one_key_hold_a_bounded_number_of_bytes() -> None:
    limits = Limits(body_bytes=MIB, key_bytes_in_flight=MIB, bytes_in_flight=8 * MIB, queue_seconds=0.1)

    async def test() -> None:
        async with gateway(limits) as (server, limited, free), aiohttp.ClientSession(server.url) as client:
            writer = await unfinished(server, limited)
            body = json.dumps(SMALL).encode()
            told, headers, error = await post(client, limited, body)
            assert (told, headers["retry-after"]) == (503, "2")
            assert "Retry in a moment" in error["error"]["message"]
            assert (await post(client, free, body))[0] == 200
            writer.close()
            while server.state.body_memory.total:
                await asyncio.sleep(0.001)
            assert (await post(client, limited, body))[0] == 200

    run(test())


def test_parallel_uploads_of_one_key_take_turns_instead_of_waiting_for_each_other() -> None:
    limits = Limits(body_bytes=MIB, key_bytes_in_flight=MIB, bytes_in_flight=8 * MIB, queue_seconds=600)
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "x" * (MIB - 1000)}]}).encode()

    async def test() -> None:
        async with gateway(limits) as (server, limited, _), aiohttp.ClientSession(server.url) as client:
            answered = await asyncio.gather(*(post(client, limited, body) for _ in range(6)))
            assert [status for status, _, _ in answered] == [200] * 6

    run(test())


def test_a_request_that_waits_for_memory_goes_on_when_there_is_some() -> None:
    limits = Limits(body_bytes=MIB, key_bytes_in_flight=MIB, bytes_in_flight=MIB, queue_seconds=600)

    async def test() -> None:
        async with gateway(limits) as (server, limited, free), aiohttp.ClientSession(server.url) as client:
            writer = await unfinished(server, limited)
            waiting = asyncio.ensure_future(post(client, free, json.dumps(SMALL).encode()))
            done, _ = await asyncio.wait([waiting], timeout=0.05)
            assert not done
            writer.close()
            assert (await waiting)[0] == 200

    run(test())


def test_a_body_of_very_many_small_values_is_refused() -> None:
    """They take thirty times their size in memory, and seconds of work."""
    items = [{"role": "user", "content": "x"}] * 20_000

    async def test() -> None:
        async with (
            gateway(Limits(body_values=65_000)) as (server, _, free),
            aiohttp.ClientSession(server.url) as client,
        ):
            body: dict[str, Any] = {"model": MODEL, "input": items}
            told, _, _ = await post(client, free, json.dumps(body).encode(), "/v1/responses")
            assert told == 200  # 60,000 values and a few more
            twice = json.dumps({"model": MODEL, "input": items * 2}).encode()
            told, _, error = await post(client, free, twice, "/v1/responses")
            assert (told, "65,000 JSON values" in error["error"]["message"]) == (413, True)

    run(test())


def test_a_large_conversation_goes_on_from_the_store() -> None:
    """What was stored is decoded and resolved in a thread, with the same result as a small one."""
    count = 60_000  # as many as a body may have
    items = [{"role": "user", "content": f"message {number}"} for number in range(count)]

    async def test() -> None:
        (text, digest) = new_key()
        async with (
            Host(answers) as host,
            running(config_for(host.url, keys=(GatewayKey(name="one", digest=digest),))) as server,
            aiohttp.ClientSession(server.url) as client,
        ):
            first = {"model": MODEL, "input": items}
            _, _, stored = await post(client, text, json.dumps(first).encode(), "/v1/responses")
            more = {"model": MODEL, "input": "and now?", "previous_response_id": stored["id"]}
            told, _, _ = await post(client, text, json.dumps(more).encode(), "/v1/responses")
            assert told == 200
            sent = json.loads(host.requests[1].body)["messages"]
            assert [message["content"] for message in sent[:count]] == [item["content"] for item in items]
            assert [message["content"] for message in sent[count:]] == ["Hello.", "and now?"]
            headers = {"x-api-key": text}
            async with client.get(f"/v1/responses/{stored['id']}/input_items?limit=2", headers=headers) as answer:
                page = await answer.json()
            assert [item["content"][0]["text"] for item in page["data"]] == [
                item["content"] for item in reversed(items[-2:])
            ]

    run(test())


def test_a_conversation_that_can_never_fit_is_refused_at_once() -> None:
    limits = Limits(body_bytes=MIB, key_bytes_in_flight=MIB, queue_seconds=600)

    async def test() -> None:
        async with gateway(limits) as (server, limited, _), aiohttp.ClientSession(server.url) as client:
            body: dict[str, Any] = {"model": MODEL, "input": "x" * 600_000}
            _, _, answer = await post(client, limited, json.dumps(body).encode(), "/v1/responses")
            body["previous_response_id"] = answer["id"]
            told, headers, error = await post(client, limited, json.dumps(body).encode(), "/v1/responses")
            assert (told, headers["x-should-retry"]) == (413, "false")
            assert "conversation" in error["error"]["message"]

    run(test())


def test_large_requests_of_one_tenant_take_turns_and_leave_one_for_others() -> None:
    async def test() -> None:
        work, limits, release = LargeWork(), Limits(queue_seconds=600), Event()
        loop, started = asyncio.get_running_loop(), asyncio.Event()
        begun: list[str] = []

        def hold(name: str) -> str:
            begun.append(name)
            loop.call_soon_threadsafe(started.set)
            release.wait(60)
            return name

        first = [asyncio.ensure_future(work.run("one", limits, hold, name)) for name in ("a", "b", "c")]
        await started.wait()
        assert await work.run("two", limits, str, "other") == "other"
        assert begun == ["a"]
        first[1].cancel()  # its client went away before its turn
        release.set()
        assert [await first[0], await first[2]] == ["a", "c"]
        assert begun == ["a", "c"]
        work.close()

    asyncio.run(test())
