"""/metrics as Prometheus reads it, and the Grafana dashboard, whose queries ask only for what the gateway emits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from typing import Any, Final

import promql_parser
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from moonshim.config import Budget, GatewayKey, Price, Retries, Secret
from moonshim.gateway.inbound.auth import new_key
from moonshim.gateway.observe.metrics import Metrics
from moonshim.gateway.observe.record import RequestRecord
from tests.support.command import ROOT
from tests.support.gateway.counting_host import LEAKED, streaming
from tests.support.gateway.hosts import HostRequest, Peer, chunked_head, chunks, run, whole
from tests.support.gateway.leaks import Scene, scene
from tests.support.gateway.raw_client import body_of
from tests.support.streams import chunk, sse

FILE: Final = ROOT / "deploy" / "grafana" / "moonshim.json"
DASHBOARD: Final[dict[str, Any]] = json.loads(FILE.read_text("utf-8"))
VARIABLES: Final = {"$__rate_interval": "5m", "$__range": "6h", "$provider": ".*"}
ADDED: Final = {"le"}
"""The label of histograms that is no dimension of ours."""


def families(text: str) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(text)}


async def scraped(found: Scene) -> dict[str, Metric]:
    async with found.connected() as connection:
        connection.writer.write(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await connection.head()
        assert connection.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        return families((await connection.rest()).body.decode())


@cache
def emitted() -> dict[str, dict[str, set[str]]]:
    """The names of all samples after real traffic, and the labels of each with their values."""
    secret, digest = new_key()
    budgets = (Budget(period="day", limit=Decimal("5.00")),)
    key = GatewayKey(name="ci", digest=digest, budgets=budgets)
    own = f"authorization: Bearer {secret}\r\n"
    body = body_of("openai_chat") | {"temperature": 1.5}

    async def broken(peer: Peer, asked: HostRequest) -> None:
        await peer.send(whole(b'{"error":{"message":"no"}}', status="500 No"))

    async def thinking_first(peer: Peer, asked: HostRequest) -> None:
        text = {"reasoning_content": "Hm."} if len(peer.host.requests) == 2 else {"content": "Hi."}
        usage = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}}
        await peer.send(chunked_head() + chunks(sse([chunk(text), chunk({}, "stop"), usage])))

    async def traffic() -> list[Metric]:
        given: dict[str, Any] = {"overrides": {"temperature_max": 1.0}, "models": ("kimi-k2.5", "kimi-k3")}
        price = Price(input=Decimal(1), output=Decimal(2))
        retries = Retries(attempts=1, breaker_failures=1)
        async with scene(streaming(LEAKED), keys=(key,), prices={"kimi-k2.5": price}, retries=retries, **given) as one:
            assert (await one.ask("openai_chat", body, headers=own)).status == 200
            one.play(thinking_first)
            assert (await one.ask("openai_chat", body, headers=own)).status == 200
            one.play(broken)
            assert (await one.ask("openai_chat", body, headers=own)).status == 500
            first = await scraped(one)
        # A model without a price, and a store that is down.
        limited = GatewayKey(name="limited", digest=digest, requests_per_minute=60)
        down: dict[str, Any] = {"store": "redis://127.0.0.1:1", "secret": Secret("x" * 16), "keys": (limited,)}
        async with scene(streaming("Hi."), name="own", models=("made-up",), **down) as other:
            assert (await other.ask("openai_chat", body | {"model": "made-up"}, headers=own)).status == 200
            return [*first.values(), *(await scraped(other)).values()]

    found: dict[str, dict[str, set[str]]] = {}
    for family in run(traffic()):
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for name, value in sample.labels.items():
                labels.setdefault(name, set()).add(value)
    return found


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def queries() -> Iterator[tuple[str, str]]:
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def nodes(query: str) -> list[Any]:
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    assert "$" not in query, query
    found: list[Any] = []
    promql_parser.walk(promql_parser.parse(query), found.append)
    return found


@pytest.mark.parametrize(("title", "query"), list(queries()))
def test_a_query_asks_for_metrics_and_labels_that_the_gateway_emits(title: str, query: str) -> None:
    known, inside = emitted(), nodes(query)
    selectors = [node for node in inside if isinstance(node, promql_parser.VectorSelector)]
    assert selectors, title
    for selector in selectors:
        assert selector.name in known, selector.name
        labels = known[selector.name or ""]
        for matcher in selector.matchers.matchers:
            assert matcher.name in labels, (selector.name, matcher.name)
            if matcher.op in (promql_parser.MatchOp.Equal, promql_parser.MatchOp.NotEqual):
                assert matcher.value in labels[matcher.name], (matcher.name, matcher.value)
    shared = set.intersection(*({*known[selector.name or ""]} for selector in selectors))
    for node in inside:
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            assert set(node.modifier.labels) <= shared, title
    # A rate is only defined for counters, and histograms are read by their buckets.
    for node in inside:
        if isinstance(node, promql_parser.Call) and node.func.name in ("rate", "increase"):
            name = node.args[0].vector_selector.name
            assert name.endswith(("_total", "_bucket")), name


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_a_legend_names_the_labels_of_its_query(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        kept = [
            set(node.modifier.labels)
            for node in nodes(target["expr"])
            if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None
        ]
        named = {part.partition("}}")[0] for part in target["legendFormat"].split("{{")[1:]}
        assert named == (kept[0] - ADDED if kept else set()), target


def test_the_dashboard_covers_every_metric_that_people_watch() -> None:
    used = {
        node.name for _, query in queries() for node in nodes(query) if isinstance(node, promql_parser.VectorSelector)
    }
    ours = {name for name in emitted() if name.startswith("moonshim_")}
    derived = {name for name in ours if name.endswith(("_created", "_sum", "_count"))}
    assert ours - derived - used == set(), "a metric without a panel"


def test_the_dashboard_can_be_imported() -> None:
    assert DASHBOARD["uid"] == "moonshim"
    assert [one["name"] for one in DASHBOARD["templating"]["list"]] == ["datasource", "provider"]
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in panels())
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + right, place["y"] + down) for right in range(place["w"]) for down in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_prometheus_reads_what_is_emitted() -> None:
    """With the parser of its own client library, which is stricter about names, types and escapes than we need."""
    metrics = Metrics()
    odd = 'a "host"\\of\nours €'
    record = RequestRecord(request_id="1", path="/v1/messages", dialect="anthropic", provider=odd, status=200)
    record.seconds, record.first_byte_seconds, record.repairs = 0.3, 0.2, {"marker_call": 2}
    metrics.count_started(record)
    metrics.observe(record)
    found = families(metrics.render().decode())
    kinds = {name: family.type for name, family in found.items() if name.startswith("moonshim_")}
    assert {name for name, kind in kinds.items() if kind == "histogram"} == {
        "moonshim_request_seconds",
        "moonshim_first_byte_seconds",
    }
    assert set(kinds.values()) <= {"counter", "gauge", "histogram"}
    assert all(family.documentation for family in found.values())
    (counted,) = [one for one in found["moonshim_requests"].samples if one.name == "moonshim_requests_total"]
    assert counted.labels["provider"] == odd
    assert counted.value == 1
    buckets = {
        one.labels["le"]: one.value for one in found["moonshim_request_seconds"].samples if one.name.endswith("_bucket")
    }
    assert (buckets["0.25"], buckets["0.5"], buckets["+Inf"]) == (0, 1, 1)
