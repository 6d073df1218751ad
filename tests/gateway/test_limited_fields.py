"""A key that is bound to a model, or to a budget, cannot leave it through other fields of a body."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from msgspec.structs import replace

from moonshim.config import Budget, Config, GatewayKey, Price, UsageBooks
from moonshim.gateway.inbound.auth import new_key
from moonshim.usage.cost import decimal_text
from tests.support.gateway.hosts import Host, HostRequest, Peer, run, whole
from tests.support.gateway.running import MODEL, Running, config_for, running

Json = dict[str, Any]
KEY, DIGEST = new_key()
PRICE: Final = Price(input=Decimal("0.6"), output=Decimal("2.5"))
DAY: Final = Budget(period="day", limit=Decimal(1))
BOUND: Final = GatewayKey(name="bound", digest=DIGEST, models=(MODEL,))
SPENDING: Final = GatewayKey(name="spending", digest=DIGEST, budgets=(DAY,))
FREE: Final = GatewayKey(name="free", digest=DIGEST)
WIDE: Final[Json] = {
    "models": ["openai/gpt-5-pro"],
    "route": "fallback",
    "plugins": [{"id": "web"}],
    "service_tier": "priority",
    "provider": {"sort": "throughput", "data_collection": "deny"},
}


async def dear(peer: Peer, asked: HostRequest) -> None:
    """A response that costs more than any price table says."""
    usage = {"prompt_tokens": 1000, "completion_tokens": 10, "total_tokens": 1010, "cost": 25.0}
    message = {"role": "assistant", "content": "Hi."}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": MODEL, "choices": choices, "usage": usage}
    await peer.send(whole(json.dumps(body).encode()))


async def post(server: Running, **fields: Any) -> tuple[int, Any, str]:
    body = {"model": MODEL, "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]} | fields
    async with (
        aiohttp.ClientSession(server.url, headers={"authorization": f"Bearer {KEY}"}) as client,
        client.post("/v1/chat/completions", json=body) as answer,
    ):
        return answer.status, await answer.json(), answer.headers.get("x-moonshim-repairs", "")


def config(host: Host, tmp_path: Path, key: GatewayKey) -> Config:
    books = UsageBooks(file=str(tmp_path / "usage.db"))
    given = config_for(host.url, usage=books, prices={"*": PRICE})
    (provider,) = given.providers
    return replace(given, providers=(replace(provider, host="openrouter"),), keys=(key,))


@pytest.mark.parametrize("key", [BOUND, SPENDING], ids=["models", "budget"])
def test_fields_that_go_beyond_the_key_do_not_reach_the_host(tmp_path: Path, key: GatewayKey) -> None:
    async def test() -> None:
        async with Host(dear) as host, running(config(host, tmp_path, key)) as server:
            status, _, repairs = await post(server, **WIDE)
            assert status == 200
            (asked,) = host.requests
            sent = json.loads(asked.body)
            assert sent["provider"] == {"data_collection": "deny"}
            assert not (WIDE.keys() - {"provider"}) & sent.keys()
            assert "client_field=5" in repairs

    run(test())


@pytest.mark.parametrize("key", [BOUND, SPENDING], ids=["models", "budget"])
def test_a_field_that_decides_who_sees_the_data_is_refused(tmp_path: Path, key: GatewayKey) -> None:
    async def test() -> None:
        async with Host(dear) as host, running(config(host, tmp_path, key)) as server:
            status, body, _ = await post(server, preset="private")
            assert (status, body["error"]["param"]) == (400, "preset")
            assert not host.requests

    run(test())


def test_a_key_without_limits_keeps_every_field(tmp_path: Path) -> None:
    async def test() -> None:
        async with Host(dear) as host, running(config(host, tmp_path, FREE)) as server:
            assert (await post(server, **WIDE))[0] == 200
            assert json.loads(host.requests[0].body).items() >= WIDE.items()

    run(test())


def test_what_the_host_charges_counts_where_it_is_more_than_the_price(tmp_path: Path) -> None:
    async def test() -> None:
        async with Host(dear) as host, running(config(host, tmp_path, SPENDING)) as server:
            assert (await post(server))[0] == 200
            states = await server.state.spending.keeper.states([SPENDING])
            assert decimal_text(states[0].used) == "25.00"
            status, body, _ = await post(server)
            assert (status, body["error"]["code"]) == (429, "budget_exceeded")
            assert len(host.requests) == 1

    run(test())
