"""Calls and results in any order -> each call answered once, directly after the message that made it.

Hosts refuse everything else. What was sent must not change, so nothing after the next assistant message affects what
precedes it:

- a result in the same turn moves to its call, in the order of the calls;
- a call without a result in its turn gets a placeholder result;
- a result in a later turn, a second result, and a result without a call become user text that names the tool, in
  place.

Earlier messages change in one case only: a request without the result got no reply (it failed or was cancelled), and
the next request has the result in the same turn.
"""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from moonshim.engine.dialects.anthropic.extras import more_follows
from moonshim.engine.ids.pairing import pair
from moonshim.engine.request.located import LocatedMessage
from moonshim.engine.values.conversation import Change, Message, Part, Text, ToolCall, ToolResult
from moonshim.engine.values.tool_calls import CallSeen

__all__ = ["UNANSWERED", "legal"]

UNANSWERED: Final = "[No result: the call was not answered]"

Fate: TypeAlias = Literal["answer", "orphan", "late", "again", "copy"]

_HEADINGS: Final[dict[Fate, str]] = {
    "orphan": "[Result of {tool}, whose call is not in this conversation]",
    "late": "[Result of {tool}, which came when the conversation had gone on]",
    "again": "[A further result of {tool}]",
}
_DETAILS: Final[dict[Fate, str]] = {
    "orphan": "the call of a result of {tool} is not there: it is said as user text",
    "late": "a result of {tool} comes when the conversation has gone on: it is said as user text",
    "again": "a second result of one call of {tool}: it is said as user text",
    "copy": "the same result of one call of {tool} comes again: left out",
}


class _Seen(Struct, frozen=True):
    """A result: the call it answers, and how it is handled."""

    slot: int
    fate: Fate


def legal(messages: list[LocatedMessage], changes: list[Change], *, marks_errors: bool = True) -> list[LocatedMessage]:
    """Order calls and results as hosts require. Turns that are already in order keep their message objects.

    `marks_errors`: whether the host's dialect can mark a result as failed.
    """
    adapter = _CallOrder(messages, changes, marks_errors=marks_errors)
    out, position = list[LocatedMessage](), 0
    for _, group in groupby(messages, key=attrgetter("turn")):
        turn = list(group)
        out += turn if adapter.is_right(turn, position) else adapter.put_right(turn, position)
        position += len(turn)
    return out


