"""Every attempt that a host bills is in the books, at the price of that host; a client's key is not."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from moonshim.config import Budget, Config, GatewayKey, Price, ProviderConfig, Retries
from moonshim.config.model import digest_of
from moonshim.simulator.server import Simulator
from tests.gateway.test_books import PATHS, body_of, booked, configured
from tests.gateway.test_logs import in_a_pipe, lines
from tests.support.gateway.running import Running

DEAR = Price(input=Decimal(300), output=Decimal(300))
CHEAP = Price(input=Decimal(1), output=Decimal(1), currency="EUR")
KEY = "msk_" + "Ab3" * 14


@pytest.fixture
def simulator() -> Any:
    with Simulator(behaviour="selfhost").running() as simulator:
        yield simulator


def two_hosts(simulator: Simulator, folder: Path, *models: str, attempts: int = 1, **given: Any) -> Config:
    """An alias `both` of the models of a dear host and a cheap one."""
    second = ProviderConfig(name="second", api_base_url=f"{simulator.url}/v1", host="vllm")
    config = configured(simulator.url, folder, prices={"host/*": DEAR, "second/*": CHEAP}, **given)
    return replace(
        config,
        providers=(*config.providers, second),
        aliases={"both": models},
        retries=Retries(attempts=attempts),
    )


async def ask(client: httpx.AsyncClient, **headers: str) -> httpx.Response:
    return await client.post(PATHS["openai_chat"], json=body_of("openai_chat", "both"), headers=headers)


def test_a_fallback_after_a_billed_attempt(simulator: Simulator, tmp_path: Path) -> None:
    metrics = ""

    async def test(gateway: Running, client: httpx.AsyncClient) -> None:
        nonlocal metrics
        assert (await ask(client, **{"x-request-id": "r1"})).status_code == 200
        metrics = gateway.state.metrics.render().decode()

    config = two_hosts(simulator, tmp_path, "host/kimi-k2.5+cut-inside", "second/kimi-k2.5")
    dear, cheap = booked(test, config)
    assert (dear["provider"], dear["currency"], dear["outcome"], dear["estimated"]) == (
        "host",
        "$",
        "upstream_error",
        1,
    )
    assert dear["cost"] == (dear["input_tokens"] + dear["output_tokens"]) * 300 * 10**6
    assert dear["input_tokens"] > 0
    assert (cheap["provider"], cheap["currency"], cheap["outcome"], cheap["estimated"]) == ("second", "EUR", "ok", 0)
    assert cheap["cost"] == (cheap["input_tokens"] + cheap["output_tokens"]) * 10**6
    assert dear["request_id"] == cheap["request_id"] == "r1"
    assert [(row["attempts"], row["fallbacks"], row["state"]) for row in (dear, cheap)] == [
        (1, 0, "settled"),
        (1, 1, "settled"),
    ]
    assert dear["started"] <= dear["ended"] <= cheap["started"] <= cheap["ended"]
    assert 'moonshim_cost_total{currency="$"' in metrics
    assert 'moonshim_cost_total{currency="EUR"' in metrics


def test_a_host_that_refuses_is_not_charged_for_one_that_did_not(simulator: Simulator, tmp_path: Path) -> None:
    async def test(gateway: Running, client: httpx.AsyncClient) -> None:
        assert (await ask(client)).status_code >= 400

    config = two_hosts(simulator, tmp_path, "host/kimi-k2.5+cut-inside", "second/kimi-k2.5+unauthorized")
    dear, cheap = booked(test, config)
    assert (dear["provider"], dear["currency"]) == ("host", "$")
    assert dear["cost"] > 0
    assert (cheap["provider"], cheap["input_tokens"], cheap["cost"], cheap["currency"]) == ("second", 0, 0, None)


def test_the_log_has_the_tokens_and_the_cost_of_all_attempts(simulator: Simulator, tmp_path: Path) -> None:
    async def test(gateway: Running, client: httpx.AsyncClient) -> None:
        gateway.state.random = lambda: 0.0
        assert (await ask(client)).status_code >= 400

    with in_a_pipe(tmp_path):
        rows = booked(test, two_hosts(simulator, tmp_path, "host/kimi-k2.5+cut-inside", attempts=2))
    assert len(rows) == 2
    (line,) = [one for one in lines(tmp_path) if one["event"] == "request"]
    for name in ("input_tokens", "output_tokens"):
        assert line[name] == sum(row[name] for row in rows), name
    assert Decimal(line["cost"]) * 10**12 == sum(row["cost"] for row in rows)
    assert (line["currency"], line["estimated"], line["attempts"]) == ("$", True, 2)


def test_each_billed_retry_counts_in_the_books_and_the_budget(simulator: Simulator, tmp_path: Path) -> None:
    key = GatewayKey(
        name="ci",
        digest=digest_of(KEY),
        budgets=(Budget(period="day", limit=Decimal(1000)),),
    )
    used = 0

    async def test(gateway: Running, client: httpx.AsyncClient) -> None:
        nonlocal used
        gateway.state.random = lambda: 0.0
        assert (await ask(client, authorization=f"Bearer {KEY}")).status_code >= 400
        (state,) = await gateway.state.spending.keeper.states([key])
        used = state.used

    config = two_hosts(simulator, tmp_path, "host/kimi-k2.5+cut-inside", attempts=3, keys=(key,))
    rows = booked(test, config)
    assert len(rows) == len(simulator.requests) == 3
    assert all(row["cost"] > 0 and row["attempts"] == 1 and row["fallbacks"] == 0 for row in rows)
    assert used == sum(row["cost"] for row in rows)


@pytest.mark.parametrize("key", [KEY, "sk-" + "Ab3" * 12], ids=["gateway", "provider"])
@pytest.mark.parametrize("place", ["x-session-id", "user-agent", "x-request-id", "prompt_cache_key", "model"])
def test_a_key_in_the_wrong_place_is_not_stored(simulator: Simulator, tmp_path: Path, place: str, key: str) -> None:
    async def test(gateway: Running, client: httpx.AsyncClient) -> None:
        sent = body_of("openai_chat", "host/kimi-k2.5") | ({place: key} if place == "prompt_cache_key" else {})
        if place == "model":
            sent["model"] = f"host/{key}"
        headers = {place: key} if "-" in place else {}
        await client.post(PATHS["openai_chat"], json=sent, headers=headers)

    (row,) = booked(test, configured(simulator.url, tmp_path))
    assert row["session"].startswith(("id-", "conversation-"))
    assert key.lower() not in str(row).lower()
    for file in tmp_path.iterdir():
        assert key.lower().encode() not in file.read_bytes().lower(), file
