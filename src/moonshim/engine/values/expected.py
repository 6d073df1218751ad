"""The call that a response has to have, where its host does not make sure of it: a value."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["ExpectedAnswer"]


class ExpectedAnswer(Struct, frozen=True, kw_only=True):
    """What the client demands of the response, and the host does not guarantee: a call, and which calls."""

    tool: str | None = None
    """The tool that has to be called, under its name at the host; empty: any tool."""
    allowed: tuple[str, ...] | None = None
    """The only tools that may be called, under their names at the host; None: any."""
    is_summary: bool = False
    """The response is a summary that takes the place of the conversation: text, whole, and nothing else."""
