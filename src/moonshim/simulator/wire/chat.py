"""A response -> Chat Completions: the chunks of a stream and their frames, or one object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from moonshim.engine.wire.json_codec import encode
from moonshim.simulator.request import Json
from moonshim.simulator.response import HostResponse, NativeCall, TokenTotals
from moonshim.simulator.wire.chunking import pieces

__all__ = ["DONE", "chat_chunks", "chat_frames", "chat_whole", "usage_of"]

DONE: Final = b"data: [DONE]\n\n"


def chat_chunks(answer: HostResponse) -> list[Json]:
    """Role, reasoning, text, calls (a header, then arguments), the finish, and the usage if requested."""
    deltas = [{"role": "assistant", "content": ""}, *_reasoning_deltas(answer)]
    deltas += [{"content": piece} for piece in pieces(answer.text, answer.cut)]
    for index, call in enumerate(answer.calls):
        deltas += [{"tool_calls": [entry]} for entry in _call_entries(index, call, answer)]
    chunks = [_chunk(answer, {"index": 0, "delta": delta, "finish_reason": None}) for delta in deltas]
    finish: Json = {"index": 0, "delta": {}, "finish_reason": answer.finish}
    usage = usage_of(answer.tally, answer.usage_in)
    if "choice" in answer.usage_in:
        finish["usage"] = usage
    chunks.append(_chunk(answer, finish))
    if "last" in answer.usage_in and answer.request.wants_usage:
        chunks.append(_head(answer, "chat.completion.chunk") | {"choices": [], "usage": usage})
    return chunks


def chat_frames(chunks: Iterable[Json]) -> list[bytes]:
    r"""
    >>> chat_frames([{"choices": []}])
    [b'data: {"choices":[]}\n\n', b'data: [DONE]\n\n']
    """
    return [*(b"data: " + encode(chunk) + b"\n\n" for chunk in chunks), DONE]


def chat_whole(answer: HostResponse) -> Json:
    """The same as one object."""
    message: Json = {"role": "assistant", "content": answer.text}
    if answer.reasoning:
        message |= _whole_reasoning(answer)
    if answer.calls:
        message["tool_calls"] = [
            {"index": index, "id": call.id, "type": "function", "function": _function(call)}
            for index, call in enumerate(answer.calls)
        ]
    choice = {"index": 0, "message": message, "finish_reason": answer.finish}
    usage = usage_of(answer.tally, answer.usage_in)
    return _head(answer, "chat.completion") | {"choices": [choice], "usage": usage}


def usage_of(tally: TokenTotals, places: tuple[str, ...]) -> Json:
    """
    >>> usage_of(TokenTotals(10, 4, 3, 1), ("cached_tokens",))
    {'prompt_tokens': 10, 'completion_tokens': 3, 'total_tokens': 13, 'cached_tokens': 4}
    """
    total = tally.prompt + tally.completion
    usage: Json = {"prompt_tokens": tally.prompt, "completion_tokens": tally.completion, "total_tokens": total}
    if "cached_tokens" in places:
        usage["cached_tokens"] = tally.cached
    if "details" in places:
        usage["prompt_tokens_details"] = {"cached_tokens": tally.cached}
        if tally.written is not None:
            usage["prompt_tokens_details"]["cache_write_tokens"] = tally.written
        if tally.reasoning:
            usage["completion_tokens_details"] = {"reasoning_tokens": tally.reasoning}
    return usage


def _head(answer: HostResponse, kind: str) -> Json:
    return {"id": answer.id, "object": kind, "created": answer.created, "model": answer.model}


def _chunk(answer: HostResponse, choice: Json) -> Json:
    return _head(answer, "chat.completion.chunk") | {"choices": [choice]}


def _function(call: NativeCall) -> Json:
    return {"name": call.name, "arguments": call.arguments}


def _call_entries(index: int, call: NativeCall, answer: HostResponse) -> Iterator[Json]:
    yield {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
    for piece in pieces(call.arguments, answer.cut):
        yield {"index": index, "function": {"arguments": piece}}


# -- reasoning, in the field of the host -----------------------------------------------------------------------------


def _text_details(text: str) -> Json:
    """OpenRouter's form, which sends everything twice."""
    return {"reasoning": text, "reasoning_details": [{"type": "reasoning.text", "text": text, "index": 0}]}


def _summary_details(text: str) -> Json:
    return {"reasoning_details": [{"index": 0, "type": "summary", "summary": text}]}


_DELTAS: Final[dict[str, Callable[[str], Json]]] = {
    "reasoning_details": _text_details,
    "reasoning_summary": _summary_details,
}


def _reasoning_fields(field: str, text: str) -> Json:
    return _DELTAS[field](text) if field in _DELTAS else {field: text}


def _reasoning_deltas(answer: HostResponse) -> list[Json]:
    field = answer.reasoning_field
    deltas = [_reasoning_fields(field, piece) for piece in pieces(answer.reasoning, answer.cut)]
    if deltas and field == "reasoning_summary" and answer.signature:
        deltas.append({"reasoning_details": [_encrypted_entry(answer)]})
    return deltas


def _encrypted_entry(answer: HostResponse) -> dict[str, Any]:
    return {"index": 1, "type": "encrypted", "encrypted": answer.signature}


def _whole_reasoning(answer: HostResponse) -> Json:
    field = answer.reasoning_field
    written = _reasoning_fields(field, answer.reasoning)
    if field == "reasoning_summary":
        entries = [*written["reasoning_details"], *([_encrypted_entry(answer)] if answer.signature else [])]
        # Only a stream numbers them.
        written = {"reasoning_details": [{k: v for k, v in entry.items() if k != "index"} for entry in entries]}
    return written
