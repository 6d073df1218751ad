"""A provider's login and its host's report on the quota -> what a subscriber wants to know about them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from moonshim.config import ProviderConfig
from moonshim.config.kimi_login import LoginKey, LoginState
from moonshim.engine.hosts.detect import host_of

__all__ = ["LoginReport", "Quota", "describe_login", "describe_quota", "login_of", "read_quota", "reports_quota"]

_REPORTING: Final = frozenset({"kimi-coding"})
"""Hosts with a `/usages` endpoint. Path and fields are those that kimi-code 2.1.0 reads; not tried with the real host.
"""
_WINDOWS: Final = {"5h": "5 hours", "7d": "7 days", "month_total": "month", "month_code": "month, for code"}
_LONGEST: Final = 64
_MOST: Final = 16


class LoginReport(Struct, frozen=True):
    """The login of kimi-code that a provider uses."""

    file: str
    state: str
    """`valid`, `expired` or `missing`."""
    expires: str | None = None
    """When, in ISO 8601; None: never, or it is missing."""


class Quota(Struct, frozen=True):
    """A limit of the subscription, as the host reports it."""

    window: str
    """`5h`, `7d`, `month_total`, `month_code`, or what else the host names."""
    used_ratio: float
    """1: used up."""
    reset_time: str | None = None
    """As the host writes it."""


def reports_quota(provider: ProviderConfig) -> bool:
    """Whether the host of this provider has an endpoint for that."""
    return (provider.host or host_of(provider.api_base_url)).removesuffix("-anthropic") in _REPORTING


def read_quota(body: bytes) -> tuple[Quota, ...]:
    """
    >>> read_quota(b'{"usages": {"limit_5h": {"used_ratio": "0.5", "reset_time": "2026-11-17T03:00:00Z"}, "x": 1}}')
    (Quota(window='5h', used_ratio=0.5, reset_time='2026-11-17T03:00:00Z'),)
    """
    try:
        page = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ()
    usages = page.get("usages") if isinstance(page, dict) else None
    entries = list(usages.items())[:_MOST] if isinstance(usages, dict) else []
    return tuple(quota for name, entry in entries if (quota := _quota(name, entry)) is not None)


def _quota(name: str, entry: Any) -> Quota | None:
    try:
        ratio = float(entry["used_ratio"])
    except (TypeError, KeyError, ValueError):
        return None
    reset = entry.get("reset_time")
    when = reset[:_LONGEST] if isinstance(reset, str) and reset else None
    return Quota(name.removeprefix("limit_")[:_LONGEST], ratio, when) if 0 <= ratio < float("inf") else None


def describe_quota(quota: Quota) -> str:
    """
    >>> describe_quota(Quota("5h", 0.125, "2026-11-17T11:00:00+08:00"))
    '5 hours: 12% used, resets 2026-11-17 03:00 UTC'
    """
    reset = ""
    if quota.reset_time is not None:
        try:
            reset = f", resets {_moment(datetime.fromisoformat(quota.reset_time))}"
        except (ValueError, OverflowError):
            reset = f", resets {quota.reset_time}"
    return f"{_WINDOWS.get(quota.window, quota.window)}: {quota.used_ratio:.0%} used{reset}"


def login_of(provider: ProviderConfig) -> LoginState | None:
    """The login that this provider uses, if it uses one."""
    return next((key.state for key in provider.keys if isinstance(key, LoginKey)), None)


def describe_login(state: LoginState) -> tuple[LoginReport, str]:
    """The login as values and in words."""
    file, expires = str(state.file), _moment_of(state.expires_at)
    if not state.found:
        return LoginReport(file, "missing"), f"no login in {file}"
    report = LoginReport(
        file, "expired" if state.has_expired else "valid", None if expires is None else expires.isoformat()
    )
    if expires is None:
        return report, f"{file}, does not expire"
    return report, f"{file}, {'expired' if state.has_expired else 'expires'} {_moment(expires)}"


def _moment_of(seconds: float | None) -> datetime | None:
    try:
        return None if seconds is None else datetime.fromtimestamp(int(seconds), UTC)
    except (ValueError, OverflowError, OSError):  # beyond the year 9999
        return None


def _moment(when: datetime) -> str:
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
