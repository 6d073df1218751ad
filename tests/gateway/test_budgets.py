"""Budgets at a running gateway, before the simulator: official SDKs, several workers and machines, a killed process."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import aiohttp
import anthropic
import openai
import pytest
from msgspec.structs import replace

from moonshim.config import Budget, Config, GatewayKey, Price, UsageBooks
from moonshim.engine.prepare import read_request
from moonshim.gateway.inbound.auth import new_key
from moonshim.simulator import Simulator
from moonshim.usage.cost import decimal_text
from tests.support.gateway.hosts import Host, HostRequest, Peer, run, whole
from tests.support.gateway.running import MODEL, Running, config_for, running
from tests.support.logged import logged_events
from tests.support.playing import Thought, chat_answer
from tests.support.redis_server import RedisServer, running_redis
from tests.support.servers import Running as Serving
from tests.support.servers import running as serving

KEY, DIGEST = new_key()
PRICE: Final = Price(input=Decimal(1000), output=Decimal(1000), cached=Decimal(1000))
"""A thousandth per token, whatever kind it is: every response to the same question costs the same."""


def key(*budgets: Budget) -> GatewayKey:
    return GatewayKey(name="ci", digest=DIGEST, budgets=budgets)


def day(limit: str | Decimal, *, soft: bool = False) -> Budget:
    return Budget(period="day", limit=Decimal(limit), soft=soft)


@asynccontextmanager
async def gateways(
    *budgets: Budget, count: int = 1, tmp_path: Path, simulator: Simulator | None = None, **given: Any
) -> AsyncIterator[tuple[Simulator, list[Running]]]:
    async with AsyncExitStack() as stack:
        simulator = await stack.enter_async_context(simulator or Simulator())
        options: dict[str, Any] = {"keys": (key(*budgets),), "prices": {"*": PRICE}} | given
        servers = []
        for number in range(count):
            books = UsageBooks(file=str(tmp_path / f"usage-{number}.db"))
            config = config_for(simulator.url, usage=books, **options)
            servers.append(await stack.enter_async_context(running(config)))
        yield simulator, servers


def with_budgets(server: Running, *budgets: Budget) -> None:
    config: Config = server.state.snapshot.config
    server.state.reload(replace(config, keys=(key(*budgets),)))


PATHS: Final = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}


def body(dialect: str, *, stream: bool = False, text: str = "Say something.") -> dict[str, Any]:
    if dialect == "responses":
        return {"model": MODEL, "input": text, "stream": stream}
    messages = [{"role": "user", "content": text}]
    return {"model": MODEL, "messages": messages, "stream": stream, "max_tokens": 1000}


async def send(server: Running, dialect: str = "chat", **given: Any) -> tuple[int, dict[str, str], Any]:
    async with (
        aiohttp.ClientSession(server.url, headers={"x-api-key": KEY}) as client,
        client.post(PATHS[dialect], json=body(dialect, **given)) as answer,
    ):
        text = await answer.text()
        is_json = answer.content_type == "application/json"
        return (
            answer.status,
            {name.lower(): value for name, value in answer.headers.items()},
            json.loads(text) if is_json else text,
        )


async def used(server: Running) -> Decimal:
    key, *_ = server.state.snapshot.config.keys
    states = await server.state.spending.keeper.states([key])
    return Decimal(decimal_text(states[0].used))


async def booked(server: Running) -> int:
    """The number of records, in the file or in memory."""
    count: int = await server.state.ledger.run(lambda db: db.execute("SELECT count(*) FROM exchanges").fetchone()[0])
    return count


async def cost_of_one(server: Running) -> Decimal:
    before = await used(server)
    assert (await send(server))[0] == 200
    return await used(server) - before


def check_flood(count: int, tmp_path: Path, **given: Any) -> None:
    """Fifty requests at once against a budget for ten, at `count` gateways."""

    async def test() -> None:
        async with gateways(day("1000"), count=count, tmp_path=tmp_path, **given) as (simulator, servers):
            one = await cost_of_one(servers[0])
            for server in servers:
                with_budgets(server, day(one * 11))  # one is used
            sent = len(simulator.requests)
            answers = await asyncio.gather(*(send(servers[n % count], stream=n % 2 == 0) for n in range(50)))
            served = [answer for answer in answers if answer[0] == 200]
            refused = [answer for answer in answers if answer[0] == 429]
            assert 10 <= len(served) <= 10 + count - (count == 1)
            assert len(refused) == 50 - len(served)
            assert len(simulator.requests) - sent == len(served)
            assert {answer[2]["error"]["code"] for answer in refused} == {"budget_exceeded"}
            assert await used(servers[0]) == one * (1 + len(served))

    run(test())


def test_fifty_parallel_requests_against_a_budget_for_ten(tmp_path: Path) -> None:
    check_flood(1, tmp_path)


def test_two_gateways_on_redis_share_a_budget(tmp_path: Path) -> None:
    with running_redis() as redis:
        check_flood(2, tmp_path, store=redis.url)


def test_a_host_that_counts_more_input_than_we_estimate_is_learned(tmp_path: Path) -> None:
    """Two workers, and a host that counts many times our estimate: each exceeds a budget by one request at most."""

    async def reply(peer: Peer, asked: HostRequest) -> None:
        await asyncio.sleep(0.2)  # long enough for several to run at the same time
        usage = {"prompt_tokens": 1000, "completion_tokens": 10, "total_tokens": 1010}
        await peer.send(whole(json.dumps(chat_answer(Thought({}), "Hello.", []).whole | {"usage": usage}).encode()))

    async def test() -> None:
        async with AsyncExitStack() as stack:
            host = await stack.enter_async_context(Host(reply))
            limited = key(Budget(period="day", tokens=10 * 1010))
            config = config_for(host.url, keys=(limited,), store=f"sqlite:{tmp_path / 'state.db'}")
            servers = [
                await stack.enter_async_context(
                    running(replace(config, usage=UsageBooks(file=str(tmp_path / f"usage-{number}.db"))))
                )
                for number in range(2)
            ]
            asked = {"model": MODEL, "max_tokens": 10, "messages": [{"role": "user", "content": "Moon. " * 50}]}
            clients = [
                await stack.enter_async_context(aiohttp.ClientSession(server.url, headers={"x-api-key": KEY}))
                for server in servers
            ]

            async def ask(number: int) -> tuple[int, Any]:
                async with clients[number % 2].post(PATHS["chat"], json=asked) as answer:
                    return answer.status, await answer.json()

            answers = await asyncio.gather(*(ask(number) for number in range(50)))
            assert 10 <= sum(status == 200 for status, _ in answers) <= 12
            assert {answer["error"]["code"] for status, answer in answers if status != 200} == {"budget_exceeded"}

    run(test())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("dialect", "type"),
    [("chat", "insufficient_quota"), ("messages", "billing_error"), ("responses", "insufficient_quota")],
)
def test_a_refusal_is_in_the_dialect_of_the_client(dialect: str, type: str, stream: bool, tmp_path: Path) -> None:
    async def test() -> None:
        async with gateways(day("0.01"), tmp_path=tmp_path) as (simulator, (server,)):
            assert (await send(server, dialect, stream=stream))[0] == 200
            status, headers, answer = await send(server, dialect, stream=stream)
            assert status == 429
            error = answer["error"]
            assert error["type"] == type
            assert (error["details"]["error_code"] if dialect == "messages" else error["code"]) == "budget_exceeded"
            midnight = datetime.now(UTC).date().isoformat()
            assert error["message"].startswith("Key 'ci' has reached its daily budget ($")
            assert " of $0.01 used). It resets at 20" in error["message"]
            assert f"{midnight}T00:00:00Z" not in error["message"]  # it is the next one
            assert headers["x-moonshim-budget"].startswith("day;unit=$;limit=0.01;left=0.00;resets=20")
            assert headers["x-should-retry"] == "false"
            # Codex waits for as long as this says.
            assert "retry-after" not in headers
            assert len(simulator.requests) == 1

    run(test())


def test_official_sdks_do_not_retry_a_refusal(tmp_path: Path) -> None:
    async def test() -> None:
        messages: list[Any] = [{"role": "user", "content": "Hi"}]
        async with (
            gateways(day("0.01"), tmp_path=tmp_path) as (simulator, (server,)),
            server.openai(api_key=KEY, max_retries=5) as chat,
            server.anthropic(api_key=KEY, max_retries=5) as claude,
        ):
            await send(server)
            with pytest.raises(openai.RateLimitError) as refused:
                await chat.chat.completions.create(model=MODEL, messages=messages)
            assert refused.value.code == "budget_exceeded"
            with pytest.raises(openai.RateLimitError):
                await chat.responses.create(model=MODEL, input="Hi", stream=True)
            with pytest.raises(anthropic.RateLimitError, match="daily budget"):
                await claude.messages.create(model=MODEL, max_tokens=100, messages=messages)
            lines = server.state.metrics.render().decode().splitlines()
            refusals = [line for line in lines if "moonshim_requests_total" in line and 'outcome="refused"' in line]
            assert sum(float(line.rpartition(" ")[2]) for line in refusals) == 3
            assert len(simulator.requests) == 1

    run(test())


def test_what_is_left_is_in_a_header_and_a_metric(tmp_path: Path) -> None:
    async def test() -> None:
        month = Budget(period="month", tokens=10_000_000, soft=True)
        async with gateways(day("5.00"), month, tmp_path=tmp_path) as (_, (server,)):
            _, headers, _ = await send(server)
            first, second = headers["x-moonshim-budget"].split(", ")
            assert first.startswith("day;unit=$;limit=5.00;left=5.00;resets=")
            assert second.startswith("month;unit=tokens;limit=10000000;left=10000000;resets=")
            assert second.endswith(";soft")
            _, headers, _ = await send(server, stream=True)
            left = Decimal(headers["x-moonshim-budget"].partition("left=")[2].partition(";")[0])
            assert left == 5 - await used(server) / 2
            assert ratios(server)["ci"] == pytest.approx(float(await used(server) / 5))

    run(test())


def ratios(server: Running) -> dict[str, float]:
    """The used part of the daily budgets, by key."""
    lines = server.state.metrics.render().decode().splitlines()
    found = [line.split('"') for line in lines if line.startswith("moonshim_budget_used_ratio{")]
    return {name: float(rest.rpartition(" ")[2]) for _, name, _, period, rest in found if period == "day"}


async def shown(server: Running, expected: dict[str, Any]) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(20):
            while ratios(server) != expected:
                await asyncio.sleep(0.01)
    assert ratios(server) == expected


@pytest.mark.parametrize("store", ["memory", "redis"])
def test_the_metric_is_there_after_a_restart(tmp_path: Path, store: str) -> None:
    """Without a request: an alert on it does not resolve itself. Machines that share a store show the same."""
    keys = (key(day("5.00")), GatewayKey(name="idle", digest="0" * 64, budgets=(day("1.00"),)))

    async def test(**given: Any) -> None:
        async with gateways(tmp_path=tmp_path, keys=keys, **given) as (_, (server,)):
            assert (await send(server))[0] == 200
            spent = await used(server)
        async with gateways(count=2 if given else 1, tmp_path=tmp_path, keys=keys, **given) as (_, servers):
            for server in servers:
                await shown(server, {"ci": pytest.approx(float(spent / 5)), "idle": 0.0})
                with_budgets(server, day("2.50"))
                await shown(server, {"ci": pytest.approx(float(spent / 5 * 2)), "idle": 0.0})

    if store == "memory":
        run(test())
    else:
        with running_redis() as redis:
            run(test(store=redis.url))


def test_a_soft_budget_warns_and_refuses_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with gateways(day("0.01", soft=True), tmp_path=tmp_path) as (_, (server,)):
            answers = [await send(server) for _ in range(3)]
            assert [status for status, _, _ in answers] == [200] * 3
            assert ";left=0.00;" in answers[2][1]["x-moonshim-budget"]

    with logged_events() as logged:
        run(test())
    (line,) = [line for line in logged if line["event"] == "budget_exceeded"]
    assert "Key 'ci' has reached its soft daily budget ($0.0820 of $0.01 used)" in line["problem"]


def test_a_model_without_a_price_needs_no_hard_budget_in_money(tmp_path: Path) -> None:
    async def test() -> None:
        async with gateways(day("5.00"), prices={}, tmp_path=tmp_path) as (simulator, (server,)):
            status, headers, answer = await send(server)
            assert status == 403
            assert answer["error"]["code"] == "price_unknown"
            assert answer["error"]["message"] == (
                f"Key 'ci' has a budget in $, but the price of 'host/{MODEL}' is unknown. "
                "Ask the operator of this gateway to add it to `[prices]`."
            )
            assert headers["x-should-retry"] == "false"
            _, _, answer = await send(server, "messages")
            assert answer["error"]["details"] == {"error_code": "price_unknown"}
            assert not simulator.requests
            with_budgets(server, day("5.00", soft=True), Budget(period="day", tokens=100_000))
            assert (await send(server))[0] == 200

    run(test())


def test_a_price_in_another_currency_is_no_price(tmp_path: Path) -> None:
    async def test() -> None:
        yuan = {"*": replace(PRICE, currency="¥")}
        async with gateways(day("5.00"), prices=yuan, tmp_path=tmp_path) as (_, (server,)):
            error = (await send(server))[2]["error"]
            assert error["code"] == "price_unknown"
            assert error["message"] == (
                f"Key 'ci' has a budget in $, but 'host/{MODEL}' is priced in ¥. "
                "Ask the operator of this gateway to add a budget in ¥."
            )
            with_budgets(server, Budget(period="day", limit=Decimal(5), currency="¥"))
            status, headers, _ = await send(server)
            assert status == 200
            assert "unit=%C2%A5" in headers["x-moonshim-budget"]
            with_budgets(server, day("5.00"), Budget(period="day", limit=Decimal(5), currency="¥"))
            assert (await send(server))[0] == 200  # each currency has its own budget

    run(test())


def test_a_restart_with_the_memory_store_forgets_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with gateways(day("1000"), tmp_path=tmp_path) as (_, (server,)):
            one = await cost_of_one(server)
        async with gateways(day(one), Budget(period="month", tokens=10**9), tmp_path=tmp_path) as (_, (server,)):
            status, _, answer = await send(server)
            assert (status, answer["error"]["code"]) == (429, "budget_exceeded")

    run(test())


def test_books_that_cannot_be_opened_at_start_are_counted_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moonshim.usage.database._RETRY_SECONDS", 0.0)

    async def test() -> None:
        file, aside = tmp_path / "usage-0.db", tmp_path / "aside.db"
        async with gateways(day("1000"), tmp_path=tmp_path) as (_, (server,)):
            one = await cost_of_one(server)
        file.rename(aside)
        file.mkdir()
        async with gateways(day(one * 3), tmp_path=tmp_path) as (_, (server,)):
            status, headers, _ = await send(server)
            assert (status, headers["x-moonshim-lost"]) == (200, "budgets")
            while await booked(server) != 1:  # otherwise its record may create a file before the other one is back
                await asyncio.sleep(0.01)
            file.rmdir()
            aside.rename(file)
            assert (await send(server))[0] == 200  # its record opens the file
            while await used(server) != one * 3:  # when its batch is written
                await asyncio.sleep(0.01)
            assert (await send(server))[2]["error"]["code"] == "budget_exceeded"

    run(test())


def test_a_client_that_leaves_pays_for_what_its_request_has_used(tmp_path: Path) -> None:
    async def test() -> None:
        async with gateways(day("5.00"), tmp_path=tmp_path, simulator=Simulator(tokens_per_second=2)) as (_, (server,)):
            async with (
                aiohttp.ClientSession(server.url, headers={"x-api-key": KEY}) as client,
                client.post(PATHS["chat"], json=body("chat", stream=True)) as answer,
            ):
                assert answer.status == 200
                await answer.content.readany()
            while not (spent := await used(server)):
                await asyncio.sleep(0.01)
            assert spent > Decimal("0.03")  # the prompt alone has 36 tokens

    run(test())


def test_the_next_day_has_a_new_budget(tmp_path: Path) -> None:
    async def test() -> None:
        async with gateways(day("0.01"), tmp_path=tmp_path) as (_, (server,)):
            assert [(await send(server))[0] for _ in range(2)] == [200, 429]
            server.state.spending.keeper._clock = lambda: time.time() + 24 * 3600
            assert [(await send(server))[0] for _ in range(2)] == [200, 429]

    run(test())


def test_an_hour_of_caching_is_reserved_at_its_price(tmp_path: Path) -> None:
    """A prompt of about 2,000 tokens, at $1 per million for input and $1,000 for an hour in the cache."""

    async def test() -> None:
        price = Price(input=Decimal(1), output=Decimal(0), cache_write=Decimal(1), cache_write_1h=Decimal(1000))
        async with gateways(day("1.00"), prices={"*": price}, tmp_path=tmp_path) as (_, (server,)):
            text: dict[str, Any] = {"type": "text", "text": "word " * 2000}
            reserved = []
            for control in ({"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}):
                question = body("messages") | {
                    "messages": [{"role": "user", "content": [text | {"cache_control": control}]}]
                }
                parsed = read_request(question, dialect="anthropic")
                (key,) = server.state.snapshot.config.keys
                targets = server.state.snapshot.router.resolve(MODEL)[0]
                estimate = server.state.spending._estimate(
                    key, parsed, parsed.estimate_tokens(), targets, server.state.snapshot.price
                )
                reserved.append(estimate["$"])
            assert reserved[1] == 1000 * reserved[0]

    run(test())


def test_the_usage_report_has_budgets_and_all_machines(tmp_path: Path) -> None:
    async def report(server: Running) -> Any:
        async with (
            aiohttp.ClientSession(server.url, headers={"x-api-key": KEY}) as client,
            client.get("/v1/usage?by=model&since=1h") as answer,
        ):
            return await answer.json(), answer.headers.get("x-moonshim-lost")

    async def test(redis: RedisServer) -> None:
        async with gateways(day("5.00"), count=2, tmp_path=tmp_path, store=redis.url) as (_, servers):
            for server in (servers[0], servers[0], servers[1]):
                assert (await send(server))[0] == 200
            for server in servers:
                assert server.state.shared_usage is not None
                await server.state.shared_usage.write()
            spent = await used(servers[0])
            for server in servers:
                document, lost = await report(server)
                assert lost is None
                assert (document["total"]["requests"], document["data"][0]["name"]) == (3, MODEL)
                assert Decimal(document["total"]["costs"]["$"]) == spent
                (budget,) = document["budgets"]
                assert (budget["key"], budget["period"], budget["unit"], budget["limit"]) == ("ci", "day", "$", "5.00")
                assert (Decimal(budget["used"]), Decimal(budget["left"])) == (spent, 5 - spent)
            redis.stop()
            document, lost = await report(servers[1])
            assert (document["total"]["requests"], lost) == (1, "usage, budgets")
            assert Decimal(document["budgets"][0]["used"]) == spent / 3
            redis.start()

    with running_redis() as redis:
        run(test(redis))


def configured(folder: Path, simulator: Simulator, *, workers: int = 1) -> Path:
    config = folder / "moonshim.toml"
    config.write_text(
        f'[gateway]\nworkers = {workers}\nstore = "sqlite:state.db"\n[usage]\nfile = "usage.db"\n'
        f'[[providers]]\nname = "host"\napi_base_url = "{simulator.url}/v1"\napi_key = "sk-x"\nmodels = ["{MODEL}"]\n'
        f'[[keys]]\nname = "ci"\ndigest = "{DIGEST}"\nbudgets = [{{ period = "total", tokens = 1000 }}]\n'
    )
    return config


def test_two_workers_share_a_budget(tmp_path: Path) -> None:
    """As a user runs it: `moonshim serve` with two workers, on a SQLite store."""

    async def flood(url: str) -> list[int]:
        async with aiohttp.ClientSession(url, headers={"x-api-key": KEY}) as client:

            async def one() -> int:
                async with client.post(PATHS["chat"], json=body("chat")) as answer:
                    data = await answer.json()
                    assert answer.status == 200 or data["error"]["code"] == "budget_exceeded"
                    return int(data["usage"]["total_tokens"]) if answer.status == 200 else 0

            return await asyncio.gather(*(one() for _ in range(50)))

    with Simulator().running() as simulator:
        config = configured(tmp_path, simulator, workers=2)
        with serving("serve", "--config", config, cwd=tmp_path) as server:
            tokens = run(flood(server.url))
            served, enough = sum(map(bool, tokens)), -(-1000 // max(tokens))
            assert enough <= served <= enough + 2 < 50
            assert len(simulator.requests) == served
            assert server.stop() == 0


def test_a_killed_gateway_keeps_nothing_reserved_and_forgets_nothing(tmp_path: Path) -> None:
    async def kill_while_it_waits(server: Serving, simulator: Simulator) -> None:
        async with aiohttp.ClientSession(server.url, headers={"x-api-key": KEY}) as client:
            waiting = asyncio.create_task(client.post(PATHS["chat"], json=body("chat")).__aenter__())
            while len(simulator.requests) < 1:
                await asyncio.sleep(0.01)
            server.stop(signal.SIGKILL)
            with pytest.raises(aiohttp.ClientError):
                await waiting

    with Simulator().running() as quick, Simulator(first_token_ms=600_000).running() as slow:
        with serving("serve", "--config", configured(tmp_path, quick), cwd=tmp_path) as server:
            status, text = server.post(PATHS["chat"], body("chat"), **{"x-api-key": KEY})
            assert status == 200
            each = json.loads(text)["usage"]["total_tokens"]
            assert server.stop() == 0
        with serving("serve", "--config", configured(tmp_path, slow), cwd=tmp_path) as server:
            run(kill_while_it_waits(server, slow))
        with serving("serve", "--config", configured(tmp_path, quick), cwd=tmp_path) as server:
            answers = [server.post(PATHS["chat"], body("chat"), **{"x-api-key": KEY})[0] for _ in range(20)]
            assert answers.count(200) == -(-1000 // each) - 1
            assert set(answers) == {200, 429}
