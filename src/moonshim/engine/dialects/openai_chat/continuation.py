"""The chunks of a second response -> more of the first one, for a client that must not notice that there are two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from moonshim.engine.dialects.openai_chat.chunk import is_empty_chunk

__all__ = ["Continuation", "without_ending"]

_IDENTITY: Final = ("id", "created", "model")
_SPENT: Final = ("completion_tokens", "total_tokens")


class Continuation:
    """Under the first response's name, without a second role, and with its tokens added."""

    def __init__(self, chunk: Mapping[str, Any], usage: Mapping[str, Any] | None) -> None:
        self._identity = {key: chunk[key] for key in _IDENTITY if key in chunk}
        self._spent = _number(usage or {}, "completion_tokens")

    def joined(self, chunk: dict[str, Any]) -> dict[str, Any] | None:
        """The chunk as it leaves; None when nothing is left of it."""
        out = chunk | {key: value for key, value in self._identity.items() if key in chunk}
        usage = chunk.get("usage")
        if isinstance(usage, dict) and _number(usage, "completion_tokens"):
            out["usage"] = usage | {key: _number(usage, key) + self._spent for key in _SPENT if key in usage}
        choices = chunk.get("choices")
        if not isinstance(choices, list) or not choices or not all(map(_has_role, choices)):
            return out
        out["choices"] = [{**one, "delta": _without_role(one["delta"])} for one in choices]
        return None if is_empty_chunk(out) else out


def without_ending(chunk: Mapping[str, Any]) -> dict[str, Any] | None:
    """A chunk without the finish reason and the usage; None when nothing else is in it."""
    choices = chunk.get("choices")
    said = {key: value for key, value in chunk.items() if key != "usage"}
    said["choices"] = [
        {key: value for key, value in one.items() if key not in ("usage", "message")} | {"finish_reason": None}
        for one in (choices if isinstance(choices, list) else ())
        if isinstance(one, dict) and isinstance(one.get("delta"), dict)
    ]
    return said if said["choices"] and not is_empty_chunk(said) else None


def _number(usage: Mapping[str, Any], key: str) -> int:
    value = usage.get(key)
    return value if isinstance(value, int) else 0


def _has_role(choice: Any) -> bool:
    delta = choice.get("delta") if isinstance(choice, dict) else None
    return isinstance(delta, dict) and "role" in delta


def _without_role(delta: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in delta.items() if key != "role"}
