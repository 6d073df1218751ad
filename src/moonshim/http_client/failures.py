"""Exceptions of the HTTP client -> an `UpstreamError` that people can act on, without secrets.

Messages name host and port only. The client's exceptions hold whole requests, keys included, so none of them is chained
as a cause.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Final

import aiohttp

from moonshim.errors import TooManyOpenFiles, UpstreamBroke, UpstreamError, UpstreamUnreachable
from moonshim.http_client.request import UpstreamRequest, origin_of

__all__ = ["FAILURES", "broke", "unreachable", "was_lost_before_response"]

FAILURES: Final = (aiohttp.ClientError, OSError, RuntimeError, ValueError, EOFError)
"""What opening and reading can raise when the host, the network or the address is at fault."""

_NOT_TRUSTED: Final = "set the provider's `ca_bundle`, or SSL_CERT_FILE, to a file with the right certificates"


def unreachable(error: BaseException, call: UpstreamRequest, proxy: str | None) -> UpstreamError:
    """Why there was no response."""
    if _out_of_descriptors(error):
        return TooManyOpenFiles(f"no connection to {origin_of(call.url)}: this process has too many open files")
    for kind, tell in _TELLING:
        if isinstance(error, kind):
            return UpstreamUnreachable(tell(error, origin_of(call.url), origin_of(proxy) if proxy else ""))
    return UpstreamUnreachable(f"cannot send the request to {origin_of(call.url)} ({type(error).__name__})")


def broke(error: BaseException, call: UpstreamRequest) -> UpstreamBroke:
    """Why a response that had started did not complete."""
    origin = origin_of(call.url)
    if isinstance(error, aiohttp.ClientPayloadError) and "decod" in str(error).lower():
        return UpstreamBroke(f"cannot decompress the response of {origin}")
    return UpstreamBroke(f"{origin} closed the connection in the middle of the response")


def was_lost_before_response(error: BaseException) -> bool:
    """Whether the connection was lost before any response: typical of a pooled one that the host has closed."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return False
    return isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError | ConnectionError)


def _out_of_descriptors(error: BaseException) -> bool:
    number = getattr(getattr(error, "os_error", error), "errno", None)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        # A resolver that cannot open a file reports that the name is unknown, or to try again.
        try:
            os.close(os.dup(0))
        except OSError as own:
            number = own.errno
    return number in (errno.EMFILE, errno.ENFILE)


def _reason(error: BaseException) -> str:
    """`Connection refused`, in the system's words."""
    inner = getattr(error, "os_error", error)
    number = getattr(inner, "errno", None)
    if isinstance(number, int) and number > 0:
        return os.strerror(number).lower()
    return str(getattr(inner, "strerror", None) or type(inner).__name__)


def _certificate(error: BaseException, origin: str, proxy: str) -> str:
    inner = getattr(error, "certificate_error", error)
    reason = getattr(inner, "verify_message", None) or "not valid"
    return f"the certificate of {origin} is not trusted: {reason}; {_NOT_TRUSTED}"


def _tls(error: BaseException, origin: str, proxy: str) -> str:
    return f"TLS handshake with {origin} failed; the server may expect plain HTTP on this port"


def _proxy_refusal(error: BaseException, origin: str, proxy: str) -> str:
    status = getattr(error, "status", 0)
    hint = "; add the user name and password to the proxy URL" if status == 407 else ""
    return f"the proxy {proxy} refused a connection to {origin} with status {status}{hint}"


def _unreadable_response(error: BaseException, origin: str, proxy: str) -> str:
    # Only inspected, never shown: it quotes what was received.
    words = str(getattr(error, "message", "")).lower()
    if "content-encoding" in words:
        return f"{origin} sent a response with an unsupported Content-Encoding, although none was requested"
    if "more than" in words or "too many" in words:
        return f"the response headers of {origin} are too many or too long"
    return f"{origin} did not send a valid HTTP response"


_TELLING: Final[tuple[tuple[type[BaseException], Callable[[BaseException, str, str], str]], ...]] = (
    (aiohttp.ClientConnectorCertificateError, _certificate),
    (aiohttp.ClientConnectorSSLError, _tls),
    (aiohttp.ClientProxyConnectionError, lambda e, origin, proxy: f"no connection to the proxy {proxy}: {_reason(e)}"),
    (
        aiohttp.ClientConnectorDNSError,
        lambda e, origin, proxy: f"cannot resolve {proxy or origin}: {_reason(e)}",
    ),
    (aiohttp.ClientConnectorError, lambda e, origin, proxy: f"no connection to {origin}: {_reason(e)}"),
    (aiohttp.ClientHttpProxyError, _proxy_refusal),
    (aiohttp.ClientResponseError, _unreadable_response),
    (aiohttp.InvalidURL, lambda e, origin, proxy: "the address of the provider is not an http or https URL"),
    (aiohttp.NonHttpUrlClientError, lambda e, origin, proxy: "the address of the provider is not an http or https URL"),
    (
        aiohttp.ServerDisconnectedError,
        lambda e, origin, proxy: f"{proxy or origin} closed the connection without a response",
    ),
    (OSError, lambda e, origin, proxy: f"lost the connection to {proxy or origin} before a response: {_reason(e)}"),
    (
        ValueError,
        lambda e, origin, proxy: (
            f"cannot send the request to {origin}: its URL or a header is not valid in HTTP (does the key contain a "
            "line break?)"
        ),
    ),
)
"""The first match counts: more specific classes come before their base classes."""
