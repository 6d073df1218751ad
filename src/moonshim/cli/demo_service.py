"""`moonshim serve --demo`: settings -> a gateway with the simulator as its host, in one process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from moonshim.config import Config, Limits, Retries
from moonshim.config.environment import CLIENTS_OWN, with_overrides
from moonshim.gateway.process.service import GatewayService, open_service
from moonshim.gateway.process.settings import ServeSettings
from moonshim.simulator import demo
from moonshim.simulator.http.log import log_request
from moonshim.simulator.http.recorded import RecordedRequest
from moonshim.simulator.server import Simulator

__all__ = ["DemoService", "demo_config", "open_demo"]

_PATIENT: Final = Retries(breaker_failures=1_000_000)
"""Faults are selected per request, so they must not open the circuit breaker for other requests."""


async def open_demo(settings: ServeSettings, worker: int) -> DemoService:
    """Create the service for `moonshim serve --demo`, in this process."""
    simulator = await Simulator(behaviour="selfhost", log=_print_refused).__aenter__()
    try:
        config = demo_config(simulator.url, os.environ)
        return DemoService(await open_service(settings, worker, load=lambda: config), simulator)
    except BaseException:
        await simulator.__aexit__(None, None, None)
        raise


class DemoService:
    """A gateway and its only host, which is closed last."""

    def __init__(self, gateway: GatewayService, simulator: Simulator) -> None:
        self._gateway, self._simulator = gateway, simulator
        self.app: Any = gateway.app
        self.limits: Limits = gateway.limits
        self.drain, self.reload = gateway.drain, gateway.reload

    async def close(self) -> None:
        try:
            await self._gateway.close()
        finally:
            await self._simulator.__aexit__(None, None, None)


def _print_refused(seen: RecordedRequest) -> None:
    """The gateway logs its own line for each request; a refusal by the simulator is a request that the gateway did not
    fix."""
    if seen.problem is not None:
        log_request(seen)


def demo_config(url: str, environ: Mapping[str, str]) -> Config:
    """A configuration with the simulator, which also serves the model names that agents use by default.

    >>> config = demo_config("http://127.0.0.1:8485", {})
    >>> config.aliases["claude-*"], config.aliases["*+*"]
    (('demo/kimi-k2.5+markers-in-content',), ('demo/*',))
    """
    config = demo.demo_config(url)
    aliases = config.aliases | dict.fromkeys(CLIENTS_OWN, config.aliases[demo.FIRST])
    return with_overrides(replace(config, aliases=aliases, retries=_PATIENT), environ)
