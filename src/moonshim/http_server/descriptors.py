"""The limit of open files -> how many descriptors connections may take; raised as far as the system allows."""

from __future__ import annotations

import contextlib
from importlib import import_module
from types import ModuleType
from typing import Final, NamedTuple

__all__ = ["DescriptorBudget", "raise_limit", "room_for_connections"]

_RESERVED: Final = 64
_SHARE: Final = 8
"""An eighth of all descriptors, and at least 64, are reserved for everything else: listening sockets, the store, logs,
name resolution, and connections whose requests are refused."""
_UNLIMITED: Final = 1 << 30


def _resource() -> ModuleType | None:
    try:
        return import_module("resource")
    except ImportError:  # Windows has no such limit
        return None


def raise_limit() -> None:
    """Raise the soft limit to the hard one. Many systems start processes with 1,024: enough for 480 streams."""
    if (resource := _resource()) is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class DescriptorBudget(NamedTuple):
    """How many descriptors connections may take, of clients and to hosts together."""

    requests: int
    """Up to here, requests are accepted."""
    connections: int
    """Up to here, connections are: a request is refused in the client's dialect, and health checks are answered."""
    refusals: int
    """Up to here, a connection gets the reason before it is closed."""


def room_for_connections() -> DescriptorBudget:
    """Within the current limit of this process."""
    soft = _UNLIMITED
    if (resource := _resource()) is not None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        soft = _UNLIMITED if soft == resource.RLIM_INFINITY else soft
    reserved = max(_RESERVED, soft // _SHARE)
    return DescriptorBudget(max(2, soft - reserved), max(2, soft - reserved // 2), max(2, soft - reserved // 4))
