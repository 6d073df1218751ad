"""A gateway before hosts that cache prompts as real ones do: a lost prefix is explained, and nothing else is."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from msgspec.structs import replace

from moonshim.config import Config, ProviderConfig, Retries, Secret
from moonshim.config.kimi_login import LoginKey
from moonshim.gateway.observe import logs
from moonshim.gateway.observe.log_lines import fields_of, human_line
from moonshim.gateway.observe.record import RequestRecord
from moonshim.store import StoreUnavailable
from tests.support.gateway.agent_models import Agent, ClaudeCode, Codex, KimiCode, Opencode, QwenCode, Wire
from tests.support.gateway.hosts import Host, HostRequest, Peer, run, whole
from tests.support.gateway.running import Running, config_for, running
from tests.support.gateway.strict_hosts import send_answer
from tests.support.playing import Answer, Call, Thought, chat_answer
from tests.support.redis_server import RedisServer, running_redis
from tests.support.streams import chunk

Json = dict[str, Any]
MODEL: Final = "kimi-k3"
CHUNK: Final = 256
DROPPED: Final = "no change found: the host dropped it"


class CachingHost(Host):
    """Reads what it has seen before from its cache, in chunks of 256 tokens of four characters."""

    def __init__(self, *, tells: bool = True, calls: bool = False) -> None:
        super().__init__(self._answer)
        self.cache: set[bytes] = set()
        self.tells, self.calls, self.fails = tells, calls, False
        self.refuses: str | None = None

    async def _answer(self, peer: Peer, asked: HostRequest) -> None:
        body = json.loads(asked.body)
        if asked.headers.get("authorization") == self.refuses:
            await peer.send(whole(b'{"error": {"message": "invalid key"}}', status="401 Unauthorized"))
            return
        if self.fails:
            await peer.send(whole(b'{"error": {"message": "oops"}}', status="500 Internal Server Error"))
            return
        order = ("model", "tools", "chat_template_kwargs", "messages")
        prompt = json.dumps([body.get(name) for name in order]).encode()
        digest, prefixes = sha256(), list[bytes]()
        for at in range(0, len(prompt) - 4 * CHUNK, 4 * CHUNK):
            digest.update(prompt[at : at + 4 * CHUNK])
            prefixes.append(digest.digest())
        known = sum(prefix in self.cache for prefix in prefixes)
        self.cache |= set(prefixes)
        usage: Json = {"prompt_tokens": len(prompt) // 4, "completion_tokens": 2, "total_tokens": len(prompt) // 4 + 2}
        usage |= {"prompt_tokens_details": {"cached_tokens": known * CHUNK}} if self.tells else {}
        declared = [one["function"]["name"] for one in body.get("tools", ())] if self.calls else []
        number = len(body["messages"])
        calls = [Call(f"functions.{name}:{number}", name, "{}") for name in declared[:1]]
        answer = chat_answer(Thought({"reasoning": "Hm. " * 50} if calls else {}), f"Answer {number}.", calls)
        last = {**chunk({}), "choices": [], "usage": usage}
        stream = answer.stream.replace(b"data: [DONE]", b"data: %b\n\ndata: [DONE]" % json.dumps(last).encode())
        await send_answer(peer, Answer(answer.whole | {"usage": usage}, stream), stream=bool(body.get("stream")))


class Talk:
    """One conversation of a Chat client, which repeats its history."""

    def __init__(self, wire: Wire, lines: list[Json], host: Host, *, session: str = "s1", **fields: Any) -> None:
        self.wire, self._lines, self._host = wire, lines, host
        self._turns = 0
        self.body: Json = {"model": MODEL, "prompt_cache_key": session, **fields}
        self.messages: list[Json] = [{"role": "system", "content": "You are a careful agent. " * 200}]

    async def say(self, text: str = "") -> Json:
        """Send the next turn; returns the log line."""
        self._turns += 1
        self.messages.append({"role": "user", "content": text or f"Step {self._turns}. " + "Please go on. " * 100})
        reply = await self.wire.post("/v1/chat/completions", self.body | {"messages": self.messages})
        assert reply.status == 200, reply.body
        await self._host.until(lambda: bool(self._lines))
        if not self.body.get("stream"):
            self.messages.append(reply.json["choices"][0]["message"])
        else:
            self.messages.append({"role": "assistant", "content": f"Answer {len(self.messages)}."})
        return self._lines.pop()


def tool(name: str, description: str = "A tool.") -> Json:
    function = {"name": name, "description": description, "parameters": {"type": "object", "properties": {}}}
    return {"type": "function", "function": function}


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[Json]:
    """The log lines of requests."""
    found: list[Json] = []

    def noted(record: RequestRecord) -> Json:
        found.append(fields_of(record))
        return found[-1]

    monkeypatch.setattr(logs, "fields_of", noted)
    return found


@asynccontextmanager
async def wire_to(gateway: Running) -> AsyncIterator[Wire]:
    async with aiohttp.ClientSession() as session:
        yield Wire(session, gateway.url)


def config(host: Host, **given: Any) -> Config:
    return config_for(host.url, models=(MODEL,), **given)


def with_keys(host: Host, *keys: Secret) -> Config:
    """The same, with these keys of the provider."""
    made = config(host)
    return replace(made, providers=(replace(made.providers[0], keys=keys),))


@pytest.mark.parametrize("stream", [False, True])
def test_each_loss_is_explained_once_and_a_conversation_that_goes_on_is_not(stream: bool, lines: list[Json]) -> None:
    async def main() -> None:
        async with CachingHost() as host, running(config(host)) as gateway, wire_to(gateway) as wire:
            tools = [tool("read"), tool("write")]
            talk = Talk(wire, lines, host, tools=tools, stream=stream)
            for _ in range(4):
                line = await talk.say()
                assert "prefix_lost" not in line
            assert line["cached_tokens"] > 1_024

            async def lost() -> str | None:
                """What the next line says; the one after it has nothing to say."""
                told = (await talk.say()).get("prefix_lost")
                assert "prefix_lost" not in await talk.say()
                return told

            talk.messages[0]["content"] = "It is 10:31. " + talk.messages[0]["content"]
            assert await lost() == "messages[0] (system) changed"
            talk.messages[4]["content"] = "Answer 5 (edited)."
            assert await lost() == "messages[4] (assistant) changed"
            del talk.messages[1:3]
            assert await lost() == "2 messages were removed at messages[1]"
            talk.body["tools"] = [tool("read"), tool("write", "Writes a file.")]
            assert await lost() == "tools[1] (write) changed"
            talk.body["tools"] = talk.body["tools"][::-1]
            assert await lost() == "the tools were reordered from tools[0] on"
            talk.body["tools"] = [*talk.body["tools"], tool("run")]
            assert await lost() == "1 tool was added at tools[2] (run)"
            talk.body["reasoning_effort"] = "low"
            assert await lost() == "`chat_template_kwargs` changed"
            host.cache.clear()
            assert await lost() == DROPPED

    run(main())


@pytest.mark.parametrize("agent", [ClaudeCode, Codex, KimiCode, Opencode, QwenCode])
def test_agents_lose_nothing_until_something_changes(agent: type[Any], lines: list[Json]) -> None:
    """Some move cache markers, drop reasoning or rewrite ids: the gateway sends the same prefix nevertheless."""

    async def turn(running_agent: Agent, host: Host) -> Json:
        calls = await running_agent.turn()
        assert calls
        running_agent.give([(id, "A long result. " * 100) for id, _, _ in calls])
        await host.until(lambda: bool(lines))
        return lines.pop()

    async def main() -> None:
        async with CachingHost(calls=True) as host, running(config(host)) as gateway, wire_to(gateway) as wire:
            it = agent(wire, MODEL, "Please look at it. " * 600)
            for number in range(5):
                line = await turn(it, host)
                assert "prefix_lost" not in line
                assert number == 0 or line["cached_tokens"] > line["input_tokens"] / 2
            tool = it._recorded["tools"][0]
            tool.get("function", tool)["description"] = "Another description."
            line = await turn(it, host)
            name = json.loads(host.requests[-1].body)["tools"][0]["function"]["name"]
            assert line["prefix_lost"] == f"tools[0] ({name}) changed"
            assert "prefix_lost" not in await turn(it, host)

    run(main())


def test_the_line_for_people_has_a_note(lines: list[Json]) -> None:
    async def main() -> None:
        async with CachingHost() as host, running(config(host)) as gateway, wire_to(gateway) as wire:
            talk = Talk(wire, lines, host)
            await talk.say()
            talk.messages[0]["content"] = "x" + talk.messages[0]["content"]
            line = {"event": "request"} | await talk.say()
            assert human_line(line, colour=False).endswith(" cache 0% · cache lost: messages[0] (system) changed")

    run(main())


def test_the_usage_record_has_the_reason(lines: list[Json]) -> None:
    async def main() -> None:
        async with CachingHost() as host, running(config(host)) as gateway, wire_to(gateway) as wire:
            talk = Talk(wire, lines, host)
            await talk.say()
            talk.messages[0]["content"] = "x" + talk.messages[0]["content"]
            line = await talk.say()
            query = "SELECT prefix_lost FROM exchanges WHERE request_id = ?"
            booked = await gateway.state.ledger.run(
                lambda database: database.execute(query, [line["request_id"]]).fetchall()
            )
            assert booked == [("messages[0] (system) changed",)]

    run(main())


def test_a_pause_longer_than_the_ttl_is_the_reason(lines: list[Json], monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time

    async def main() -> None:
        async with CachingHost() as host, running(config(host)) as gateway, wire_to(gateway) as wire:
            talk = Talk(wire, lines, host)
            for _ in range(3):
                await talk.say()
            host.cache.clear()
            monkeypatch.setattr(time, "time", lambda: real() + 725)
            line = await talk.say()
            assert line["prefix_lost"] == "TTL: 12 min since the previous request; hosts usually keep a prefix for 5m"

    run(main())


def test_other_conversations_of_the_session_are_no_losses(lines: list[Json]) -> None:
    """A title, subagents and a summary, between the turns of the user; another key's session of the same name."""

    async def main() -> None:
        async with CachingHost() as host, running(config(host)) as gateway, wire_to(gateway) as wire:
            talk = Talk(wire, lines, host, tools=[tool("read"), tool("write")])
            agents = [Talk(wire, lines, host, tools=[tool("read")]) for _ in range(3)]
            for number, agent in enumerate(agents):
                agent.messages[0]["content"] = f"You are subagent {number}. " * 200
            for turn in range(4):
                assert "prefix_lost" not in await talk.say(f"Turn {turn}: " + "a long request " * 200)
                title = Talk(wire, lines, host)
                title.messages = [{"role": "system", "content": "Write a title. " * 300}, *talk.messages[1:]]
                assert "prefix_lost" not in await title.say("Title?")
                for number, agent in enumerate(agents):
                    assert "prefix_lost" not in await agent.say(f"Part {number}, {turn}. " + "Search the files. " * 200)
            agents[1].messages[0]["content"] = "x" + agents[1].messages[0]["content"]
            assert (await agents[1].say())["prefix_lost"] == "messages[0] (system) changed"
            assert "prefix_lost" not in await talk.say()

    run(main())


