"""A web search <-> the blocks of Messages: `server_tool_use`, `web_search_tool_result`, and citations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from moonshim.engine.dialects.anthropic.extras import DIALECT, Json, media_extras
from moonshim.engine.signing import SignedPayload, Signer
from moonshim.engine.values.conversation import Media, Part
from moonshim.engine.values.searches import PastSearch, SearchEnded, SearchResult, SearchStarted, TextCited
from moonshim.engine.web_search import SEARCH_NAME
from moonshim.engine.wire.json_codec import encode

__all__ = ["is_results", "past_searches", "with_opened_results", "write_citation", "write_results", "write_search"]

_PREFIX: Final = "srvtoolu_"
_RESULTS: Final = "web_search_tool_result"
_VISIBLE: Final = ("url", "title", "page_age")
_CITED: Final = 150
"""Characters of a page that a citation repeats, as Anthropic's do."""


def write_search(started: SearchStarted) -> tuple[Json, Json]:
    """The block of a search, and the delta with its input."""
    block = {"type": "server_tool_use", "id": _PREFIX + started.id, "name": SEARCH_NAME, "input": {}}
    return block, {"type": "input_json_delta", "partial_json": encode(started.input).decode()}


def write_results(ended: SearchEnded, signer: Signer) -> Json:
    """The block with the results of a search, or with its error."""
    content: Any = [_write_result(result, signer) for result in ended.results]
    if ended.error is not None:
        content = {"type": "web_search_tool_result_error", "error_code": ended.error}
    return {"type": "web_search_tool_result", "tool_use_id": _PREFIX + ended.id, "content": content}


def _write_result(result: SearchResult, signer: Signer) -> Json:
    # What the model was given of the page: a later request has the same words for it.
    token = signer.sign(SignedPayload(text=result.text), "search")
    return {
        "type": "web_search_result",
        "url": result.url,
        "title": result.title,
        "encrypted_content": token,
        "page_age": result.published,
    }


# --- a history --------------------------------------------------------------------------------------------------


def with_opened_results(media: Media, signer: Signer) -> Media:
    """The results with what the model was given of each page, where the tokens are our own."""
    extras = media_extras(media)
    content = (extras.block or {}).get("content")
    texts = tuple(_open_result(entry, signer) for entry in content) if isinstance(content, list) else ()
    return replace(media, extras={**media.extras, DIALECT: replace(extras, opened=texts)}) if any(texts) else media


def _open_result(entry: Any, signer: Signer) -> str | None:
    token = entry.get("encrypted_content") if isinstance(entry, dict) else None
    return signer.open(str(token), "search").text if signer.is_for(token, "search") else None


def is_results(media: Media) -> bool:
    """Whether a block has the results of a web search."""
    return _block(media).get("type") == _RESULTS


def past_searches(parts: Sequence[Part]) -> list[Part | PastSearch]:
    """The parts of an assistant message, with its web searches in the place of their blocks.

    A search without a result, and anything else that another host ran, stays as it is.
    """
    results = {_block(part).get("tool_use_id"): part for part in parts if isinstance(part, Media) and is_results(part)}
    out: list[Part | PastSearch] = []
    paired: set[Any] = set()
    ended = True
    for part in parts:
        block = _block(part) if isinstance(part, Media) else {}
        is_search = block.get("type") == "server_tool_use" and block.get("name") == SEARCH_NAME
        if is_search and (result := results.get(block.get("id"))) is not None:
            paired.add(block.get("id"))
            out.append(_past_search(block, result, starts_batch=ended))
            ended = False
        elif block.get("type") == _RESULTS and block.get("tool_use_id") in paired:
            ended = True
        else:
            out.append(part)
            ended = True
    return out


def _past_search(block: Json, result: Media, *, starts_batch: bool) -> PastSearch:
    given, content, texts = block.get("input"), _block(result).get("content"), media_extras(result).opened
    entries = [entry if isinstance(entry, dict) else {} for entry in content] if isinstance(content, list) else []
    opened = texts or (None,) * len(entries)
    error = content.get("error_code") if isinstance(content, dict) else "unavailable"
    return PastSearch(
        str(block.get("id")).removeprefix(_PREFIX),
        given if isinstance(given, dict) else {},
        tuple(map(_read_result, entries, opened)),
        None if isinstance(content, list) else str(error),
        starts_batch,
    )


def _read_result(entry: Json, text: str | None) -> SearchResult:
    url, title, age = (value if isinstance(value := entry.get(name), str) else "" for name in _VISIBLE)
    return SearchResult(url, title, text or "", age or None)


def _block(media: Media) -> Json:
    return media_extras(media).block or {}


def write_citation(cited: TextCited, signer: Signer) -> Json:
    """The place where a text refers to a page."""
    result = cited.result
    return {
        "type": "web_search_result_location",
        "url": result.url,
        "title": result.title,
        "encrypted_index": signer.sign(SignedPayload(text=result.url), "search"),
        "cited_text": result.text[:_CITED],
    }
