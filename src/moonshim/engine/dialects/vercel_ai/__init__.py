"""The model messages of Vercel's AI SDK."""

from moonshim.engine.dialects.vercel_ai.messages import parse_messages, render_messages

__all__ = ["parse_messages", "render_messages"]
