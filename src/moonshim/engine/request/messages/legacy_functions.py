"""The 2023 function calling protocol, whose calls have no ids -> tool calls and results.

`function_call` of an assistant message becomes a call, and the next `function` message with that name its result.
Hosts no longer accept the old form.
"""

from __future__ import annotations

from msgspec.structs import replace

from moonshim.engine.dialects.openai_chat.extras import (
    has_legacy_call,
    is_legacy_result,
    legacy_result_name,
    take_legacy_call,
    without_legacy_fields,
)
from moonshim.engine.ids.spelling import CANONICAL
from moonshim.engine.request.located import LocatedMessage
from moonshim.engine.values.conversation import Change, Message, Request, Text, ToolCall, ToolResult

__all__ = ["convert_function_fields", "convert_function_messages"]


def convert_function_messages(messages: list[LocatedMessage], changes: list[Change]) -> list[LocatedMessage]:
    """Convert messages of the old protocol; all others stay unchanged."""
    waiting, out = dict[str, str](), list[LocatedMessage]()
    for number, located in enumerate(messages):
        if located.message.role == "assistant" and has_legacy_call(located.message):
            out.append(located.with_message(_convert_call(located, number, waiting, changes)))
        elif is_legacy_result(located.message):
            name = legacy_result_name(located.message)
            texts = tuple(part for part in located.message.parts if isinstance(part, Text))
            result = ToolResult(waiting.pop(name or "", f"{CANONICAL}function_{number}"), name, texts or (Text(""),))
            changes.append(
                Change("function_call", "message with the role function converted to a tool result", located.place)
            )
            out.append(located.with_message(Message("tool", (result,))))
        else:
            out.append(located)
    return out


def convert_function_fields(request: Request) -> tuple[Request, list[Change]]:
    """Convert the body fields `functions` and `function_call` to `tools` and `tool_choice`."""
    request, old = without_legacy_fields(request)
    return request, [
        Change("function_call", f"deprecated field {name} converted to its successor", name) for name in old
    ]


def _convert_call(located: LocatedMessage, number: int, waiting: dict[str, str], changes: list[Change]) -> Message:
    message, legacy_call = take_legacy_call(located.message)
    if legacy_call is None or any(isinstance(part, ToolCall) for part in message.parts):
        return message
    call = ToolCall(f"{CANONICAL}function_call_{number}", legacy_call.name, legacy_call.arguments)
    waiting[call.name] = call.id
    changes.append(Change("function_call", f"function_call of {call.name} converted to a tool call", located.place))
    return replace(message, parts=(*message.parts, call))
