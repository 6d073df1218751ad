"""The usage that a host reports bit by bit -> one count, over a retry too."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from moonshim.engine.values.conversation import Usage

__all__ = ["UsageTotal"]

_COUNTS: Final = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")


class UsageTotal:
    """A later count replaces an earlier one, number by number; tokens of a response before a retry are added."""

    __slots__ = ("_earlier", "_usage")

    def __init__(self) -> None:
        self._usage: Usage | None = None
        self._earlier: Usage | None = None

    @property
    def raw(self) -> dict[str, Any] | None:
        """The usage of the current response as its host reported it."""
        return self._usage.raw if self._usage is not None else None

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
        return replace(usage, **added)

    def add(self, usage: Usage | None) -> None:
        """The host reported usage."""
        known = self._usage
        if usage is None or known is None:
            self._usage = usage or known
            return
        counts = {
            name: value if (value := getattr(usage, name)) is not None else getattr(known, name) for name in _COUNTS
        }
        self._usage = Usage(**counts, raw=known.raw | usage.raw)

    def start_retry(self) -> None:
        """What was counted so far was spent on a response that the next one replaces."""
        self._usage, self._earlier = None, self.total
