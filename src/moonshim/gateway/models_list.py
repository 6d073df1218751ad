"""The configured models -> the response to `GET /v1/models`, readable for OpenAI's and Anthropic's clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from moonshim.config import Target, profile_of
from moonshim.errors import InvalidInput
from moonshim.gateway.model_capabilities import capability_fields
from moonshim.gateway.outbound.routing import PICKER_PREFIX
from moonshim.gateway.state import GatewayState

__all__ = ["model_entry", "model_list"]

_WINDOW_NAMES: Final = ("context_window", "context_length", "max_model_len", "max_input_tokens")
"""Clients look for different names: OpenRouter's, vLLM's and Anthropic's."""


def model_list(
    state: GatewayState,
    allowed: Sequence[str] = (),
    *,
    for_claude: bool = False,
    limit: int | None = None,
    after: str | None = None,
) -> dict[str, Any]:
    """The names that this client may use, with OpenAI's and Anthropic's fields; clients ignore the other's.

    `limit` and `after` select a page. Raises `InvalidInput` if there is no name `after`.
    """
    state.host_models.refresh(state.snapshot.config.providers)
    names = state.snapshot.router.names(allowed, for_claude=for_claude)
    if after is not None:
        if after not in names:
            raise InvalidInput(f"there is no model {after!r} in the list", field="after_id")
        names = names[names.index(after) + 1 :]
    page = names if limit is None else names[:limit]
    entries = [model_entry(state, name, allowed) for name in page]
    return {
        "object": "list",
        "data": entries,
        "has_more": len(page) < len(names),
        "first_id": entries[0]["id"] if entries else None,
        "last_id": entries[-1]["id"] if entries else None,
    }


def model_entry(state: GatewayState, name: str, allowed: Sequence[str] = ()) -> dict[str, Any]:
    """One of them. Raises `Refused` for an unknown name."""
    resolved = state.snapshot.router.resolve(name, allowed=allowed)
    target = resolved.targets[0]
    entry: dict[str, Any] = {
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": target.provider.name,
        "root": target.model,
        "type": "model",
        "display_name": name.removeprefix(PICKER_PREFIX) or name,
        "created_at": "1970-01-01T00:00:00Z",
    }
    entry |= _known_fields(target, state)
    if resolved.routes:
        entry["routes"] = list(resolved.routes)
        for long in resolved.routes.get("long_context", ())[:1]:
            # A conversation that outgrows the model goes on there.
            window = _known_fields(long, state).get("context_window", 0)
            if window > entry.get("context_window", window):
                entry |= dict.fromkeys(_WINDOW_NAMES, window)
    return entry


def _known_fields(target: Target, state: GatewayState) -> dict[str, Any]:
    """Sizes and capabilities: as configured, else as the host reports them, else by its profile."""
    provider = target.provider
    overrides = provider.overrides_for(target.model)
    try:
        profile = profile_of(target)
    except InvalidInput:
        return {}
    reported = state.host_models.reported(provider, target.model)
    of_host = None if "context_window" in overrides else reported.window
    return _sizes(of_host or profile.context_window, profile.output_limit) | capability_fields(
        profile, overrides, reported, searches=state.snapshot.config.web_search is not None
    )


def _sizes(window: int | None, limit: int | None) -> dict[str, int]:
    fields: dict[str, int] = {}
    if window is not None:
        fields |= dict.fromkeys(_WINDOW_NAMES, window)
    if limit is not None:
        # The output limit cannot exceed the window.
        limit = limit if window is None else min(window, limit)
        fields |= {"max_output_tokens": limit, "max_tokens": limit}
    return fields