def test_a_conversation_that_is_taken_back_is_no_loss(lines: list[Json]) -> None:
    async def main() -> None:
        async with CachingHost() as host, running(config(host)) as gateway, wire_to(gateway) as wire:
            talk = Talk(wire, lines, host)
            for turn in range(5):
                await talk.say(f"Turn {turn} " + "and so on " * 200)
            del talk.messages[4:]
            for turn in range(3):
                assert "prefix_lost" not in await talk.say(f"Another way {turn} " + "and so on " * 400)

    run(main())


def test_a_fallback_to_another_provider_is_named(lines: list[Json]) -> None:
    async def main() -> None:
        async with CachingHost() as one, CachingHost() as two:
            providers = tuple(
                ProviderConfig(
                    name=name, api_base_url=f"{host.url}/v1", keys=(Secret("sk"),), host="vllm", models=(MODEL,)
                )
                for name, host in (("one", one), ("two", two))
            )
            aliases: dict[str, tuple[str, ...]] = {"gpt-x": (f"one/{MODEL}", f"two/{MODEL}")}
            given = Config(providers=providers, aliases=aliases, retries=Retries(attempts=1))
            async with running(given) as gateway, wire_to(gateway) as wire:
                talk = Talk(wire, lines, one, model="gpt-x")
                for _ in range(2):
                    assert "prefix_lost" not in await talk.say()
                one.fails = True
                assert (await talk.say())["prefix_lost"] == "the provider changed"

    run(main())


