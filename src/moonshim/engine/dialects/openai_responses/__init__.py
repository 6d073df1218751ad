"""OpenAI Responses, the protocol of Codex."""

from moonshim.engine.dialects.openai_responses.dialect import OPENAI_RESPONSES
from moonshim.engine.dialects.openai_responses.references import (
    completed_items,
    continue_conversation,
    drop_unsupported,
    find_completed,
    resolve_references,
)

__all__ = [
    "OPENAI_RESPONSES",
    "completed_items",
    "continue_conversation",
    "drop_unsupported",
    "find_completed",
    "resolve_references",
]
