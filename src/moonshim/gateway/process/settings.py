"""The options of `moonshim serve` -> values that a worker process can be sent as JSON, and reasons to refuse them."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from moonshim.config import Config
from moonshim.gateway.observe.otel import otel_problem
from moonshim.http_server.sockets import is_loopback
from moonshim.store import store_kind, store_problem

if TYPE_CHECKING:
    from moonshim.http_server.server import Service

__all__ = [
    "GRACEFUL_SECONDS",
    "HOST",
    "PORT",
    "Factory",
    "RestartReason",
    "ServeSettings",
    "refusal",
    "service_opener",
    "startup_problems",
]

HOST: Final = "127.0.0.1"
PORT: Final = 8484
GRACEFUL_SECONDS: Final = 600.0
"""How long running responses may take after SIGTERM: as long as a host may take for its first byte."""
RestartReason: TypeAlias = Literal["exited", "hung"]


class ServeSettings(Struct, frozen=True, kw_only=True):
    """How to serve. Contains no secrets, only their locations: every worker reads them itself."""

    factory: str = "moonshim.gateway.process.service:open_service"
    """`module:function` that creates the service; called with these settings and the worker's number."""
    host: str = HOST
    port: int = PORT
    workers: int = 1
    config: str | None = None
    """The file; None: the usual environment variables."""
    needs_trust: bool = False
    """Whether the file was discovered in the current folder: then it is used only as long as it is trusted."""
    log_dir: str | None = None
    log_level: str = "info"
    graceful_seconds: float = GRACEFUL_SECONDS
    loopback: bool = True
    """Whether only this machine can reach the address."""
    needs_keys: bool = False
    """Whether the configuration required keys at startup: a restarted worker must not serve without them."""
    replaces: RestartReason | None = None
    """Why the process that this one replaces has ended."""

    @classmethod
    def of(cls, config: Config, /, **given: Any) -> ServeSettings:
        """The settings for a configuration. Values in `given` (the command line) take precedence unless they are None.

        Raises `BindError` for a host name without an address.
        """
        fields = {name: getattr(config, name) for name in ("host", "port", "workers", "log_dir", "log_level")}
        fields |= {"needs_keys": config.needs_keys}
        fields |= {name: value for name, value in given.items() if value is not None}
        settings = cls(**{name: value for name, value in fields.items() if value is not None})
        folder = None if settings.log_dir is None else str(Path(settings.log_dir).absolute())
        return replace(settings, log_dir=folder, loopback=is_loopback(settings.host))


Factory: TypeAlias = "Callable[[ServeSettings, int], Awaitable[Service]]"


def service_opener(settings: ServeSettings, worker: int = 0) -> Callable[[], Awaitable[Service]]:
    """The function that creates the service, in the process that serves it."""
    module, _, name = settings.factory.partition(":")
    factory: Factory = getattr(import_module(module), name)
    return lambda: factory(settings, worker)


def refusal(config: Config, settings: ServeSettings) -> str | None:
    """Why this configuration must not be served with these settings; None: it may. Applies to reloads too.

    >>> refusal(Config(), ServeSettings(host="0.0.0.0", loopback=False)).split(":")[0]
    '0.0.0.0 is reachable from other machines, but no gateway keys are configured'
    >>> refusal(Config(), ServeSettings(workers=4)).split(":")[0]
    '4 workers cannot share the `memory'
    """
    if not settings.loopback and not config.needs_keys and not config.open_without_keys:
        reachable = f"{settings.host} is reachable from other machines, but"
        if config.source == "--demo":
            return (
                f"{reachable} --demo serves this machine only. Remove --host; to serve other machines, configure a "
                "provider and gateway keys (docs/security.md)"
            )
        # A file in the current folder is found without --config, and has to stay trusted only then.
        where = f" --config {quote(settings.config)}" if settings.config and not settings.needs_trust else ""
        return (
            f"{reachable} no gateway keys are configured: anyone could use your API keys. Create a gateway key with "
            f"`moonshim keys new NAME{where}`, or set `open_without_keys = true` in the configuration"
        )
    if settings.workers > 1 and store_kind(config.store) == "memory":
        return (
            f"{settings.workers} workers cannot share the `memory:` store, which is separate in each process. Set "
            'store = "sqlite:PATH" or "redis://…" in the configuration, or set MOONSHIM_STORE'
        )
    return None


def startup_problems(config: Config, settings: ServeSettings) -> list[str]:
    """Every reason why `moonshim serve` would not start with this configuration. Creates nothing to find out."""
    found = [refusal(config, settings), store_problem(config.store), otel_problem(config.otel)]
    if settings.log_dir is not None:
        found.append(_folder_problem(Path(settings.log_dir)))
    return [problem for problem in found if problem is not None]


def _folder_problem(folder: Path) -> str | None:
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not there.is_dir():
        return f"log_dir {folder}: {there} is not a folder"
    return None if os.access(there, os.W_OK | os.X_OK) else f"log_dir {folder}: no write permission for {there}"
