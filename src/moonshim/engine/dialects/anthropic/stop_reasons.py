"""Stop reasons of Messages <-> finish reasons of Chat."""

from __future__ import annotations

from typing import Final

__all__ = ["FINISH_REASONS", "STOP_REASONS"]

FINISH_REASONS: Final = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
"""Stop reason -> Chat's finish reason."""

STOP_REASONS: Final = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}
"""Finish reason -> stop reason."""
