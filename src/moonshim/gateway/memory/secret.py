"""A configuration and a store -> the secret that signs the opaque values which clients send back to us."""

from __future__ import annotations

import secrets
from typing import Final

from moonshim.config.model import Config
from moonshim.gateway.observe import logs
from moonshim.store import Store, StoreUnavailable

__all__ = ["signing_secret"]

_KEY: Final = "secret"
_BYTES: Final = 32


async def signing_secret(store: Store, config: Config) -> bytes:
    """The configured secret; otherwise the one in the store, created once for all gateways that share it.

    If the store cannot be reached, a secret for this process alone: other processes, and later ones, cannot read what
    it signs, and report that as a change.
    """
    if config.secret is not None:
        return config.secret.reveal().encode("utf-8", "surrogatepass")
    made = secrets.token_bytes(_BYTES)
    try:
        return await store.put_new(_KEY, made, None)
    except StoreUnavailable:
        logs.event(
            "secret_not_shared",
            level="warning",
            why="cannot reach the store; this process uses its own signing secret until it restarts",
        )
        return made
