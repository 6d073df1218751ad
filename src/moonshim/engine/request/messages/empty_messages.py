"""Empty text, empty messages and separate reasoning messages -> removed, or merged where they belong."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from msgspec.structs import replace

from moonshim.engine.dialects.anthropic import extras as messages_extras
from moonshim.engine.dialects.openai_chat import extras as chat_extras
from moonshim.engine.dialects.registry import dialect_named
from moonshim.engine.hosts.profile import HostProfile
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
    """Remove empty text where the host refuses it, and empty messages, which all hosts refuse.

    The content of a tool result may be empty, and so may a message that the model continues.
    """
    out, begun = list[LocatedMessage](), False
    for number, one in enumerate(messages):
        if one.message.is_one_text and chat_extras.is_plain(one.message):
            begun = begun or one.message.role != "system"
            out.append(one)
            continue
        last = number == len(messages) - 1
        goes_on = _goes_on(one.message, last=last)
        if not goes_on and _is_empty(one.message, profile):
            if profile.merges_roles and begun and _stands_between(out[-1].message, one.message, last=last):
                # Without it two turns would be merged, which changes what was already sent.
                role: Role = "assistant" if one.message.role == "assistant" else "user"
                changes.append(Change("empty_message", "a turn that says nothing stays, and says that", one.place))
                out.append(one.as_message(Message(role, (Text(NOTHING),))))
                continue
            changes.append(
                Change("empty_message", f"a message of role {one.message.role} says nothing: left out", one.place)
            )
            continue
        message = one.message
        if profile.dialect == chat_extras.DIALECT and profile.generation != "other" and chat_extras.is_refusal(message):
            changes.append(Change("refusal", "a refusal is sent as content: Kimi reads no other", one.place))
            message = chat_extras.say_refusal(message)
        if not goes_on and _drops_text(message, profile):
            full = _with_full_results(chat_extras.keep_parts(message, lambda part: part != Text("")), profile)
            if full is not message:
                message = full
                changes.append(Change("empty_text", "empty text is left out: the host refuses it", one.place))
        begun = begun or message.role != "system"
        out.append(one.as_message(message))
    return out


def _stands_between(before: Message, message: Message, *, last: bool) -> bool:
    """Whether the message separates two turns. The model would continue an assistant message at the end."""
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
    """Whether a message without content still matters: the model continues it, or it declares tools."""
    return bool(chat_extras.declared_tools(message)) or (
        chat_extras.is_partial(message) and may_go_on(message, last=last)
    )


def _is_empty(message: Message, profile: HostProfile) -> bool:
    return not any(map(_says, message.parts)) and not dialect_named(profile.dialect).holds_unknown(message)


def _drops_text(message: Message, profile: HostProfile) -> bool:
    calling = any(isinstance(part, ToolCall) for part in message.parts)
    return profile.drops_empty_text or (calling and profile.empty_content == "omit")


def _with_full_results(message: Message, profile: HostProfile) -> Message:
    """Remove empty text from results that are lists; an empty result becomes an empty string."""
    parts = list[Part]()
    blocks = profile.dialect == messages_extras.DIALECT and messages_extras.came_with_listed_results(message)
    # Messages writes a result without parts as an empty string, and an unchanged one as received.
    nothing = () if blocks else (Text(""),)
    for part in message.parts:
        if isinstance(part, ToolResult) and Text("") in part.parts:
            listed = len(part.parts) > 1 or blocks or chat_extras.has_listed_content(message)
            full = tuple(inner for inner in part.parts if inner != Text(""))
            part = replace(part, parts=full or nothing) if listed else part
        parts.append(part)
    if all(new is old for new, old in zip(parts, message.parts, strict=True)):
        return message
    unknown = chat_extras.holds_unknown(message)
    return replace(message if unknown else chat_extras.without_content_list(message), parts=tuple(parts))


class _Turn:
    """Assistant messages that will be merged into one."""

    __slots__ = ("members", "thinks")

    def __init__(self, one: LocatedMessage) -> None:
        self.members = [one]
        self.thinks = _is_silent(one.message) and _has_thoughts(one.message)
        """Whether there has been only reasoning so far."""

    def add(self, one: LocatedMessage) -> None:
        self.thinks = _is_silent(one.message) and (self.thinks or _has_thoughts(one.message))
        self.members.append(one)

    def joined(self) -> LocatedMessage:
        """The last message with the parts of those before it, at the place of the first."""
        first, last = self.members[0], self.members[-1]
        if len(self.members) == 1:
            return first
        before = (part for one in self.members[:-1] for part in one.message.parts if part != Text(""))
        return replace(first, message=replace(last.message, parts=(*before, *last.message.parts)))


def join_turns(messages: list[LocatedMessage], profile: HostProfile, changes: list[Change]) -> list[LocatedMessage]:
    """Merge consecutive assistant messages: all of them where the host requires alternating roles, elsewhere only
    messages that hold nothing but reasoning, which belongs to what follows. Linear time."""
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
    """Whether two consecutive messages are merged."""
    if not before.role == message.role == "assistant":
        return False
    return profile.merges_roles or (not before.is_one_text and _is_silent(before) and _has_thoughts(before))


def _is_silent(message: Message) -> bool:
    return not any(map(_says, message.parts)) and not chat_extras.holds_unknown(message)


def _has_thoughts(message: Message) -> bool:
    return any(isinstance(part, Reasoning) for part in message.parts)


def join_roles(messages: list[LocatedMessage], changes: list[Change]) -> list[LocatedMessage]:
    """Mark consecutive user messages and results as one message, for hosts that require alternating roles.

    Results come before other content of the same user message.
    """
    out, apart = list[LocatedMessage](), False
    for one in messages:
        message = one.message
        if apart and message.role in _USERS and messages_extras.came_apart(message):
            changes.append(Change("turn_joined", "two user messages in a row are sent as one", one.place))
            message = messages_extras.joined(message)
        elif (
            messages_extras.more_follows(message)
            and (ordered := messages_extras.with_results_first(message)) is not message
        ):
            changes.append(Change("result_moved", "results stand before what the user says beside them", one.place))
            message = ordered
        elif out and messages_extras.is_second_half(message) and messages_extras.more_follows(out[-1].message):
            message = messages_extras.with_results_first(message)
        apart = message.role in _USERS and (apart or messages_extras.came(one.message))
        out.append(one.as_message(message))
    return out


_USERS: Final = ("user", "tool")
