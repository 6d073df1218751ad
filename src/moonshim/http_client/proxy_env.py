"""The environment -> the route to a host: which proxy, and which certificates are trusted."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from moonshim.errors import UpstreamUnreachable
from moonshim.http_client.request import origin_of

__all__ = ["proxy_for", "ssl_context"]

_BUNDLES: Final = ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
"""Variables that name a file of certificates; the first that is set counts."""
_HTTP: Final = frozenset({"http", "https"})


def proxy_for(url: str, configured: str | None) -> str | None:
    """The proxy for an address: the configured one, or that of HTTPS_PROXY, HTTP_PROXY or ALL_PROXY.

    NO_PROXY accepts names, addresses and networks (`10.0.0.0/8`). As in Go, a proxy from the environment is never used
    for loopback: a model served on this machine is not behind it.
    """
    proxy = (_from_environment(url) if configured is None else configured) or None
    if proxy is not None and urlsplit(proxy).scheme not in _HTTP:
        raise UpstreamUnreachable(
            f"unsupported proxy {origin_of(proxy)}: use an HTTP proxy (http://host:port), not SOCKS"
        )
    return proxy


def _from_environment(url: str) -> str | None:
    parts = urlsplit(url)
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    host = parts.hostname
    if not proxy or not host or _stays_inside(host, proxies) or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _stays_inside(host: str, proxies: Mapping[str, str]) -> bool:
    """Loopback, or an address in a network that NO_PROXY lists (urllib knows names only)."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or any(_contains(word, host) for word in proxies.get("no", "").split(","))


def _contains(network: str, host: str) -> bool:
    try:
        return ip_address(host) in ip_network(network.strip(), strict=False)
    except ValueError:
        return False


def ssl_context(bundle: str | None) -> ssl.SSLContext:
    """The TLS context with this certificate file, or the one of the environment, or the system's."""
    return _context(bundle or next((os.environ[name] for name in _BUNDLES if os.environ.get(name)), None))


@lru_cache(maxsize=64)
def _context(bundle: str | None) -> ssl.SSLContext:
    """Created once per file: reading the system's certificates takes longer than a request."""
    folder = bundle is not None and os.path.isdir(bundle)  # noqa: PTH112 - one check of a name, no path arithmetic
    try:
        return ssl.create_default_context(cafile=None if folder else bundle, capath=bundle if folder else None)
    except ssl.SSLError:
        reason = "it contains no certificates"
    except OSError as error:
        reason = str(error.strerror)
    raise UpstreamUnreachable(f"cannot read the certificates in {bundle}: {reason}")
