"""Tavily: https://docs.tavily.com (unverified: no request was sent to the real service)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from moonshim.engine.values.searches import SearchResult
from moonshim.web_search.provider import HttpProvider, SearchCall, SearchQuery, read_results

__all__ = ["TAVILY"]


def _make_call(query: SearchQuery, base_url: str, key: str) -> SearchCall:
    body: dict[str, Any] = {"query": query.text, "max_results": query.count}
    if query.allowed:
        body["include_domains"] = list(query.allowed)
    if query.blocked:
        body["exclude_domains"] = list(query.blocked)
    return SearchCall(f"{base_url}/search", {"Authorization": f"Bearer {key}"}, body)


def _read(body: Any) -> Iterable[SearchResult]:
    entries = body.get("results") if isinstance(body, dict) else None
    return read_results(entries, text=lambda entry: entry.get("content"), published="published_date")


TAVILY: Final = HttpProvider("https://api.tavily.com", make_call=_make_call, read=_read)
