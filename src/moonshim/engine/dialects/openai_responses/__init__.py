"""OpenAI Responses, the protocol of Codex."""

from moonshim.engine.dialects.openai_responses.dialect import OPENAI_RESPONSES
from moonshim.engine.dialects.openai_responses.references import (
    completed_in,
    continued,
    drop_unsupported,
    resolve_references,
    said_items,
)

__all__ = ["OPENAI_RESPONSES", "completed_in", "continued", "drop_unsupported", "resolve_references", "said_items"]
