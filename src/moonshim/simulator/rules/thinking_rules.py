"""The switches of thinking in a request -> whether the model will think."""

from __future__ import annotations

from typing import Any

from moonshim.simulator.rules.contracts import Contract, Json

__all__ = ["will_think"]


def will_think(body: Json, of: Contract) -> bool:
    """Whether the model will think, as each host lets it be said."""
    if not of.generation.thinks:
        return False
    switches = (
        _field(body, "thinking", "type") == "disabled",
        _field(body, "chat_template_kwargs", "thinking") is False,
        _field(body, "reasoning", "enabled") is False,
    )
    return not (of.generation.may_not_think and any(switches))


def _field(body: Json, name: str, below: str) -> Any:
    value = body.get(name)
    return value.get(below) if isinstance(value, dict) else None
