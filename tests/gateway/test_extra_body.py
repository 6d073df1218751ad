"""Configured fields reach the host in every request, win over the client's, and are reported."""

from __future__ import annotations

import json
from typing import Any

import pytest

import moonshim
from moonshim.errors import InvalidInput
from tests.support.gateway.hosts import run
from tests.support.gateway.leaks import scene
from tests.support.gateway.raw_client import CLIENTS, UPSTREAMS, answer_of, body_of, sending

BODY: dict[str, Any] = {"provider": {"only": ["moonshotai"], "sort": "price"}, "temperature": 1.0, "seed": 7}
HELLO: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_the_host_gets_the_configured_fields_whoever_asks(upstream: str) -> None:
    own = {"kimi-k2.5": {"provider": {"sort": "latency"}}}

    async def test() -> None:
        host = sending(answer_of(upstream))
        async with scene(host, dialect=upstream, body=BODY, model_bodies=own) as one:
            for client in CLIENTS:
                for stream in (True, False):
                    one.host.requests.clear()
                    reply = await one.ask(client, body_of(client, stream=stream, temperature=0.2))
                    assert reply.status == 200, reply.body
                    sent = json.loads(one.host.requests[0].body)
                    assert sent["provider"] == {"only": ["moonshotai"], "sort": "latency"}
                    assert (sent["temperature"], sent["seed"]) == (1.0, 7)
                    assert "extra_body=" in reply.headers["x-moonshim-repairs"]

    run(test())


def test_every_change_is_reported_and_the_clients_body_stays_as_it_is() -> None:
    body = {"model": "kimi-k2.5", "messages": HELLO, "provider": {"sort": "price", "zdr": True}}
    before = json.dumps(body)
    prepared = moonshim.prepare_request(body, host="openrouter", extra_body=BODY)
    assert prepared.body["provider"] == {"sort": "price", "zdr": True, "only": ["moonshotai"]}
    told = [change.place for change in prepared.changes if change.rule == "extra_body"]
    assert told == ["provider.only", "temperature", "seed"]
    assert json.dumps(body) == before
    prepared.body["provider"]["only"].append("x")
    assert BODY["provider"]["only"] == ["moonshotai"]


@pytest.mark.parametrize("name", ["model", "messages", "tools", "stream"])
def test_fields_that_follow_from_the_request_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be set here") as refused:
        moonshim.prepare_request({"model": "kimi-k3", "messages": HELLO}, extra_body={name: None})
    assert refused.value.field == f"extra_body.{name}"
