"""A client's headers, and a key -> the headers to send to a host."""

from __future__ import annotations

from collections.abc import Mapping

from moonshim.config import ProviderConfig, Secret, Target
from moonshim.gateway.inbound.auth import client_key
from moonshim.gateway.inbound.call import ClientCall
from moonshim.gateway.outbound.response_headers import to_host
from moonshim.http_client.headers import headers_for

__all__ = ["headers_for_host", "host_headers"]


def headers_for_host(call: ClientCall, target: Target, key: Secret | None, *, streams: bool) -> dict[str, str]:
    """The headers for one client request."""
    provider = target.provider
    if provider.passes_client_key and call.key is None and (own := client_key(call.headers)) is not None:
        key = Secret(own)
    accept = "text/event-stream" if streams else "application/json"
    return host_headers(provider, key, to_host(call.headers, provider.dialect), accept=accept)


def host_headers(
    provider: ProviderConfig, key: Secret | None, client_headers: Mapping[str, str], *, accept: str
) -> dict[str, str]:
    """The client's headers, overridden by ours, overridden by the configuration's."""
    revealed = key.reveal() if key is not None else None
    return headers_for(provider.dialect, revealed, client_headers, provider.headers, accept=accept)
