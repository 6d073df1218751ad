"""What a response has to be, where its host does not make sure of it: a value."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

__all__ = ["ExpectedAnswer"]


class ExpectedAnswer(Struct, frozen=True, kw_only=True):
    """What the client demands of the response, and the host does not guarantee: a schema, a call, which calls."""

    schema: dict[str, Any] | None = None
    """An answer without calls is JSON that matches this schema."""
    is_described: bool = False
    """The model was shown the schema in the request."""
    tool: str | None = None
    """The tool that has to be called, under its name at the host; empty: any tool."""
    arguments: dict[str, Any] | None = None
    """The arguments of this tool must match this schema; None: they are not checked."""
    allowed: tuple[str, ...] | None = None
    """The only tools that may be called, under their names at the host; None: any."""
    is_summary: bool = False
    """The response is a summary that takes the place of the conversation: text, whole, and nothing else."""
