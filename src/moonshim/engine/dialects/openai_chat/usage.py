"""Usage, wherever a Chat host puts it -> one count that means the same for every host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from moonshim.engine.grammar.protocol import Notice
from moonshim.engine.upstream_events import UpstreamEvent, UsageReported
from moonshim.engine.values.conversation import Usage, token_count

__all__ = ["ChatUsageReader", "usage_of_choices", "with_cached_tokens"]

_COUNTS: Final = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")


class ChatUsageReader:
    """Reads usage at the top of a chunk or in a choice. The last count is valid, but for zeros and copies."""

    __slots__ = ("_reported",)

    def __init__(self) -> None:
        self._reported: Usage | None = None

    def read(self, payload: Mapping[str, Any]) -> list[UpstreamEvent]:
        top, inner = payload.get("usage"), usage_of_choices(payload)
        counted, known = _counted(top), self._reported
        moved = counted is None and (counted := _counted(inner)) is not None
        if counted is None:
            return [Notice("usage_repeated", str(top)[:1000])] if known is not None and top is not None else []
        usage = _normalize(counted)
        if known is not None and _is_copy(usage, known):
            return [] if moved else [Notice("usage_repeated", str(top)[:1000])]
        self._reported = usage
        return [UsageReported(usage), *([Notice("usage_moved", "choices[].usage")] if moved else [])]


def _is_copy(usage: Usage, known: Usage) -> bool:
    """Whether both count the same, as far as both count."""
    pairs = [(getattr(usage, name), getattr(known, name)) for name in _COUNTS]
    return usage.raw == known.raw or all(one == other or None in (one, other) for one, other in pairs)


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