class _CallOrder:
    def __init__(self, messages: list[LocatedMessage], changes: list[Change], *, marks_errors: bool) -> None:
        self._changes = changes
        self._marks_errors = marks_errors
        self._calls: dict[tuple[int, int], int] = {}
        self._results: dict[tuple[int, int], _Seen] = {}
        self._answers: dict[int, tuple[LocatedMessage, ToolResult]] = {}
        pairing = pair(one.message for one in messages)
        made_in: dict[int, int] = {}
        for seen, slot in zip(pairing.seen, pairing.slot_of, strict=True):
            one, at = messages[seen.position], (seen.position, seen.place)
            if isinstance(seen, CallSeen):
                self._calls[at] = slot
                made_in[slot] = one.turn
                continue
            fate: Fate = "answer"
            if slot not in made_in:
                fate = "orphan"
            elif slot in self._answers:
                fate = "copy" if self._answers[slot][1].parts == seen.value.parts else "again"
            elif made_in[slot] != one.turn:
                fate = "late"
            else:
                self._answers[slot] = (one, seen.value)
            self._results[at] = _Seen(slot, fate)

    def is_right(self, turn: list[LocatedMessage], start: int) -> bool:
        """Whether every call is answered after its message, in order, before any other content."""
        waiting = list[int]()
        for position, one in enumerate(turn, start):
            made = list[int]()
            for place, part in enumerate(one.message.parts):
                match part:
                    case ToolCall():
                        made.append(self._calls[position, place])
                    case ToolResult():
                        seen = self._results[position, place]
                        if one.message.role == "assistant" or not waiting or seen != _Seen(waiting.pop(), "answer"):
                            return False
                    case _ if waiting:
                        return False
            if waiting and (made or not one.message.parts or one.message.role == "assistant"):
                return False
            waiting += reversed(made)
        return not waiting

    def put_right(self, turn: list[LocatedMessage], start: int) -> list[LocatedMessage]:
        before = self._before(turn, start)
        out = list[LocatedMessage]()
        for position, one in enumerate(turn, start):
            rest = self._rest(one, position, behind_model=bool(out) and out[-1].message.role == "assistant")
            if rest is not None:
                out.append(rest)
            last = ("message", position)
            for place, part in enumerate(one.message.parts):
                if isinstance(part, ToolCall):
                    slot = self._calls[position, place]
                    out.append(self._answer(part, slot, one, moved=before.get(slot) != last))
                    if slot in self._answers:
                        last = ("result", slot)
        return out

    def _before(self, turn: list[LocatedMessage], start: int) -> dict[int, tuple[str, int]]:
        """For each answered call, what precedes its result: the calling message, another result, or something else."""
        found, last = dict[int, tuple[str, int]](), ("", 0)
        for position, one in enumerate(turn, start):
            if one.message.role == "assistant" or not one.message.parts:
                last = ("message", position)
            for place, part in enumerate(one.message.parts):
                seen = self._results.get((position, place))
                if seen is not None and seen.fate == "answer":
                    found[seen.slot], last = last, ("result", seen.slot)
                elif not isinstance(part, ToolResult) and one.message.role != "assistant":
                    last = ("message", position)
        return found

    def _answer(self, call: ToolCall, slot: int, calling: LocatedMessage, *, moved: bool) -> LocatedMessage:
        found = self._answers.get(slot)
        if found is None:
            self._tell("result_missing", f"the call of {_tool(call.name)} has no result: one that says so", calling)
            result = ToolResult(call.id, call.name or None, (Text(UNANSWERED),), is_error=self._marks_errors)
            return replace(calling, message=Message("tool", (result,)))
        one, result = found
        if moved:
            self._tell("result_moved", f"a result of {_tool(call.name)} belongs directly behind its call", one)
        alone = one.message.role == "tool" and len(one.message.parts) == 1
        return one if alone else replace(one, message=Message("tool", (result,)))

    def _rest(self, one: LocatedMessage, position: int, *, behind_model: bool) -> LocatedMessage | None:
        """The message without results that move to their calls; None when nothing else is in it.

        A message that follows the assistant's and only repeats results still separates two turns, so it stays, empty.
        """
        message, parts, kept, copied = one.message, list[Part](), True, True
        for place, part in enumerate(message.parts):
            seen = self._results.get((position, place))
            if seen is None or not isinstance(part, ToolResult):
                parts.append(part)
                continue
            kept, copied = False, copied and seen.fate == "copy"
            if seen.fate != "answer":
                self._tell(f"result_{seen.fate}", _DETAILS[seen.fate].format(tool=_tool(part.name)), one)
            if seen.fate in _HEADINGS:
                parts += _as_text(part, _HEADINGS[seen.fate])
        if kept:
            return one
        if not parts:
            alone = behind_model and copied and not more_follows(message)
            return replace(one, message=Message("user")) if alone else None
        if message.role == "tool":
            # The extras belonged to a tool message.
            return replace(one, message=Message("user", tuple(parts)))
        return one.saying(*parts)

    def _tell(self, rule: str, detail: str, one: LocatedMessage) -> None:
        self._changes.append(Change(rule, detail, one.place))


def _tool(name: str | None) -> str:
    return f"tool {name}" if name else "a tool"


def _as_text(result: ToolResult, heading: str) -> list[Part]:
    """Render a result without a call as text: the heading, then the first text of the result."""
    said = heading.format(tool=_tool(result.name))
    first, *others = [part for part in result.parts if part != Text("")] or [Text("")]
    if isinstance(first, Text):
        return [Text(f"{said}\n{first.text}" if first.text else said), *others]
    return [Text(said), first, *others]
