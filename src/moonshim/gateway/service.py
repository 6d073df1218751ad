"""Settings -> the gateway that is served: its configuration, its gate, its application, and what watches the file."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from moonshim.config import Config, Limits, config_from_environment, load_config, warnings_of
from moonshim.gateway import logs
from moonshim.gateway.app import build_app
from moonshim.gateway.demo import Demo, demo_config, start_demo
from moonshim.gateway.gate import Gate
from moonshim.gateway.reload import Reloader, watch
from moonshim.gateway.settings import ServeSettings, refusal

__all__ = ["GatewayService", "open_service"]


async def open_service(settings: ServeSettings, worker: int) -> GatewayService:
    """What `moonshim serve` serves, in this process."""
    demo = await start_demo() if settings.demo else None
    try:
        config = demo_config(demo.url, os.environ) if demo is not None else _load(settings)
        gate = await Gate.open(config, bound_to_loopback=settings.loopback, log_dir=settings.log_dir, worker=worker)
    except BaseException:
        if demo is not None:
            await demo.close()
        raise
    for warning in warnings_of(config) if worker <= 1 else ():
        logs.event("configuration_warning", level="warning", problem=warning)
    return GatewayService(settings, gate, config, demo)


class GatewayService:
    """A gate that is open, and its application. A change of the file reaches it within two seconds."""

    def __init__(self, settings: ServeSettings, gate: Gate, config: Config, demo: Demo | None) -> None:
        self._gate, self._demo = gate, demo
        self.app: Any = build_app(gate)
        self.limits: Limits = config.limits
        self._reloader = Reloader(
            config,
            lambda: config if settings.demo else _load(settings),
            gate.reload,
            refuse=lambda new: refusal(new, settings),
            tell=gate.metrics.reloaded,
        )
        self._watching: asyncio.Task[None] | None = None
        if settings.config is not None and not settings.demo:
            changed = watch(Path(settings.config), lambda: self._reloader.reload("the file changed"))
            self._watching = asyncio.create_task(changed)

    def drain(self) -> None:
        self._gate.draining = True

    async def reload(self) -> None:
        await self._reloader.reload("SIGHUP")

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        await self._gate.close()
        if self._demo is not None:
            await self._demo.close()


def _load(settings: ServeSettings) -> Config:
    if settings.config is not None:
        return load_config(Path(settings.config), os.environ)
    return config_from_environment(os.environ) or Config()
