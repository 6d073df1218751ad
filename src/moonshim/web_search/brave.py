"""Brave Search: https://api-dashboard.search.brave.com/docs (unverified: no request was sent to the real service)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlencode

from moonshim.engine.values.searches import SearchResult
from moonshim.web_search.provider import HttpProvider, SearchCall, SearchQuery, read_results, with_site_operators

__all__ = ["BRAVE"]

_MOST: Final = 20


def _make_call(query: SearchQuery, base_url: str, key: str) -> SearchCall:
    asked = {"q": with_site_operators(query), "count": min(query.count, _MOST), "text_decorations": "false"}
    return SearchCall(f"{base_url}/res/v1/web/search?{urlencode(asked)}", {"X-Subscription-Token": key})


def _read(body: Any) -> Iterable[SearchResult]:
    web = body.get("web") if isinstance(body, dict) else None
    return read_results(web.get("results") if isinstance(web, dict) else None, text=_text, published="page_age")


def _text(entry: Mapping[str, Any]) -> str:
    more = entry.get("extra_snippets")
    texts = [entry.get("description"), *(more if isinstance(more, list) else ())]
    return "\n".join(text for text in texts if isinstance(text, str))


BRAVE: Final = HttpProvider("https://api.search.brave.com", make_call=_make_call, read=_read)
