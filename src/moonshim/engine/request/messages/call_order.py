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

from moonshim.engine.dialects.anthropic.extras import has_second_half
from moonshim.engine.ids.pairing import pair
from moonshim.engine.request.located import LocatedMessage
from moonshim.engine.values.conversation import Change, Message, Part, Text, ToolCall, ToolResult
from moonshim.engine.values.tool_calls import FoundCall

__all__ = ["NO_RESULT", "order_calls"]

NO_RESULT: Final = "[No result: the call was not answered]"

ResultHandling: TypeAlias = Literal["answer", "orphan", "late", "again", "copy"]

_HEADINGS: Final[dict[ResultHandling, str]] = {
    "orphan": "[Result of {tool}, whose call is not in this conversation]",
    "late": "[Result of {tool}, which came when the conversation had gone on]",
    "again": "[A further result of {tool}]",
}
_DETAILS: Final[dict[ResultHandling, str]] = {
    "orphan": "result of {tool} sent as user text: its call is not in the conversation",
    "late": "result of {tool} sent as user text: it comes after the model's next message",
    "again": "second result of a call of {tool} sent as user text",
    "copy": "repeated result of a call of {tool} dropped",
}


class _SeenResult(Struct, frozen=True):
    """A result: the call it answers, and how it is handled."""

    slot: int
    handling: ResultHandling


def order_calls(
    messages: list[LocatedMessage], changes: list[Change], *, marks_errors: bool = True
) -> list[LocatedMessage]:
    """Order calls and results as hosts require. Turns that are already in order keep their message objects.

    `marks_errors`: whether the host's dialect can mark a result as failed.
    """
    adapter = _CallOrder(messages, changes, marks_errors=marks_errors)
    out, position = list[LocatedMessage](), 0
    for _, group in groupby(messages, key=attrgetter("turn")):
        turn = list(group)
        out += turn if adapter.is_ordered(turn, position) else adapter.reorder(turn, position)
        position += len(turn)
    return out


