"""A client's headers, and a key -> the headers to send to a host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moonshim.config import ProviderConfig, Secret, Target
from moonshim.engine.exchange import Exchange
from moonshim.gateway.inbound.auth import client_key
from moonshim.gateway.inbound.call import ClientCall
from moonshim.gateway.outbound.response_headers import to_host
from moonshim.http_client.headers import headers_for

__all__ = ["headers_for_host", "headers_of_test", "host_headers"]

_KNOWN_AGENTS: Final = {"kimi-coding": "claude-cli/2.1.325 (moonshim doctor)"}
"""A User-Agent for test requests to hosts that accept only agents that they know."""


def headers_of_test(host: str) -> dict[str, str]:
    """The headers of a test request that has no client, by the name of the host profile.

    >>> headers_of_test("kimi-coding"), headers_of_test("moonshot")
    ({'user-agent': 'claude-cli/2.1.325 (moonshim doctor)'}, {})
    """
    return {"user-agent": _KNOWN_AGENTS[host]} if host in _KNOWN_AGENTS else {}


def headers_for_host(
    call: ClientCall, target: Target, key: Secret | None, exchange: Exchange, *, streams: bool
) -> dict[str, str]:
    """The headers for one client request, which `exchange` has prepared for the target."""
    provider = target.provider
    if provider.passes_client_key and call.key is None and (own := client_key(call.headers)) is not None:
        key = Secret(own)
    accept = "text/event-stream" if streams else "application/json"
    passed = to_host(exchange.headers, provider.dialect, exchange.prepared.profile.session_header)
    return host_headers(provider, key, passed, accept=accept)


def host_headers(
    provider: ProviderConfig, key: Secret | None, client_headers: Mapping[str, str], *, accept: str
) -> dict[str, str]:
    """The client's headers, overridden by ours, overridden by the configuration's."""
    revealed = key.reveal() if key is not None else None
    return headers_for(provider.dialect, revealed, client_headers, provider.headers, accept=accept)
