"""Web searches in the items of an assistant message.

An item of a search has no place for its results. They follow in an item of reasoning, which clients return unread: its
`encrypted_content` is a token with what the model was given.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from moonshim.engine.dialects.openai_responses.extras import Json, extras_of
from moonshim.engine.dialects.openai_responses.messages.content import parse_content
from moonshim.engine.dialects.openai_responses.messages.items import CALLS
from moonshim.engine.signing import SignedPayload, Signer
from moonshim.engine.values.conversation import Message, Part
from moonshim.engine.values.searches import PastSearch, SearchEnded, SearchResult

__all__ = ["PREFIX", "open_results", "past_searches", "sign_results"]

PREFIX: Final = "ws_"
_RESULTS: Final = "moonshim_search_results"
"""Our own type of item: a token that was opened."""


def sign_results(ended: SearchEnded, signer: Signer) -> str:
    """The token with the results of a search."""
    details = tuple(msgspec.to_builtins(result) for result in ended.results)
    return signer.sign(SignedPayload(signature=ended.id, details=details), "search")


def open_results(item: Json, signer: Signer | None) -> Json | None:
    """What an item of reasoning has of a search; None if it is about something else."""
    token = item.get("encrypted_content")
    if signer is None or not signer.is_for(token, "search"):
        return None
    payload = signer.open(str(token), "search")
    return {"type": _RESULTS, "search": payload.signature, "results": list(payload.details)}


def past_searches(message: Message) -> list[Part | PastSearch]:
    """The parts of a message, with its web searches in the place of their items."""
    items = extras_of(message).items
    if not any(item.get("type") == "web_search_call" for item in items):
        return list(message.parts)
    found = {item["search"]: item["results"] for item in items if item.get("type") == _RESULTS}
    out: list[Part | PastSearch] = []
    parts, ended = list(message.parts), True
    for item in items:
        kind = item.get("type", "message")
        if kind == "web_search_call":
            out.append(_past_search(item, found, starts_batch=ended))
            ended = False
            continue
        ended = True
        # A message has a part for each entry of its content; other items have one or none.
        count = (
            len(parse_content(item.get("content"), "content"))
            if kind == "message"
            else int(kind == "reasoning" or kind in CALLS)
        )
        out += parts[:count]
        del parts[:count]
    return out + parts


def _past_search(item: Json, found: dict[str, Any], *, starts_batch: bool) -> PastSearch:
    id, action = str(item.get("id", "")).removeprefix(PREFIX), item.get("action")
    action = action if isinstance(action, dict) else {}
    query = action.get("query")
    given = {"query": query} if isinstance(query, str) else {}
    if item.get("status") == "failed":
        return PastSearch(id, given, error="unavailable", starts_batch=starts_batch)
    entries = found.get(id)
    if entries is None:
        sources = action.get("sources")
        entries = [source for source in (sources if isinstance(sources, list) else ()) if isinstance(source, dict)]
    results = tuple(msgspec.convert({"url": "", **_texts(entry)}, SearchResult) for entry in entries)
    return PastSearch(id, given, results, starts_batch=starts_batch)


def _texts(entry: Json) -> Json:
    return {name: value for name in ("url", "title", "text", "published") if isinstance(value := entry.get(name), str)}
