"""What web searches cost: in the usage books, in reports, in budgets and in the inspector."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, Final

import anthropic
import pytest
from msgspec.structs import replace

from moonshim.config import Budget, Config, GatewayKey, Price, UsageBooks, WebSearch
from moonshim.config.model import digest_of
from moonshim.gateway.inspector.views import detail_of
from moonshim.usage.report import as_document, summarize
from tests.gateway.test_web_search import REQUEST, SearchingKimi, cite
from tests.support.gateway.stages import Stage, stage
from tests.support.gateway.strict_hosts import PlannedResponse, Row, Turn

KEY: Final = "msk_search"
PRICE: Final = Price(input=Decimal(1), output=Decimal(1))
PAID: Final[dict[str, Any]] = {"price": Decimal("0.005"), "currency": "$"}
TOKENS: Final = "0.000068"
"""Two rounds with 30 tokens in and 4 out, at one millionth each."""


def host_search(body: Any, row: Row, turns: list[Turn]) -> PlannedResponse:
    """Moonshot's own search, twice in one response, then an answer."""
    if not turns:
        return PlannedResponse("", "", [("$web_search", "{}"), ("$web_search", '{"search_id": "2"}')])
    return PlannedResponse("", "Found it.")


@contextmanager
def searching(
    plays: Any = cite, *, tokens: Price | None = PRICE, budgets: tuple[Budget, ...] = (), **search: Any
) -> Iterator[Stage]:
    def config(host: SearchingKimi) -> Config:
        return Config(
            providers=host.providers(),
            web_search=WebSearch(provider="searxng", base_url=f"{host.url}/searxng", **search) if search else None,
            prices={} if tokens is None else {"kimi-*": tokens},
            usage=UsageBooks(file="memory:"),
            keys=(GatewayKey(name="ci", digest=digest_of(KEY), budgets=budgets),),
        )

    with stage(SearchingKimi(plays), config) as one:
        one.packages.anthropic.api_key = KEY
        yield one


def send(scene: Stage, model: str = "vllm/kimi-k2.5", **given: Any) -> None:
    scene.run(scene.packages.anthropic.messages.create(**{**REQUEST, "model": model, **given}))


def totals(scene: Stage) -> dict[str, Any]:
    report = scene.run(scene.gateway.state.ledger.run(summarize))
    total = as_document(report)["total"]
    return {name: total[name] for name in ("costs", "cost_unknown", "searches", "unpriced_searches")}


def beside_own_call(body: Any, row: Row, turns: list[Turn]) -> PlannedResponse:
    """A search and a call of the client's own tool: there is no second round."""
    return PlannedResponse("", "", [("look", "{}"), ("web_search", '{"query": "kimi"}')])


def test_a_response_that_no_round_follows_is_booked_once() -> None:
    look = {"name": "look", "description": "Look.", "input_schema": {"type": "object"}}
    with searching(beside_own_call, price=Decimal(0), currency="$") as scene:
        send(scene, tools=[look, *REQUEST["tools"]])
        total = as_document(scene.run(scene.gateway.state.ledger.run(summarize)))["total"]
        assert len(scene.host.bodies) == 1
        assert (total["input_tokens"], total["output_tokens"]) == (30, 4)


@pytest.mark.parametrize(
    ("search", "costs", "unpriced"),
    [
        (PAID, {"$": "0.005068"}, 0),
        ({"price": Decimal(0), "currency": "¥"}, {"$": TOKENS}, 0),
        ({"price": None}, {"$": TOKENS}, 1),
        ({"price": Decimal("0.005"), "currency": "¥"}, {"$": TOKENS}, 1),
    ],
    ids=["priced", "free", "unknown", "another currency"],
)
def test_a_search_adds_its_price_and_an_unknown_one_leaves_the_rest(
    search: dict[str, Any], costs: dict[str, str], unpriced: int
) -> None:
    with searching(**search) as scene:
        send(scene)
        assert totals(scene) == {"costs": costs, "cost_unknown": 0, "searches": 1, "unpriced_searches": unpriced}


def test_without_a_price_of_the_tokens_the_cost_stays_unknown() -> None:
    with searching(tokens=None, **PAID) as scene:
        send(scene)
        assert totals(scene) == {"costs": {}, "cost_unknown": 1, "searches": 1, "unpriced_searches": 0}


