"""A chunk and what its choices really say -> the chunks to send: patched, never re-created.

Every field of the host's chunk stays, known to us or not. Where one chunk has to
become several, the fields that name the answer go with each, the rest goes once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from moonshim.engine.dialects.openai_chat.delta import REASONING_FIELDS, text_of, write_piece, write_reasoning
from moonshim.engine.dialects.openai_chat.segments import Segment
from moonshim.engine.values.events import CallPiece, Failed, Finished

__all__ = ["ChoicePart", "error_chunk", "host_error", "patch_chunk", "patch_entries", "says_nothing", "summary_message"]

_IDENTITY: Final = ("id", "object", "created", "model", "system_fingerprint", "service_tier", "provider")
_FINAL: Final = frozenset(
    {
        "invalid_request_error",
        "invalid_api_key",
        "authentication_error",
        "permission_error",
        "access_terminated_error",
        "exceeded_current_quota_error",
        "insufficient_quota",
        "context_length_exceeded",
    }
)
"""Errors of hosts that asking again does not help."""
_DETAIL: Final = frozenset({"type", "text", "summary", "index", "id", "format"})
"""What an entry of `reasoning_details` needs to carry text; without text it carries nothing."""
_TOLD: Final = frozenset({"content", "tool_calls", "finish_reason", *REASONING_FIELDS})


class ChoicePart(Struct):
    """One choice of a chunk, and what to send for it."""

    choice: Mapping[str, Any]
    segments: list[Segment]
    entries: list[Any] | None = None
    """Tool entries that go out as they are, when deltas are not to be mended."""
    summary: list[dict[str, Any]] | None = None
    """The whole calls, for the finish chunk (`assembleToolDeltas`)."""
    reasoning: tuple[str, ...] = ("reasoning_content",)
    """The fields in which this host tells reasoning."""
    moves_usage: bool = True
    """Whether usage in the choice goes to the top of the chunk."""


def patch_chunk(chunk: Mapping[str, Any], parts: Sequence[ChoicePart], usage: Any) -> list[dict[str, Any]]:
    """The chunks that take this one's place; an error that a choice ended with comes last."""
    rendered = [_choices(part) for part in parts]
    failures = [error_chunk(ending, part.choice) for part in parts if isinstance(ending := _ending(part), Failed)]
    count = max((len(choices) for choices in rendered), default=0)
    if not count and (usage is not None or not failures):
        count = 1
    chunks: list[dict[str, Any]] = []
    for place in range(count):
        fields = chunk if place == 0 else {key: chunk[key] for key in _IDENTITY if key in chunk}
        one: dict[str, Any] = {key: value for key, value in fields.items() if key != "usage"}
        one["choices"] = [choices[place] for choices in rendered if place < len(choices)]
        chunks.append(one)
    if chunks and (usage is not None or "usage" in chunk):
        chunks[-1]["usage"] = usage
    return chunks + failures


def patch_entries(
    entries: Any, pieces: Sequence[CallPiece], ids: Sequence[str | None], names: Mapping[str, str]
) -> tuple[list[Any], bool]:
    """The host's own entries, with only these identifiers and the client's names; whether any of them changed."""
    patched, changed = [], False
    read = iter(zip(pieces, ids, strict=True))
    for entry in entries if isinstance(entries, list) else []:
        if not isinstance(entry, dict):
            patched.append(entry)
            continue
        piece, new_id = next(read)
        new_name = names.get(piece.name or "")
        changes: dict[str, Any] = {} if new_id is None else {"id": new_id}
        if new_name is not None:
            changes["function"] = {**entry["function"], "name": new_name}
        patched.append({**entry, **changes} if changes else entry)
        changed = changed or bool(changes)
    return patched, changed


def says_nothing(chunk: Mapping[str, Any]) -> bool:
    """Whether a chunk that was emptied has nothing left but the name of its answer: then it need not go out."""
    if any(value is not None and key not in (*_IDENTITY, "choices") for key, value in chunk.items()):
        return False
    for choice in chunk["choices"]:
        if any(value is not None and key not in ("index", "delta") for key, value in choice.items()):
            return False
        if not _is_empty(choice["delta"]):
            return False
    return True