def test_another_key_of_the_provider_is_named(lines: list[Json]) -> None:
    async def main() -> None:
        async with (
            CachingHost() as host,
            running(with_keys(host, Secret("sk-1"), Secret("sk-2"))) as gateway,
            wire_to(gateway) as wire,
        ):
            talk = Talk(wire, lines, host)
            for _ in range(2):
                assert "prefix_lost" not in await talk.say()
            host.refuses = host.requests[-1].headers["authorization"]
            host.cache.clear()  # which is the account's
            assert (await talk.say())["prefix_lost"] == "the API key of the provider changed"

    run(main())


def test_the_new_token_of_a_login_is_no_change(lines: list[Json], tmp_path: Path) -> None:
    async def main() -> None:
        file = tmp_path / "login.json"
        async with (
            CachingHost() as host,
            running(with_keys(host, LoginKey(file))) as gateway,
            wire_to(gateway) as wire,
        ):
            talk = Talk(wire, lines, host)
            for token in ("one", "another", "a-third"):
                file.write_text(json.dumps({"access_token": token}))
                assert "prefix_lost" not in await talk.say()
                assert host.requests[-1].headers["authorization"] == f"Bearer {token}"
            host.cache.clear()
            file.write_text(json.dumps({"access_token": "the-last-one"}))
            assert (await talk.say())["prefix_lost"] == DROPPED

    run(main())


