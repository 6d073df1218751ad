"""`GET /v1/usage`, the metrics and the log: what requests cost, to those who may see it."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from decimal import Decimal
from typing import Any, Final
from urllib.parse import urlencode

import pytest

from moonshim.config import Config, GatewayKey, Price, UsageBooks
from moonshim.config.model import digest_of
from moonshim.gateway.observe import logs
from moonshim.gateway.observe.log_lines import fields_of, human_line
from moonshim.gateway.observe.record import RequestRecord
from tests.support.gateway.hosts import Host, HostRequest, Peer, run, whole
from tests.support.gateway.raw_client import ask, body_of
from tests.support.gateway.running import Running, config_for, running

K3: Final = Price(
    input=Decimal("3.00"),
    output=Decimal("15.00"),
    cached=Decimal("0.30"),
    cache_write=Decimal("3.00"),
    cache_write_1h=Decimal("6.00"),
)
KEYS: Final = (
    GatewayKey(name="alice", digest=digest_of("msk_alice")),
    GatewayKey(name="bob", digest=digest_of("msk_bob")),
    GatewayKey(name="admin", digest=digest_of("msk_admin"), rights=("usage",)),
)


async def counting(peer: Peer, _: HostRequest) -> None:
    """A response of 1,000 input tokens, 600 of them cached, and 100 output tokens, 40 of them for reasoning."""
    body = {
        "id": "c1",
        "object": "chat.completion",
        "model": "kimi-k3",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": 1000,
            "completion_tokens": 100,
            "total_tokens": 1100,
            "prompt_tokens_details": {"cached_tokens": 600},
            "completion_tokens_details": {"reasoning_tokens": 40},
        },
    }
    await peer.send(whole(json.dumps(body).encode()))


def config(url: str, **given: Any) -> Config:
    usual: dict[str, Any] = {
        "models": ("kimi-k3",),
        "prices": {"host/kimi-k3": K3},
        "usage": UsageBooks(file="memory:"),
    }
    return config_for(url, **(usual | given))


async def send(gateway: Running, key: str = "", model: str = "kimi-k3") -> None:
    headers = f"authorization: Bearer msk_{key}\r\n" if key else ""
    reply = await ask(gateway.port, "openai_chat", body_of("openai_chat", model=model, stream=False), headers=headers)
    assert reply.status == 200


async def usage(gateway: Running, client: str = "", **query: Any) -> tuple[int, Any]:
    def get() -> tuple[int, Any]:
        headers = {"authorization": f"Bearer msk_{client}"} if client else {}
        request = urllib.request.Request(f"{gateway.url}/v1/usage?{urlencode(query)}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    return await asyncio.to_thread(get)


def test_the_cost_of_a_request_is_booked_reported_counted_and_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[RequestRecord] = []
    monkeypatch.setattr(logs, "log_request", logged.append)

    async def test() -> tuple[Any, str]:
        async with Host(counting) as host, running(config(host.url)) as gateway:
            await send(gateway)
            await send(gateway)
            return await usage(gateway, by="model"), gateway.state.metrics.render().decode()

    (status, report), metrics = run(test())
    assert status == 200
    # 400 fresh x 3 + 600 read x 0.30 + 100 out x 15 = 1,200 + 180 + 1,500 = 2,880 millionths; twice
    (row,) = report["data"]
    assert (row["name"], row["requests"], row["costs"], row["cost_unknown"]) == ("kimi-k3", 2, {"$": "0.00576"}, 0)
    assert (row["input_tokens"], row["output_tokens"]) == (2000, 200)
    assert (row["cache_read_tokens"], row["reasoning_tokens"]) == (1200, 80)
    assert report["total"] == {name: value for name, value in row.items() if name != "name"}
    for line in (
        'moonshim_cost_total{currency="$",key="none",model="kimi-k3"} 0.00576',
        'moonshim_usage_tokens_total{key="none",kind="input",model="kimi-k3"} 2000.0',
        'moonshim_usage_tokens_total{key="none",kind="cache_read",model="kimi-k3"} 1200.0',
        'moonshim_usage_tokens_total{key="none",kind="reasoning",model="kimi-k3"} 80.0',
    ):
        assert line in metrics
    fields = fields_of(logged[0])
    assert (fields["cost"], fields["currency"]) == ("0.00288", "$")
    line = human_line({"event": "request"} | fields, colour=False)
    assert " 1.0k/100 tok cache 60% $0.0029" in line


def test_an_unknown_price_is_unknown_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[RequestRecord] = []
    monkeypatch.setattr(logs, "log_request", logged.append)

    async def test() -> tuple[Any, str]:
        async with Host(counting) as host, running(config(host.url, prices={})) as gateway:
            await send(gateway)
            return await usage(gateway), gateway.state.metrics.render().decode()

    (_, report), metrics = run(test())
    assert (report["total"]["costs"], report["total"]["cost_unknown"]) == ({}, 1)
    assert 'moonshim_cost_unknown_total{key="none",model="kimi-k3"} 1.0' in metrics
    assert "moonshim_cost_total{" not in metrics
    assert {"cost", "currency"} & set(fields_of(logged[0])) == set()


def test_names_that_clients_choose_do_not_label_metrics() -> None:
    async def test() -> str:
        async with Host(counting) as host, running(config(host.url, models=())) as gateway:
            await send(gateway, model="host/kimi-k3-made-up")
            return gateway.state.metrics.render().decode()

    metrics = run(test())
    assert 'moonshim_usage_tokens_total{key="none",kind="input",model="kimi-k3"} 1000.0' in metrics
    assert "made-up" not in metrics


def test_a_refused_request_costs_nothing_and_hides_nothing() -> None:
    async def refusing(peer: Peer, _: HostRequest) -> None:
        await peer.send(
            whole(b'{"error": {"message": "no", "type": "invalid_request_error"}}', status="400 Bad Request")
        )

    async def test() -> Any:
        async with Host(refusing) as host, running(config(host.url, prices={})) as gateway:
            await ask(gateway.port, "openai_chat", body_of("openai_chat", model="kimi-k3", stream=False))
            return await usage(gateway)

    _, report = run(test())
    total = report["total"]
    assert (total["requests"], total["input_tokens"], total["costs"], total["cost_unknown"]) == (1, 0, {}, 0)


def test_a_key_sees_itself_and_one_with_the_right_sees_all() -> None:
    async def test() -> list[Any]:
        async with Host(counting) as host, running(config(host.url, keys=KEYS)) as gateway:
            for key in ("alice", "alice", "bob"):
                await send(gateway, key)
            return [
                await usage(gateway, "alice", by="key"),
                await usage(gateway, "alice", by="key", key="alice"),
                await usage(gateway, "alice", by="key", key="bob"),
                await usage(gateway, "admin", by="key"),
                await usage(gateway, "admin", by="key", key="bob"),
                await usage(gateway, "nobody"),
            ]

    own, named, other, everything, one, stranger = run(test())
    for status, report in (own, named):
        assert (status, [(row["name"], row["requests"]) for row in report["data"]]) == (200, [("alice", 2)])
    assert other[0] == 403
    assert other[1]["error"]["code"] == "usage_not_allowed"
    assert "can see only its own usage" in other[1]["error"]["message"]
    assert [(row["name"], row["requests"]) for row in everything[1]["data"]] == [("alice", 2), ("bob", 1)]
    assert [(row["name"], row["requests"]) for row in one[1]["data"]] == [("bob", 1)]
    assert stranger[0] == 401


def test_without_keys_usage_is_for_this_machine_only() -> None:
    async def test() -> Any:
        async with Host(counting) as host, running(config(host.url)) as gateway:
            gateway.state.bound_to_loopback = False
            return await usage(gateway)

    status, body = run(test())
    assert (status, body["error"]["code"]) == (403, "usage_not_allowed")


@pytest.mark.parametrize(
    ("query", "param", "message"),
    [
        ({"by": "modle"}, "by", "by must be one of key, session, model, provider, client, day"),
        ({"since": "soon"}, "since", "since: expected a period (30min, 12h, 7d, 2w, 3mo, 1y), a date (2026-12-31)"),
        ({"until": "2026-02-30"}, "until", "until: expected a period"),
        ({"since": "0001-01-01T00:00:00+23:59"}, "since", "since: expected a period"),
        ({"until": "9999-12-31T23:59:59-12:00"}, "until", "until: expected a period"),
        ({"since": "1d", "until": "2d"}, "until", "until must be after since"),
        ({"limit": "0"}, "limit", "limit must be an integer from 1 to 1,000"),
        ({"limit": "1001"}, "limit", "limit must be an integer from 1 to 1,000"),
        ({"sinse": "1d"}, "sinse", "unknown parameter 'sinse' (did you mean since?)"),
    ],
)
def test_a_wrong_parameter_is_named(query: dict[str, str], param: str, message: str) -> None:
    async def test() -> Any:
        async with running(config("http://127.0.0.1:9")) as gateway:
            return await usage(gateway, **query)

    status, body = run(test())
    assert (status, body["error"]["param"]) == (400, param)
    assert message in body["error"]["message"]


def test_groups_beyond_the_limit_are_in_the_total() -> None:
    async def test() -> Any:
        async with Host(counting) as host, running(config(host.url, keys=KEYS)) as gateway:
            for key in ("alice", "bob"):
                await send(gateway, key)
            return await usage(gateway, "admin", by="key", limit=1)

    _, report = run(test())
    assert (len(report["data"]), report["has_more"], report["total"]["requests"]) == (1, True, 2)
