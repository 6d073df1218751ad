"""Reasoning that a client drops comes back: in memory, after a restart, from another gateway, and never by force."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from moonshim.config.model import Config, Secret
from moonshim.engine import reasoning_cache
from moonshim.engine.prepare import ParsedRequest, read_request
from moonshim.engine.reasoning_cache import CacheEntry
from moonshim.engine.values.conversation import Message, Reasoning, Text, ToolCall
from moonshim.gateway.memory.reasoning import ReasoningMemory
from moonshim.gateway.memory.secret import signing_secret
from moonshim.gateway.observe.record import RequestRecord
from moonshim.store import Store, open_store
from moonshim.store.memory import MemoryStore
from tests.support.redis_server import RedisCluster, RedisServer, running_cluster, running_redis

TTL: Final = 600.0
KINDS: Final = ("memory", "sqlite", "redis", "redis-cluster")


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with running_redis() as one:
        yield one


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with running_cluster() as one:
        yield one


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path, server: RedisServer) -> str:
    if request.param == "redis-cluster":
        cluster: RedisCluster = request.getfixturevalue("cluster")
        cluster.empty()
        return cluster.url
    server.empty()
    return {"memory": "memory:", "sqlite": f"sqlite:{tmp_path}/state.db", "redis": server.url}[request.param]


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    store = await open_store(url, memory_bytes=10_000_000)
    try:
        yield store
    finally:
        await store.close()


def record() -> RequestRecord:
    return RequestRecord(request_id="r", path="/v1/chat/completions", dialect="openai_chat")


ROUNDS: Final = [
    Message(
        "assistant", (Reasoning("First I look at the files."), ToolCall("hist_tool_1", "ls", '{"path": "."}', "c1"))
    ),
    Message(
        "assistant",
        (Reasoning("Two files; the second."), Text("Reading b."), ToolCall("hist_tool_2", "cat", "{}", "c2")),
    ),
    Message("assistant", (Reasoning("It is empty."), Text("The file is empty."))),
]
RESULTS: Final = ["a b", ""]


def body(rounds: int, question: str = "What is in b?") -> dict[str, Any]:
    """The conversation after so many rounds, as a client sends it that drops reasoning and makes its own ids."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": f"It is {rounds} o'clock."},
        {"role": "user", "content": question},
    ]
    for number, said in enumerate(ROUNDS[:rounds]):
        text = "".join(part.text for part in said.parts if isinstance(part, Text))
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        for part in said.parts:
            if isinstance(part, ToolCall):
                function = {"name": part.name, "arguments": part.arguments}
                message["tool_calls"] = [{"id": f"other_{number}", "type": "function", "function": function}]
        messages.append(message)
        if "tool_calls" in message:
            messages.append({"role": "tool", "tool_call_id": f"other_{number}", "content": RESULTS[number]})
        else:
            messages.append({"role": "user", "content": "And now?"})
    return {"model": "kimi-k2.5", "messages": messages}


def thoughts(rounds: int) -> list[str]:
    return [part.text for said in ROUNDS[:rounds] for part in said.parts if isinstance(part, Reasoning)]


def entry_for(asked: ParsedRequest, answer: Message) -> CacheEntry:
    entry = asked.cache_entry(answer)
    assert entry is not None
    return entry


async def one_round(memory_of: ReasoningMemory, tenant: str, number: int) -> list[str]:
    """Ask with what the client has left, answer, file the answer; what was recalled, in the order of the messages."""
    told = record()
    asked = read_request(body(number))
    found = await memory_of.recall(tenant, asked, told)
    await memory_of.remember(tenant, entry_for(asked, ROUNDS[number]), told)
    assert told.store_failures == []
    return [found[index].text for index in sorted(found)]


def test_three_rounds_get_back_all_that_was_thought(url: str) -> None:
    async def run() -> None:
        async with opened(url) as store:
            reasoning_memory = ReasoningMemory(store, TTL)
            for number in range(3):
                assert await one_round(reasoning_memory, "local", number) == thoughts(number)
            asked = read_request(body(3))
            found = await reasoning_memory.recall("local", asked, record())
            prepared = asked.prepare(host="moonshot", recalled=found)
            assert [found[index].text for index in sorted(found)] == thoughts(3)
            sent = [m["reasoning_content"] for m in prepared.body["messages"] if "tool_calls" in m]
            assert sent == thoughts(2)

    asyncio.run(run())


@pytest.mark.parametrize("url", ["sqlite", "redis", "redis-cluster"], indirect=True)
def test_another_gateway_and_one_that_was_restarted_know_it_too(url: str) -> None:
    async def run() -> None:
        for number in range(3):
            async with opened(url) as store:
                assert await one_round(ReasoningMemory(store, TTL), "local", number) == thoughts(number)
        async with opened(url) as one, opened(url) as other:
            assert len(await ReasoningMemory(one, TTL).recall("local", read_request(body(3)), record())) == 3
            assert len(await ReasoningMemory(other, TTL).recall("local", read_request(body(3)), record())) == 3

    asyncio.run(run())


def test_nobody_gets_the_thoughts_of_another_tenant_or_another_conversation(url: str) -> None:
    async def run() -> None:
        async with opened(url) as store:
            reasoning_memory = ReasoningMemory(store, TTL)
            for number in range(3):
                await one_round(reasoning_memory, "key:alice", number)
            for tenant in ("key:bob", "local", "key:alic", "key:alice:"):
                assert await reasoning_memory.recall(tenant, read_request(body(3)), record()) == {}
            asked = read_request(body(3, question="Something else?"))
            assert await reasoning_memory.recall("key:alice", asked, record()) == {}

    asyncio.run(run())


