"""A request to a host: where, with what, and how long it may take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol
from urllib.parse import urlsplit

from msgspec import Struct

__all__ = ["Deadlines", "UpstreamRequest", "origin_of"]


class Deadlines(Protocol):
    """How long a host may take, in seconds."""

    @property
    def connect(self) -> float:
        """Until there is a connection: name, TCP, proxy and TLS together."""

    @property
    def first_byte(self) -> float:
        """From then until the headers of the response arrive."""

    @property
    def between_bytes(self) -> float:
        """Of silence, while a reader waits for more."""


class UpstreamRequest(Struct, frozen=True):
    """One request. Its repr shows only method and host, to keep keys and conversations out of logs."""

    url: str
    headers: Mapping[str, str]
    body: bytes
    timeouts: Deadlines
    proxy: str | None = None
    """None: from the environment; empty: none."""
    ca_bundle: str | None = None
    """A file with the certificates that are trusted; None: from the environment, or the system's."""
    method: str = "POST"

    def __repr__(self) -> str:
        return f"Call({self.method} {origin_of(self.url)}, {len(self.body)} bytes)"


def origin_of(url: str) -> str:
    """The host and the port of an address, the only part that may be shown.

    >>> origin_of("https://user:word@api.moonshot.ai/v1?key=1")
    'api.moonshot.ai:443'
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "an address that cannot be read"
    if not host:
        return "an address without a host"
    return f"{f'[{host}]' if ':' in host else host}:{port or (443 if parts.scheme == 'https' else 80)}"
