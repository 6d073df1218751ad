"""Input and output items <-> canonical messages."""

from moonshim.engine.dialects.openai_responses.messages.parse import parse_messages
from moonshim.engine.dialects.openai_responses.messages.render import render_messages

__all__ = ["parse_messages", "render_messages"]
