"""Routes through a real gateway between two hosts: who is asked, what is logged, and what stays over time."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from msgspec.structs import replace

from moonshim.config import Config, GatewayKey, ProviderConfig, Retries, Routes, Secret, parse_config
from moonshim.config.model import digest_of
from moonshim.gateway.observe import logs
from moonshim.gateway.observe.log_lines import fields_of
from moonshim.gateway.observe.record import RequestRecord
from moonshim.store import StoreUnavailable
from tests.support.command import MOONSHIM, environment
from tests.support.gateway.agent_models import Reply, Wire
from tests.support.gateway.hosts import Host, HostRequest, Peer, run, whole
from tests.support.gateway.running import Running, running
from tests.support.gateway.serving import first_line, wait_until
from tests.support.gateway.strict_hosts import send_answer
from tests.support.playing import Thought, chat_answer
from tests.support.redis_server import running_redis

Json = dict[str, Any]
LIMIT: Final = 2_000
"""Of tokens in a short context."""
LONG: Final = "All work and no play makes Jack a dull boy. " * 300
PNG: Final[Json] = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
THINK: Final[Json] = {"thinking": {"type": "enabled", "budget_tokens": 2000}}
SEARCH: Final[Json] = {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}
MODELS: Final = tuple(f"kimi-{one}" for one in ["k3", "k3-long", "k3-eyes", "k3-search", "k3-think", "k2.5", "k2.6"])
ROUTES: Final = Routes(
    image=("one/kimi-k2.5", "one/kimi-k3-eyes"),
    web_search=("two/kimi-k3-search",),
    long_context=("two/kimi-k3-long", "one/kimi-k3-long"),
    background=("two/kimi-k2.6",),
    think=("one/kimi-k3-think",),
    long_context_tokens=LIMIT,
)


class Kimi(Host):
    """Answers every request, or fails; `models` are those that were asked for."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.models: list[str] = []
        self.fails = False

    async def _answer(self, peer: Peer, asked: HostRequest) -> None:
        body = json.loads(asked.body)
        self.models.append(body["model"])
        if self.fails:
            error = json.dumps({"error": {"type": "server_error", "message": "oops"}}).encode()
            await peer.send(whole(error, status="500 Internal Server Error"))
            return
        await send_answer(
            peer, chat_answer(Thought(), f"Answer {len(body['messages'])}.", []), stream=body.get("stream") is True
        )


class Scene:
    """Two hosts, and what was sent to them through a gateway."""

    def __init__(self, one: Kimi, two: Kimi) -> None:
        self.one, self.two = one, two

    def config(self, **given: Any) -> Config:
        providers = tuple(
            ProviderConfig(
                name=name,
                api_base_url=f"{host.url}/v1",
                keys=(Secret("sk"),),
                host="vllm",
                models=MODELS,
                # The first model of the route `image` is a text model here.
                model_overrides={"kimi-k2.5": {"media": []}},
            )
            for name, host in (("one", self.one), ("two", self.two))
        )
        aliases: dict[str, tuple[str, ...]] = {"claude-*": ("one/kimi-k3", "two/kimi-k3"), "gpt-*": ("one/kimi-k3",)}
        defaults: Json = {"providers": providers, "aliases": aliases, "routes": ROUTES, "retries": Retries(attempts=1)}
        return Config(**defaults | given)

    @property
    def asked(self) -> list[str]:
        """What the hosts were asked for since the last time."""
        asked = [f"one/{model}" for model in self.one.models] + [f"two/{model}" for model in self.two.models]
        self.one.models, self.two.models = [], []
        return asked


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(Kimi()) for _ in range(2)]
        yield Scene(one, two)


@asynccontextmanager
async def wire_to(gateway: Running) -> AsyncIterator[Wire]:
    async with aiohttp.ClientSession() as session:
        yield Wire(session, gateway.url)


async def say(wire: Wire, *turns: Any, model: str = "claude-sonnet-5", stream: bool = False, **more: Any) -> Reply:
    """Post a conversation: what the user and the assistant said in turn."""
    key = {"x_api_key": more.pop("key")} if "key" in more else {}
    messages = [{"role": ("user", "assistant")[place % 2], "content": turn} for place, turn in enumerate(turns)]
    body = {"model": model, "max_tokens": 100, "messages": messages, "stream": stream} | more
    return await wire.post("/v1/messages", body, **key)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[Json]:
    """The log lines of requests."""
    found: list[Json] = []

    def noted(record: RequestRecord) -> Json:
        found.append(fields_of(record))
        return found[-1]

    monkeypatch.setattr(logs, "fields_of", noted)
    return found