def test_a_request_that_lost_nothing_asks_no_store() -> None:
    async def run() -> None:
        store = MemoryStore(100_000)
        asked = read_request({"model": "kimi-k2.5", "messages": [{"role": "user", "content": "hi"}]})
        store.entries_many = None  # type: ignore[method-assign,assignment]  # whoever calls it fails
        assert await ReasoningMemory(store, TTL).recall("local", asked, record()) == {}

    asyncio.run(run())


class _Slow(MemoryStore):
    """Writes only when it is told to."""

    def __init__(self) -> None:
        super().__init__(1_000_000)
        self.may_write = asyncio.Event()

    async def put_entry(self, key: str, field: str, value: bytes, ttl: float | None) -> None:
        await self.may_write.wait()
        await super().put_entry(key, field, value, ttl)


def test_a_client_that_asks_before_the_last_answer_is_filed_gets_it_all_the_same() -> None:
    async def run() -> None:
        store = _Slow()
        reasoning_memory = ReasoningMemory(store, TTL)
        entry = asyncio.ensure_future(
            reasoning_memory.remember("local", entry_for(read_request(body(0)), ROUNDS[0]), record())
        )
        await asyncio.sleep(0)
        recalling = asyncio.ensure_future(reasoning_memory.recall("local", read_request(body(1)), record()))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not recalling.done()
        store.may_write.set()
        assert [thought.text for thought in (await recalling).values()] == thoughts(1)
        await entry

    asyncio.run(run())


def test_a_filing_that_is_cancelled_holds_nobody() -> None:
    async def run() -> None:
        reasoning_memory = ReasoningMemory(_Slow(), TTL)
        entry = asyncio.ensure_future(
            reasoning_memory.remember("local", entry_for(read_request(body(0)), ROUNDS[0]), record())
        )
        await asyncio.sleep(0)
        entry.cancel()
        await asyncio.wait([entry])
        assert await reasoning_memory.recall("local", read_request(body(1)), record()) == {}

    asyncio.run(run())


def test_when_the_store_is_down_the_request_goes_on_and_says_what_it_lost() -> None:
    async def run(server: RedisServer) -> None:
        async with opened(server.url) as store:
            reasoning_memory = ReasoningMemory(store, TTL)
            await one_round(reasoning_memory, "local", 0)
            server.stop()
            told, asked = record(), read_request(body(1))
            assert await reasoning_memory.recall("local", asked, told) == {}
            await reasoning_memory.remember("local", entry_for(asked, ROUNDS[1]), told)
            assert told.store_failures == ["recall", "remember"]

    with running_redis() as server:
        asyncio.run(run(server))


def test_of_a_very_long_conversation_the_newest_are_recalled_and_the_oldest_given_up_in_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moonshim.gateway.memory.reasoning.MAX_LOST_TURNS", 10)
    monkeypatch.setattr(reasoning_cache, "_TURNS_DROPPED_AT_ONCE", 4)
    monkeypatch.setattr(reasoning_cache, "_KEYS_PER_BATCH", 3)

    async def run() -> None:
        reasoning_memory = ReasoningMemory(MemoryStore(10_000_000), TTL)
        messages: list[dict[str, Any]] = [{"role": "user", "content": "0"}]
        firsts = []
        for number in range(20):
            asked = read_request({"model": "kimi-k2.5", "messages": messages})
            found = await reasoning_memory.recall("local", asked, record())
            assert len(found) == min(number, 10 if number <= 10 else number - (number - 10 + 3) // 4 * 4)
            firsts.append(min(found, default=0))
            assert all(found[index].text == f"thought {index // 2}" for index in found)
            answer = Message("assistant", (Reasoning(f"thought {number}"), Text(f"answer {number}")))
            await reasoning_memory.remember("local", entry_for(asked, answer), record())
            messages += [
                {"role": "assistant", "content": f"answer {number}"},
                {"role": "user", "content": f"{number + 1}"},
            ]
        assert len(set(firsts)) == 5  # the beginning moved four times, not ten

    asyncio.run(run())


# --- the secret -------------------------------------------------------------------------------------------------


def test_all_who_share_a_store_sign_with_the_same_secret_also_later(url: str) -> None:
    async def run() -> None:
        async with opened(url) as one:
            first = await signing_secret(one, Config())
            assert await signing_secret(one, Config()) == first
            assert len(first) == 32
        if not url.startswith("memory"):
            async with opened(url) as other:
                assert await signing_secret(other, Config()) == first

    asyncio.run(run())


def test_a_configured_secret_is_taken_and_not_stored() -> None:
    async def run() -> None:
        store = MemoryStore(100_000)
        assert await signing_secret(store, Config(secret=Secret("configured"))) == b"configured"
        assert store.size == 0

    asyncio.run(run())


def test_without_its_store_a_gateway_signs_with_a_secret_of_its_own() -> None:
    async def run(server: RedisServer) -> None:
        async with opened(server.url) as store:
            server.stop()
            made = [await signing_secret(store, Config()) for _ in range(2)]
            assert len(made[0]) == 32
            assert made[0] != made[1]

    with running_redis() as server:
        asyncio.run(run(server))
