"""The usage that a host reports bit by bit -> one count, over a retry too."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from moonshim.engine.values.conversation import TOKEN_COUNTS, Usage, add_usage

__all__ = ["UsageTotal"]


class UsageTotal:
    """A later count replaces an earlier one, number by number; the output of a response before a retry is added.

    The client asked once, so the input is that of one request.
    """

    __slots__ = ("_cache_ttl", "_earlier", "_usage")

    def __init__(self, cache_ttl: str | None = None) -> None:
        """`cache_ttl`: for how long this host caches all that it writes for this request; None: not known."""
        self._cache_ttl = cache_ttl
        self._usage: Usage | None = None
        self._earlier: Usage | None = None

    @property
    def raw(self) -> dict[str, Any] | None:
        """The usage of the current response as its host reported it."""
        return self._usage.raw if self._usage is not None else None

    @property
    def current(self) -> Usage | None:
        """The usage of the current response."""
        return self._usage

    @property
    def total(self) -> Usage | None:
        """The usage in numbers that mean the same for every host."""
        usage, earlier = self._usage, self._earlier
        if usage is None or earlier is None:
            return usage or earlier
        added = {
            name: (getattr(usage, name) or 0) + (getattr(earlier, name) or 0)
            for name in ("output_tokens", "reasoning_tokens")
            if getattr(usage, name) is not None
        }
        both = add_usage(earlier, usage)
        return replace(usage, **added, raw=usage.raw | both.raw if both is not None else usage.raw)

    def add(self, usage: Usage | None) -> None:
        """The host reported usage."""
        if usage is not None and usage.cache_write_1h_tokens is None and self._cache_ttl is not None:
            hour = usage.cache_write_tokens if self._cache_ttl == "1h" else usage.cache_write_tokens and 0
            usage = replace(usage, cache_write_1h_tokens=hour)
        known = self._usage
        if usage is None or known is None:
            self._usage = usage or known
            return
        counts = {
            name: value if (value := getattr(usage, name)) is not None else getattr(known, name)
            for name in TOKEN_COUNTS
        }
        self._usage = Usage(**counts, raw=known.raw | usage.raw)

    def start_retry(self) -> None:
        """What was counted so far was spent on a response that the next one replaces."""
        self._usage, self._earlier = None, self.total