REQUESTS: Final[dict[str, tuple[tuple[Any, ...], Json, str, str]]] = {
    "an image": (([{"type": "text", "text": "Look."}, PNG],), {}, "image", "one/kimi-k3-eyes"),
    "a web search": (("Search.",), SEARCH, "web_search", "two/kimi-k3-search"),
    "a long context": ((LONG,), {}, "long_context", "two/kimi-k3-long"),
    "background work": (("Title?",), {"model": "claude-haiku-4-5"}, "background", "two/kimi-k2.6"),
    "thinking": (("Think.",), THINK, "think", "one/kimi-k3-think"),
    "nothing special": (("Hi.",), {}, "default", "one/kimi-k3"),
    # precedence
    "an image and everything else": (
        ([{"type": "text", "text": LONG}, PNG],),
        THINK | SEARCH | {"model": "claude-haiku-4-5"},
        "image",
        "one/kimi-k3-eyes",
    ),
    "a long search": ((LONG,), SEARCH | THINK, "web_search", "two/kimi-k3-search"),
    "long background work": ((LONG,), {"model": "claude-haiku-4-5"}, "long_context", "two/kimi-k3-long"),
    "background work that thinks": (("Hi.",), {"model": "claude-haiku-4-5"} | THINK, "background", "two/kimi-k2.6"),
}


@pytest.mark.parametrize("stream", [False, True])
def test_each_kind_of_request_reaches_its_host(stream: bool, lines: list[Json]) -> None:
    async def main() -> None:
        async with scene() as hosts, running(hosts.config()) as gateway, wire_to(gateway) as wire:
            for what, (turns, more, route, target) in REQUESTS.items():
                reply = await say(wire, *turns, stream=stream, **more)
                assert reply.status == 200, (what, reply.body)
                assert reply.headers["x-moonshim-route"] == route, what
                assert hosts.asked == [target], what
                await hosts.one.until(lambda: bool(lines))
                line = lines.pop()
                assert (line["route"], f"{line['provider']}/{line['model']}") == (route, target), what
            metrics = gateway.state.metrics.render().decode()
            assert 'moonshim_routes_total{route="background"} 2.0' in metrics
            assert 'moonshim_routes_total{route="default"} 1.0' in metrics

    run(main())


@pytest.mark.parametrize("model", ["kimi-k3", "two/kimi-k3", "claude-kimi-k3"])
def test_a_model_that_the_client_chose_is_not_routed(model: str, lines: list[Json]) -> None:
    async def main() -> None:
        async with scene() as hosts, running(hosts.config()) as gateway, wire_to(gateway) as wire:
            for turns, more, _, _ in REQUESTS.values():
                reply = await say(wire, *turns, **more | {"model": model})
                assert reply.status == 200, reply.body
                assert "x-moonshim-route" not in reply.headers
                assert all(one.endswith("/kimi-k3") for one in hosts.asked)
            assert all("route" not in line for line in lines)
            assert "moonshim_routes_total{" not in gateway.state.metrics.render().decode()

    run(main())


def test_chat_and_responses_are_routed_too() -> None:
    async def main() -> None:
        async with scene() as hosts, running(hosts.config()) as gateway, wire_to(gateway) as wire:
            search = {"tools": [{"type": "web_search"}]}
            reply = await wire.post("/v1/responses", {"model": "gpt-5-codex", "input": "Search."} | search)
            assert (reply.status, reply.headers["x-moonshim-route"]) == (200, "web_search")
            body = {"model": "gpt-5", "messages": [{"role": "user", "content": "Hi."}], "reasoning_effort": "high"}
            reply = await wire.post("/v1/chat/completions", body)
            assert (reply.status, reply.headers["x-moonshim-route"]) == (200, "think")
            assert hosts.asked == ["one/kimi-k3-think", "two/kimi-k3-search"]

    run(main())


