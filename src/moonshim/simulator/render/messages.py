"""The turns of a request -> messages as a chat template expects them: one per result, media in their places."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from moonshim.simulator.render.prompt_inputs import tool_entries
from moonshim.simulator.request import Json, Part, SimCall, SimTurn

__all__ = ["PromptMessage", "messages_of"]


class PromptMessage(Struct, frozen=True, kw_only=True):
    """A message as a template sees it. `call_id` and `tool` are those of a result."""

    role: str
    name: str = ""
    content: str = ""
    reasoning: str = ""
    calls: tuple[SimCall, ...] = ()
    call_id: str = ""
    tool: str = ""
    tools: tuple[Json, ...] = ()
    partial: bool = False


def messages_of(turns: Iterable[SimTurn], media: Mapping[str, str]) -> list[PromptMessage]:
    """`media`: the placeholder for a part that is not text, by kind.

    Messages combines results and text in one user message; the text comes after the results.

    >>> from moonshim.simulator.request import SimResult
    >>> turn = SimTurn(role="tool", text="Go on", results=(SimResult("a", "ls", "x"), SimResult("b", "ls", "y")))
    >>> [(message.role, message.content) for message in messages_of([turn], {})]
    [('tool', 'x'), ('tool', 'y'), ('user', 'Go on')]
    """
    return [message for turn in turns for message in _messages(turn, media)]


def _messages(turn: SimTurn, media: Mapping[str, str]) -> Iterator[PromptMessage]:
    content = _content(turn.parts, turn.text, media)
    for result in turn.results:
        yield PromptMessage(
            role="tool",
            name=turn.name,
            content=_content(result.parts, result.text, media),
            call_id=result.call_id,
            tool=result.name,
        )
    if turn.results and not content:
        return
    yield PromptMessage(
        role="user" if turn.role == "tool" else turn.role,
        name="" if turn.results else turn.name,
        content=content,
        reasoning=turn.reasoning or "",
        calls=turn.calls,
        tools=tuple(tool_entries(turn.tools)),
        partial=turn.partial,
    )


def _content(parts: tuple[Part, ...], text: str, media: Mapping[str, str]) -> str:
    if not parts:
        return text
    return "".join(part if isinstance(part, str) else media.get(part.kind, "") for part in parts)
