"""The lifetime that a client asks for its cached prompt -> the one that the host has, in the host's spelling."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from moonshim.engine.dialects.registry import CLIENT_DIALECTS, dialect_named
from moonshim.engine.hosts.profile import HostProfile
from moonshim.engine.values.conversation import Change, Request
from moonshim.engine.values.lifetimes import lifetime_seconds

__all__ = ["fit_cache_ttl"]

_OPTIONS: Final = "prompt_cache_options"
_RETENTION: Final = "prompt_cache_retention"
_CONTROL: Final = "cache_control"
_CLASSES: Final = ("5m", "1h")


def fit_cache_ttl(request: Request, profile: HostProfile) -> tuple[Request, list[Change]]:
    """Ask for a lifetime that the host has: never a shorter one than requested, unless that is over an hour.

    >>> from moonshim.engine.hosts.detect import profile_for
    >>> fitted, changes = fit_cache_ttl(Request(model="k3", cache_ttl="30m"), profile_for(host="moonshot", model="k3"))
    >>> fitted.body_overrides["prompt_cache_options"], changes[0].detail
    ({'ttl': '1h'}, '30m sent as 1h: the host caches for 5m or 1h')
    """
    spelling, client = profile.cache_ttl, next((name for name in CLIENT_DIALECTS if name in request.extras), None)
    received = {} if client is None else dialect_named(client).body_fields(request)
    asked, fields = request.cache_ttl, [key for key in (_OPTIONS, _RETENTION) if received.get(key) is not None]
    same = client == profile.dialect
    if (asked is None and not fields) or not request.body_overrides.keys().isdisjoint((_OPTIONS, _CONTROL)):
        return request, []
    if same and (spelling == "passed" or profile.dialect == "anthropic"):
        return request, []  # `cache_control` is sent where it was received.
    place = _place(client, received)
    if spelling is None or spelling == "passed":
        # What is not known to be accepted is sent only if the client itself wrote it for this dialect.
        why = "the host decides how long it caches" if spelling is None else "it is not known whether the host has any"
        changes = (
            [Change("cache_ttl", f"cache lifetime {asked[:80]} dropped: {why}", place)] if asked is not None else []
        )
        changes += [_dropped(key) for key in fields if asked is None]
        dropped = dict.fromkeys(fields) if same else {}
        return replace(request, cache_ttl=None, body_overrides=request.body_overrides | dropped), changes
    ttl, changes = _fit(asked, place)
    options = received.get(_OPTIONS)
    if spelling == _OPTIONS and same and fields == [_OPTIONS] and options == {"ttl": ttl}:
        return request, []
    if isinstance(options, dict):
        changes += [_dropped(f"{_OPTIONS}.{key}") for key in options if key != "ttl"]
    if received.get(_RETENTION) is not None and (asked is None or place != _RETENTION):
        changes.append(_dropped(_RETENTION))
    written: dict[str, Any] | None = None
    if ttl is not None:
        written = {"ttl": ttl} if spelling == _OPTIONS else {"type": "ephemeral", "ttl": ttl}
        if not changes and place != f"{spelling}.ttl":
            changes.append(Change("cache_ttl", f"{ttl} sent as {spelling}.ttl", place))
    overrides: dict[str, Any] = (dict.fromkeys(fields) if same else {}) | {spelling: written}
    return replace(request, cache_ttl=ttl, body_overrides=request.body_overrides | overrides), changes


def _place(client: str | None, received: Any) -> str:
    """Where the client wrote the lifetime."""
    if client == "anthropic":
        return f"{_CONTROL}.ttl"
    options = received.get(_OPTIONS)
    asked = isinstance(options, dict) and options.get("ttl") is not None
    return f"{_OPTIONS}.ttl" if asked or received.get(_RETENTION) is None else _RETENTION


def _fit(asked: str | None, place: str) -> tuple[str | None, list[Change]]:
    """The class of the host for a lifetime."""
    if asked is None or asked in _CLASSES:
        return asked, []
    seconds, known = lifetime_seconds(asked), " or ".join(_CLASSES)
    if seconds is None:
        return None, [Change("cache_ttl", f"{asked[:80]!r} dropped: the host caches for {known}", place)]
    ttl = next((one for one in _CLASSES if (lifetime_seconds(one) or 0) >= seconds), _CLASSES[-1])
    return ttl, [Change("cache_ttl", f"{asked} sent as {ttl}: the host caches for {known}", place)]


def _dropped(key: str) -> Change:
    return Change("cache_ttl", f"{key} dropped: the host does not know it", key)