def test_a_failing_route_tries_its_own_models_and_the_error_names_it() -> None:
    async def main() -> None:
        async with scene() as hosts, running(hosts.config()) as gateway, wire_to(gateway) as wire:
            hosts.two.fails = True
            reply = await say(wire, LONG)
            assert (reply.status, reply.headers["x-moonshim-route"]) == (200, "long_context")
            assert hosts.asked == ["one/kimi-k3-long", "two/kimi-k3-long"]
            reply = await say(wire, "Hi.", model="claude-haiku-4-5")
            assert (reply.status, reply.headers["x-moonshim-route"]) == (500, "background")
            assert hosts.asked == ["two/kimi-k2.6"], "not those of the alias"

    run(main())


TURNS: Final = ("Read it.", "Answer 1.", LONG, "Answer 3.")


async def long_turns(wire: Wire) -> None:
    """A conversation that becomes long with its second request."""
    assert (await say(wire, *TURNS[:1])).headers["x-moonshim-route"] == "default"
    assert (await say(wire, *TURNS[:3])).headers["x-moonshim-route"] == "long_context"


async def short_again(wire: Wire, **more: Any) -> Reply:
    """Its third request, after the client has removed what was long."""
    return await say(wire, "Read it.", "Answer 1.", "(removed)", "Answer 3.", "And?", **more)


def test_a_conversation_stays_on_the_long_context() -> None:
    async def main() -> None:
        async with scene() as hosts, running(hosts.config()) as gateway, wire_to(gateway) as wire:
            await long_turns(wire)
            assert (await short_again(wire)).headers["x-moonshim-route"] == "long_context"
            assert (await short_again(wire, **THINK)).headers["x-moonshim-route"] == "long_context"
            assert (await short_again(wire, stream=True)).headers["x-moonshim-route"] == "long_context"
            image = await say(wire, "Read it.", "Answer 1.", "(removed)", "Answer 3.", [PNG])
            assert image.headers["x-moonshim-route"] == "image", "the model of the long context may not see it"
            assert (await short_again(wire)).headers["x-moonshim-route"] == "long_context", "and back"
            other = await say(wire, "Read it.", "Answer 2.", "(removed)", "Answer 3.", "And?")
            assert other.headers["x-moonshim-route"] == "default", "another conversation"
            assert (await say(wire, "Read it.")).headers["x-moonshim-route"] == "default", "a new one"

    run(main())


def test_a_conversation_that_begins_long_stays_long() -> None:
    async def main() -> None:
        async with scene() as hosts, running(hosts.config()) as gateway, wire_to(gateway) as wire:
            assert (await say(wire, "Hi.", system=LONG)).headers["x-moonshim-route"] == "long_context"
            assert (await say(wire, "Hi.", "Answer 2.", "So?")).headers["x-moonshim-route"] == "long_context"
            third = await say(wire, "Hi.", "Answer 2.", "So?", "Answer 4.", "And?")
            assert third.headers["x-moonshim-route"] == "long_context"

    run(main())


