"""The protocol of 2023, in which calls had no identifiers -> calls and results.

`function_call` on the assistant's message becomes a call, and the next message of role
`function` under its name the result. No host of today takes the old form.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from moonshim.engine.ids.spelling import CANONICAL
from moonshim.engine.request.leftovers import CHAT, fields_of, without_fields
from moonshim.engine.request.located import LocatedMessage
from moonshim.engine.values.conversation import Change, Message, Request, Text, ToolCall, ToolResult
from moonshim.engine.wire.json_codec import encode

__all__ = ["condition_functions", "declare_functions"]


def condition_functions(messages: list[LocatedMessage], changes: list[Change]) -> list[LocatedMessage]:
    """Everything that is not of the old protocol stays as it is."""
    waiting, out = dict[str, str](), list[LocatedMessage]()
    for number, one in enumerate(messages):
        fields = fields_of(one.message)
        if one.message.role == "assistant" and "function_call" in fields:
            out.append(one.as_message(_calling(one, fields["function_call"], number, waiting, changes)))
        elif one.message.role == "tool" and fields.get("role") == "function":
            name = fields.get("name")
            name = name if isinstance(name, str) else None
            said = tuple(part for part in one.message.parts if isinstance(part, Text))
            result = ToolResult(waiting.pop(name or "", f"{CANONICAL}function_{number}"), name, said or (Text(""),))
            changes.append(Change("function_call", "a message of role function is said as a tool result", one.place))
            out.append(one.as_message(Message("tool", (result,))))
        else:
            out.append(one)
    return out


def declare_functions(request: Request) -> tuple[Request, list[Change]]:
    """`functions` and `function_call` of the body are said as `tools` and `tool_choice`."""
    kept = request.extras.get(CHAT)
    fields = kept.get("fields", {}) if isinstance(kept, dict) else {}
    old = [name for name in ("functions", "function_call") if name in fields]
    if not isinstance(kept, dict) or not old:
        return request, []
    left = {name: value for name, value in fields.items() if name not in old}
    changed = replace(request, extras={**request.extras, CHAT: {**kept, "fields": left}})
    return changed, [Change("function_call", f"{name} is said as hosts of today take it", name) for name in old]


def _calling(one: LocatedMessage, called: Any, number: int, waiting: dict[str, str], changes: list[Change]) -> Message:
    message = without_fields(one.message, "function_call")
    name = called.get("name") if isinstance(called, dict) else None
    if not isinstance(name, str) or any(isinstance(part, ToolCall) for part in message.parts):
        return message
    call = ToolCall(f"{CANONICAL}function_call_{number}", name, _as_text(called.get("arguments")))
    waiting[name] = call.id
    changes.append(Change("function_call", f"the function_call of {name} is said as a tool call", one.place))
    return replace(message, parts=(*message.parts, call))


def _as_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else encode({} if arguments is None else arguments).decode()
