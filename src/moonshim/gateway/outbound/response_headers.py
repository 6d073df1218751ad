"""Headers from one side -> those that the other side may see: two short allowlists; everything else is dropped."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from moonshim.engine.hosts.errors.body import mask_secrets

__all__ = ["to_client", "to_host"]

_TO_CLIENT: Final[dict[str, str]] = {
    # The host's id of the request, for asking the host about it. `x-request-id` is our own.
    "x-request-id": "x-upstream-request-id",
    "request-id": "request-id",
    "x-trace-id": "x-trace-id",
    "msh-request-id": "msh-request-id",
    "cf-ray": "cf-ray",
    # When to retry.
    "retry-after": "retry-after",
    "retry-after-ms": "retry-after-ms",
    "x-should-retry": "x-should-retry",
    # How the host processed the request.
    "openai-processing-ms": "openai-processing-ms",
    "openai-model": "openai-model",
    "openai-version": "openai-version",
}
"""Host headers, and the names under which they are forwarded. Never cookies, headers about its own connection
(`server`, `alt-svc`, `strict-transport-security`), encoding and length, or rules for web pages."""
_LIMITS: Final = re.compile(r"(?:x-|anthropic-)?ratelimit-[a-z0-9-]{1,60}", re.ASCII)

_TO_HOST: Final[dict[str, frozenset[str]]] = {
    # Kimi's coding endpoint checks the agent, and refuses those that it does not know.
    "openai_chat": frozenset({"user-agent", "traceparent", "tracestate"}),
    "anthropic": frozenset({"user-agent", "traceparent", "tracestate", "anthropic-version", "anthropic-beta"}),
}
"""Client headers, by the dialect of the host. Never its key, its cookies, its address (`x-forwarded-for`) or its
platform (`x-stainless-os`)."""

_PLAIN: Final = re.compile(r"[\x20-\x7e]{1,2048}", re.ASCII)
"""A valid header value. An invalid one would break the response, or inject another header."""
_MOST: Final = 40


def to_client(headers: Mapping[str, str], secrets: Collection[str] = ()) -> list[tuple[bytes, bytes]]:
    """The host headers to send to a client, from lower-case names. A header that contains a key is dropped.

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


def to_host(headers: Mapping[str, str], dialect: str, session_header: str | None = None) -> dict[str, str]:
    """The client headers to send to a host of this dialect, from lower-case names. `session_header`: the one that it
    needs for the id of the conversation.

    >>> to_host({"user-agent": "curl/8", "cookie": "a=b", "anthropic-beta": "x"}, "openai_chat")
    {'user-agent': 'curl/8'}
    """
    listed = _TO_HOST.get(dialect, _TO_HOST["openai_chat"])
    return {
        name: value
        for name, value in headers.items()
        if (name in listed or name == session_header) and _PLAIN.fullmatch(value)
    }
