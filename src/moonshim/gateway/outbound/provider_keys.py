"""A conversation -> the provider key to use for it: always the same one, while it works."""

from __future__ import annotations

import time
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

from moonshim.config import ProviderConfig, Secret
from moonshim.errors import Problem, ProblemKind

__all__ = ["ProviderKeys"]

_REST_SECONDS: Final[dict[ProblemKind, float]] = {"authentication": 300.0, "permission": 60.0, "quota": 300.0}
"""Errors that mean the key itself is at fault, and how long to use the others instead. Rate limits are not among them:
they pass in seconds, and another key would start with an empty prompt cache."""


class ProviderKeys:
    """Spreads conversations over the keys of a provider, and rests keys that fail.

    A conversation stays with its key, since hosts keep prompt caches by account. When a key is removed, only its own
    conversations move. When all keys rest, they are used as if none did: the host decides.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rests: dict[bytes, float] = {}
        """By digest of provider and key: the time until which it rests."""

    def key_for(self, provider: ProviderConfig, conversation: str) -> Secret | None:
        """The key for a conversation, which is identified by a hash of its beginning or similar."""
        keys = provider.keys
        if len(keys) < 2:
            return keys[0] if keys else None
        usable = [key for key in keys if not self._is_resting(provider, key)] or keys
        # Rendezvous hashing: each key bids for the conversation, and the highest bid wins.
        return max(usable, key=lambda key: _digest(conversation, key.reveal()))

    def failed(self, provider: ProviderConfig, key: Secret | None, problem: Problem) -> bool:
        """Report how a host refused; return whether to retry at once with another key."""
        seconds = _REST_SECONDS.get(problem.kind)
        if key is None or seconds is None:
            return False
        self._rests[_digest(provider.name, key.reveal())] = self._clock() + seconds
        return any(not self._is_resting(provider, other) for other in provider.keys)

    def _is_resting(self, provider: ProviderConfig, key: Secret) -> bool:
        place = _digest(provider.name, key.reveal())
        until = self._rests.get(place)
        if until is None:
            return False
        if until <= self._clock():
            del self._rests[place]
            return False
        return True


def _digest(text: str, key: str) -> bytes:
    mark = blake2b(key.encode(errors="surrogatepass")).digest()
    return blake2b(text.encode(errors="surrogatepass"), key=mark, digest_size=16).digest()
