"""Fields of Chat messages that hosts refuse: entries of `tool_calls` that are none, `partial` in the wrong place."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from moonshim.engine.request.leftovers import CHAT, fields_of, kept_of, without, without_fields
from moonshim.engine.request.located import LocatedMessage
from moonshim.engine.values.conversation import Change, Message, ToolCall

__all__ = ["condition_shapes", "may_go_on"]


def condition_shapes(messages: list[LocatedMessage], changes: list[Change]) -> list[LocatedMessage]:
    """Chat messages whose fields are such as every host reads; the parts stay as they are."""
    out = list[LocatedMessage]()
    for number, one in enumerate(messages):
        if CHAT not in one.message.extras:
            out.append(one)
            continue
        message, fields = one.message, fields_of(one.message)
        if "tool_calls" in fields:
            # No call could be read in it: it is empty, or not the model's.
            changes.append(Change("calls_shape", "tool_calls without a call in it: left out", one.place))
            message = without_fields(message, "tool_calls")
        if fields.get("partial") and not may_go_on(message, last=number == len(messages) - 1):
            changes.append(Change("partial", "only the last message, without calls, can be continued", one.place))
            message = without_fields(message, "partial")
        if "calls" in kept_of(message):
            message = _plain_calls(message, one.place, changes)
        out.append(one.as_message(message))
    return out


def may_go_on(message: Message, *, last: bool) -> bool:
    """Whether the model can be asked to go on with this message."""
    return last and message.role == "assistant" and not any(isinstance(part, ToolCall) for part in message.parts)


def _plain_calls(message: Message, place: str | None, changes: list[Change]) -> Message:
    """The message without the slots of entries that are no calls, or are written in another way than hosts read."""
    slots: list[Any] = kept_of(message)["calls"]
    if all(slot is None or _is_plain(slot) for slot in slots):
        return message
    if any(slot is not None and "raw" in slot for slot in slots):
        changes.append(Change("calls_shape", "an entry of tool_calls that is no call: left out", place))
    if any(slot is not None and "call" in slot and not _is_plain(slot) for slot in slots):
        changes.append(Change("calls_shape", "a call is written as a function with its arguments as text", place))
    left = [slot if slot is None or _is_plain(slot) else None for slot in slots if slot is None or "raw" not in slot]
    bare = without(message, "calls")
    return replace(bare, extras=bare.extras | {CHAT: kept_of(bare) | {"calls": left}}) if any(left) else bare


def _is_plain(slot: dict[str, Any]) -> bool:
    call = slot.get("call")
    if not isinstance(call, dict) or not slot.get("text"):
        return False
    return call.get("type") in ("function", "builtin_function") and isinstance(call.get("function"), dict)
