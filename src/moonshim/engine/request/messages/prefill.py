"""An assistant message that the client has started -> a message that the host continues."""

from __future__ import annotations

from msgspec.structs import replace

from moonshim.engine.dialects.anthropic.extras import DIALECT as MESSAGES
from moonshim.engine.dialects.openai_chat.extras import as_partial, is_partial
from moonshim.engine.values.conversation import Change, Request, ToolCall

__all__ = ["mark_prefill"]


def mark_prefill(request: Request) -> tuple[Request, list[Change]]:
    """Messages continues a trailing assistant message; Kimi on Chat requires the `partial` flag for that."""
    last = request.messages[-1] if request.messages else None
    if MESSAGES not in request.extras or last is None or last.role != "assistant" or is_partial(last):
        return request, []
    if any(isinstance(part, ToolCall) for part in last.parts):
        return request, []
    place = request.locations[len(request.messages) - 1] if len(request.locations) == len(request.messages) else None
    change = Change("prefill", "the answer that the client has begun is marked as one to go on with", place)
    return replace(request, messages=(*request.messages[:-1], as_partial(last))), [change]
