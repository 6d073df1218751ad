"""`[routes]` -> the models for some kinds of requests."""

from __future__ import annotations

from typing import Any

from moonshim.config.model import ROUTE_NAMES, Routes
from moonshim.config.tables.aliases import read_targets
from moonshim.config.tables.table import Table

__all__ = ["read_routes"]


def read_routes(table: Table | None, default: Routes) -> Routes:
    """The routes of a table; `default` has those that it does not set."""
    if table is None:
        return default
    found: dict[str, Any] = {name: read_targets(table, name) for name in ROUTE_NAMES}
    found["long_context_tokens"] = table.integer("long_context_tokens")
    found["background_models"] = read_targets(table, "background_models")
    table.close()
    kept = {name: getattr(default, name) for name in Routes.__struct_fields__}
    return Routes(**kept | {name: value for name, value in found.items() if value is not None})
