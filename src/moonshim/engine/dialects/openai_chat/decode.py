"""The chunks of a Chat stream, or one whole Chat response -> what the host says, choice by choice."""

from __future__ import annotations

import re
from types import NoneType
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from moonshim.engine.dialects.openai_chat.delta import read_content, read_index, read_pieces, read_thinking
from moonshim.engine.dialects.openai_chat.reasoning import REASONING_FIELDS, ReasoningReader
from moonshim.engine.dialects.openai_chat.usage import ChatUsageReader
from moonshim.engine.grammar.protocol import Channel, Notice
from moonshim.engine.upstream_events import (
    ChoiceSelected,
    FinishReported,
    LogprobsReported,
    OnlyText,
    ResponseStarted,
    StreamEnded,
    TextDelta,
    ToolCallEnded,
    UnknownFields,
    UnknownPayload,
    UpstreamEvent,
    UpstreamFailed,
)
from moonshim.engine.values.events import CallPiece, Failed
from moonshim.engine.wire.json_codec import encode

__all__ = ["ChatDecoder", "decode_response", "error_in", "host_error"]

Json: TypeAlias = dict[str, Any]

_DETAIL_LENGTH: Final = 200
_MARKER: Final = re.compile(r"<\|(?:tool_call(?:(s_section_begin|_section_begin|_begin))?|(open|close))")
_CHANNELS: Final[dict[str, Channel]] = {"content": "text", "reasoning_content": "reasoning", "reasoning": "reasoning"}
_KNOWN: Final = frozenset(
    {"role", "content", "tool_calls", "function_call", "refusal", "finish_reason", "name", *REASONING_FIELDS}
)
"""The fields of a delta that are read, or that say nothing beside the text."""
_READABLE: Final[dict[str, Any]] = {
    "reasoning_content": (str, NoneType),
    "reasoning": (str, NoneType),
    "reasoning_details": (list, NoneType),
}
"""What a field of reasoning has to be."""
_NOT_RETRYABLE: Final = frozenset(
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
"""Errors of hosts that sending the request again does not help."""


class ChatDecoder:
    """Reads the chunks of one stream."""

    reads_alike: Final = True

    def __init__(self) -> None:
        self._began = False
        self._usage = ChatUsageReader()
        self._reasoning: dict[int, ReasoningReader] = {}
        self._reported: set[tuple[int, str]] = set()
        """What was wrong with the shape of a choice, each reported once."""

    def feed(self, payload: Json) -> list[UpstreamEvent]:
        """What this chunk says. What is no chunk is `UnknownPayload`."""
        if self._began and (text := self._only_content(payload)):
            return [TextDelta("text", text)]
        error = error_in(payload)
        if error is not None:
            return [*self.flush(), *_read_error(error, wrapped=error is not payload)]
        choices = payload.get("choices")
        if not isinstance(choices, list):
            usage = self._usage.read(payload)
            if choices is None and isinstance(payload.get("usage"), dict):
                # OpenAI's clients iterate over the list in every chunk, and fail where there is none.
                return [*usage, Notice("choices_missing", "a usage chunk")]
            return [*usage, UnknownPayload(payload, detail=", ".join(map(str, payload))[:_DETAIL_LENGTH])]
        counts = payload.get("usage") is not None
        for choice in choices:
            if not isinstance(choice, dict) or ("message" in choice and "delta" not in choice):
                return [UnknownPayload(payload, detail="a choice without a delta")]
            counts = counts or choice.get("usage") is not None
        out: list[UpstreamEvent] = []
        if not self._began:
            self._began = True
            out.append(_start(payload))
        if counts:
            out += self._usage.read(payload)
        for place, choice in enumerate(choices):
            self._read_choice(choice, place, out)
        return out

    def flush(self) -> list[UpstreamEvent]:
        """The input is over."""
        out: list[UpstreamEvent] = []
        for index, reader in self._reasoning.items():
            if reader.is_open:
                out += [ChoiceSelected(index), *reader.close()]
        return out

    def only_text(self, payload: Json) -> OnlyText | None:
        """Where the text is, if that is all in this chunk, and the next one like it would be read the same way."""
        choices = payload.get("choices")
        if type(choices) is not list or len(choices) != 1 or payload.get("usage") is not None or payload.get("error"):
            return None
        choice = choices[0]
        delta = choice.get("delta") if type(choice) is dict else None
        if type(delta) is not dict or choice.get("finish_reason") or choice.get("usage") is not None:
            return None
        if choice.get("logprobs"):
            return None
        if type(choice.get("index")) is not int or choice["index"] != 0:
            return None
        if delta.get("role") or (not delta.keys() <= _KNOWN and self._unknown(delta, 0) is not None):
            return None
        return _only_text(delta)

    def _only_content(self, payload: Json) -> str | None:
        """The content of a chunk that contains nothing else, as nearly all chunks of a response do."""
        choices = payload.get("choices")
        if type(choices) is not list or len(choices) != 1 or payload.get("usage") is not None or payload.get("error"):
            return None
        choice = choices[0]
        delta = choice.get("delta") if type(choice) is dict else None
        if type(delta) is not dict or len(delta) != 1 or choice.get("finish_reason") or choice.get("usage"):
            return None
        if choice.get("logprobs"):
            return None
        content, index = delta.get("content"), choice.get("index")
        if type(content) is not str or type(index) is not int or index:
            return None
        reader = self._reasoning.get(0)
        return content if reader is None or not reader.is_open else None

    def _read_choice(self, choice: Json, place: int, out: list[UpstreamEvent]) -> None:
        index, delta, odd = choice.get("index"), choice.get("delta"), ""
        if type(index) is not int:
            odd = f"index: {index} "
            index = read_index(index)
            index = place if index is None else index
        out.append(ChoiceSelected(index))
        if not isinstance(delta, dict):
            odd, delta = f"{odd}delta: {delta}", {}
            if isinstance(choice.get("text"), str):
                delta["content"] = choice["text"]
        if odd and (index, odd) not in self._reported:
            self._reported.add((index, odd))
            out.append(Notice("choice_shape", odd))
        raw = choice.get("finish_reason")
        if not raw and delta.get("finish_reason"):
            raw = delta["finish_reason"]
            out.append(Notice("finish_reason", "moved from the delta to the choice"))
        raw = raw if isinstance(raw, str) and raw else None
        self._read_delta(delta, index, out, over=raw is not None)
        out += _read_logprobs(choice)
        if raw is not None:
            out.append(FinishReported(raw, raw))

    def _read_delta(self, delta: Json, index: int, out: list[UpstreamEvent], *, over: bool) -> None:
        """Reasoning, content and calls of a delta, or of a whole message, in this order."""
        reader = self._reasoning.get(index)
        if "reasoning_content" in delta or "reasoning" in delta or "reasoning_details" in delta:
            if reader is None:
                reader = self._reasoning[index] = ReasoningReader()
            out += reader.read(delta)
        content, entries = delta.get("content"), delta.get("tool_calls")
        if isinstance(content, str):
            text = content
        elif content or isinstance(content, list):
            out.append(Notice("content_shape", _shortened(content)))
            text = read_content(content)
            if thinking := read_thinking(content):
                out.append(TextDelta("reasoning", thinking))
        else:
            text = ""
        if not text and isinstance(delta.get("refusal"), str):
            text = delta["refusal"]
        pieces = read_pieces(entries) if entries else []
        if entries and (not isinstance(entries, list) or len(pieces) != len(entries)):
            out.append(Notice("tool_delta", f"an entry that is not an object: {_shortened(entries)}"))
        if "function_call" in delta and not entries:
            pieces += _read_function_call(delta["function_call"])
        if reader is not None and reader.is_open and (text or pieces or over):
            out += reader.close()
        if text:
            out.append(TextDelta("text", text))
        out += pieces
        unknown = None if _is_known(delta, text) else self._unknown(delta, index)
        if unknown is not None:
            self._reported |= {(index, name) for name in unknown}
            out.append(UnknownFields(unknown))

    def _unknown(self, delta: Json, index: int) -> Json | None:
        """The fields of a delta that are not read, contain something, and were not reported yet."""
        fields = {
            name: value
            for name, value in delta.items()
            if (name not in _KNOWN or not isinstance(value, _READABLE.get(name, object)))
            and value
            and (index, name) not in self._reported
        }
        if delta.get("content") and delta.get("refusal") and (index, "refusal") not in self._reported:
            fields["refusal"] = delta["refusal"]
        return fields or None


def _is_known(delta: Json, text: str) -> bool:
    """Whether all that is in a delta was read."""
    if not delta.keys() <= _KNOWN or (text and delta.get("refusal") not in (None, "", text)):
        return False
    return all(name not in delta or isinstance(delta[name], kind) for name, kind in _READABLE.items())


def _only_text(delta: Json) -> OnlyText | None:
    """The only one of the fields of a delta that contains something, if it is one string."""
    filled = [name for name, value in delta.items() if value and name in _KNOWN]
    if len(filled) != 1:
        return None
    (field,) = filled
    if field == "tool_calls":
        entries = delta[field]
        pieces = read_pieces(entries)
        piece = pieces[0] if len(pieces) == 1 and len(entries) == 1 else None
        if piece is None or piece.index is None or not piece.arguments:
            return None
        if piece.odd or piece.id or piece.name or piece.extras:
            return None
        return OnlyText(("choices", 0, "delta", "tool_calls", 0, "function", "arguments"), index=piece.index)
    if field not in _CHANNELS or type(delta[field]) is not str:
        return None  # the entries of `reasoning_details`, for one, are collected over all chunks
    return OnlyText(("choices", 0, "delta", field), _CHANNELS[field])


def _read_function_call(call: Any) -> list[CallPiece]:
    """The one call of a delta in the form that `tool_calls` has replaced."""
    if not isinstance(call, dict):
        return []
    return [replace(piece, odd="function_call", is_unlisted=True) for piece in read_pieces([{"function": call}])]


def _shortened(value: Any) -> str:
    try:
        return encode(value).decode()[:_DETAIL_LENGTH]
    except RecursionError:
        return type(value).__name__


def error_in(payload: Json) -> Any:
    """The error in a payload, in the shape of OpenAI, of older vLLM servers, or of SiliconFlow; else None."""
    if payload.get("error"):
        return payload["error"]
    is_error = payload.get("object") == "error" or "code" in payload
    return payload if is_error and "choices" not in payload and isinstance(payload.get("message"), str) else None


def _read_error(error: Any, *, wrapped: bool) -> list[UpstreamEvent]:
    failed = host_error(error)
    if not isinstance(error, dict) or not wrapped:
        # OpenAI's clients raise only an object under `error`.
        return [Notice("error_shape", failed.message), UpstreamFailed(failed)]
    choice = error.get("choice")
    return [UpstreamFailed(failed, choice if isinstance(choice, int) else None)]


def host_error(error: Any) -> Failed:
    """The error that a host reports itself."""
    details = error if isinstance(error, dict) else {"message": error}
    words = (details.get("code"), details.get("type"))
    code = next((word for word in words if word and isinstance(word, (str, int))), "upstream_error")
    final = code in _NOT_RETRYABLE or (isinstance(code, int) and 400 <= code < 500 and code not in (408, 409, 425, 429))
    return Failed(str(code), str(details.get("message") or code), details.get("retryable") is not False and not final)


def decode_response(body: Json) -> list[UpstreamEvent]:
    """What a whole response says, as a stream of one chunk would."""
    error = error_in(body)
    if error is not None:
        return _read_error(error, wrapped=error is not body)
    choices = body.get("choices")
    if not isinstance(choices, list):
        return [UnknownPayload(body, detail=", ".join(map(str, body))[:_DETAIL_LENGTH])]
    decoder = ChatDecoder()
    out: list[UpstreamEvent] = [_start(body), *decoder._usage.read(body)]
    if not any(isinstance(one, dict) and isinstance(one.get("message"), dict) for one in choices):
        detail = f"a choice without a message: {_shortened(choices)}"
        return [*out, UnknownPayload(body, known=not choices, detail=detail)]
    for place, choice in enumerate(choices):
        message = choice.get("message") if isinstance(choice, dict) else None
        if not isinstance(message, dict):
            out.append(Notice("not_a_chunk", f"a choice without a message: {_shortened(choice)}"))
            continue
        out.append(ChoiceSelected(place))
        read: list[UpstreamEvent] = []
        decoder._read_delta(message, place, read, over=True)
        if (marker := _MARKER.search(str(message.get("content")))) and not (marker[1] or marker[2]):
            # Text whose first marker opens nothing is what a parser left of calls: it came after them.
            read.sort(key=lambda event: isinstance(event, TextDelta) and event.channel == "text")
        number = 0
        for event in read:
            if isinstance(event, CallPiece):
                # In a whole message an entry needs no index.
                event = replace(event, index=number, odd="" if "index" in event.odd else event.odd)
                number += 1
            out.append(event)
        out += [ToolCallEnded(one) for one in range(number)]
        out += _read_logprobs(choice)
        raw = choice.get("finish_reason")
        raw = raw if isinstance(raw, str) and raw else None
        out.append(FinishReported(raw, raw))
    return [*out, StreamEnded()]


def _read_logprobs(choice: Json) -> list[UpstreamEvent]:
    logprobs = choice.get("logprobs")
    return [LogprobsReported(logprobs)] if isinstance(logprobs, dict) and logprobs else []


def _start(payload: Json) -> ResponseStarted:
    id, model, created = payload.get("id"), payload.get("model"), payload.get("created")
    return ResponseStarted(
        id if isinstance(id, str) and id else None,
        model if isinstance(model, str) else None,
        created if isinstance(created, int) else None,
    )
