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

__all__ = ["condition_functions", "declare_functions"]


def condition_functions(messages: list[LocatedMessage], changes: list[Change]) -> list[LocatedMessage]:
    """Convert messages of the old protocol; all others stay unchanged."""
    waiting, out = dict[str, str](), list[LocatedMessage]()
    for number, one in enumerate(messages):
        if one.message.role == "assistant" and has_legacy_call(one.message):
            out.append(one.as_message(_calling(one, number, waiting, changes)))
        elif is_legacy_result(one.message):
            name = legacy_result_name(one.message)
            said = tuple(part for part in one.message.parts if isinstance(part, Text))
            result = ToolResult(waiting.pop(name or "", f"{CANONICAL}function_{number}"), name, said or (Text(""),))
            changes.append(Change("function_call", "a message of role function is said as a tool result", one.place))
            out.append(one.as_message(Message("tool", (result,))))
        else:
            out.append(one)
    return out


def declare_functions(request: Request) -> tuple[Request, list[Change]]:
    """Convert the body fields `functions` and `function_call` to `tools` and `tool_choice`."""
    request, old = without_legacy_fields(request)
    return request, [Change("function_call", f"{name} is said as hosts of today take it", name) for name in old]


def _calling(one: LocatedMessage, number: int, waiting: dict[str, str], changes: list[Change]) -> Message:
    message, called = take_legacy_call(one.message)
    if called is None or any(isinstance(part, ToolCall) for part in message.parts):
        return message
    call = ToolCall(f"{CANONICAL}function_call_{number}", called.name, called.arguments)
    waiting[call.name] = call.id
    changes.append(Change("function_call", f"the function_call of {call.name} is said as a tool call", one.place))
    return replace(message, parts=(*message.parts, call))
