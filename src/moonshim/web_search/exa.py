"""Exa: https://exa.ai/docs (unverified: no request was sent to the real service)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from moonshim.engine.values.searches import SearchResult
from moonshim.web_search.provider import HttpProvider, SearchCall, SearchQuery, read_results

__all__ = ["EXA"]

_TEXT: Final = {"text": {"maxCharacters": 1000}}
"""Without it, Exa returns pages without any text."""


def _make_call(query: SearchQuery, base_url: str, key: str) -> SearchCall:
    body: dict[str, Any] = {"query": query.text, "numResults": query.count, "contents": _TEXT}
    if query.allowed:
        body["includeDomains"] = list(query.allowed)
    if query.blocked:
        body["excludeDomains"] = list(query.blocked)
    return SearchCall(f"{base_url}/search", {"x-api-key": key}, body)


def _read(body: Any) -> Iterable[SearchResult]:
    entries = body.get("results") if isinstance(body, dict) else None
    return read_results(entries, text=_text, published="publishedDate")


def _text(entry: Mapping[str, Any]) -> Any:
    highlights = entry.get("highlights")
    if isinstance(highlights, list) and highlights:
        return "\n".join(text for text in highlights if isinstance(text, str))
    return entry.get("text")


EXA: Final = HttpProvider("https://api.exa.ai", make_call=_make_call, read=_read)
