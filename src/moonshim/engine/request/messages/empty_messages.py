"""Empty text, messages that say nothing, and thoughts that stand alone -> gone, or where they belong."""

from __future__ import annotations

from itertools import pairwise
from operator import is_
from typing import Final

from msgspec.structs import replace

from moonshim.engine.hosts.profile import HostProfile
from moonshim.engine.request.leftovers import (
    CHAT,
    MESSAGES,
    came,
    came_apart,
    came_with_listed_results,
    fields_of,
    holds_unknown,
    joined,
    kept_of,
    more_follows,
    only,
    only_said,
    without,
)
from moonshim.engine.request.located import LocatedMessage
from moonshim.engine.request.messages.chat_shapes import may_go_on
from moonshim.engine.values.conversation import (
    Change,
    Media,
    Message,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)

__all__ = ["NOTHING", "drop_empty", "join_roles", "join_turns"]

NOTHING: Final = "[empty message]"


def drop_empty(messages: list[LocatedMessage], profile: HostProfile, changes: list[Change]) -> list[LocatedMessage]:
    """Take out empty text where the host refuses it, and messages that say nothing, which all hosts refuse.

    The content of a tool result may be empty, and a message that the model is to go on with, too.
    """
    out, begun = list[LocatedMessage](), False
    for number, one in enumerate(messages):
        if one.message.is_one_text and CHAT not in one.message.extras:
            begun = begun or one.message.role != "system"
            out.append(one)
            continue
        last = number == len(messages) - 1
        goes_on = _goes_on(one.message, last=last)
        if not goes_on and _is_empty(one.message, profile):
            if profile.merges_roles and begun and _stands_between(out[-1].message, one.message, last=last):
                # Without it, two turns would become one, behind what was already sent.
                role: Role = "assistant" if one.message.role == "assistant" else "user"
                changes.append(Change("empty_message", "a turn that says nothing stays, and says that", one.place))
                out.append(one.as_message(Message(role, (Text(NOTHING),))))
                continue
            changes.append(
                Change("empty_message", f"a message of role {one.message.role} says nothing: left out", one.place)
            )
            continue
        message = one.message
        if profile.dialect == CHAT and profile.generation != "other" and "refusal" in kept_of(message):
            changes.append(Change("refusal", "a refusal is sent as content: Kimi reads no other", one.place))
            message = _refusal_as_content(message)
        if not goes_on and _drops_text(message, profile):
            full = _with_full_results(only(message, lambda part: part != Text("")), profile)
            if full is not message:
                message = full
                changes.append(Change("empty_text", "empty text is left out: the host refuses it", one.place))
        begun = begun or message.role != "system"
        out.append(one.as_message(message))
    return out


def _refusal_as_content(message: Message) -> Message:
    """The message whose refusal is text like any other; an empty text before it was no content."""
    bare = only_said(without(message, "refusal"), "content")
    return only(bare, lambda part: part != Text(""))


def _stands_between(before: Message, message: Message, *, last: bool) -> bool:
    """Whether a turn keeps others apart. The model would go on with a last one of its own."""
    return before.role != "assistant" and not last if message.role == "assistant" else before.role == "assistant"


def _says(part: Part) -> bool:
    match part:
        case Text(text=text):
            return bool(text)
        case Reasoning():
            return False
        case ToolCall() | ToolResult() | Media():
            return True


def _goes_on(message: Message, *, last: bool) -> bool:
    """Whether it says something by being there: the model goes on with it, or it declares tools."""
    fields = fields_of(message)
    return bool(fields.get("tools") or (fields.get("partial") and may_go_on(message, last=last)))


def _is_empty(message: Message, profile: HostProfile) -> bool:
    return not any(map(_says, message.parts)) and not holds_unknown(message, profile.dialect)


def _drops_text(message: Message, profile: HostProfile) -> bool:
    calling = any(isinstance(part, ToolCall) for part in message.parts)
    return profile.drops_empty_text or (calling and profile.empty_content == "omit")


