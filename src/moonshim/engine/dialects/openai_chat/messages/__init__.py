"""Chat messages <-> canonical messages.

Parsing and rendering a list of messages gives an equal list, including unknown fields. The parts of the canonical
message always win: `ChatMessageExtras` only describes how they were written.
"""

from moonshim.engine.dialects.openai_chat.messages.checks import check_messages, parse_checked
from moonshim.engine.dialects.openai_chat.messages.parse import parse_messages
from moonshim.engine.dialects.openai_chat.messages.render import render_messages, sole_signature

__all__ = ["check_messages", "parse_checked", "parse_messages", "render_messages", "sole_signature"]
