"""A web search in a response, as values: what was asked, what was found, and what the answer cites.

The events come from the rounds of an exchange, never from a host: only clients get them.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from moonshim.engine.values.events import Event
from moonshim.engine.values.verdicts import CallsJudged

__all__ = [
    "ClientEvent",
    "PastSearch",
    "SearchEnded",
    "SearchError",
    "SearchResult",
    "SearchStarted",
    "TextCited",
]

SearchError: TypeAlias = Literal[
    "unavailable", "max_uses_exceeded", "invalid_tool_input", "query_too_long", "too_many_requests"
]
"""Why a search has no results, in the words of Messages."""


class SearchResult(Struct, frozen=True, omit_defaults=True):
    """One page that a search found."""

    url: str
    title: str = ""
    text: str = ""
    """An excerpt of the page, as the provider gave it."""
    published: str | None = None
    """When the page was published, in the provider's words."""


class SearchStarted(Struct, frozen=True):
    """The model asked for a search."""

    id: str
    """Unique in the conversation; a dialect puts its own prefix before it."""
    input: dict[str, Any]
    """What the model passed: `query`, or what a host's own search needs back."""

    @property
    def query(self) -> str:
        query = self.input.get("query")
        return query if isinstance(query, str) else ""


class SearchEnded(Struct, frozen=True):
    """The search is over: results, or why there are none."""

    id: str
    results: tuple[SearchResult, ...] = ()
    error: SearchError | None = None


class TextCited(Struct, frozen=True):
    """The text of an open block refers to a page that a search found."""

    index: int
    result: SearchResult
    start: int
    """Where the reference starts and ends in the text of its block."""
    end: int


class PastSearch(Struct, frozen=True):
    """A search in the history of a conversation, as its client has it."""

    id: str
    """As in `SearchStarted`."""
    input: dict[str, Any]
    results: tuple[SearchResult, ...] = ()
    error: str | None = None
    starts_batch: bool = True
    """False: the model asked for it together with the search before it."""


ClientEvent: TypeAlias = Event | SearchStarted | SearchEnded | TextCited | CallsJudged
"""What a client's encoder writes: the events of a response, the searches that were run for it, and the verdicts about
its calls."""
