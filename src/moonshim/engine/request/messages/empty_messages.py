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
from moonshim.engine.request.messages.chat_fields import can_continue
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

__all__ = ["EMPTY_MESSAGE", "drop_empty", "merge_assistant_messages", "merge_user_messages"]

EMPTY_MESSAGE: Final = "[empty message]"


def drop_empty(messages: list[LocatedMessage], profile: HostProfile, changes: list[Change]) -> list[LocatedMessage]:
    """Remove empty text where the host refuses it, and empty messages, which all hosts refuse.

    The content of a tool result may be empty, and so may a message that the model continues.
    """
    out, started = list[LocatedMessage](), False
    for number, located in enumerate(messages):
        if located.message.is_one_text and chat_extras.is_plain(located.message):
            started = started or located.message.role != "system"
            out.append(located)
            continue
        last = number == len(messages) - 1
        must_stay = _must_stay(located.message, last=last)
        if not must_stay and _is_empty(located.message, profile):
            if profile.merges_roles and started and _separates_turns(out[-1].message, located.message, last=last):
                # Without it two turns would be merged, which changes what was already sent.
                role: Role = "assistant" if located.message.role == "assistant" else "user"
                changes.append(
                    Change(
                        "empty_message",
                        "empty message replaced with a placeholder: without it, two turns would merge",
                        located.place,
                    )
                )
                out.append(located.with_message(Message(role, (Text(EMPTY_MESSAGE),))))
                continue
            changes.append(Change("empty_message", f"empty {located.message.role} message dropped", located.place))
            continue
        message = located.message
        if profile.dialect == chat_extras.DIALECT and profile.generation != "other" and chat_extras.is_refusal(message):
            changes.append(
                Change("refusal", "refusal sent as content: Kimi does not read the refusal field", located.place)
            )
            message = chat_extras.refusal_as_text(message)
        if not must_stay and _drops_text(message, profile):
            full = _drop_empty_result_text(chat_extras.keep_parts(message, lambda part: part != Text("")), profile)
            if profile.dialect == chat_extras.DIALECT and message.role == "assistant":
                full = chat_extras.without_empty_list(full)
            if full is not message:
                message = full
                changes.append(Change("empty_text", "empty text dropped: the host refuses it", located.place))
        started = started or message.role != "system"
        out.append(located.with_message(message))
    return out


def _separates_turns(before: Message, message: Message, *, last: bool) -> bool:
    """Whether the message separates two turns. The model would continue an assistant message at the end."""
    return before.role != "assistant" and not last if message.role == "assistant" else before.role == "assistant"


def _has_content(part: Part) -> bool:
    match part:
        case Text(text=text):
            return bool(text)
        case Reasoning():
            return False
        case ToolCall() | ToolResult() | Media():
            return True


def _must_stay(message: Message, *, last: bool) -> bool:
    """Whether a message without content still matters: the model continues it, or it declares tools."""
    return bool(chat_extras.declared_tools(message)) or (
        chat_extras.is_partial(message) and can_continue(message, last=last)
    )


def _is_empty(message: Message, profile: HostProfile) -> bool:
    return not any(map(_has_content, message.parts)) and not dialect_named(profile.dialect).holds_unknown(message)


def _drops_text(message: Message, profile: HostProfile) -> bool:
    calling = any(isinstance(part, ToolCall) for part in message.parts)
    return profile.drops_empty_text or (calling and profile.empty_content == "omit")


def _drop_empty_result_text(message: Message, profile: HostProfile) -> Message:
    """Remove empty text from results that are lists; an empty result becomes an empty string."""
    parts = list[Part]()
    blocks = profile.dialect == messages_extras.DIALECT and messages_extras.has_listed_results(message)
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

    def __init__(self, located: LocatedMessage) -> None:
        self.members = [located]
        self.thinks = _has_no_content(located.message) and _has_reasoning(located.message)
        """Whether there has been only reasoning so far."""

    def add(self, located: LocatedMessage) -> None:
        self.thinks = _has_no_content(located.message) and (self.thinks or _has_reasoning(located.message))
        self.members.append(located)

    def merge(self) -> LocatedMessage:
        """The last message with the parts of those before it, at the place of the first."""
        first, last = self.members[0], self.members[-1]
        if len(self.members) == 1:
            return first
        before = (part for located in self.members[:-1] for part in located.message.parts if part != Text(""))
        return replace(first, message=replace(last.message, parts=(*before, *last.message.parts)))


def merge_assistant_messages(
    messages: list[LocatedMessage], profile: HostProfile, changes: list[Change]
) -> list[LocatedMessage]:
    """Merge consecutive assistant messages: all of them where the host requires alternating roles, elsewhere only
    messages that hold nothing but reasoning, which belongs to what follows. Linear time."""
    if not any(_are_merged(located.message, other.message, profile) for located, other in pairwise(messages)):
        return messages
    turns = list[_Turn]()
    for located in messages:
        before = turns[-1] if turns else None
        if (
            before is not None
            and before.members[-1].message.role == located.message.role == "assistant"
            and (profile.merges_roles or before.thinks)
        ):
            changes.append(Change("turn_joined", "consecutive assistant messages merged", located.place))
            before.add(located)
        else:
            turns.append(_Turn(located))
    return [turn.merge() for turn in turns]


def _are_merged(before: Message, message: Message, profile: HostProfile) -> bool:
    """Whether two consecutive messages are merged."""
    if not before.role == message.role == "assistant":
        return False
    return profile.merges_roles or (not before.is_one_text and _has_no_content(before) and _has_reasoning(before))


def _has_no_content(message: Message) -> bool:
    return not any(map(_has_content, message.parts)) and not chat_extras.holds_unknown(message)


def _has_reasoning(message: Message) -> bool:
    return any(isinstance(part, Reasoning) for part in message.parts)


def merge_user_messages(messages: list[LocatedMessage], changes: list[Change]) -> list[LocatedMessage]:
    """Mark consecutive user messages and results as one message, for hosts that require alternating roles.

    Results come before other content of the same user message.
    """
    out, apart = list[LocatedMessage](), False
    for located in messages:
        message = located.message
        if apart and message.role in _USERS and messages_extras.stays_separate(message):
            changes.append(Change("turn_joined", "consecutive user messages merged", located.place))
            message = messages_extras.mark_merged(message)
        elif (
            messages_extras.has_second_half(message)
            and (ordered := messages_extras.with_results_first(message)) is not message
        ):
            changes.append(
                Change("result_moved", "tool results moved before the other content of the message", located.place)
            )
            message = ordered
        elif out and messages_extras.is_second_half(message) and messages_extras.has_second_half(out[-1].message):
            message = messages_extras.with_results_first(message)
        apart = message.role in _USERS and (apart or messages_extras.is_received(located.message))
        out.append(located.with_message(message))
    return out


_USERS: Final = ("user", "tool")
