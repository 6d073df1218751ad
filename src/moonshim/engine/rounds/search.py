"""Calls of the web search in a round -> searches for the shell, and the next round with their results."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from moonshim.engine.ids.spelling import CANONICAL
from moonshim.engine.rounds.rule import MAX_ROUNDS, NextRound, Outcome, RoundEnd, SearchOutcome, SearchWanted
from moonshim.engine.values.conversation import Message, Part, Text, ToolCall, ToolResult
from moonshim.engine.values.events import BlockClosed, BlockDelta, BlockOpened, BlockSigned, Event, Finished
from moonshim.engine.values.searches import (
    ClientEvent,
    SearchEnded,
    SearchError,
    SearchResult,
    SearchStarted,
    TextCited,
)
from moonshim.engine.values.text_pieces import TextPieces
from moonshim.engine.web_search import (
    SearchTool,
    describe_error,
    describe_results,
    find_citations,
    is_allowed,
    read_query,
)
from moonshim.engine.wire.json_codec import decode_object, encode

__all__ = ["SearchRule"]

_OTHER: Final = re.compile(r"[^a-zA-Z0-9_]")
MAX_SEARCHES: Final = 20
"""In one exchange, whatever the client allows."""
_ID_LENGTH: Final = 32
"""With a number, at most the 40 characters that every host accepts as an id."""


class _Search(Struct):
    """One call of the search in the current round."""

    call: ToolCall
    id: str
    input: dict[str, Any]
    error: SearchError | None = None


class SearchRule:
    """Holds back the calls of the search, and answers them. Text that links to a result cites it.

    A round with other calls too is the last one: the client has to answer those, and gets the searches beside them.
    """

    def __init__(self, tool: SearchTool, id: str) -> None:
        """`id`: what the ids of searches begin with."""
        self._tool, self._id = tool, _OTHER.sub("_", id)[:_ID_LENGTH]
        self._uses = self._count = 0
        self._held: set[int] = set()
        self._texts: dict[int, TextPieces] = {}
        self._found: dict[str, SearchResult] = {}
        self._searches: list[_Search] = []
        self._message = Message("assistant")
        self._has_other_calls = False
        self.host_searches = 0
        """Searches that the host ran, which some charge for."""

    # -- a round ---------------------------------------------------------------------

    def feed(self, event: Event) -> Sequence[ClientEvent]:
        match event:
            case BlockOpened(index=index, kind="call", name=name) if name == self._tool.host_name:
                self._held.add(index)
                return ()
            case BlockDelta(index=index) | BlockSigned(index=index) | BlockClosed(index=index) if index in self._held:
                return ()
            case BlockOpened(index=index, kind="text") if self._found:
                self._texts[index] = TextPieces()
            case BlockDelta(index=index, text=text) if index in self._texts:
                self._texts[index].append(text)
            case BlockClosed(index=index) if index in self._texts:
                return [*self._cite(index, "".join(self._texts.pop(index))), event]
        return (event,)

    def _cite(self, index: int, text: str) -> list[ClientEvent]:
        return [TextCited(index, result, start, end) for start, end, result in find_citations(text, self._found)]

    def end(self, finished: Finished, message: Message, rounds: int) -> RoundEnd:
        calls = [part for part in message.parts if isinstance(part, ToolCall)]
        mine = [call for call in calls if call.name == self._tool.name]
        if not mine or finished.reason not in ("tool_calls", "stop"):
            # A call that was cut off is not run.
            return RoundEnd(finished=finished)
        self._message, self._has_other_calls = message, len(mine) < len(calls)
        self.host_searches += len(mine) if self._tool.runner == "host" else 0
        self._searches = [self._read(call, too_many=rounds >= MAX_ROUNDS) for call in mine]
        started = [SearchStarted(one.id, one.input) for one in self._searches]
        if rounds >= MAX_ROUNDS and not self._has_other_calls:
            ended = [SearchEnded(one.id, error=one.error) for one in self._searches]
            pairs = [event for pair in zip(started, ended, strict=True) for event in pair]
            return RoundEnd(pairs, finished=replace(finished, reason="stop", raw_reason=None))
        return RoundEnd(started, tuple(self._wanted(one) for one in self._searches if self._is_run(one)))

    def _read(self, call: ToolCall, *, too_many: bool) -> _Search:
        self._count += 1
        search = _Search(call, f"{self._id}_{self._count}", {})
        if self._tool.runner == "host":
            search.input = decode_object(call.arguments.encode("utf-8", "replace")) or {}
            return search
        query = read_query(call.arguments)
        if query in ("invalid_tool_input", "query_too_long"):
            search.error = query  # type: ignore[assignment]
            return search
        search.input = {"query": query}
        limit = self._tool.settings.max_uses
        if self._tool.runner == "none":
            search.error = "unavailable"
        elif too_many or self._uses >= min(MAX_SEARCHES, MAX_SEARCHES if limit is None else limit):
            search.error = "max_uses_exceeded"
        else:
            self._uses += 1
        return search

    def _is_run(self, search: _Search) -> bool:
        return search.error is None and self._tool.runner == "provider"

    def _wanted(self, search: _Search) -> SearchWanted:
        settings = self._tool.settings
        return SearchWanted(search.id, str(search.input["query"]), settings.allowed, settings.blocked)

    # -- the next one ----------------------------------------------------------------

    def resume(self, outcomes: Sequence[Outcome]) -> NextRound:
        done = {one.id: self._within_domains(one) for one in outcomes if isinstance(one, SearchOutcome)}
        events: list[ClientEvent] = []
        results: list[ToolResult] = []
        calls: dict[str, ToolCall] = {}
        for search in self._searches:
            outcome = done.get(search.id) or SearchOutcome(search.id, error=search.error)
            if self._is_run(search) and search.id not in done:
                outcome = SearchOutcome(search.id, error="unavailable")
            self._found.update((result.url, result) for result in outcome.results)
            events.append(SearchEnded(outcome.id, outcome.results, outcome.error))
            # In the form in which a later request has it: what the host caches is then a prefix of that.
            arguments = encode(search.input).decode()
            call_id = f"{CANONICAL}{search.id}"
            calls[search.call.id] = replace(search.call, id=call_id, arguments=arguments, wire_id=search.id)
            words = arguments if self._tool.runner == "host" else describe_outcome(outcome)
            results.append(ToolResult(call_id, self._tool.name, (Text(words),), outcome.error is not None, search.id))
        if self._has_other_calls:
            return NextRound(events)
        parts = tuple(calls.get(part.id, part) if isinstance(part, ToolCall) else part for part in self._message.parts)
        return NextRound(events, (Message("assistant", parts), Message("tool", tuple(results))), keeps_choice=False)

    def _within_domains(self, outcome: SearchOutcome) -> SearchOutcome:
        """Providers take domain lists as a hint."""
        settings = self._tool.settings
        return replace(outcome, results=tuple(one for one in outcome.results if is_allowed(one.url, settings)))

    @property
    def has_fallback(self) -> bool:
        return False

    def abandon(self, message: Message) -> RoundEnd:
        return RoundEnd()

    def visible(self, message: Message) -> Sequence[Part]:
        return [part for part in message.parts if not isinstance(part, ToolCall) or part.name != self._tool.name]


def describe_outcome(outcome: SearchOutcome) -> str:
    """The result of the call, as the model gets it."""
    return describe_results(outcome.results) if outcome.error is None else describe_error(outcome.error)
