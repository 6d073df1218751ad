"""Chat messages <-> canonical messages.

Parsing and rendering a list of messages gives an equal list, including unknown fields. The parts of the canonical
message always win: `ChatMessageExtras` only describes how they were written.
"""

from moonshim.engine.dialects.openai_chat.messages.checks import check_and_parse, check_messages
from moonshim.engine.dialects.openai_chat.messages.parse import parse_messages
from moonshim.engine.dialects.openai_chat.messages.render import render_messages, single_signature

__all__ = ["check_and_parse", "check_messages", "parse_messages", "render_messages", "single_signature"]
