"""A client's headers -> those that the host accepts, with each change. Only the headers of the Messages protocol are
touched; which others a host may see is decided by the shells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, get_args

from moonshim.engine.hosts.profile import HostProfile, SessionHeader
from moonshim.engine.values.conversation import Change

__all__ = ["FITTED_HEADERS", "fit_headers"]

_VERSION: Final = "anthropic-version"
_BETA: Final = "anthropic-beta"
FITTED_HEADERS: Final = (_VERSION, _BETA, *get_args(SessionHeader))
"""The headers that depend on the host."""
_LONGEST: Final = 200


def fit_headers(headers: Mapping[str, str], profile: HostProfile) -> tuple[dict[str, str], list[Change]]:
    """Fit headers with lower-case names to the host.

    >>> from moonshim.engine.hosts.detect import profile_for
    >>> kimi = profile_for(host="kimi-coding", model="k3", upstream="anthropic")
    >>> fit_headers({"anthropic-version": "2026-10-21", "anthropic-beta": "context-1m-2025-08-07"}, kimi)[0]
    {'anthropic-version': '2023-06-01'}
    """
    fitted, changes = dict(headers), list[Change]()
    version = fitted.get(_VERSION)
    if profile.api_version is not None and version not in (None, profile.api_version):
        fitted[_VERSION] = profile.api_version
        why = f"{_shorten(version)} became {profile.api_version}, the version that the host is known to accept"
        changes.append(Change("api_version", why, _VERSION))
    if profile.beta_flags is not None and _BETA in fitted:
        flags = list(filter(None, (flag.strip() for flag in fitted.pop(_BETA).split(","))))
        kept = [flag for flag in flags if flag in profile.beta_flags]
        if kept:
            fitted[_BETA] = ",".join(kept)
        if dropped := [flag for flag in flags if flag not in profile.beta_flags]:
            why = f"{_shorten(', '.join(dropped))} dropped: the host is not known to accept it"
            changes.append(Change("beta_flags", why, _BETA))
    return fitted, changes


def _shorten(text: str | None) -> str:
    text = text or ""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
