"""SearXNG, a search engine that you host: https://docs.searxng.org/dev/search_api (unverified on a real instance).

The instance has to allow the `json` format in its settings.yml, or it answers 403.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlencode

from moonshim.engine.values.searches import SearchResult
from moonshim.web_search.provider import HttpProvider, SearchCall, SearchQuery, read_results, with_site_operators

__all__ = ["SEARXNG"]


def _make_call(query: SearchQuery, base_url: str, key: str) -> SearchCall:
    asked = urlencode({"q": with_site_operators(query), "format": "json"})
    return SearchCall(f"{base_url}/search?{asked}", {"Authorization": f"Bearer {key}"} if key else {})


def _read(body: Any) -> Iterable[SearchResult]:
    entries = body.get("results") if isinstance(body, dict) else None
    return read_results(entries, text=lambda entry: entry.get("content"), published="publishedDate")


SEARXNG: Final = HttpProvider(None, make_call=_make_call, read=_read)
