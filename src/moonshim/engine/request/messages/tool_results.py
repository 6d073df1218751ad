"""Tool messages without an id, content or failure notice -> completed, or refused."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import groupby
from operator import attrgetter
from typing import Final, TypeAlias

from msgspec.structs import replace

from moonshim.engine.dialects.openai_chat.extras import lacks_call_id, lacks_content, without_result_form
from moonshim.engine.request.located import LocatedMessage
from moonshim.engine.values.conversation import Change, Message, Part, Text, ToolCall, ToolResult
from moonshim.errors import InvalidInput

__all__ = ["FAILED", "check_results", "fill_empty_ids", "mark_failures", "mend_results"]

FAILED: Final = "[The tool failed.]"


def check_results(messages: list[LocatedMessage]) -> None:
    """`acceptRoleTool`: a tool message requires `tool_call_id`, and `content`, which may be empty."""
    for number, located in enumerate(messages):
        for part in located.message.parts:
            if not isinstance(part, ToolResult):
                continue
            missing = [
                field
                for field, has in (("tool_call_id", _has_id), ("content", _has_content))
                if not has(located.message, part)
            ]
            if missing:
                place = f"messages[{number}]" if located.place is None else located.place
                raise InvalidInput("Tool messages must have tool_call_id and content", field=f"{place}.{missing[0]}")


def fill_empty_ids(messages: list[LocatedMessage], changes: list[Change]) -> list[LocatedMessage]:
    """Replace empty ids by that of an unanswered call of the same turn, if there is one: some clients send back the
    empty id that a host sent. A result without the field is left to `check_results`."""
    if not any(_has_empty_id(located.message) for located in messages):
        return messages
    return _complete_turns(messages, changes, _has_empty_id, _fill)


def mend_results(messages: list[LocatedMessage], changes: list[Change]) -> list[LocatedMessage]:
    """Fill in missing content (empty) and missing ids, taken from an unanswered call of the same turn.

    Of several such calls, one with the result's tool name is preferred, then the earliest.
    """
    return _complete_turns(messages, changes, _is_incomplete, _complete)


def _complete_turns(
    messages: list[LocatedMessage], changes: list[Change], is_selected: Callable[[Message], bool], complete: Completion
) -> list[LocatedMessage]:
    out = list[LocatedMessage]()
    for _, members in groupby(messages, key=attrgetter("turn")):
        turn = list(members)
        if any(is_selected(located.message) for located in turn):
            unclaimed = _unclaimed_in(turn)
            turn = [complete(one, unclaimed, changes) if is_selected(one.message) else one for one in turn]
        out += turn
    return out


def _unclaimed_in(turn: list[LocatedMessage]) -> _Unclaimed:
    parts = [(located.message, part) for located in turn for part in located.message.parts]
    claimed = {part.call_id for message, part in parts if isinstance(part, ToolResult) and _has_id(message, part)}
    return _Unclaimed([part for _, part in parts if isinstance(part, ToolCall) and part.id not in claimed])


class _Unclaimed:
    """Calls of a turn that no result refers to; each can be taken once."""

    def __init__(self, calls: list[ToolCall]) -> None:
        self._queues: dict[str | None, deque[ToolCall]] = {None: deque(calls)}
        for call in calls:
            self._queues.setdefault(call.name, deque()).append(call)
        self._taken: set[int] = set()

    def take(self, name: str | None) -> ToolCall | None:
        for queue in (self._queues.get(name), self._queues[None]):
            while queue:
                call = queue.popleft()
                if id(call) not in self._taken:
                    self._taken.add(id(call))
                    return call
        return None


Completion: TypeAlias = Callable[[LocatedMessage, _Unclaimed, list[Change]], LocatedMessage]


def _is_incomplete(message: Message) -> bool:
    results = [part for part in message.parts if isinstance(part, ToolResult)]
    return any(not _has_id(message, part) or not _has_content(message, part) for part in results)


def _has_empty_id(message: Message) -> bool:
    return any(isinstance(part, ToolResult) and part.wire_id == "" for part in message.parts)


def _fill(located: LocatedMessage, unclaimed: _Unclaimed, changes: list[Change]) -> LocatedMessage:
    parts = list(located.message.parts)
    for number, part in enumerate(parts):
        if not isinstance(part, ToolResult) or part.wire_id != "" or (call := unclaimed.take(part.name)) is None:
            continue
        changes.append(Change("result_id", "empty id of a tool result set to the id of its call", located.place))
        parts[number] = replace(part, call_id=call.id, name=call.name, wire_id=None)
    return located.with_parts(*parts)


def _complete(located: LocatedMessage, unclaimed: _Unclaimed, changes: list[Change]) -> LocatedMessage:
    message, parts = located.message, list(located.message.parts)
    for number, part in enumerate(parts):
        if not isinstance(part, ToolResult):
            continue
        if not _has_content(message, part):
            changes.append(
                Change("result_content", "missing content of a tool result set to an empty string", located.place)
            )
            part = replace(part, parts=(Text(""),))
        if not _has_id(message, part):
            changes.append(Change("result_id", "missing id of a tool result set to the id of its call", located.place))
            call = unclaimed.take(part.name)
            if call is not None:
                part = replace(part, call_id=call.id, name=call.name)
            part = replace(part, wire_id=None)
        parts[number] = part
    bare = without_result_form(message)
    return located.with_message(replace(bare, parts=tuple(parts)))


def _has_id(message: Message, result: ToolResult) -> bool:
    return not lacks_call_id(message) if result.wire_id is None else result.wire_id != ""


def _has_content(message: Message, result: ToolResult) -> bool:
    return bool(result.parts) or not lacks_content(message)


def mark_failures(messages: list[LocatedMessage], changes: list[Change]) -> list[LocatedMessage]:
    """State the failure in a failed result without content: Chat cannot mark a result as failed."""
    return [
        _mark_failure(located, changes) if any(map(_fails_silently, located.message.parts)) else located
        for located in messages
    ]


def _mark_failure(located: LocatedMessage, changes: list[Change]) -> LocatedMessage:
    changes.append(
        Change(
            "result_failed",
            "failure stated in the content of an empty failed result: Chat cannot mark it as failed",
            located.place,
        )
    )
    parts = (
        replace(p, parts=(Text(FAILED),)) if isinstance(p, ToolResult) and _fails_silently(p) else p
        for p in located.message.parts
    )
    return located.with_parts(*parts)


def _fails_silently(part: Part) -> bool:
    return isinstance(part, ToolResult) and part.is_error and all(inner == Text("") for inner in part.parts)
