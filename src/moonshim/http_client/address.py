"""The URL of a host or a proxy -> where to connect, and what to ask for."""

from __future__ import annotations

from base64 import b64encode
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from msgspec import Struct

__all__ = ["Address", "split_url"]

_PORTS: Final = {"http": 80, "https": 443}
_SAFE: Final = "/?%:@!$&'()*+,;=~"
"""What stays as it is in a path and a query; `%` because it is encoded already."""


class Address(Struct, frozen=True):
    """Where a URL leads, without its path."""

    host: str
    """A name in ASCII, or an IP address without brackets."""
    port: int
    is_tls: bool
    authority: str
    """For the header Host: the host, and the port if it is not the usual one."""
    credentials: str | None
    """User name and password of the URL, for basic authentication."""

    @property
    def host_and_port(self) -> str:
        return f"{_bracketed(self.host)}:{self.port}"


@lru_cache(maxsize=1024)
def split_url(url: str) -> tuple[Address, str]:
    """The address, and path and query. Raises `ValueError` if it is not an http or https URL.

    >>> address, target = split_url("https://api.moonshot.ai/v1?beta=true")
    >>> address.host_and_port, target
    ('api.moonshot.ai:443', '/v1?beta=true')
    """
    parts = urlsplit(url)
    usual, host = _PORTS.get(parts.scheme), parts.hostname
    if usual is None or not host:
        raise ValueError("not an http or https URL")
    if not host.isascii():
        host = host.encode("idna").decode()
    port = usual if parts.port is None else parts.port
    path = quote(parts.path, safe=_SAFE) or "/"
    credentials = None
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        credentials = f"Basic {b64encode(user.encode()).decode()}"
    address = Address(
        host=host,
        port=port,
        is_tls=parts.scheme == "https",
        authority=_bracketed(host) if port == usual else f"{_bracketed(host)}:{port}",
        credentials=credentials,
    )
    return address, f"{path}?{quote(parts.query, safe=_SAFE)}" if parts.query else path


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