def test_nothing_is_stored_for_hosts_without_cache_figures_and_for_short_prompts(lines: list[Json]) -> None:
    async def main() -> None:
        for host, text in ((CachingHost(tells=False), "long " * 2_000), (CachingHost(), "short")):
            async with host, running(config(host)) as gateway, wire_to(gateway) as wire:
                talk = Talk(wire, lines, host)
                talk.messages = [{"role": "user", "content": text}]
                for _ in range(3):
                    talk.messages[0]["content"] = "x" + talk.messages[0]["content"]
                    assert "prefix_lost" not in await talk.say("short")
                assert b"prefix:" not in repr(vars(gateway.state.store)).encode()

    run(main())


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with running_redis() as one:
        yield one


@pytest.fixture(params=["sqlite", "redis"])
def shared(request: pytest.FixtureRequest, tmp_path: Path, redis: RedisServer) -> str:
    """The address of a store that gateways share."""
    url = {"sqlite": f"sqlite:{tmp_path}/state.db", "redis": redis.url}[request.param]
    return str(url)


def test_several_gateways_explain_the_same_conversation(shared: str, lines: list[Json]) -> None:
    async def main() -> None:
        async with (
            CachingHost() as host,
            running(config(host, store=shared)) as first,
            running(config(host, store=shared)) as second,
            wire_to(first) as one,
            wire_to(second) as other,
        ):
            talk = Talk(one, lines, host, session=f"s {shared}")
            assert "prefix_lost" not in await talk.say()
            talk.wire = other
            assert "prefix_lost" not in await talk.say()
            talk.wire = one
            talk.messages[0]["content"] = "It is 10:31. " + talk.messages[0]["content"]
            assert (await talk.say())["prefix_lost"] == "messages[0] (system) changed"

    run(main())


def test_no_word_of_the_conversation_is_in_the_store(tmp_path: Path, lines: list[Json]) -> None:
    async def main() -> None:
        async with (
            CachingHost() as host,
            running(config(host, store=f"sqlite:{tmp_path}/state.db")) as gateway,
            wire_to(gateway) as wire,
        ):
            talk = Talk(wire, lines, host, tools=[tool("peculiar_tool")], session="peculiar-session")
            talk.messages[0]["content"] += "peculiar prompt"
            await talk.say("a peculiar request")
            await talk.say("a peculiar request")

    run(main())
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"prefix:" in stored
    for word in (b"peculiar", b"careful agent", b"Answer", b"sk-host", MODEL.encode()):
        assert word not in stored, word


def test_large_requests_are_compared_too(lines: list[Json]) -> None:
    async def main() -> None:
        async with CachingHost() as host, running(config(host)) as gateway, wire_to(gateway) as wire:
            talk = Talk(wire, lines, host)
            talk.messages[0]["content"] = "A large prompt. " * 40_000
            assert "prefix_lost" not in await talk.say()
            assert "prefix_lost" not in await talk.say()
            talk.messages[0]["content"] = "x" + talk.messages[0]["content"]
            talk.messages[2]["content"] += "x"
            assert (await talk.say())["prefix_lost"] == "messages[0] (system) changed"

    run(main())


def test_a_store_that_is_away_costs_the_explanation_only(lines: list[Json], monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any) -> Any:
        raise StoreUnavailable("gone")

    async def main() -> None:
        async with CachingHost() as host, running(config(host)) as gateway, wire_to(gateway) as wire:
            talk = Talk(wire, lines, host)
            await talk.say()
            monkeypatch.setattr(gateway.state.store, "entries", away)
            talk.messages[0]["content"] = "x" + talk.messages[0]["content"]
            line = await talk.say()
            assert "prefix_lost" not in line
            assert line["store_failures"] == ["prefixes"]

    run(main())


@pytest.mark.parametrize("stream", [False, True])
def test_a_slow_store_does_not_delay_the_response(
    stream: bool, lines: list[Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        released = asyncio.Event()

        async def slow(*_: Any) -> Json:
            await released.wait()
            return {}

        async with CachingHost() as host, running(config(host)) as gateway, wire_to(gateway) as wire:
            monkeypatch.setattr(gateway.state.prefix_memory._store, "entries", slow)
            said = [{"role": "user", "content": "Please go on. " * 500}]
            reply = await wire.post("/v1/chat/completions", {"model": MODEL, "messages": said, "stream": stream})
            assert reply.status == 200
            assert b"r 1." in reply.body, "the end of its text"
            assert not lines, "the request is not over yet"
            released.set()
            await host.until(lambda: bool(lines))
            assert lines.pop()["outcome"] == "ok"

    run(main())
