"""The lifetime of a cached prompt as clients write it (`30m`) -> seconds."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

__all__ = ["lifetime_seconds", "longest_lifetime"]

_LIFETIME: Final = re.compile(r"([0-9]{1,9})([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def lifetime_seconds(ttl: Any) -> int | None:
    """The seconds of a lifetime; None if it is not one.

    >>> lifetime_seconds("5m"), lifetime_seconds("24h"), lifetime_seconds("long"), lifetime_seconds(300)
    (300, 86400, None, None)
    """
    found = _LIFETIME.fullmatch(ttl) if isinstance(ttl, str) else None
    return None if found is None else int(found[1]) * _SECONDS[found[2]]


def longest_lifetime(ttls: Iterable[Any]) -> str | None:
    """The longest of several lifetimes; other values are ignored.

    >>> longest_lifetime(["5m", None, "1h"])
    '1h'
    """
    known = [ttl for ttl in ttls if lifetime_seconds(ttl) is not None]
    return max(known, key=lambda ttl: lifetime_seconds(ttl) or 0, default=None)
