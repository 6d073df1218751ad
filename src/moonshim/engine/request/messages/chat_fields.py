"""Chat message fields that hosts refuse or require: malformed `tool_calls`, a missing or misplaced `partial`."""

from __future__ import annotations

from msgspec.structs import replace

from moonshim.engine.dialects.anthropic.extras import DIALECT as MESSAGES
from moonshim.engine.dialects.openai_chat.extras import (
    as_partial,
    is_partial,
    is_plain,
    with_plain_calls,
    without_partial,
    without_unread_calls,
)
from moonshim.engine.request.located import LocatedMessage
from moonshim.engine.values.conversation import Change, Message, Request, ToolCall

__all__ = ["adapt_chat_fields", "can_continue", "mark_prefill"]


def adapt_chat_fields(messages: list[LocatedMessage], changes: list[Change]) -> list[LocatedMessage]:
    """Fix message fields that some hosts refuse; the parts stay unchanged."""
    out = list[LocatedMessage]()
    for number, located in enumerate(messages):
        if is_plain(located.message):
            out.append(located)
            continue
        message, unread = without_unread_calls(located.message)
        if unread:
            # It holds no readable call: it is empty, or the message is not the assistant's.
            changes.append(Change("calls_shape", "tool_calls dropped: it contains no tool call", located.place))
        if is_partial(message) and not can_continue(message, last=number == len(messages) - 1):
            changes.append(
                Change(
                    "partial",
                    "partial dropped: only the last assistant message, without tool calls, can be continued",
                    located.place,
                )
            )
            message = without_partial(message)
        message, problems = with_plain_calls(message)
        changes += [Change("calls_shape", detail, located.place) for detail in problems]
        out.append(located.with_message(message))
    return out


def can_continue(message: Message, *, last: bool) -> bool:
    """Whether the model can be asked to continue this message."""
    return last and message.role == "assistant" and not any(isinstance(part, ToolCall) for part in message.parts)


def mark_prefill(request: Request) -> tuple[Request, list[Change]]:
    """Messages continues a trailing assistant message; Kimi on Chat requires the `partial` flag for that."""
    last = request.messages[-1] if request.messages else None
    if MESSAGES not in request.extras or last is None or last.role != "assistant" or is_partial(last):
        return request, []
    if any(isinstance(part, ToolCall) for part in last.parts):
        return request, []
    place = request.locations[len(request.messages) - 1] if len(request.locations) == len(request.messages) else None
    change = Change("prefill", "last assistant message marked as partial, so that the model continues it", place)
    return replace(request, messages=(*request.messages[:-1], as_partial(last))), [change]
