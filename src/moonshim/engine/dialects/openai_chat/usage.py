"""Usage, wherever a Chat host puts it -> one count that means the same for every host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from moonshim.engine.grammar.protocol import Notice
from moonshim.engine.upstream_events import UpstreamEvent, UsageReported
from moonshim.engine.values.conversation import TOKEN_COUNTS, Usage, token_count

__all__ = ["ChatUsageReader", "usage_of_choices", "with_cache_counts", "write_usage"]

# Where hosts and relays put a count; the first place with a number wins.
_DETAILS: Final = "prompt_tokens_details"
_BY_CLASS: Final = "cache_creation_token_details"
_PLACES: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "input_tokens": (("prompt_tokens",),),
    "output_tokens": (("completion_tokens",),),
    # OpenAI; SGLang.
    "reasoning_tokens": (("completion_tokens_details", "reasoning_tokens"), ("reasoning_tokens",)),
    "rejected_tokens": (("completion_tokens_details", "rejected_prediction_tokens"),),
    # OpenAI and OpenRouter; Moonshot; DeepSeek.
    "cached_tokens": ((_DETAILS, "cached_tokens"), ("cached_tokens",), ("prompt_cache_hit_tokens",)),
    # OpenAI and OpenRouter; Moonshot beside its `cached_tokens` (unverified); LiteLLM; relays of Claude.
    "cache_write_tokens": (
        (_DETAILS, "cache_write_tokens"),
        ("cache_write_tokens",),
        (_DETAILS, "cache_creation_tokens"),
        ("cache_creation_input_tokens",),
    ),
    # LiteLLM; relays of Claude.
    "cache_write_1h_tokens": (
        (_DETAILS, _BY_CLASS, "ephemeral_1h_input_tokens"),
        ("cache_creation", "ephemeral_1h_input_tokens"),
    ),
}


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
    """Whether it says nothing but what is known."""
    return usage.raw == known.raw or all(getattr(usage, name) in (None, getattr(known, name)) for name in TOKEN_COUNTS)


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
    return Usage(**{name: _first_count(raw, places) for name, places in _PLACES.items()}, raw=raw)


def _first_count(raw: dict[str, Any], places: tuple[tuple[str, ...], ...]) -> int | None:
    for place in places:
        value: Any = raw
        for key in place:
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None and (count := token_count(value)) is not None:
            return count
    return None


_MOVED: Final = ("cached_tokens", "cache_write_tokens")


def with_cache_counts(usage: Any) -> Any:
    """Usage with Moonshot's cache counts where OpenAI's clients look for them; the same object if they are there.

    >>> with_cache_counts({"cached_tokens": 3})
    {'cached_tokens': 3, 'prompt_tokens_details': {'cached_tokens': 3}}
    """
    if not isinstance(usage, dict):
        return usage
    counts = {key: usage[key] for key in _MOVED if type(usage.get(key)) is int}
    details = usage.get(_DETAILS) if counts else None
    if details is not None and not isinstance(details, dict):
        return usage
    missing = {key: count for key, count in counts.items() if details is None or details.get(key) is None}
    return {**usage, _DETAILS: {**(details or {}), **missing}} if missing else usage


def write_usage(usage: Usage) -> dict[str, Any]:
    """Usage in the form of Chat; the tokens written for an hour in that of LiteLLM, since OpenAI has none.

    >>> write_usage(Usage(10, 5, cache_write_tokens=8))["prompt_tokens_details"]
    {'cache_write_tokens': 8}
    """
    prompt, answer = usage.input_tokens or 0, usage.output_tokens or 0
    out: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}
    details: dict[str, Any] = {key: count for key in _MOVED if (count := getattr(usage, key)) is not None}
    if usage.cache_write_1h_tokens:
        hour = usage.cache_write_1h_tokens
        short = max(0, (usage.cache_write_tokens or 0) - hour)
        details[_BY_CLASS] = {"ephemeral_5m_input_tokens": short, "ephemeral_1h_input_tokens": hour}
    if details:
        out[_DETAILS] = details
    if usage.reasoning_tokens is not None:
        out["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return out
