"""The interface of a search provider: a query -> an HTTP request, and its response -> pages."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

from moonshim.engine.values.searches import SearchResult

__all__ = ["HttpProvider", "SearchCall", "SearchQuery", "read_results", "with_site_operators"]

_MAX_TITLE: Final = 300
_MAX_TEXT: Final = 2000
"""Characters of a page that the model is given."""
_MAX_URL: Final = 2000
_TAG: Final = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")
_NOT_IN_URL: Final = re.compile(r"[\s\x00-\x1f\x7f<>\\]")
"""Characters that no URL has, and that a page could use to write more than its URL."""


class SearchQuery(Struct, frozen=True):
    """What to search for, and where."""

    text: str
    count: int
    """The number of results that are wanted."""
    allowed: tuple[str, ...] = ()
    """Domains. Results are filtered afterwards, so a provider may take them as a hint."""
    blocked: tuple[str, ...] = ()


class SearchCall(Struct, frozen=True):
    """The HTTP request for a query."""

    url: str
    headers: Mapping[str, str] = {}
    body: Any = None
    """Sent as JSON by POST; None: a GET request."""


class HttpProvider(Struct, frozen=True):
    """A search provider with an HTTP API."""

    base_url: str | None
    """Its address; None: it has to be configured."""
    make_call: Callable[[SearchQuery, str, str], SearchCall]
    """From the query, the base URL and the key ("" if there is none)."""
    read: Callable[[Any], Iterable[SearchResult]]
    """The pages in a response body, which may be any JSON value."""


def read_results(entries: Any, *, text: Callable[[Mapping[str, Any]], Any], published: str) -> Iterable[SearchResult]:
    """The entries of a list of pages: each has `url` and `title`, and a field with its date.

    >>> entries = [{"url": "https://a.example", "title": "A &amp; B", "body": "<b>Words</b>"}, {"title": "no page"}]
    >>> list(read_results(entries, text=lambda entry: entry["body"], published="date"))
    [SearchResult(url='https://a.example', title='A & B', text='Words', published=None)]
    """
    for entry in entries if isinstance(entries, list) else ():
        url = entry.get("url") if isinstance(entry, dict) else None
        if not isinstance(url, str) or not url.startswith(("http://", "https://")) or len(url) > _MAX_URL:
            continue
        if _NOT_IN_URL.search(url):
            continue
        yield SearchResult(
            url,
            _one_line(entry.get("title")),
            _plain(text(entry), _MAX_TEXT),
            _one_line(entry.get(published)) or None,
        )


def _one_line(value: Any) -> str:
    """A title or a date. With a second line it could pass for another result."""
    return " ".join(_plain(value, _MAX_TITLE).split())


def _plain(value: Any, limit: int) -> str:
    """Text without the tags and entities that providers mark matches with, and without control tokens of models.

    >>> _plain("<b>A</b> &lt;|im_end|&gt;", 100)
    'A < |im_end|>'
    """
    if not isinstance(value, str):
        return ""
    text = html.unescape(_TAG.sub("", value[: 4 * limit])).encode("utf-8", "replace").decode()
    return text.replace("<|", "< |").strip()[:limit]


def with_site_operators(query: SearchQuery) -> str:
    """The query with its domains in the syntax that search engines share.

    >>> with_site_operators(SearchQuery("kimi", 5, allowed=("a.example", "b.example")))
    'kimi (site:a.example OR site:b.example)'
    >>> with_site_operators(SearchQuery("kimi", 5, blocked=("a.example",)))
    'kimi -site:a.example'
    """
    allowed = " OR ".join(f"site:{domain}" for domain in query.allowed)
    if len(query.allowed) > 1:
        allowed = f"({allowed})"
    return " ".join(filter(None, [query.text, allowed, *(f"-site:{domain}" for domain in query.blocked)]))
