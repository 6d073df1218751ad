"""A store that dies before, during and after a request: requests go on, and say what they lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from moonshim.config import GatewayKey
from moonshim.gateway.inbound.auth import new_key
from moonshim.store.redis import RedisStore
from tests.support.gateway.hosts import HostRequest, Peer, chunked_head, chunks, run
from tests.support.gateway.leaks import SETTLING, Scene, scene
from tests.support.gateway.raw_client import (
    CLIENTS,
    Json,
    answer_of,
    body_of,
    content_of,
    error_of,
    sending,
    short_stream,
)
from tests.support.redis_server import RedisServer, running_redis

GOOD: Final = sending(answer_of("openai_chat"))


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with running_redis() as one:
        yield one


@pytest.fixture
def redis(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisServer]:
    """A server that runs, and gateways that give it up soon. Afterwards it runs again."""
    monkeypatch.setattr(RedisStore.__init__, "__kwdefaults__", {"patience": 0.5, "rest": 0.05})
    server.empty()
    yield server
    server.stop()
    server.start()


def lost(one: Scene, what: str) -> float:
    """How often the metric says that the store could not do this."""
    name = b'moonshim_store_failures_total{operation="%b"} ' % what.encode()
    text: bytes = one.gateway.state.metrics.render()
    return float(text.partition(name)[2].partition(b"\n")[0] or 0)


def second_turn(client: str, *, stream: bool) -> Json:
    """What follows the answer of `GOOD`, from a client that has dropped what was thought."""
    body = body_of(client, stream=stream)
    calls = [(f"functions.ls:{n}", f'{{"n":{n}}}') for n in range(2)]
    match client:
        case "openai_chat":
            entries = [
                {"id": id, "type": "function", "function": {"name": "ls", "arguments": given}} for id, given in calls
            ]
            body["messages"].append({"role": "assistant", "content": "Hi.", "tool_calls": entries})
            body["messages"] += [{"role": "tool", "tool_call_id": id, "content": "x"} for id, _ in calls]
        case "anthropic":
            uses = [{"type": "tool_use", "id": id, "name": "ls", "input": json.loads(given)} for id, given in calls]
            results = [{"type": "tool_result", "tool_use_id": id, "content": "x"} for id, _ in calls]
            said = [{"type": "text", "text": "Hi."}, *uses]
            body["messages"] += [{"role": "assistant", "content": said}, {"role": "user", "content": results}]
        case _:
            text = [{"type": "output_text", "text": "Hi.", "annotations": []}]
            items: list[Json] = [{"role": "user", "content": "hi"}]
            items.append({"type": "message", "role": "assistant", "content": text})
            items += [{"type": "function_call", "call_id": id, "name": "ls", "arguments": given} for id, given in calls]
            items += [{"type": "function_call_output", "call_id": id, "output": "x"} for id, _ in calls]
            body["input"] = items
    return body


async def recalls(one: Scene, client: str, *, stream: bool = True) -> tuple[bool, str | None]:
    """Ask for a second turn: whether the host got the thought of the first, and what the header says was lost."""
    reply = await one.ask(client, second_turn(client, stream=stream))
    assert reply.status == 200, reply.body
    assert content_of(client, reply).text == "Hi."
    said = next(
        message for message in json.loads(one.host.requests[-1].body)["messages"] if message["role"] == "assistant"
    )
    return said.get("reasoning_content") == "Hm.", reply.headers.get("x-moonshim-lost")


def test_it_is_remembered_while_the_store_lives(redis: RedisServer) -> None:
    async def test() -> None:
        async with scene(GOOD, store=redis.url) as one:
            for client in CLIENTS:
                assert content_of(client, await one.ask(client, body_of(client))).text == "Hi."
                for stream in (True, False):
                    assert await recalls(one, client, stream=stream) == (True, None)

    run(test())


@pytest.mark.parametrize("way", ["stopped", "paused"])
def test_a_store_that_goes_away_costs_only_what_it_knew(redis: RedisServer, way: str) -> None:
    async def test() -> None:
        async with scene(GOOD, store=redis.url) as one:
            await one.ask("openai_chat", body_of("openai_chat"))
            assert await recalls(one, "openai_chat") == (True, None)
            redis.stop() if way == "stopped" else redis.pause()
            for client in CLIENTS:
                for stream in (True, False):
                    known, told = await recalls(one, client, stream=stream)
                    assert not known
                    # The headers of a stream may be out before its answer could not be remembered.
                    assert set((told or "").split(", ")) | {"remember"} == {"recall", "remember"}
                    assert one.records[-1].outcome == "ok"
            assert lost(one, "recall") == 6
            assert lost(one, "remember") == 6
            redis.start() if way == "stopped" else redis.go_on()
            while await recalls(one, "anthropic") != (True, None):  # it is left alone for a while
                await one.ask("anthropic", body_of("anthropic"))
            await one.settles()

    run(test())


def test_a_store_that_is_started_again_loses_nothing_that_was_being_written(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As long as this machine takes to start a server; a gateway waits for half a second and more.
    monkeypatch.setattr(RedisStore.__init__, "__kwdefaults__", {"patience": 60.0, "rest": 1.0})

    async def test() -> None:
        async with scene(GOOD, store=redis.url) as one:
            for client in CLIENTS:
                redis.stop()
                asking = asyncio.create_task(one.ask(client, body_of(client)))
                before = len(one.host.requests)
                await one.until(lambda before=before: len(one.host.requests) > before, "the host is asked")
                await asyncio.to_thread(redis.start)
                assert content_of(client, await asking).text == "Hi."
                assert await recalls(one, client) == (True, None)
            assert lost(one, "remember") == 0
            await one.settles()

    run(test())


def test_a_store_that_is_not_there_at_the_start_is_no_reason_not_to_serve(redis: RedisServer) -> None:
    async def test() -> None:
        redis.stop()
        async with scene(GOOD, store=redis.url) as one:
            for client in CLIENTS:
                reply = await one.ask(client, body_of(client, stream=False))
                assert reply.headers["x-moonshim-lost"] == "remember"
            redis.start()
            await asyncio.sleep(0.06)
            await one.ask("openai_chat", body_of("openai_chat"))
            assert await recalls(one, "openai_chat") == (True, None)
            await one.works()

    run(test())


@pytest.mark.parametrize("client", CLIENTS)
def test_a_store_may_die_in_the_middle_of_a_stream(redis: RedisServer, client: str) -> None:
    async def test() -> None:
        stream = short_stream("openai_chat")
        middle = stream.index(b"\n\n", stream.index(b"Hi.")) + 2
        died = asyncio.Event()

        async def pausing(peer: Peer, asked: HostRequest) -> None:
            await peer.send(chunked_head(headers=("content-type: text/event-stream", "connection: close")))
            await peer.send(chunks(stream[:middle], end=False))
            await died.wait()
            await peer.send(chunks(stream[middle:]))
            peer.writer.close()

        async with scene(pausing, store=redis.url) as one:
            async with one.connected() as connection:
                connection.send(client, body_of(client))
                await connection.head()
                await connection.until(lambda body: b"Hi." in body)
                redis.stop()
                died.set()
                said = content_of(client, await connection.rest())
            assert (said.text, len(said.calls), said.error) == ("Hi.", 2, None)
            assert lost(one, "remember") == 1
            await one.works(client)

    run(test())


def test_responses_that_need_the_store_say_so_and_the_others_are_answered(redis: RedisServer) -> None:
    async def test() -> None:
        async with scene(GOOD, store=redis.url) as one:
            first = await one.ask("openai_responses", body_of("openai_responses", stream=False, store=True))
            after = {"previous_response_id": first.json["id"], "store": True}
            for stream in (True, False):
                reply = await one.ask("openai_responses", body_of("openai_responses", stream=stream, **after))
                assert reply.status == 200
            redis.stop()
            calls = len(one.host.requests)
            for stream in (True, False):
                reply = await one.ask("openai_responses", body_of("openai_responses", stream=stream, **after))
                assert reply.status == 503
                assert reply.headers["retry-after"]
                assert reply.headers["x-moonshim-lost"] == "responses"
                error_of("openai_responses", reply.json)
            assert len(one.host.requests) == calls, "nobody is asked with half a conversation"
            reply = await one.ask("openai_responses", body_of("openai_responses", stream=False, store=True))
            assert (reply.status, reply.json["status"]) == (200, "completed")
            assert set(reply.headers["x-moonshim-lost"].split(", ")) == {"remember", "responses"}
            redis.start()  # and it has forgotten everything
            async with asyncio.timeout(SETTLING):
                while (reply := await one.ask("openai_responses", body_of("openai_responses", **after))).status == 503:
                    await asyncio.sleep(0.1)
            assert reply.status == 400
            assert error_of("openai_responses", reply.json)["code"] == "previous_response_not_found"
            await one.settles()

    run(test())


def with_key(**limits: Any) -> tuple[str, GatewayKey]:
    text, digest = new_key()
    return f"authorization: Bearer {text}\r\n", GatewayKey(name="ana", digest=digest, **limits)


def test_without_a_store_the_limits_of_a_key_hold_by_the_own_count(redis: RedisServer) -> None:
    header, key = with_key(requests_per_minute=2, tokens_per_minute=10_000, concurrent_streams=1)

    async def test() -> None:
        async with scene(GOOD, store=redis.url) as one:
            one.gateway.state.reload(replace(one.gateway.state.snapshot.config, keys=(key,)))
            for status in (200, 200, 429):
                assert (await one.ask("anthropic", body_of("anthropic"), headers=header)).status == status
            redis.stop()
            for client in CLIENTS:
                reply = await one.ask(client, body_of(client), headers=header)
                assert reply.status == 429
                assert "limits" in reply.headers["x-moonshim-lost"].split(", ")
            await one.settles()

    run(test())


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_a_place_among_the_streams_is_given_back_however_a_stream_ends(
    redis: RedisServer, kind: str, tmp_path: Path
) -> None:
    """A server tells a disconnect behind every answer, while the store is still being told."""
    header, key = with_key(concurrent_streams=1)
    store = redis.url if kind == "redis" else f"sqlite:{tmp_path}/state"

    async def test() -> None:
        async with scene(GOOD, store=store) as one:
            one.gateway.state.reload(replace(one.gateway.state.snapshot.config, keys=(key,)))
            for count in range(1, 6):
                reply = await one.ask("openai_chat", body_of("openai_chat"), headers=header)
                assert reply.status == 200, reply.body
                await one.until(lambda count=count: len(one.records) == count, "it does not end")
                assert one.records[-1].outcome == "ok"

            async def waiting(peer: Peer, asked: HostRequest) -> None:
                await peer.send(chunked_head() + chunks(short_stream("openai_chat")[:200], end=False))
                await peer.gone()

            one.play(waiting)
            async with one.connected() as connection:
                connection.send("openai_chat", body_of("openai_chat"), headers=header)
                await connection.head()
                refused = await one.ask("openai_chat", body_of("openai_chat"), headers=header)
                assert refused.status == 429
                connection.hang_up()
                await one.until(lambda: one.records[-1].outcome == "client_gone", "it is not noticed")
            one.play(GOOD)
            assert (await one.ask("openai_chat", body_of("openai_chat"), headers=header)).status == 200
            await one.settles()

    run(test())


def test_a_client_may_vanish_while_the_store_says_nothing(redis: RedisServer) -> None:
    async def test() -> None:
        async with scene(GOOD, store=redis.url) as one:
            await one.ask("anthropic", body_of("anthropic"))
            redis.pause()
            async with one.connected() as connection:
                connection.send("anthropic", second_turn("anthropic", stream=True))
                await one.until(lambda: one.open_requests() == 1, "nothing is asked")
                connection.hang_up()
            await one.settles()
            assert one.records[-1].outcome == "client_gone"
            assert len(one.host.requests) == 1
            redis.go_on()
            await asyncio.sleep(0.06)
            await one.works()

    run(test())


def test_a_client_that_vanishes_while_something_is_remembered_is_not_served_on(redis: RedisServer) -> None:
    """The client of Redis swallows a cancellation now and then: that must not keep an answer going for nobody."""

    async def test() -> None:
        async with scene(GOOD, store=redis.url) as one:
            state = one.gateway.state
            remember = state.reasoning_memory.remember

            async def swallowing(*given: Any) -> None:
                connection.hang_up()
                with suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()
                await remember(*given)

            state.reasoning_memory.remember = swallowing  # type: ignore[method-assign,assignment]
            async with one.connected() as connection:
                connection.send("anthropic", body_of("anthropic"))
                await one.until(lambda: bool(one.records), "it is not noticed")
            assert one.records[-1].outcome == "client_gone"
            await one.settles()

    run(test())
