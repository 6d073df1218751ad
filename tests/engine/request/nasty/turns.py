"""A long conversation in any dialect -> the requests that led to it, one for each turn of the model."""

from __future__ import annotations

from typing import Final

from tests.engine.request.nasty.case import Json

__all__ = ["requests_before"]

_FIELDS: Final = {"openai_chat": "messages", "anthropic": "messages", "openai_responses": "input"}
_MODEL_ITEMS: Final = ("reasoning", "item_reference", "web_search_call")


def _is_models(entry: Json) -> bool:
    kind = str(entry.get("type", ""))
    return entry.get("role") == "assistant" or kind in _MODEL_ITEMS or kind.endswith("_call")


def requests_before(body: Json, dialect: str) -> list[Json]:
    """The bodies of all requests, the last one included: each ends before the model spoke."""
    field = _FIELDS[dialect]
    entries = body[field] if isinstance(body[field], list) else []
    ends = [end for end in range(1, len(entries)) if _is_models(entries[end]) and not _is_models(entries[end - 1])]
    return [*({**body, field: entries[:end]} for end in ends), body]