def _is_blank(key: str, value: Any) -> bool:
    if key == "reasoning_details" and isinstance(value, list):
        return all(
            isinstance(one, dict) and one.keys() <= _DETAIL and not (one.get("text") or one.get("summary"))
            for one in value
        )
    return value is None or value in ("", [])


def _ending(part: ChoicePart) -> Finished | Failed | None:
    return part.segments[-1].ending if part.segments else None


def _choices(part: ChoicePart) -> list[dict[str, Any]]:
    choice, ending = part.choice, _ending(part)
    delta = choice.get("delta")
    delta = delta if isinstance(delta, dict) else {}
    gone = ("delta", "finish_reason", "usage") if part.moves_usage else ("delta", "finish_reason")
    kept = {key: value for key, value in choice.items() if key not in gone}
    kept.setdefault("index", 0)
    written: list[dict[str, Any]] = []
    for segment in part.segments or [Segment()]:
        if segment.says_nothing and segment.ending is not None and (written or not _has_leftovers(delta, part)):
            continue
        fields = _delta(delta, segment, part, first=not written)
        base = kept if not written else {"index": kept["index"]}
        written.append({**base, "delta": fields, "finish_reason": None})
    if isinstance(ending, Finished):
        alone = bool(written) and not _is_empty(written[-1]["delta"])
        if alone or not written:
            written.append({**({"index": kept["index"]} if written else kept), "delta": {}})
        written[-1]["finish_reason"] = ending.reason
        if part.summary:
            written[-1]["message"] = summary_message(part.summary)
    elif ending is not None and written and _is_empty(written[-1]["delta"]) and len(written) == 1:
        written.clear()
    return written


def summary_message(calls: list[dict[str, Any]]) -> dict[str, Any]:
    """The whole calls, where no client that adds up deltas looks for them."""
    return {"role": "assistant", "tool_calls": calls}


def _has_leftovers(delta: Mapping[str, Any], part: ChoicePart) -> bool:
    return bool(part.entries) or any(key not in _TOLD for key in delta)


def _is_empty(delta: Mapping[str, Any]) -> bool:
    return all(_is_blank(key, value) for key, value in delta.items() if key != "role")


def _delta(delta: Mapping[str, Any], segment: Segment, part: ChoicePart, *, first: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if first:
        fields = {key: value for key, value in delta.items() if key not in _TOLD}
        # What was not read as text (nothing, or something that is none) stays as the host wrote it.
        fields |= {
            key: delta[key] for key in ("content", *REASONING_FIELDS) if key in delta and not text_of(key, delta[key])
        }
    if first or segment.reasoning:
        fields |= write_reasoning(delta, segment.reasoning, part.reasoning, first=first)
    if segment.content:
        fields["content"] = segment.content
    if part.entries is not None and first:
        fields["tool_calls"] = part.entries
    elif segment.calls:
        fields["tool_calls"] = [write_piece(piece) for piece in segment.calls]
    return fields


def error_chunk(failed: Failed, choice: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """An error in the shape that OpenAI clients raise; `choice` tells which answer broke off."""
    # A plug-in is ours, not a host's.
    kind = "server_error" if failed.code == "transformer_failed" else "upstream_error"
    error: dict[str, Any] = {"message": failed.message, "type": kind, "param": None, "code": failed.code}
    error["retryable"] = failed.retryable
    if choice is not None:
        error["choice"] = choice.get("index", 0)
    return {"error": error}


def host_error(error: Any) -> Failed:
    """The error that a host told itself."""
    details = error if isinstance(error, dict) else {"message": error}
    words = (details.get("code"), details.get("type"))
    code = next((word for word in words if word and isinstance(word, (str, int))), "upstream_error")
    final = code in _FINAL or (isinstance(code, int) and 400 <= code < 500 and code not in (408, 409, 425, 429))
    return Failed(str(code), str(details.get("message") or code), details.get("retryable") is not False and not final)