class _CallOrder:
    def __init__(self, messages: list[LocatedMessage], changes: list[Change], *, marks_errors: bool) -> None:
        self._changes = changes
        self._marks_errors = marks_errors
        self._calls: dict[tuple[int, int], int] = {}
        self._results: dict[tuple[int, int], _SeenResult] = {}
        self._answers: dict[int, tuple[LocatedMessage, ToolResult]] = {}
        pairing = pair(located.message for located in messages)
        turn_of_slot: dict[int, int] = {}
        for seen, slot in zip(pairing.seen, pairing.slot_of, strict=True):
            located, at = messages[seen.position], (seen.position, seen.place)
            if isinstance(seen, FoundCall):
                self._calls[at] = slot
                turn_of_slot[slot] = located.turn
                continue
            handling: ResultHandling = "answer"
            if slot not in turn_of_slot:
                handling = "orphan"
            elif slot in self._answers:
                handling = "copy" if self._answers[slot][1].parts == seen.value.parts else "again"
            elif turn_of_slot[slot] != located.turn:
                handling = "late"
            else:
                self._answers[slot] = (located, seen.value)
            self._results[at] = _SeenResult(slot, handling)

    def is_ordered(self, turn: list[LocatedMessage], start: int) -> bool:
        """Whether every call is answered after its message, in order, before any other content."""
        waiting = list[int]()
        for position, located in enumerate(turn, start):
            calls = list[int]()
            for place, part in enumerate(located.message.parts):
                match part:
                    case ToolCall():
                        calls.append(self._calls[position, place])
                    case ToolResult():
                        seen = self._results[position, place]
                        if (
                            located.message.role == "assistant"
                            or not waiting
                            or seen != _SeenResult(waiting.pop(), "answer")
                        ):
                            return False
                    case _ if waiting:
                        return False
            if waiting and (calls or not located.message.parts or located.message.role == "assistant"):
                return False
            waiting += reversed(calls)
        return not waiting

    def reorder(self, turn: list[LocatedMessage], start: int) -> list[LocatedMessage]:
        before = self._predecessors(turn, start)
        out = list[LocatedMessage]()
        for position, located in enumerate(turn, start):
            rest = self._without_results(
                located, position, after_assistant=bool(out) and out[-1].message.role == "assistant"
            )
            if rest is not None:
                out.append(rest)
            last = ("message", position)
            for place, part in enumerate(located.message.parts):
                if isinstance(part, ToolCall):
                    slot = self._calls[position, place]
                    out.append(self._result_for(part, slot, located, moved=before.get(slot) != last))
                    if slot in self._answers:
                        last = ("result", slot)
        return out

    def _predecessors(self, turn: list[LocatedMessage], start: int) -> dict[int, tuple[str, int]]:
        """For each answered call, what precedes its result: the calling message, another result, or something else."""
        predecessors, last = dict[int, tuple[str, int]](), ("", 0)
        for position, located in enumerate(turn, start):
            if located.message.role == "assistant" or not located.message.parts:
                last = ("message", position)
            for place, part in enumerate(located.message.parts):
                seen = self._results.get((position, place))
                if seen is not None and seen.handling == "answer":
                    predecessors[seen.slot], last = last, ("result", seen.slot)
                elif not isinstance(part, ToolResult) and located.message.role != "assistant":
                    last = ("message", position)
        return predecessors

    def _result_for(self, call: ToolCall, slot: int, calling: LocatedMessage, *, moved: bool) -> LocatedMessage:
        answer = self._answers.get(slot)
        if answer is None:
            self._report(
                "result_missing",
                f"placeholder result added: the call of {_tool_label(call.name)} has no result",
                calling,
            )
            result = ToolResult(call.id, call.name or None, (Text(NO_RESULT),), is_error=self._marks_errors)
            return replace(calling, message=Message("tool", (result,)))
        located, result = answer
        if moved:
            self._report("result_moved", f"result of {_tool_label(call.name)} moved directly after its call", located)
        alone = located.message.role == "tool" and len(located.message.parts) == 1
        return located if alone else replace(located, message=Message("tool", (result,)))

    def _without_results(
        self, located: LocatedMessage, position: int, *, after_assistant: bool
    ) -> LocatedMessage | None:
        """The message without results that move to their calls; None when nothing else is in it.

        A message that follows the assistant's and only repeats results still separates two turns, so it stays, empty.
        """
        message, parts, is_unchanged, copied = located.message, list[Part](), True, True
        for place, part in enumerate(message.parts):
            seen = self._results.get((position, place))
            if seen is None or not isinstance(part, ToolResult):
                parts.append(part)
                continue
            is_unchanged, copied = False, copied and seen.handling == "copy"
            if seen.handling != "answer":
                self._report(
                    f"result_{seen.handling}", _DETAILS[seen.handling].format(tool=_tool_label(part.name)), located
                )
            if seen.handling in _HEADINGS:
                parts += _render_as_text(part, _HEADINGS[seen.handling])
        if is_unchanged:
            return located
        if not parts:
            alone = after_assistant and copied and not has_second_half(message)
            return replace(located, message=Message("user")) if alone else None
        if message.role == "tool":
            # The extras belonged to a tool message.
            return replace(located, message=Message("user", tuple(parts)))
        return located.with_parts(*parts)

    def _report(self, rule: str, detail: str, located: LocatedMessage) -> None:
        self._changes.append(Change(rule, detail, located.place))


def _tool_label(name: str | None) -> str:
    return f"tool {name}" if name else "a tool"


def _render_as_text(result: ToolResult, heading: str) -> list[Part]:
    """Render a result without a call as text: the heading, then the first text of the result."""
    title = heading.format(tool=_tool_label(result.name))
    first, *others = [part for part in result.parts if part != Text("")] or [Text("")]
    if isinstance(first, Text):
        return [Text(f"{title}\n{first.text}" if first.text else title), *others]
    return [Text(title), first, *others]
