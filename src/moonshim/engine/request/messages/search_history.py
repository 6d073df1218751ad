"""Web searches in a history -> calls and results of the function that the host knows.

They are written as they were in the rounds that made them, so that the host's prompt cache still matches.
"""

from __future__ import annotations

from collections.abc import Sequence

from moonshim.engine.dialects.anthropic import searches as messages_searches
from moonshim.engine.dialects.openai_responses.messages import searches as responses_searches
from moonshim.engine.ids.spelling import CANONICAL
from moonshim.engine.request.located import LocatedMessage
from moonshim.engine.values.conversation import Change, Media, Message, Part, Text, ToolCall, ToolResult
from moonshim.engine.values.searches import PastSearch
from moonshim.engine.web_search import SearchTool, describe_error, describe_results
from moonshim.engine.wire.json_codec import encode

__all__ = ["pair_searches"]


def pair_searches(messages: list[LocatedMessage], tool: SearchTool, changes: list[Change]) -> list[LocatedMessage]:
    """Split assistant messages at their searches: the call, its result, and what the model wrote then."""
    out: list[LocatedMessage] = []
    for located in messages:
        parts = _with_searches(located.message) if located.message.role == "assistant" else None
        if parts is None:
            out.append(located)
            continue
        split = _split(parts, tool)
        out += [LocatedMessage(message, located.turn, located.place) for message in split]
        changes.append(
            Change(
                "search_history", "earlier web searches sent as calls of the function and their results", located.place
            )
        )
    return out


def _with_searches(message: Message) -> list[Part | PastSearch] | None:
    """The parts of a message with its searches; None if it has none."""
    if any(isinstance(part, Media) for part in message.parts):
        parts = messages_searches.past_searches(message.parts)
    else:
        parts = responses_searches.past_searches(message)
    return parts if any(isinstance(part, PastSearch) for part in parts) else None


def _split(parts: Sequence[Part | PastSearch], tool: SearchTool) -> list[Message]:
    out: list[Message] = []
    written: list[Part] = []
    searches: list[PastSearch] = []

    def end_round() -> None:
        calls = [_call(one, tool) for one in searches]
        if written or calls:
            out.append(Message("assistant", (*written, *calls)))
        if searches:
            out.append(Message("tool", tuple(_result(one, tool) for one in searches)))
        written.clear()
        searches.clear()

    for part in parts:
        if isinstance(part, PastSearch):
            if searches and part.starts_batch:
                end_round()
            searches.append(part)
        else:
            if searches:
                end_round()
            written.append(part)
    end_round()
    return out


def _call(search: PastSearch, tool: SearchTool) -> ToolCall:
    return ToolCall(f"{CANONICAL}{search.id}", tool.name, encode(search.input).decode(), search.id)


def _result(search: PastSearch, tool: SearchTool) -> ToolResult:
    if tool.runner == "host":
        words = encode(search.input).decode()
    else:
        words = describe_results(search.results) if search.error is None else describe_error(search.error)
    return ToolResult(f"{CANONICAL}{search.id}", tool.name, (Text(words),), search.error is not None, search.id)
