"""A configuration and a store -> the secret for what we mint: what clients hand back to us unread."""

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
    """The configured secret; else the one in the store, which is made there once for all gateways that share it.

    When the store cannot be reached, one for this process alone: what it mints, no other
    process and no later one can read, and they say so in their changes.
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
            why="the store cannot be reached, so this process signs with a secret of its own until it is restarted",
        )
        return made
