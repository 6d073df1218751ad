"""The headers of a request -> a refusal, if it comes from a web page that is not allowed.

A gateway on a developer's machine holds keys that cost money, and every page in that developer's browser can send
requests to it. Three headers give such a page away:

- `Host` is the name that the browser connected to. A page at evil.example can have that name resolve to 127.0.0.1
  (DNS rebinding) and is then of the same origin as the gateway; but it cannot make the browser say `Host: localhost`.
- `Origin` is the page itself. Browsers send it with every POST, and pages cannot change it.
- `Sec-Fetch-Site` is sent even where `Origin` is not, with an image or a script that a page requests.

A reverse proxy on the same machine makes every client look local, unless it says for whom it forwards a request:
without keys such requests are refused.

Programs other than browsers send neither of the last two, and are not affected.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, TypeAlias

from msgspec import Struct

from moonshim.config.model import Config
from moonshim.errors import Problem, ProblemKind, Refused

__all__ = ["check_origin", "check_own_page", "cors_headers", "is_local", "preflight_headers"]

Headers: TypeAlias = Mapping[str, str]
"""Headers by lower-case name; several values of one name are joined by commas."""
GuardHeaders: TypeAlias = list[tuple[bytes, bytes]]

_AUTHORITY: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_-]+(?:\.[a-z0-9_-]+)*)\.?(?::([0-9]{0,5}))?", re.ASCII)
_PORTS: Final = {"http": "80", "https": "443"}
_USUAL: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""Names for this machine, accepted without parsing."""
_ANY: Final = "*"
_STRANGERS: Final = frozenset({"cross-site", "same-site"})
"""Values of `Sec-Fetch-Site` for other pages. Another port of localhost counts as `same-site`, but is another
program."""
_FORWARDED: Final = re.compile(
    r"(?:.+-)?(?:forward(?:ed|er)?(?:for)?|proxied|via)(?:-.+)?"
    r"|.+-(?:ip|ipv4|ipv6|addr|address)"
    r"|(?:fastly|fly|akamai|x-akamai|x-appengine|x-arr|x-azure|x-envoy)-.+"
    r"|cf-(?:ray|visitor|ipcountry|worker|access-.+)|x-original-(?:host|url|uri|method)|cdn-loop",
    re.ASCII,
)
"""Headers in which a proxy says for whom it forwards: their common parts (`forwarded` or `via` in the name, an address
at the end), and the prefixes of load balancers and networks."""
_FORM_TYPES: Final = frozenset({"text/plain", "application/x-www-form-urlencoded", "multipart/form-data"})
"""What a page may send anywhere without a preflight (a "simple" request). JSON clients never use these."""
_TOKENS: Final = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+(?:\s*,\s*[a-z0-9!#$%&'*+.^_`|~-]+)*", re.ASCII | re.IGNORECASE)
_EXPOSED: Final = (
    b"x-request-id, x-upstream-request-id, request-id, retry-after, "
    b"x-moonshim-repairs, x-moonshim-route, x-moonshim-budget, x-moonshim-lost, "
    b"x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, "
    b"x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens"
)


class _Authority(Struct, frozen=True):
    """A name and a port, as in `Host` and `Origin`."""

    name: str
    port: str
    """Empty: the default port."""

    def with_default_port(self, scheme: str) -> _Authority:
        """With the scheme's default port spelled out."""
        return self if self.port else _Authority(self.name, _PORTS.get(scheme, ""))


def check_origin(config: Config, headers: Headers, *, bound_to_loopback: bool) -> None:
    """Raise `Refused` if the request was sent by a web page that is not listed, or through a proxy while there are no
    keys."""
    if not config.needs_keys and not config.open_without_keys:
        _check_not_forwarded(headers)
    host = _parse_authority(headers.get("host", ""))
    if "host" in headers and host is None:
        raise _refusal(400, f"Invalid Host header: {_quote(headers['host'])}.")
    if bound_to_loopback and not config.needs_keys and not _is_loopback_name(host, config):
        raise _refusal(
            403,
            f"Host {_quote(headers.get('host', ''))} is not allowed. Without gateway keys, only localhost is; add "
            "other names to allowed_hosts.",
        )
    origin = headers.get("origin")
    if origin is None:
        if headers.get("sec-fetch-site", "").strip().lower() in _STRANGERS:
            raise _refusal(
                403, "Requests from web pages of other origins are not allowed. Add the origin to allowed_origins."
            )
        return
    if not _is_listed(origin, config) and not _is_same(origin, host, config):
        raise _refusal(403, f"Origin {_quote(origin)} is not allowed. Add it to allowed_origins.")
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in _FORM_TYPES:
        raise _refusal(415, f"Web pages must send JSON as application/json, not as {kind}.")


def check_own_page(headers: Headers) -> None:
    """Raise `Refused` unless a browser sends this from the gateway's own page, or by hand; listed origins do not count.

    For what no other page may ever read: the inspector.
    """
    site = headers.get("sec-fetch-site", "none").strip().lower()
    origin, host = headers.get("origin"), _parse_authority(headers.get("host", ""))
    asking = None if origin is None else _origin(origin)
    foreign = origin is not None and (asking is None or host is None or host.with_default_port(asking[0]) != asking[1])
    if foreign or site not in ("none", "same-origin"):
        raise _refusal(403, "The inspector answers its own page only, not pages of other origins.")


def is_local(headers: Headers) -> bool:
    """Whether the request names this machine as its host, and no header says that it was forwarded."""
    return _forwarding_header(headers) is None and _is_loopback_name(
        _parse_authority(headers.get("host", "")), Config()
    )


def _forwarding_header(headers: Headers) -> str | None:
    for name in headers:
        if _is_forwarding(name):
            return name
    return None


@lru_cache(256)
def _is_forwarding(name: str) -> bool:
    return _FORWARDED.fullmatch(name.replace("_", "-")) is not None


def _check_not_forwarded(headers: Headers) -> None:
    through = _forwarding_header(headers)
    if through is not None:
        raise _refusal(
            403,
            f"This request came through a proxy (it has the header {through}), and no gateway keys are configured: "
            "anyone behind the proxy could use your API keys. Create a gateway key with `moonshim keys new NAME`.",
        )


def cors_headers(config: Config, headers: Headers) -> GuardHeaders:
    """Headers for every response to a listed page, errors included: without them the browser hides it from the page."""
    origin = headers.get("origin")
    if origin is None or not _is_listed(origin, config):
        return []
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", _EXPOSED),
        (b"vary", b"origin"),
    ]


def preflight_headers(config: Config, headers: Headers) -> GuardHeaders | None:
    """The headers of the response (204, no body) to a preflight request (OPTIONS); None if it is not one.

    Comes after `check_origin` and before the check of keys, since browsers send preflights without them. Raises
    `Refused` for pages that are not listed.
    """
    method, origin = headers.get("access-control-request-method"), headers.get("origin")
    if method is None or origin is None:
        return None
    if not _is_listed(origin, config):
        raise _refusal(403, f"Origin {_quote(origin)} is not allowed. Add it to allowed_origins.")
    answer = cors_headers(config, headers)
    answer += [(b"access-control-allow-methods", b"GET, POST, DELETE"), (b"access-control-max-age", b"600")]
    wanted = headers.get("access-control-request-headers", "").strip()
    if _TOKENS.fullmatch(wanted):
        answer.append((b"access-control-allow-headers", wanted.encode()))
    if headers.get("access-control-request-private-network") == "true":
        answer.append((b"access-control-allow-private-network", b"true"))
    return answer


@lru_cache(64)
def _parse_authority(text: str) -> _Authority | None:
    """
    >>> _parse_authority("LOCALHOST.:8484"), _parse_authority("[::1]")
    (_Authority(name='localhost', port='8484'), _Authority(name='[::1]', port=''))
    >>> _parse_authority("localhost, evil.example"), _parse_authority("me@localhost")
    (None, None)
    """
    found = _AUTHORITY.fullmatch(text.strip().lower())
    return None if found is None else _Authority(found[1], found[2] or "")


def _origin(text: str) -> tuple[str, _Authority] | None:
    """Scheme and authority of an origin; None for `null` and for anything invalid."""
    scheme, _, rest = text.strip().lower().partition("://")
    place = _parse_authority(rest.removesuffix("/"))
    return None if place is None else (scheme, place.with_default_port(scheme))


def _is_listed(origin: str, config: Config) -> bool:
    if _ANY in config.allowed_origins and config.needs_keys:
        return True  # only with keys: otherwise every page in the world could spend the provider's keys
    asking = _origin(origin)
    return asking is not None and any(_origin(listed) == asking for listed in config.allowed_origins)


def _is_same(origin: str, host: _Authority | None, config: Config) -> bool:
    """Whether the page is our own: loaded from the very host that it now calls.

    Without keys, this is trusted only for hosts that an attacker's DNS cannot point here.
    """
    asking = _origin(origin)
    if asking is None or host is None or asking[0] not in _PORTS or host.with_default_port(asking[0]) != asking[1]:
        return False
    return config.needs_keys or _is_loopback_name(host, config) or _address(host.name) is not None


def _is_loopback_name(host: _Authority | None, config: Config) -> bool:
    if host is None:
        return False
    if host.name in _USUAL:
        return True
    address = _address(host.name)
    if address is not None and address.is_loopback:
        return True
    listed = (_parse_authority(name) for name in config.allowed_hosts)
    return any(one is not None and one.name == host.name and one.port in ("", host.port) for one in listed)


def _address(name: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(name.strip("[]"))
    except ValueError:
        return None


def _quote(text: str) -> str:
    """
    >>> _quote('evil.example"' + "x" * 100)[:20], _quote("")
    ('"evil.example\\'xxxxxx', 'nothing')
    """
    return '"' + text[:80].replace('"', "'") + '"' if text else "nothing"


def _refusal(status: int, message: str) -> Refused:
    kind: ProblemKind = "permission" if status == 403 else "invalid_request"
    return Refused(Problem(status=status, kind=kind, message=message, code="untrusted_origin"))
