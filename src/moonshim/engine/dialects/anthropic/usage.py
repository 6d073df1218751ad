"""Usage as Messages counts it <-> usage as everybody else does.

Messages counts the tokens that the prompt cache gave or took apart from `input_tokens`;
canonically they are part of it.
"""

from __future__ import annotations

from typing import Any, Final

from moonshim.engine.dialects.anthropic.parts import Json
from moonshim.engine.values.conversation import Usage, token_count

__all__ = ["UsageReader", "write_usage"]

_READ: Final = "cache_read_input_tokens"
_CREATED: Final = "cache_creation_input_tokens"
_BY_CLASS: Final = "cache_creation"
_SHORT: Final = "ephemeral_5m_input_tokens"
_HOUR: Final = "ephemeral_1h_input_tokens"
_OTHERS: Final = ("server_tool_use", "service_tier", "inference_geo", "speed")
"""What a Messages host says besides, and Messages clients know."""


class UsageReader:
    """Joins what the start and the end of a stream say of its tokens."""

    __slots__ = ("_raw",)

    def __init__(self) -> None:
        self._raw: Json = {}

    def read(self, usage: Any) -> Usage | None:
        """All that is known by now; None when this says nothing."""
        if not isinstance(usage, dict) or not usage:
            return None
        # Totals take the place of totals; but some hosts write 0 for what they said before.
        self._raw |= {key: value for key, value in usage.items() if value or not self._raw.get(key)}
        raw = self._raw
        prompt, cached, created = _count(raw, "input_tokens"), _count(raw, _READ), _count(raw, _CREATED)
        by_class = _object(raw, _BY_CLASS)
        short, hour = _count(by_class, _SHORT), _count(by_class, _HOUR)
        if created is None and (short is not None or hour is not None):
            created = token_count((short or 0) + (hour or 0))
        return Usage(
            None if prompt is None else token_count(prompt + (cached or 0) + (created or 0)),
            _count(raw, "output_tokens"),
            cached,
            _count(_object(raw, "output_tokens_details"), "thinking_tokens"),
            dict(raw),
            created,
            hour,
        )


def _count(raw: Json, key: str) -> int | None:
    return token_count(raw.get(key))


def _object(raw: Json, key: str) -> Json:
    value = raw.get(key)
    return value if isinstance(value, dict) else {}


def write_usage(usage: Usage | None) -> Json:
    """Usage for a client that wants to see numbers: what nobody said is 0.

    >>> write_usage(Usage(input_tokens=10, output_tokens=2, cached_tokens=4))
    {'input_tokens': 6, 'cache_creation_input_tokens': 0, 'cache_read_input_tokens': 4, 'output_tokens': 2}
    """
    usage = usage or Usage()
    created, cached, hour = usage.cache_write_tokens or 0, usage.cached_tokens or 0, usage.cache_write_1h_tokens
    out: Json = {
        "input_tokens": max(0, (usage.input_tokens or 0) - cached - created),
        _CREATED: created,
        _READ: cached,
        "output_tokens": usage.output_tokens or 0,
    }
    if usage.reasoning_tokens is not None:
        out["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    if hour is not None:
        out[_BY_CLASS] = {_SHORT: max(0, created - hour), _HOUR: hour}
    # Only a Messages host means the same by these names.
    raw = usage.raw if _READ in usage.raw or _CREATED in usage.raw else {}
    return out | {key: raw[key] for key in _OTHERS if raw.get(key) is not None}
