"""Headers of one side -> those that the other side may see: two short lists, and everything else stays behind."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from moonshim.engine.hosts.errors.body import mask_secrets

__all__ = ["to_client", "to_host"]

_TO_CLIENT: Final[dict[str, str]] = {
    # Which request it was, for those who ask the host about it. `x-request-id` is our own.
    "x-request-id": "x-upstream-request-id",
    "request-id": "request-id",
    "x-trace-id": "x-trace-id",
    "msh-request-id": "msh-request-id",
    "cf-ray": "cf-ray",
    # When to come back, and how much is left.
    "retry-after": "retry-after",
    "retry-after-ms": "retry-after-ms",
    "x-should-retry": "x-should-retry",
    # What it did.
    "openai-processing-ms": "openai-processing-ms",
    "openai-model": "openai-model",
    "openai-version": "openai-version",
}
"""Of a host, and the name under which it goes on. Never its cookies, nor what is about its own connection
(`server`, `alt-svc`, `strict-transport-security`), its own encoding and length, or its own rules for web pages."""
_LIMITS: Final = re.compile(r"(?:x-|anthropic-)?ratelimit-[a-z0-9-]{1,60}", re.ASCII)

_TO_HOST: Final[dict[str, frozenset[str]]] = {
    # Kimi's coding endpoint looks at the agent, and refuses those that it does not know.
    "openai_chat": frozenset({"user-agent", "traceparent", "tracestate"}),
    "anthropic": frozenset({"user-agent", "traceparent", "tracestate", "anthropic-version", "anthropic-beta"}),
}
"""Of a client, by the dialect of the host. Never its key, its cookies, where it is (`x-forwarded-for`) or what runs it
(`x-stainless-os`)."""

_PLAIN: Final = re.compile(r"[\x20-\x7e]{1,2048}", re.ASCII)
"""A value that may stand in a header. One that may not would break the answer, or begin another header."""
_MOST: Final = 40


def to_client(headers: Mapping[str, str], secrets: Collection[str] = ()) -> list[tuple[bytes, bytes]]:
    """What a client sees of a host's headers, given by their lower-case names. One that holds a key is left out.

    >>> to_client({"set-cookie": "a=b", "x-request-id": "r1", "x-ratelimit-remaining-tokens": "12"})
    [(b'x-upstream-request-id', b'r1'), (b'x-ratelimit-remaining-tokens', b'12')]
    """
    passed: list[tuple[bytes, bytes]] = []
    for name, value in headers.items():
        shown = _TO_CLIENT.get(name) or (name if _LIMITS.fullmatch(name) else None)
        if shown is None or not _PLAIN.fullmatch(value) or len(passed) == _MOST:
            continue
        if mask_secrets(value, secrets) == value:
            passed.append((shown.encode(), value.encode()))
    return passed


def to_host(headers: Mapping[str, str], dialect: str) -> dict[str, str]:
    """What a host that speaks this dialect sees of a client's headers, given by their lower-case names.

    >>> to_host({"user-agent": "curl/8", "cookie": "a=b", "anthropic-beta": "x"}, "openai_chat")
    {'user-agent': 'curl/8'}
    """
    listed = _TO_HOST.get(dialect, _TO_HOST["openai_chat"])
    return {name: value for name, value in headers.items() if name in listed and _PLAIN.fullmatch(value)}
