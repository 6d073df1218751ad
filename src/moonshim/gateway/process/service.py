"""Settings -> the running gateway: its configuration, its state, its application, and the file watcher."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from moonshim.config import Config, FoundConfig, Limits, config_from_environment, load_found, warnings_of
from moonshim.config.trust import record_of_trust
from moonshim.gateway.app import build_app
from moonshim.gateway.observe import logs
from moonshim.gateway.outbound.regions import settle_regions
from moonshim.gateway.process.reload import Reloader, lost_keys_problem, watch
from moonshim.gateway.process.settings import ServeSettings, refusal
from moonshim.gateway.state import GatewayState
from moonshim.usage.budgets import budget_warnings
from moonshim.usage.ledger import books_warnings

__all__ = ["GatewayService", "open_service"]


async def open_service(
    settings: ServeSettings, worker: int, *, load: Callable[[], Config] | None = None
) -> GatewayService:
    """Build what `moonshim serve` serves, in this process. `load` provides the configuration when there is no file."""
    load = load or (lambda: _load(settings))
    config = await asyncio.to_thread(load)
    if settings.needs_keys and not config.needs_keys:  # the file has changed since `moonshim serve` was started
        config = replace(config, require_keys=True)
        logs.event(
            "configuration_rejected",
            level="error",
            trigger="worker started",
            problem=lost_keys_problem(config, Config()),
        )
    state = await GatewayState.open(
        config, bound_to_loopback=settings.loopback, log_dir=settings.log_dir, worker=worker
    )
    if settings.replaces is not None:
        state.metrics.count_worker_restart(settings.replaces)
    if worker <= 1:
        logs.event("usage_file", file="memory:" if state.ledger.path is None else str(state.ledger.path))
    warnings = [*warnings_of(config), *budget_warnings(config), *books_warnings(config, os.environ)]
    for warning in warnings if worker <= 1 else ():
        logs.event("configuration_warning", level="warning", problem=warning)
    return GatewayService(settings, state, config, load)


class GatewayService:
    """An open `GatewayState` and its application. Changes to the file take effect within two seconds."""

    def __init__(
        self, settings: ServeSettings, state: GatewayState, config: Config, load: Callable[[], Config]
    ) -> None:
        self._state = state
        self.app: Any = build_app(state)
        self.limits: Limits = config.limits
        self._reloader = Reloader(
            config, load, state.reload, refuse=lambda new: refusal(new, settings), tell=state.metrics.count_reload
        )
        self._watching: asyncio.Task[None] | None = None
        if settings.config is not None:
            trust = record_of_trust(os.environ) if settings.needs_trust else None
            changed = watch(Path(settings.config), lambda: self._reloader.reload("file changed"), also=trust)
            self._watching = asyncio.create_task(changed)

    def drain(self) -> None:
        self._state.draining = True
        if self._state.inspector is not None:
            self._state.inspector.stop_watching()

    async def reload(self) -> None:
        await self._reloader.reload("SIGHUP")

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        await self._state.close()


def _load(settings: ServeSettings) -> Config:
    if settings.config is not None:
        config = load_found(FoundConfig(Path(settings.config), settings.needs_trust), os.environ)
    else:
        config = config_from_environment(os.environ) or Config()
    return settle_regions(config, os.environ)
