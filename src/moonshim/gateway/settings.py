"""What `moonshim serve` was told -> values that a worker process can be handed as JSON; and what forbids them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from moonshim.config import Config
from moonshim.store import store_kind

if TYPE_CHECKING:
    from moonshim.serving.server import Service

__all__ = ["GRACEFUL_SECONDS", "Factory", "ServeSettings", "opening", "refusal"]

GRACEFUL_SECONDS: Final = 600.0
"""How long running answers may take after SIGTERM: as long as a host may take for its first byte."""


class ServeSettings(Struct, frozen=True, kw_only=True):
    """How to serve. No secret is in it: where they are is said, and every worker reads them itself."""

    factory: str = "moonshim.gateway.service:open_service"
    """Where the service is made: `module:function`, with these settings and the worker's number as arguments."""
    host: str = "127.0.0.1"
    port: int = 8484
    workers: int = 1
    config: str | None = None
    """The file; None: the usual environment variables."""
    log_dir: str | None = None
    log_level: str = "info"
    graceful_seconds: float = GRACEFUL_SECONDS
    loopback: bool = True
    """Whether the address can be reached from this machine only."""


Factory: TypeAlias = "Callable[[ServeSettings, int], Awaitable[Service]]"


def opening(settings: ServeSettings, worker: int = 0) -> Callable[[], Awaitable[Service]]:
    """What opens the service, in the process that serves it."""
    module, _, name = settings.factory.partition(":")
    factory: Factory = getattr(import_module(module), name)
    return lambda: factory(settings, worker)


def refusal(config: Config, settings: ServeSettings) -> str | None:
    """Why this configuration must not be served in this way; None: it may. It holds at a reload too.

    >>> refusal(Config(), ServeSettings(host="0.0.0.0", loopback=False)).split(":")[0]
    '0.0.0.0 can be reached from other machines, and there are no gateway keys'
    >>> refusal(Config(), ServeSettings(workers=4)).split(":")[0]
    '4 workers cannot share `memory'
    """
    if not settings.loopback and not config.keys and not config.open_without_keys:
        return (
            f"{settings.host} can be reached from other machines, and there are no gateway keys: anybody could spend "
            "your keys. Make one with `moonshim keys new`, or say `open_without_keys = true` in the configuration"
        )
    if settings.workers > 1 and store_kind(config.store) == "memory":
        return (
            f"{settings.workers} workers cannot share `memory:`: each would forget what the others remember. Say "
            'store = "sqlite:PATH" or "redis://…" in the configuration, or set MOONSHIM_STORE'
        )
    return None
