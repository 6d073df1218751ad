"""Keeps usage where an OpenAI client looks for it: at the top of a chunk, and once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from moonshim.engine.values.events import Repaired

__all__ = ["UsageKeeper", "told_usage"]


class _Log(Protocol):
    def add(self, repair: Repaired, choice: int) -> None: ...


class UsageKeeper:
    """Moves `choices[i].usage` to the top, and keeps a later chunk from resetting what was told.

    `for_client`: cached tokens are also where OpenAI's clients look for them.
    """

    __slots__ = ("_enabled", "_for_client", "_promoted", "usage")

    def __init__(self, *, enabled: bool, for_client: bool = False) -> None:
        self._enabled = enabled
        self._for_client = for_client
        self._promoted = False
        self.usage: dict[str, Any] | None = None

    def read(self, chunk: Mapping[str, Any], log: _Log) -> tuple[Any, bool]:
        """The usage this chunk should carry at its top, and whether that is a change."""
        usage, changed = self._placed(chunk, log)
        if self._for_client and self._enabled and _hides_cached(usage):
            details = usage.get("prompt_tokens_details") or {}
            cached = {"cached_tokens": usage["cached_tokens"]}
            return {**usage, "prompt_tokens_details": {**details, **cached}}, True
        return usage, changed

    def _placed(self, chunk: Mapping[str, Any], log: _Log) -> tuple[Any, bool]:
        top = chunk.get("usage")
        inner = _inner(chunk)
        if not self._enabled:
            self.usage = _told(top) or _told(inner) or self.usage
            return top, False
        if _told(top) is None and _told(inner) is not None and self.usage is None:
            self.usage, self._promoted = _told(inner), True
            log.add(Repaired("usage_moved", "choices[].usage"), 0)
            return inner, True
        if self.usage is not None and top is not None and (self._promoted or _told(top) is None or top == self.usage):
            log.add(Repaired("usage_repeated", str(top)[:1000]), 0)
            return None, True
        self.usage = _told(top) or self.usage
        return top, inner is not None


def _hides_cached(usage: Any) -> bool:
    """Whether cached tokens are counted beside `prompt_tokens_details`, as Moonshot does, and not in it."""
    if not isinstance(usage, dict) or type(usage.get("cached_tokens")) is not int:
        return False
    details = usage.get("prompt_tokens_details")
    return details is None or (isinstance(details, dict) and details.get("cached_tokens") is None)


def _told(usage: Any) -> dict[str, Any] | None:
    """Usage that tells something; all zeros after an answer tell nothing."""
    if not isinstance(usage, dict) or not usage:
        return None
    numbers = [value for value in usage.values() if isinstance(value, int)]
    return usage if any(numbers) or not numbers else None


def _inner(chunk: Mapping[str, Any]) -> Any:
    choices = chunk.get("choices")
    if not isinstance(choices, list):
        return None
    return next((one["usage"] for one in choices if isinstance(one, dict) and one.get("usage") is not None), None)


def told_usage(chunk: Mapping[str, Any]) -> dict[str, Any] | None:
    """The usage of a chunk, at its top or in a choice, if it tells something."""
    return _told(chunk.get("usage")) or _told(_inner(chunk))
