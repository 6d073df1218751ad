"""Both ways on which a stream reaches its client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.gateway.running import PLAIN_ASGI


@pytest.fixture(params=["relayed", "asgi"])
def both_paths(request: pytest.FixtureRequest) -> Iterator[None]:
    """With our own server, which writes what arrives at once, and as with any other one."""
    token = PLAIN_ASGI.set(request.param == "asgi")
    yield
    PLAIN_ASGI.reset(token)
