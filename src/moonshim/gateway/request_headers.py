"""The headers of a client, and a key -> the headers that a host is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moonshim.config import Provider, Secret, Target
from moonshim.gateway.auth import client_key
from moonshim.gateway.call import ClientCall
from moonshim.gateway.response_headers import to_host

__all__ = ["headers_for_host", "host_headers"]

# Messages hosts differ in where they look: Moonshot's takes either, vLLM's only the first, others only the second.
_KEY_HEADERS: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "openai_chat": (("authorization", "Bearer {}"),),
    "anthropic": (("authorization", "Bearer {}"), ("x-api-key", "{}")),
}
_ALWAYS: Final[dict[str, dict[str, str]]] = {"openai_chat": {}, "anthropic": {"anthropic-version": "2023-06-01"}}


def headers_for_host(call: ClientCall, target: Target, key: Secret | None, *, streams: bool) -> dict[str, str]:
    """The headers of one client's request."""
    provider = target.provider
    if provider.passes_client_key and call.key is None and (own := client_key(call.headers)) is not None:
        key = Secret(own)
    accept = "text/event-stream" if streams else "application/json"
    return host_headers(provider, key, to_host(call.headers, provider.dialect), accept=accept)


def host_headers(provider: Provider, key: Secret | None, said: Mapping[str, str], *, accept: str) -> dict[str, str]:
    """What somebody says, then what we say, then what the configuration says."""
    headers = {**_ALWAYS[provider.dialect], **said, "content-type": "application/json", "accept": accept}
    if key is not None:
        headers |= {name: form.format(key.reveal()) for name, form in _KEY_HEADERS[provider.dialect]}
    headers |= {name.lower(): value for name, value in provider.headers.items()}
    return headers