def test_it_stays_over_a_reload_a_restart_and_in_another_worker(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene() as hosts:
            config = hosts.config(store=f"sqlite:{tmp_path}/state.db", secret=Secret("x" * 32))
            async with running(config) as gateway, wire_to(gateway) as wire:
                await long_turns(wire)
                gateway.state.reload(replace(config, routes=replace(ROUTES, long_context_tokens=1_000_000)))
                assert (await short_again(wire)).headers["x-moonshim-route"] == "long_context"
                async with running(config) as other, wire_to(other) as wire_to_other:
                    assert (await short_again(wire_to_other)).headers["x-moonshim-route"] == "long_context"
            async with running(config) as gateway, wire_to(gateway) as wire:
                assert (await short_again(wire)).headers["x-moonshim-route"] == "long_context"
                gateway.state.reload(replace(config, routes=Routes(think=("one/kimi-k3-think",))))
                assert (await short_again(wire)).headers["x-moonshim-route"] == "default", "the route is gone"
        stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        assert b"Read it." not in stored
        assert b"dull boy" not in stored

    run(main())


def test_a_conversation_stays_at_the_host_that_it_had_to_move_to(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene() as hosts:
            config = hosts.config(store=f"sqlite:{tmp_path}/state.db")
            async with running(config) as gateway, wire_to(gateway) as wire:
                hosts.one.fails = True
                assert (await say(wire, "Hi.")).status == 200
                assert hosts.asked == ["one/kimi-k3", "two/kimi-k3"]
                hosts.one.fails = False
                for turns in (("Hi.", "Answer 1.", "So?"), ("Hi.", "Answer 1.", "So?", "Answer 3.", "And?")):
                    assert (await say(wire, *turns)).headers["x-moonshim-route"] == "default"
                    assert hosts.asked == ["two/kimi-k3"]
                await say(wire, "Hello.")
                assert hosts.asked == ["one/kimi-k3"], "another conversation begins at the first"
            async with running(config) as gateway, wire_to(gateway) as wire:
                await say(wire, "Hi.", "Answer 1.", "So?", "Answer 3.", "And?", "Answer 5.", "Well?")
                assert hosts.asked == ["two/kimi-k3"], "also after a restart"
                hosts.two.fails = True
                await say(wire, "Hi.", "Answer 1.", "So?", "Answer 3.", "And?", "Answer 5.", "Well?")
                assert hosts.asked == ["one/kimi-k3", "two/kimi-k3"], "back when it has to"

    run(main())


def test_gateways_on_one_redis_share_the_route_and_the_host() -> None:
    """Each request of a conversation is served by the other gateway."""

    async def main() -> None:
        async with scene() as hosts:
            config = hosts.config(store=redis.url)
            async with (
                running(config) as first,
                running(config) as second,
                wire_to(first) as one,
                wire_to(second) as two,
            ):
                assert (await say(one, *TURNS[:1])).headers["x-moonshim-route"] == "default"
                assert (await say(two, *TURNS[:3])).headers["x-moonshim-route"] == "long_context"
                hosts.two.fails = True
                assert (await short_again(one)).headers["x-moonshim-route"] == "long_context"
                assert hosts.asked == ["one/kimi-k3", "one/kimi-k3-long", "two/kimi-k3-long", "two/kimi-k3-long"]
                hosts.two.fails = False
                for wire in (two, one, two):
                    assert (await short_again(wire)).headers["x-moonshim-route"] == "long_context"
                    assert hosts.asked == ["one/kimi-k3-long"], "the host that it had to move to"
                assert (await say(two, "Hello.")).headers["x-moonshim-route"] == "default", "another conversation"

    with running_redis() as redis:
        run(main())


@pytest.mark.skipif(sys.platform != "linux", reason="reads processes from /proc")
def test_workers_on_redis_share_the_route_and_the_host(tmp_path: Path) -> None:
    """After the request that made it long, all workers are replaced by new ones, which know of it from Redis only."""

    async def main() -> None:
        async with scene() as hosts:
            config = tmp_path / "moonshim.json"
            config.write_text(json.dumps(_file_of(hosts, redis.url)))
            with _two_workers(config) as process:
                async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
                    url = first_line(process).split()[3]
                    wire = Wire(session, url)
                    await long_turns(wire)
                    assert hosts.asked == ["one/kimi-k3", "two/kimi-k3-long"]
                    hosts.two.fails = True
                    assert (await short_again(wire)).headers["x-moonshim-route"] == "long_context"
                    hosts.two.fails = False
                    assert hosts.asked == ["one/kimi-k3-long", "two/kimi-k3-long"]
                    await asyncio.to_thread(_replace_workers, process.pid, url)
                    for _ in range(8):  # whichever of the two takes the connection
                        assert (await short_again(wire)).headers["x-moonshim-route"] == "long_context"
                        assert hosts.asked == ["one/kimi-k3-long"]

    with running_redis() as redis:
        run(main())


def _file_of(hosts: Scene, store: str) -> Json:
    providers = [
        {"name": name, "api_base_url": f"{host.url}/v1", "api_key": "sk", "host": "vllm", "models": list(MODELS)}
        for name, host in (("one", hosts.one), ("two", hosts.two))
    ]
    return {
        "providers": providers,
        "aliases": {"claude-*": ["one/kimi-k3", "two/kimi-k3"]},
        "routes": {"long_context": list(ROUTES.long_context), "long_context_tokens": LIMIT},
        "retries": {"attempts": 1},
        "gateway": {"store": store, "workers": 2},
    }


@contextmanager
def _two_workers(config: Path) -> Iterator[subprocess.Popen[bytes]]:
    command, env = [*MOONSHIM, "serve", "--config", str(config), "--port", "0"], environment(HOME=str(config.parent))
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.terminate()


def _replace_workers(supervisor: int, url: str) -> None:
    """Kill them; the supervisor starts others."""
    port = int(url.rpartition(":")[2])

    def workers() -> set[int]:
        return {int(pid) for pid in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()}

    before = workers()
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: len(workers() - before) == 2 and not workers() & before, "others took their place")
    with socket.socket() as probe:
        wait_until(lambda: probe.connect_ex(("127.0.0.1", port)) == 0, "they take connections")


def test_a_key_never_reaches_a_model_that_it_may_not_use() -> None:
    async def main() -> None:
        async with scene() as hosts:
            keys = tuple(
                GatewayKey(name=name, digest=digest_of(f"key-{name}"), models=models)
                for name, models in (
                    ("some", ("claude-*", "kimi-k3-think", "one/*")),
                    ("all", ()),
                    ("k3", ("kimi-k3",)),
                )
            )
            async with running(hosts.config(keys=keys)) as gateway, wire_to(gateway) as wire:
                for turns, more, route, target in REQUESTS.values():
                    reply = await say(wire, *turns, key="key-all", **more)
                    assert (reply.headers["x-moonshim-route"], hosts.asked) == (route, [target])
                for turns, more, _, _ in REQUESTS.values():
                    reply = await say(wire, *turns, key="key-k3", **more)
                    assert (reply.headers["x-moonshim-route"], hosts.asked) == ("default", ["one/kimi-k3"])
                expected = {
                    "an image": ("image", "one/kimi-k3-eyes"),
                    "a web search": ("default", "one/kimi-k3"),
                    "a long context": ("long_context", "one/kimi-k3-long"),
                    "background work": ("default", "one/kimi-k3"),
                    "background work that thinks": ("think", "one/kimi-k3-think"),
                }
                for what, (route, target) in expected.items():
                    turns, more, _, _ = REQUESTS[what]
                    reply = await say(wire, *turns, key="key-some", **more)
                    assert (reply.headers["x-moonshim-route"], hosts.asked) == (route, [target]), what

    run(main())


def test_the_file_of_claude_code_router_routes_as_it_says() -> None:
    async def main() -> None:
        async with scene() as hosts:
            providers = [
                {"name": name, "api_base_url": f"{host.url}/v1/chat/completions", "api_key": "k", "models": models}
                for name, host, models in (
                    ("one", hosts.one, ["kimi-k3"]),
                    ("two", hosts.two, ["kimi-k2.6", "kimi-k3"]),
                )
            ]
            router = {
                "default": "one,kimi-k3",
                "background": "two,kimi-k2.6",
                "think": "two,kimi-k3",
                "longContext": "two,kimi-k2.6",
                "longContextThreshold": LIMIT,
                "webSearch": "gone,away",
            }
            text = json.dumps({"Providers": providers, "Router": router})
            config = parse_config(text, suffix=".json", environ={}, source="config.json")
            async with running(config) as gateway, wire_to(gateway) as wire:
                for what, target in {
                    "nothing special": ("default", "one/kimi-k3"),
                    "background work": ("background", "two/kimi-k2.6"),
                    "thinking": ("think", "two/kimi-k3"),
                    "a long context": ("long_context", "two/kimi-k2.6"),
                    "a web search": ("default", "one/kimi-k3"),
                    "an image": ("default", "one/kimi-k3"),
                }.items():
                    turns, more, _, _ = REQUESTS[what]
                    reply = await say(wire, *turns, **more)
                    assert reply.status == 200, (what, reply.body)
                    assert (reply.headers["x-moonshim-route"], *hosts.asked) == target, what
                reply = await say(wire, "Hi.", model="think")
                assert hosts.asked == ["two/kimi-k3"]
                assert "x-moonshim-route" not in reply.headers, "asked for by its name"

    run(main())


def test_a_store_that_is_away_costs_the_memory_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any) -> Any:
        raise StoreUnavailable("gone")

    async def main() -> None:
        async with scene() as hosts, running(hosts.config()) as gateway, wire_to(gateway) as wire:
            await long_turns(wire)
            monkeypatch.setattr(gateway.state.store, "get_many", away)
            reply = await short_again(wire)
            assert (reply.status, reply.headers["x-moonshim-route"]) == (200, "default")
            assert "routes" in reply.headers["x-moonshim-lost"]

    run(main())