def test_budgets_and_the_inspector_have_the_searches_too() -> None:
    with searching(budgets=(Budget(period="day", limit=Decimal(1)),), **PAID) as scene:
        send(scene)
        (state,) = scene.run(scene.gateway.state.spending.keeper.states(scene.gateway.state.snapshot.config.keys))
        assert state.to_json()["used"] == "0.005068"
        inspector = scene.gateway.state.inspector
        assert inspector is not None
        assert detail_of(list(inspector.tracer)[-1])["summary"]["cost"] == "0.005068"


def test_a_search_by_the_host_is_counted_and_costs_what_the_prices_say() -> None:
    with searching(host_search, tokens=replace(PRICE, search=Decimal("0.01"))) as scene:
        send(scene, "moonshot/kimi-k2.5")
        assert totals(scene) == {"costs": {"$": "0.020068"}, "cost_unknown": 0, "searches": 2, "unpriced_searches": 0}


def test_the_fee_of_an_unknown_host_is_unknown() -> None:
    with searching(host_search) as scene:
        send(scene, "moonshot/kimi-k2.5")
        assert totals(scene) == {"costs": {"$": TOKENS}, "cost_unknown": 0, "searches": 2, "unpriced_searches": 2}


def five_searches(body: Any, row: Row, turns: list[Turn]) -> PlannedResponse:
    """Five searches in each of two rounds, then an answer."""
    if len(turns) < 2:
        return PlannedResponse("", "", [("web_search", f'{{"query": "{len(turns)} {n}"}}') for n in range(5)])
    return PlannedResponse("", "Found it.")


def used(scene: Stage) -> Decimal:
    (state, *_) = scene.run(scene.gateway.state.spending.keeper.states(scene.gateway.state.snapshot.config.keys))
    return Decimal(state.to_json()["used"])


def test_eight_requests_with_many_searches_each_stay_within_a_budget() -> None:
    """Each search is reserved when it is opened, and none exceeds the budget."""
    paid: dict[str, Any] = {"price": Decimal("0.10"), "currency": "$"}
    with searching(five_searches, budgets=(Budget(period="day", limit=Decimal("0.50")),), **paid) as scene:
        messages = scene.packages.anthropic.messages
        request = {**REQUEST, "model": "vllm/kimi-k2.5", "max_tokens": 100}

        async def flood() -> list[Any]:
            return await asyncio.gather(*(messages.create(**request) for _ in range(8)))

        ended = scene.run(flood())
        assert [message.content[-1].text for message in ended] == ["Found it."] * 8
        assert 1 <= totals(scene)["searches"] <= 4, "with a fifth, nothing would be left for the answers"
        assert used(scene) < Decimal("0.41")


def test_a_search_that_a_budget_does_not_allow_is_answered_without_it() -> None:
    paid: dict[str, Any] = {"price": Decimal("0.60"), "currency": "$"}
    with searching(budgets=(Budget(period="day", limit=Decimal("1.00")),), **paid) as scene:
        for _ in range(3):
            send(scene)
        assert totals(scene)["searches"] == 1
        assert Decimal("0.60") < used(scene) < Decimal("0.61")
        metrics = scene.gateway.state.metrics.render().decode()
        assert 'moonshim_searches_total{outcome="budget",provider="searxng"} 2.0' in metrics


def test_a_request_whose_calls_use_up_a_budget_gets_no_further_call() -> None:
    """Its first call may exceed it, as a last request may; the call after a search is another one."""
    paid: dict[str, Any] = {"price": Decimal("0.001"), "currency": "$"}
    dear = Price(input=Decimal(1000), output=Decimal(1000))
    with searching(tokens=dear, budgets=(Budget(period="day", limit=Decimal("0.01")),), **paid) as scene:
        with pytest.raises(anthropic.APIStatusError) as refused:
            send(scene)
        assert refused.value.status_code == 429
        assert refused.value.body["error"]["details"] == {"error_code": "budget_exceeded"}  # type: ignore[index]
        assert totals(scene)["searches"] == 0
        assert used(scene) == Decimal("0.043"), (
            "one call: 30 tokens in, and 13 out by estimate, as it was not passed on"
        )
