"""Connections of clients: what guards them, half-closed ones, and those that do not read."""

from __future__ import annotations

from typing import Final

import aiohttp
import pytest

from tests.gateway.hosts import run
from tests.gateway.running import config_for, running

OWN_PATHS: Final = ("/metrics", "/ready", "/health", "/")


@pytest.mark.parametrize("path", OWN_PATHS)
@pytest.mark.parametrize(
    "headers",
    [{"host": "evil.example"}, {"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}],
    ids=["host", "origin", "fetch"],
)
def test_options_does_not_get_around_the_guard(path: str, headers: dict[str, str]) -> None:
    async def test() -> None:
        asking = {"access-control-request-method": "GET"}
        async with running(config_for("http://127.0.0.1:1")) as server, aiohttp.ClientSession(server.url) as client:
            for method in ("OPTIONS", "GET"):
                for given in (headers, headers | asking):
                    async with client.request(method, path, headers=given) as answer:
                        assert answer.status == 403, (method, given)
                        assert "providers" not in await answer.text()

    run(test())