def _with_full_results(message: Message, profile: HostProfile) -> Message:
    """The message whose results have no empty text in a list; a result that says nothing is an empty text itself."""
    parts = list[Part]()
    blocks = profile.dialect == MESSAGES and came_with_listed_results(message)
    # Messages writes a result without parts as an empty text, and one that did not change as it came.
    nothing = () if blocks else (Text(""),)
    for part in message.parts:
        if isinstance(part, ToolResult) and Text("") in part.parts:
            listed = len(part.parts) > 1 or blocks or "content" in kept_of(message)
            full = tuple(inner for inner in part.parts if inner != Text(""))
            part = replace(part, parts=full or nothing) if listed else part
        parts.append(part)
    if all(new is old for new, old in zip(parts, message.parts, strict=True)):
        return message
    unknown = holds_unknown(message, CHAT)
    return replace(message if unknown else without(message, "content"), parts=tuple(parts))


class _Turn:
    """Messages of the model that are to be one."""

    __slots__ = ("members", "thinks")

    def __init__(self, one: LocatedMessage) -> None:
        self.members = [one]
        self.thinks = _is_silent(one.message) and _has_thoughts(one.message)
        """Whether nothing but thoughts was said so far."""

    def add(self, one: LocatedMessage) -> None:
        self.thinks = _is_silent(one.message) and (self.thinks or _has_thoughts(one.message))
        self.members.append(one)

    def joined(self) -> LocatedMessage:
        """The last message, which says what those before it have said, too, in the place of the first."""
        first, last = self.members[0], self.members[-1]
        if len(self.members) == 1:
            return first
        before = (part for one in self.members[:-1] for part in one.message.parts if part != Text(""))
        return replace(first, message=replace(last.message, parts=(*before, *last.message.parts)))


def join_turns(messages: list[LocatedMessage], profile: HostProfile, changes: list[Change]) -> list[LocatedMessage]:
    """The model's messages that follow each other become one: all of them where the host wants roles to alternate,
    elsewhere those that are only thoughts, which belong to what comes next. Linear."""
    if not any(_joins(one.message, other.message, profile) for one, other in pairwise(messages)):
        return messages
    turns = list[_Turn]()
    for one in messages:
        before = turns[-1] if turns else None
        if (
            before is not None
            and before.members[-1].message.role == one.message.role == "assistant"
            and (profile.merges_roles or before.thinks)
        ):
            changes.append(Change("turn_joined", "two assistant messages in a row are sent as one", one.place))
            before.add(one)
        else:
            turns.append(_Turn(one))
    return [turn.joined() for turn in turns]


def _joins(before: Message, message: Message, profile: HostProfile) -> bool:
    """Whether two messages that follow each other become one."""
    if not before.role == message.role == "assistant":
        return False
    return profile.merges_roles or (not before.is_one_text and _is_silent(before) and _has_thoughts(before))


def _is_silent(message: Message) -> bool:
    return not any(map(_says, message.parts)) and not holds_unknown(message, CHAT)


def _has_thoughts(message: Message) -> bool:
    return any(isinstance(part, Reasoning) for part in message.parts)


def join_roles(messages: list[LocatedMessage], changes: list[Change]) -> list[LocatedMessage]:
    """Messages of the user, and results, that came apart are marked as one, for hosts that want roles to alternate.

    Results stand before what else the user says in the same message.
    """
    out, apart = list[LocatedMessage](), False
    for one in messages:
        message = one.message
        if apart and message.role in _USERS and came_apart(message):
            changes.append(Change("turn_joined", "two user messages in a row are sent as one", one.place))
            message = joined(message)
        elif more_follows(message) and (ordered := _results_first(message)) is not message:
            changes.append(Change("result_moved", "results stand before what the user says beside them", one.place))
            message = ordered
        elif out and kept_of(message, MESSAGES).get("half") == 2 and more_follows(out[-1].message):
            message = _results_first(message)
        apart = message.role in _USERS and (apart or came(one.message))
        out.append(one.as_message(message))
    return out


def _results_first(message: Message) -> Message:
    """The half of a message that came in Messages, as if that had come in the order that hosts want."""
    kept = kept_of(message, MESSAGES)
    blocks = kept["came"]["content"]
    ordered = sorted(blocks, key=lambda block: block["type"] != "tool_result")
    if all(map(is_, ordered, blocks)):
        return message
    whole = {**kept["came"], "content": ordered}
    return replace(message, extras=message.extras | {MESSAGES: {**kept, "came": whole}})


_USERS: Final = ("user", "tool")
