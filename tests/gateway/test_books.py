"""Every exchange with a host is in the books, with its tokens, however it ended."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from moonshim.config import Config, GatewayKey, ProviderConfig, Retries, UsageBooks
from moonshim.config.model import Secret, digest_of
from moonshim.simulator.server import Simulator
from tests.support.gateway.running import Running, config_for, running
from tests.support.gateway.serving import wait_until
from tests.support.servers import running as running_command

PATHS = {"openai_chat": "/v1/chat/completions", "anthropic": "/v1/messages", "openai_responses": "/v1/responses"}


def body_of(dialect: str, model: str = "kimi-k2.5", **given: Any) -> dict[str, Any]:
    if dialect == "openai_responses":
        return {"model": model, "input": "What is the time?", "store": False} | given
    asked = {"model": model, "messages": [{"role": "user", "content": "What is the time?"}], "max_tokens": 2000}
    return asked | given


def booked(test: Callable[[Running, httpx.AsyncClient], Awaitable[Any]], config: Config) -> list[dict[str, Any]]:
    """What is in the books after the test, when the gateway has ended."""
    path = config.usage.file
    assert path is not None

    async def run() -> None:
        async with running(config) as gateway, httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
            await test(gateway, client)

    asyncio.run(run())
    with closing(sqlite3.connect(path)) as db:
        db.row_factory = sqlite3.Row
        return [dict(row) for row in db.execute("SELECT * FROM exchanges ORDER BY id")]


def configured(url: str, folder: Path, **given: Any) -> Config:
    return config_for(url, usage=UsageBooks(file=str(folder / "usage.db")), models=(), **given)


@pytest.fixture
def simulator() -> Any:
    with Simulator(behaviour="selfhost").running() as simulator:
        yield simulator


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", PATHS)
def test_a_complete_response(simulator: Simulator, tmp_path: Path, dialect: str, stream: bool) -> None:
    key = GatewayKey(name="laptop", digest=digest_of("msk_1"))

    async def test(gateway: Running, client: httpx.AsyncClient) -> None:
        headers = {"authorization": "Bearer msk_1", "x-request-id": "r1", "user-agent": "curl/8", "session_id": "s 1"}
        sent = body_of(dialect, "host/kimi-k2.5", stream=stream)
        answer = await client.post(PATHS[dialect], json=sent, headers=headers)
        assert answer.status_code == 200, answer.text

    (row,) = booked(test, configured(simulator.url, tmp_path, keys=(key,)))
    (served,) = simulator.requests
    assert served.tally is not None
    assert {name: row[name] for name in ("request_id", "state", "key", "client", "dialect", "outcome", "status")} == {
        "request_id": "r1",
        "state": "settled",
        "key": "laptop",
        "client": "curl",
        "dialect": dialect,
        "outcome": "ok",
        "status": 200,
    }
    assert (row["requested_model"], row["provider"], row["model"]) == ("host/kimi-k2.5", "host", "kimi-k2.5")
    assert (row["attempts"], row["fallbacks"], row["choices"], row["estimated"]) == (1, 0, 1, 0)
    assert (row["input_tokens"], row["output_tokens"]) == (served.tally.prompt, served.tally.completion)
    assert row["session"].startswith("id-"), "a session with a space is stored as a digest"
    assert 0 <= row["ended"] - row["started"] < 600_000


@pytest.mark.parametrize("fault", ["cut-off", "no-usage"])
@pytest.mark.parametrize("dialect", PATHS)
def test_a_response_without_usage_is_estimated(simulator: Simulator, tmp_path: Path, dialect: str, fault: str) -> None:
    async def test(gateway: Running, client: httpx.AsyncClient) -> None:
        sent = body_of(dialect, f"host/kimi-k2.5+{fault}", stream=True)
        assert (await client.post(PATHS[dialect], json=sent)).status_code == 200

    (row,) = booked(test, configured(simulator.url, tmp_path))
    (served,) = simulator.requests
    assert served.tally is not None
    assert (row["estimated"], row["outcome"]) == (1, "ok" if fault == "no-usage" else "broken")
    assert 0.5 * served.tally.prompt < row["input_tokens"] < 3 * served.tally.prompt + 200
    assert 0 < row["output_tokens"] < 3 * served.tally.completion + 50


def test_a_client_that_leaves(tmp_path: Path) -> None:
    async def test(gateway: Running, client: httpx.AsyncClient) -> None:
        sent = body_of("openai_chat", "host/kimi-k2.5", stream=True)
        async with client.stream("POST", PATHS["openai_chat"], json=sent) as answer:
            seen = 0
            async for line in answer.aiter_lines():
                seen += line.startswith("data:")
                if seen > 5:
                    break

    with Simulator(behaviour="selfhost", tokens_per_second=20).running() as simulator:
        (row,) = booked(test, configured(simulator.url, tmp_path))
    assert (row["state"], row["estimated"], row["outcome"], row["status"]) == ("settled", 1, "client_gone", 200)
    assert row["output_tokens"] >= 1


def test_a_client_that_leaves_before_the_response(tmp_path: Path) -> None:
    async def test(gateway: Running, client: httpx.AsyncClient) -> None:
        sent = asyncio.create_task(client.post(PATHS["openai_chat"], json=body_of("openai_chat", "host/kimi-k2.5")))
        while not slow.requests:
            await asyncio.sleep(0.01)
        sent.cancel()

    with Simulator(behaviour="selfhost", first_token_ms=600_000).running() as slow:
        (row,) = booked(test, configured(slow.url, tmp_path))
    assert (row["state"], row["estimated"], row["outcome"], row["output_tokens"]) == ("settled", 1, "client_gone", 0)
    assert row["input_tokens"] > 0


def test_what_never_reaches_a_host_is_not_booked(simulator: Simulator, tmp_path: Path) -> None:
    async def test(gateway: Running, client: httpx.AsyncClient) -> None:
        assert (await client.post(PATHS["openai_chat"], json=body_of("openai_chat", "other/x"))).status_code == 404
        assert (await client.post(PATHS["openai_chat"], json={"model": "host/k3"})).status_code == 400
        assert (await client.get("/v1/models")).status_code == 200

    assert booked(test, configured(simulator.url, tmp_path)) == []


def test_attempts_and_fallbacks(simulator: Simulator, tmp_path: Path) -> None:
    second = ProviderConfig(name="second", api_base_url=f"{simulator.url}/v1", host="vllm")
    config = configured(simulator.url, tmp_path)
    aliases = {
        "works": ("host/kimi-k2.5+status-503", "second/kimi-k2.5"),
        "fails": ("host/kimi-k2.5+status-500", "second/kimi-k2.5+unauthorized"),
    }
    config = replace(config, providers=(*config.providers, second), aliases=aliases)

    async def test(gateway: Running, client: httpx.AsyncClient) -> None:
        gateway.state.random = lambda: 0.0
        assert (await client.post(PATHS["openai_chat"], json=body_of("openai_chat", "works"))).status_code == 200
        assert (await client.post(PATHS["openai_chat"], json=body_of("openai_chat", "fails"))).status_code >= 400

    works, fails = booked(test, config)
    assert (works["requested_model"], works["provider"], works["model"]) == ("works", "second", "kimi-k2.5")
    assert (works["outcome"], works["fallbacks"]) == ("ok", 1)
    assert works["attempts"] + fails["attempts"] == len(simulator.requests)
    assert (fails["outcome"], fails["fallbacks"]) == ("upstream_error", 1)
    assert (fails["input_tokens"], fails["output_tokens"], fails["cost"]) == (0, 0, 0)


def test_a_host_that_cannot_be_reached(tmp_path: Path) -> None:
    async def test(gateway: Running, client: httpx.AsyncClient) -> None:
        answer = await client.post(PATHS["openai_chat"], json=body_of("openai_chat", "host/kimi-k2.5"))
        assert answer.status_code == 502

    (row,) = booked(test, configured("http://127.0.0.1:9", tmp_path))
    assert (row["outcome"], row["input_tokens"], row["output_tokens"]) == ("upstream_error", 0, 0)


def test_an_error_in_place_of_a_response_costs_nothing(simulator: Simulator, tmp_path: Path) -> None:
    async def test(gateway: Running, client: httpx.AsyncClient) -> None:
        sent = body_of("openai_chat", "host/kimi-k2.5+error-in-200")
        assert (await client.post(PATHS["openai_chat"], json=sent)).status_code >= 400

    (row,) = booked(test, replace(configured(simulator.url, tmp_path), retries=Retries(attempts=1)))
    assert (row["outcome"], row["input_tokens"], row["output_tokens"]) == ("upstream_error", 0, 0)


def test_several_choices(simulator: Simulator, tmp_path: Path) -> None:
    async def test(gateway: Running, client: httpx.AsyncClient) -> None:
        sent = body_of("openai_chat", "host/kimi-k2.5", n=3)
        assert (await client.post(PATHS["openai_chat"], json=sent)).status_code == 200

    (row,) = booked(test, configured(simulator.url, tmp_path))
    assert row["choices"] == 3


def test_a_compaction(simulator: Simulator, tmp_path: Path) -> None:
    async def test(gateway: Running, client: httpx.AsyncClient) -> None:
        sent = {"model": "host/kimi-k2.5", "input": "What is the time?"}
        assert (await client.post("/v1/responses/compact", json=sent)).status_code == 200

    (row,) = booked(test, configured(simulator.url, tmp_path))
    (served,) = simulator.requests
    assert served.tally is not None
    assert (row["output_tokens"], row["dialect"]) == (served.tally.completion, "openai_responses")


SESSIONS: dict[str, tuple[dict[str, str], dict[str, Any], str]] = {
    "Claude Code": ({"x-claude-code-session-id": "0b"}, {"metadata": {"user_id": "user_1_account__session_9"}}, "0b"),
    "Claude Code without the header": ({}, {"metadata": {"user_id": "user_1_account__session_9f"}}, "9f"),
    "Claude Code with JSON": ({}, {"metadata": {"user_id": json.dumps({"session_id": "77"})}}, "77"),
    "Codex": ({"session_id": "c-1"}, {}, "c-1"),
    "opencode": ({"x-session-id": "ses_1"}, {}, "ses_1"),
}


@pytest.mark.parametrize(("headers", "more", "session"), SESSIONS.values(), ids=SESSIONS)
def test_the_session(
    simulator: Simulator, tmp_path: Path, headers: dict[str, str], more: dict[str, Any], session: str
) -> None:
    async def test(gateway: Running, client: httpx.AsyncClient) -> None:
        sent = body_of("anthropic", "host/kimi-k2.5") | more
        assert (await client.post(PATHS["anthropic"], json=sent, headers=headers)).status_code == 200

    (row,) = booked(test, configured(simulator.url, tmp_path))
    assert row["session"] == session


def test_a_conversation_is_a_session(simulator: Simulator, tmp_path: Path) -> None:
    first = {"role": "user", "content": "What is the time?"}
    more = [{"role": "assistant", "content": "Nine."}, {"role": "user", "content": "And now?"}]

    async def test(gateway: Running, client: httpx.AsyncClient) -> None:
        for messages in ([first], [first, *more], [{"role": "user", "content": "Hello"}]):
            sent = {"model": "host/kimi-k2.5", "messages": messages}
            assert (await client.post(PATHS["openai_chat"], json=sent)).status_code == 200

    rows = booked(test, configured(simulator.url, tmp_path))
    assert rows[0]["session"] == rows[1]["session"] != rows[2]["session"]


@pytest.mark.parametrize("headers", [{}, {"session_id": "an id with spaces"}], ids=["conversation", "id of the client"])
def test_an_id_says_nothing_about_the_text(simulator: Simulator, tmp_path: Path, headers: dict[str, str]) -> None:
    """Two tenants, or two gateways, with the same text have different ids; a gateway keeps its ids over a restart."""
    keys = tuple(GatewayKey(name=name, digest=digest_of(f"msk_{name}")) for name in ("ci", "laptop"))

    async def test(gateway: Running, client: httpx.AsyncClient) -> None:
        for key in keys:
            own = headers | {"authorization": f"Bearer msk_{key.name}"}
            sent = body_of("openai_chat", "host/kimi-k2.5")
            assert (await client.post(PATHS["openai_chat"], json=sent, headers=own)).status_code == 200

    def sessions(folder: str, secret: str) -> list[str]:
        (tmp_path / folder).mkdir()
        config = configured(simulator.url, tmp_path / folder, keys=keys, secret=Secret(secret))
        return [row["session"] for row in booked(test, config)]

    one, again, other = sessions("1", "secret 1"), sessions("2", "secret 1"), sessions("3", "secret 2")
    assert one == again
    assert len({*one, *other}) == 4


def test_the_demo_is_not_in_the_books_of_real_models(tmp_path: Path) -> None:
    with running_command("serve", "--demo", cwd=tmp_path, XDG_STATE_HOME=str(tmp_path)) as gateway:
        assert gateway.post(PATHS["openai_chat"], body_of("openai_chat"))[0] == 200
        assert gateway.stop() == 0
        (books,) = (line for line in gateway.logged if line["event"] == "usage_file")
    assert books["file"] == "memory:"
    assert not (tmp_path / "moonshim" / "usage.db").exists()


CONFIG = """
[[providers]]
name = "host"
api_base_url = "{url}/v1"
api_key = "none"
models = ["kimi-k2.5"]
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_gateway_that_ends_in_the_middle(tmp_path: Path, number: signal.Signals) -> None:
    """Stopped, it settles what runs; killed, the next one lists it as in flight."""
    config, path = tmp_path / "moonshim.toml", tmp_path / "moonshim" / "usage.db"
    start = ("serve", "--config", config, "--graceful-seconds", "0")
    with Simulator(behaviour="selfhost", tokens_per_second=10).running() as simulator:
        config.write_text(CONFIG.format(url=simulator.url))
        with running_command(*start, cwd=tmp_path, XDG_STATE_HOME=str(tmp_path)) as gateway:
            wait_until(lambda: str(path) in gateway.stderr, "the log says where the books are")
            stream = httpx.stream("POST", gateway.url + PATHS["openai_chat"], json=body_of("openai_chat", stream=True))
            with stream as answer:
                lines = answer.iter_lines()
                for _ in range(12):
                    next(lines)
                gateway.stop(number)
        if number == signal.SIGKILL:
            with running_command(*start, cwd=tmp_path, XDG_STATE_HOME=str(tmp_path)) as gateway:
                wait_until(lambda: "usage_recovered" in gateway.stderr, "the next gateway books what was left")
                assert gateway.stop() == 0
    with closing(sqlite3.connect(path)) as db:
        (row,) = db.execute("SELECT state, estimated, output_tokens > 0 FROM exchanges")
    assert row == (("settled", 1, 1) if number == signal.SIGTERM else ("in_flight", 0, None))
