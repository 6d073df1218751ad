"""The headers of a request -> the gateway key that it was sent with, or a refusal that says what is wrong."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from hmac import compare_digest
from typing import Final

from moonshim.config.model import GatewayKey, digest_of
from moonshim.errors import Problem, Refused

__all__ = ["PREFIX", "KeyRing", "client_key", "digest_of", "is_digest", "new_key"]

PREFIX: Final = "msk_"
"""Prefix of gateway keys, which lets people and secret scanners recognise them."""
_KEY_BYTES: Final = 32
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_KEY_HEADERS: Final = ("authorization", "x-api-key", "api-key")
"""The headers of OpenAI's, Anthropic's and Azure's clients. Claude Code may send two of them, one meant for another
service."""


def new_key() -> tuple[str, str]:
    """A new key, to be shown once, and its digest, to be stored.

    >>> key, digest = new_key()
    >>> key.startswith("msk_"), digest == digest_of(key)
    (True, True)
    """
    key = PREFIX + secrets.token_urlsafe(_KEY_BYTES)
    return key, digest_of(key)


def is_digest(text: str) -> bool:
    """Whether this is a digest as `digest_of` writes it, and not, say, a key pasted in its place."""
    return _DIGEST.fullmatch(text) is not None


class KeyRing:
    """The keys that grant access. How long a wrong key takes to reject reveals nothing about the right ones.

    Headers are given by their lower-case names.
    """

    def __init__(
        self, keys: Sequence[GatewayKey], *, required: bool = False, clock: Callable[[], float] = time.time
    ) -> None:
        self._keys = [(key.digest.lower().encode("utf-8", "surrogatepass"), key) for key in keys]
        self._required = required
        self._clock = clock

    def __bool__(self) -> bool:
        """Whether a key is required; if not, the gateway is open to everyone who can reach it."""
        return self._required or bool(self._keys)

    def identify(self, headers: Mapping[str, str]) -> GatewayKey | None:
        """The key that a request was sent with; None if no key is required. Raises `Refused` (401)."""
        if not self:
            return None
        shown = [text for name in _KEY_HEADERS if (text := _header_value(headers, name)) is not None]
        if not shown:
            raise _refusal("Missing gateway key. Send it as `Authorization: Bearer msk_…` or as `x-api-key`.")
        found = [key for text in shown if (key := self._find(text)) is not None]
        now = self._clock()
        for key in found:
            if key.expires is None or now < key.expires.timestamp():
                return key
        if found:
            expires = found[0].expires
            assert expires is not None
            raise _refusal(
                f"Key {found[0].name!r} expired on {expires:%Y-%m-%d %H:%M %Z}. "
                "Ask the operator of this gateway for a new one.",
                code="key_expired",
            )
        raise _refusal("Invalid gateway key. Ask the operator of this gateway for a valid one.")

    def _find(self, text: str) -> GatewayKey | None:
        digest = digest_of(text).encode()
        found = None
        # Compare all keys, even after a match: timing must not reveal the position of a match.
        for known, key in self._keys:
            if compare_digest(known, digest):
                found = key
        return found


def client_key(headers: Mapping[str, str]) -> str | None:
    """The key that a client sent, whatever service it is for. Forward it only where a provider is configured that way.

    >>> client_key({"authorization": "Bearer sk-mine"}), client_key({"authorization": "Basic dXNlcg=="})
    ('sk-mine', None)
    """
    return next((text for name in _KEY_HEADERS if (text := _header_value(headers, name)) is not None), None)


def _header_value(headers: Mapping[str, str], name: str) -> str | None:
    value = headers.get(name, "").strip()
    if name == "authorization":
        scheme, _, value = value.partition(" ")
        if scheme.lower() != "bearer":
            return None
    return value.strip() or None


def _refusal(message: str, code: str = "invalid_api_key") -> Refused:
    return Refused(Problem(status=401, kind="authentication", message=message, code=code))
