"""The configured models -> the response to `GET /v1/models`, readable for OpenAI's and Anthropic's clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from moonshim.config import Target
from moonshim.engine.hosts.detect import profile_for
from moonshim.errors import InvalidInput
from moonshim.gateway.state import ConfigSnapshot

__all__ = ["model_entry", "model_list"]


def model_list(snapshot: ConfigSnapshot, allowed: Sequence[str] = ()) -> dict[str, Any]:
    """All names that this client may use, with OpenAI's and Anthropic's fields; clients ignore the other's."""
    entries = [model_entry(snapshot, name, allowed) for name in snapshot.router.names(allowed)]
    return {
        "object": "list",
        "data": entries,
        "has_more": False,
        "first_id": entries[0]["id"] if entries else None,
        "last_id": entries[-1]["id"] if entries else None,
    }


def model_entry(snapshot: ConfigSnapshot, name: str, allowed: Sequence[str] = ()) -> dict[str, Any]:
    """One of them. Raises `Refused` for an unknown name."""
    target = snapshot.router.targets(name, allowed=allowed)[0]
    entry: dict[str, Any] = {
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": target.provider.name,
        "type": "model",
        "display_name": name,
        "created_at": "1970-01-01T00:00:00Z",
    }
    window, limit = _sizes(target)
    if window is not None:
        # Clients look for different names: OpenRouter's, vLLM's and Anthropic's.
        entry |= {
            "context_window": window,
            "context_length": window,
            "max_model_len": window,
            "max_input_tokens": window,
        }
    if limit is not None:
        entry |= {"max_output_tokens": limit, "max_tokens": limit}
    return entry


def _sizes(target: Target) -> tuple[int | None, int | None]:
    provider = target.provider
    try:
        profile = profile_for(
            host=provider.host,
            base_url=provider.api_base_url,
            model=target.model,
            upstream=provider.dialect,
            overrides=provider.overrides_for(target.model) or None,
        )
    except InvalidInput:
        return None, None
    return profile.context_window, profile.output_limit
