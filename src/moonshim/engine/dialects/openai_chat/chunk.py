"""What every Chat chunk has in common: the fields that name its response, what makes it empty, and how it fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from moonshim.engine.values.events import Failed

__all__ = ["IDENTITY", "error_chunk", "is_empty_chunk", "is_empty_delta"]

IDENTITY: Final = ("id", "object", "created", "model", "system_fingerprint", "service_tier", "provider")
"""The fields that name the response."""
_DETAIL: Final = frozenset({"type", "text", "summary", "index", "id", "format"})
"""What an entry of `reasoning_details` needs to carry text; without text it carries nothing."""


def is_empty_chunk(chunk: Mapping[str, Any]) -> bool:
    """Whether a chunk has nothing left but the name of its response: then it need not go out."""
    if any(value is not None and key not in (*IDENTITY, "choices") for key, value in chunk.items()):
        return False
    for choice in chunk["choices"]:
        if any(value is not None and key not in ("index", "delta") for key, value in choice.items()):
            return False
        if not is_empty_delta(choice["delta"]):
            return False
    return True


def is_empty_delta(delta: Mapping[str, Any]) -> bool:
    """Whether a delta contains nothing but the role."""
    return all(_is_blank(key, value) for key, value in delta.items() if key != "role")


def _is_blank(key: str, value: Any) -> bool:
    if key == "reasoning_details" and isinstance(value, list):
        return all(
            isinstance(one, dict) and one.keys() <= _DETAIL and not (one.get("text") or one.get("summary"))
            for one in value
        )
    return value is None or value in ("", [])


def error_chunk(failed: Failed, choice: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """An error in the shape that OpenAI clients raise; `choice` is the one that failed."""
    # A plug-in is part of Moonshim, not of a host.
    kind = "server_error" if failed.code == "transformer_failed" else "upstream_error"
    error: dict[str, Any] = {"message": failed.message, "type": kind, "param": None, "code": failed.code}
    error["retryable"] = failed.retryable
    if choice is not None:
        error["choice"] = choice.get("index", 0)
    return {"error": error}
