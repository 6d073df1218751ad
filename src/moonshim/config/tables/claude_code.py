"""`[claude_code]` -> what the gateway does for Claude Code only."""

from __future__ import annotations

from moonshim.config.model import ClaudeCode
from moonshim.config.tables.table import Table

__all__ = ["read_claude_code"]

_MOST_SECONDS = 60.0
"""Claude Code waits for the end of a response, and so does its user."""


def read_claude_code(table: Table | None) -> ClaudeCode:
    default = ClaudeCode()
    if table is None:
        return default
    model = table.text("judge_model")
    seconds = table.number("judge_seconds", above=True)
    table.close()
    if seconds is not None and seconds > _MOST_SECONDS:
        table.error("judge_seconds", f"must be at most {_MOST_SECONDS:g}")
    if seconds is not None and model is None and not table.inert:
        table.error("judge_seconds", "only used with judge_model")
    return ClaudeCode(judge_model=model, judge_seconds=seconds or default.judge_seconds)
