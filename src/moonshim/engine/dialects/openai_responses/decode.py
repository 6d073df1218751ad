"""The payloads of a Responses stream, or one whole response, become what the host says."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final, TypeAlias

from moonshim.engine.dialects.openai_responses.decode_items import ItemDecoder
from moonshim.engine.dialects.openai_responses.extras import Json
from moonshim.engine.dialects.openai_responses.messages.items import CALLS
from moonshim.engine.upstream_events import (
    FinishReported,
    OnlyText,
    ResponseStarted,
    StreamEnded,
    UnknownPayload,
    UpstreamEvent,
    UpstreamFailed,
    UsageReported,
)
from moonshim.engine.values.conversation import Usage, token_count
from moonshim.engine.values.events import Failed

__all__ = ["ResponsesDecoder", "decode_response", "read_usage"]

Key: TypeAlias = Hashable

_TEXTS: Final[dict[str, tuple[str, str, str]]] = {
    "response.output_text": ("message", "text", "content_index"),
    "response.refusal": ("message", "text", "content_index"),
    "response.reasoning_text": ("reasoning", "content", "content_index"),
    "response.reasoning_summary_text": ("reasoning", "summary", "summary_index"),
}
"""Events of texts, without `.delta` and `.done`: the item they belong to, its field, and where the place is said."""
_CALLS: Final[dict[str, tuple[str, str]]] = {
    "response.function_call_arguments": ("function_call", "arguments"),
    "response.custom_tool_call_input": ("custom_tool_call", "input"),
}
_IDLE: Final = frozenset(
    {
        "response.content_part.added",
        "response.content_part.done",
        "response.reasoning_part.added",
        "response.reasoning_part.done",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_part.done",
        "response.output_text.annotation.added",
        "keepalive",
        "ping",
    }
)
"""They repeat what other events say, or say nothing that another dialect has a place for."""
_READ: Final = frozenset({"message", "reasoning", *CALLS})
_REASONS: Final = {"max_output_tokens": "length", "max_tokens": "length", "content_filter": "content_filter"}
_FINAL: Final = frozenset(
    {
        "context_length_exceeded",
        "insufficient_quota",
        "invalid_api_key",
        "invalid_prompt",
        "invalid_request_error",
        "authentication_error",
        "permission_error",
        "not_found_error",
        "model_not_found",
    }
)
"""Codes of errors that asking again does not cure."""


class ResponsesDecoder:
    """Reads the payloads of one stream.

    Items may be told in pieces, as a whole when they are done, and once more at the end:
    whatever is told in only one of these places is heard, and nothing is heard twice.
    """

    reads_alike: Final = False

    def __init__(self) -> None:
        self._began = False
        self._over = False
        self._items: dict[Key, ItemDecoder] = {}
        self._calls = 0

    def feed(self, payload: Json) -> list[UpstreamEvent]:
        """What this payload says."""
        kind = payload.get("type")
        if not isinstance(kind, str):
            return self._error(payload) if payload.get("error") else [UnknownPayload(payload)]
        step = _STEPS.get(kind)
        if step is not None:
            return step(self, payload)
        start, _, end = kind.rpartition(".")
        if end in ("delta", "done"):
            if start in _TEXTS:
                return self._text(payload, start, end)
            if start in _CALLS:
                return self._asked(payload, start, end)
        # What a host's own tool does while it runs is known, and says nothing elsewhere.
        return [] if kind in _IDLE else [UnknownPayload(payload, known="_call." in kind)]

    def flush(self) -> list[UpstreamEvent]:
        """The input is over: nothing is kept back."""
        return []

    def only_text(self, payload: Json) -> OnlyText | None:
        """Events are numbered: no two of them differ in their text alone."""
        return None

    def response(self, response: Json) -> list[UpstreamEvent]:
        """A whole response, or the one that ends a stream: whatever of it was not told before, and its ending."""
        out, output = self._begin({"response": response}), response.get("output")
        told = {key: one for one in self._items.values() for key in _names(one.type, one.id, one.call_id)}
        for place, item in enumerate(output if isinstance(output, list) else ()):
            kind = _kind(item)
            if kind in _READ:
                out += self._final(place, kind, item, told).read(item, done=True)
            elif kind and place not in self._items:
                out.append(UnknownPayload(item, known=True))
        usage = read_usage(response)
        out += [] if usage is None else [UsageReported(usage)]
        if self._over:
            return out
        self._over = True
        return [*out, *self._ending(response)]

    def _ending(self, response: Json) -> list[UpstreamEvent]:
        status, error = response.get("status"), response.get("error")
        if error or status in ("failed", "cancelled"):
            return [UpstreamFailed(_failed(error, "cancelled" if status == "cancelled" else "server_error"))]
        details = response.get("incomplete_details")
        raw = details.get("reason") if isinstance(details, dict) else None
        if isinstance(raw, str):
            return [FinishReported(_REASONS.get(raw, raw), raw), StreamEnded()]
        if status == "incomplete":
            return [FinishReported("length", status), StreamEnded()]
        return [
            FinishReported("tool_calls" if self._calls else "stop", status if isinstance(status, str) else None),
            StreamEnded(),
        ]

    # --- steps of a stream -------------------------------------------------------------------------------------

    def _begin(self, payload: Json) -> list[UpstreamEvent]:
        response = payload.get("response")
        if self._began or not isinstance(response, dict):
            return []
        self._began = True
        id, model, created = response.get("id"), response.get("model"), response.get("created_at")
        return [
            ResponseStarted(
                id if isinstance(id, str) and id else None,
                model if isinstance(model, str) else None,
                _seconds(created),
            )
        ]

    def _added(self, payload: Json) -> list[UpstreamEvent]:
        return self._item(payload, done=False)

    def _done(self, payload: Json) -> list[UpstreamEvent]:
        return self._item(payload, done=True)

    def _item(self, payload: Json, *, done: bool) -> list[UpstreamEvent]:
        item = payload.get("item")
        kind = _kind(item)
        if not isinstance(item, dict) or not kind:
            return [UnknownPayload(payload)]
        known = self._known(_key(payload, item), kind, item)
        return known.read(item, done=done) if kind in _READ else [UnknownPayload(payload, known=True)]

    def _text(self, payload: Json, start: str, end: str) -> list[UpstreamEvent]:
        kind, field, where = _TEXTS[start]
        place, key = payload.get(where), "refusal" if start == "response.refusal" else "text"
        text = payload.get("delta" if end == "delta" else key)
        item = self._growing(payload, kind)
        if not isinstance(text, str) or item is None:
            return [UnknownPayload(payload)]
        place = place if isinstance(place, int) else 0
        return item.grow(field, place, text) if end == "delta" else item.say(field, place, text)

    def _asked(self, payload: Json, start: str, end: str) -> list[UpstreamEvent]:
        kind, field = _CALLS[start]
        text = payload.get("delta" if end == "delta" else field)
        item = self._growing(payload, kind)
        if not isinstance(text, str) or item is None:
            return [UnknownPayload(payload)]
        return item.ask(text) if end == "delta" else item.ask_whole(text)

    def _ended(self, payload: Json) -> list[UpstreamEvent]:
        response = payload.get("response")
        if not isinstance(response, dict):
            response = {}
        status = str(payload["type"]).rpartition(".")[2]
        return self.response({"status": status, **response})

    def _error(self, payload: Json) -> list[UpstreamEvent]:
        self._over = True
        inner = payload.get("error")
        return [UpstreamFailed(_failed(inner or payload, "server_error"))]

    # --- which item --------------------------------------------------------------------------------------------

    def _known(self, key: Key, kind: str, item: Json) -> ItemDecoder:
        found = self._items.get(key)
        if found is None or found.type != kind:
            found = self._items[key] = ItemDecoder(kind, self._calls if kind in CALLS else None)
            self._calls += kind in CALLS
        if isinstance(item.get("id"), str):
            found.id = item["id"]
        return found

    def _growing(self, payload: Json, kind: str) -> ItemDecoder | None:
        """The item that a piece belongs to, also where nobody said that it began; None for one of another kind."""
        key = _key(payload)
        found = self._items.get(key)
        if found is not None and (found.type != kind or found.is_done):
            return None
        return self._known(key, kind, {"id": payload.get("item_id")})

    def _final(self, place: int, kind: str, item: Json, told: dict[Key, ItemDecoder]) -> ItemDecoder:
        """The item that the end of a stream repeats: the same identifier, the same call, or the same place."""
        for key in _names(kind, item.get("id"), item.get("call_id")):
            if key in told:
                return told[key]
        at = self._items.get(place)
        return at if at is not None and at.type == kind else self._known(("final", place), kind, item)


_STEPS: Final[dict[str, Callable[[ResponsesDecoder, Json], list[UpstreamEvent]]]] = {
    "response.created": ResponsesDecoder._begin,
    "response.queued": ResponsesDecoder._begin,
    "response.in_progress": ResponsesDecoder._begin,
    "response.output_item.added": ResponsesDecoder._added,
    "response.output_item.done": ResponsesDecoder._done,
    "response.completed": ResponsesDecoder._ended,
    "response.incomplete": ResponsesDecoder._ended,
    "response.failed": ResponsesDecoder._ended,
    "response.cancelled": ResponsesDecoder._ended,
    "error": ResponsesDecoder._error,
}


def decode_response(body: Json) -> list[UpstreamEvent]:
    """What a whole response says, as a stream would."""
    error = body.get("error")
    if error and "output" not in body:
        return [UpstreamFailed(_failed(error, "server_error"))]
    if not isinstance(body.get("output"), list):
        return [UnknownPayload(body)]
    return ResponsesDecoder().response(body)


def read_usage(response: Json) -> Usage | None:
    """The usage of a response; None where nothing is told."""
    raw = response.get("usage")
    if not isinstance(raw, dict) or not raw:
        return None
    details, answered = _object(raw, "input_tokens_details"), _object(raw, "output_tokens_details")
    return Usage(
        input_tokens=token_count(raw.get("input_tokens")),
        output_tokens=token_count(raw.get("output_tokens")),
        cached_tokens=token_count(details.get("cached_tokens")),
        reasoning_tokens=token_count(answered.get("reasoning_tokens")),
        raw=raw,
        cache_write_tokens=token_count(details.get("cache_write_tokens")),
    )


def _object(raw: Json, key: str) -> Json:
    value = raw.get(key)
    return value if isinstance(value, dict) else {}


def _failed(error: Any, otherwise: str) -> Failed:
    details = error if isinstance(error, dict) else {"message": error}
    words = [str(word) for key in ("code", "type") if isinstance(word := details.get(key), (str, int))]
    code = next((word for word in words if word and word != "error"), otherwise)
    message = details.get("message")
    return Failed(code, message if isinstance(message, str) and message else code, _FINAL.isdisjoint(words))


def _kind(item: Any) -> str:
    kind = item.get("type") if isinstance(item, dict) else None
    if kind == "tool_search_call" and not isinstance(item.get("call_id"), str):
        return "tool_search"  # run by the host itself: nobody has to answer it
    return kind if isinstance(kind, str) else ""


def _names(kind: str, id: Any, call_id: Any) -> list[Key]:
    return [(kind, word, name) for word, name in (("id", id), ("call", call_id)) if isinstance(name, str)]


def _key(payload: Json, item: Json | None = None) -> Key:
    """What tells items apart: their place, else their identifier."""
    place = payload.get("output_index")
    if isinstance(place, int):
        return place
    id = payload.get("item_id") if item is None else item.get("id")
    return id if isinstance(id, str) else None


def _seconds(value: Any) -> int | None:
    if isinstance(value, float) and abs(value) < 1e18:
        return int(value)
    return value if isinstance(value, int) else None
