"""Usage, wherever a Chat host puts it -> one count that means the same for every host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moonshim.engine.grammar.protocol import Notice
from moonshim.engine.upstream_events import UpstreamEvent, UsageReported
from moonshim.engine.values.conversation import Usage, token_count

__all__ = ["ChatUsageReader", "usage_of_choices", "with_cached_tokens"]


class ChatUsageReader:
    """Reads usage at the top of a chunk or in a choice. A later chunk cannot reset what was reported."""

    __slots__ = ("_moved", "_reported")

    def __init__(self) -> None:
        self._reported: dict[str, Any] | None = None
        self._moved = False

    def read(self, payload: Mapping[str, Any]) -> list[UpstreamEvent]:
        top, inner = payload.get("usage"), usage_of_choices(payload)
        counted = _counted(top)
        if counted is None and self._reported is None and (moved := _counted(inner)) is not None:
            self._reported, self._moved = moved, True
            return [UsageReported(_normalize(moved)), Notice("usage_moved", "choices[].usage")]
        known = self._reported
        if known is not None and top is not None and (self._moved or counted is None or top == known):
            return [Notice("usage_repeated", str(top)[:1000])]
        if counted is None:
            return []
        self._reported = counted
        return [UsageReported(_normalize(counted))]


def usage_of_choices(payload: Mapping[str, Any]) -> Any:
    """The usage that is in a choice of this payload, where Moonshot puts it; else None."""
    choices = payload.get("choices")
    if not isinstance(choices, list):
        return None
    return next((one["usage"] for one in choices if isinstance(one, dict) and one.get("usage") is not None), None)


def _counted(usage: Any) -> dict[str, Any] | None:
    """Usage that counts something; all zeros after a response do not."""
    if not isinstance(usage, dict) or not usage:
        return None
    numbers = [value for value in usage.values() if isinstance(value, int)]
    return usage if any(numbers) or not numbers else None


def _normalize(raw: dict[str, Any]) -> Usage:
    prompt, completion = raw.get("prompt_tokens_details"), raw.get("completion_tokens_details")
    cached = raw.get("cached_tokens")
    if isinstance(prompt, dict) and isinstance(prompt.get("cached_tokens"), int):
        cached = prompt["cached_tokens"]
    reasoning = completion.get("reasoning_tokens") if isinstance(completion, dict) else None
    return Usage(
        input_tokens=token_count(raw.get("prompt_tokens")),
        output_tokens=token_count(raw.get("completion_tokens")),
        cached_tokens=token_count(cached),
        reasoning_tokens=token_count(reasoning),
        raw=raw,
    )


def with_cached_tokens(usage: Any) -> Any:
    """Usage with its cached tokens where OpenAI's clients look for them; the same object if they are there.

    >>> with_cached_tokens({"cached_tokens": 3})
    {'cached_tokens': 3, 'prompt_tokens_details': {'cached_tokens': 3}}
    """
    if not isinstance(usage, dict) or type(usage.get("cached_tokens")) is not int:
        return usage
    details = usage.get("prompt_tokens_details")
    if details is not None and (not isinstance(details, dict) or details.get("cached_tokens") is not None):
        return usage
    return {**usage, "prompt_tokens_details": {**(details or {}), "cached_tokens": usage["cached_tokens"]}}
