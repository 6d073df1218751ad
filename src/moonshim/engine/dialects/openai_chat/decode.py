"""The chunks of a Chat stream, or one whole Chat response, become what the host says.

Only the first choice is read: no other dialect can tell of several.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from moonshim.engine.dialects.openai_chat.delta import only_text, read_index, read_pieces, read_speech, reasoning_fields
from moonshim.engine.dialects.openai_chat.patch import host_error
from moonshim.engine.dialects.openai_chat.usage import told_usage
from moonshim.engine.upstream_events import (
    FinishReported,
    OnlyText,
    ResponseStarted,
    SignatureReported,
    StreamEnded,
    TextDelta,
    ToolCallEnded,
    UnknownPayload,
    UpstreamEvent,
    UpstreamFailed,
    UsageReported,
)
from moonshim.engine.values.conversation import Usage, token_count

__all__ = ["ChatDecoder", "ReasoningReader", "decode_response", "error_in", "read_usage"]

Json: TypeAlias = dict[str, Any]

_USUAL: Final = "reasoning_content"
_GROWING: Final = ("text", "summary", "data", "encrypted")


class ChatDecoder:
    """Reads the chunks of one stream."""

    def __init__(self) -> None:
        self._began = False
        self._reasoning = ReasoningReader()

    def feed(self, payload: Json) -> list[UpstreamEvent]:
        """What this chunk says. What is no chunk is `UnknownPayload`."""
        if self._began and not self._reasoning.is_open and (said := _only_content(payload)):
            return [TextDelta("text", said)]
        error = error_in(payload)
        if error is not None:
            return [*self._reasoning.close(), UpstreamFailed(host_error(error))]
        choices, usage = payload.get("choices"), read_usage(payload)
        out: list[UpstreamEvent] = [] if usage is None else [UsageReported(usage)]
        if not isinstance(choices, list):
            return out or [UnknownPayload(payload)]
        if not self._began:
            self._began = True
            out.insert(0, _began(payload))
        for choice in choices:
            if not isinstance(choice, dict):
                out.append(UnknownPayload(payload))
            elif (read_index(choice.get("index")) or 0) == 0:
                out += self._choice(choice, choice.get("delta"))
            else:
                out.append(UnknownPayload({"choices": [choice]}))
        return out

    def flush(self) -> list[UpstreamEvent]:
        """The input is over."""
        return [*self._reasoning.close()]

    def only_text(self, payload: Json) -> OnlyText | None:
        """Where the text stands, if that is all this chunk says, and its like would be read as this was."""
        only = only_text(payload)
        if only is None or error_in(payload) is not None:
            return None
        choice = payload["choices"][0]
        delta = choice["delta"]
        refusal = delta.get("refusal") and only.channel != "text"  # which is text: then one text is not all
        return None if refusal or (read_index(choice.get("index")) or 0) != 0 else only

    def _choice(self, choice: Json, delta: Any) -> list[UpstreamEvent]:
        delta = delta if isinstance(delta, dict) else {}
        speech = read_speech(delta)
        reasoning = "" if self._reasoning.repeats(delta) else speech.reasoning
        out: list[UpstreamEvent] = [TextDelta("reasoning", reasoning)] if reasoning else []
        self._reasoning.feed(delta, reasoning)
        pieces = read_pieces(delta.get("tool_calls"))
        raw = choice.get("finish_reason") or delta.get("finish_reason")
        raw = raw if isinstance(raw, str) and raw else None
        refusal = delta.get("refusal")
        content = speech.content or (refusal if isinstance(refusal, str) else "")
        if content or pieces or raw is not None:
            out += self._reasoning.close()
        if content:
            out.append(TextDelta("text", content))
        out += pieces
        if raw is not None:
            out.append(FinishReported(raw, raw))
        return out


def error_in(payload: Json) -> Any:
    """The error that a payload tells, in the shape of OpenAI, of older vLLM servers, or of SiliconFlow; else None."""
    if payload.get("error"):
        return payload["error"]
    tells = payload.get("object") == "error" or "code" in payload
    return payload if tells and "choices" not in payload and isinstance(payload.get("message"), str) else None


def _only_content(payload: Json) -> str | None:
    """The content of a chunk that says nothing else, as nearly all chunks of an answer do."""
    choices = payload.get("choices")
    if type(choices) is not list or len(choices) != 1 or payload.get("usage") or payload.get("error"):
        return None
    choice = choices[0]
    delta = choice.get("delta") if type(choice) is dict else None
    if type(delta) is not dict or len(delta) != 1 or choice.get("index") or choice.get("finish_reason"):
        return None
    content = delta.get("content")
    return content if type(content) is str and "usage" not in choice else None


class ReasoningReader:
    """Follows the reasoning of one answer: its field, and the entries that the host wants back."""

    def __init__(self) -> None:
        self.field: str | None = None
        """The field that the host told its reasoning in first; None: none yet, or in copies."""
        self._named = False
        self._details: dict[Any, Json] = {}
        self._pieces: dict[tuple[Any, str], list[str]] = {}
        """The growing texts of entries: adding up strings piece by piece is not linear."""
        self._open = False

    @property
    def is_open(self) -> bool:
        """Whether something has to be told of it when something else begins."""
        return self._open or self.has_details

    @property
    def has_details(self) -> bool:
        """Whether there are entries that have not been told yet."""
        return bool(self._details)

    def repeats(self, delta: Mapping[str, Any]) -> bool:
        """Whether the text of this delta's entries was told before in a field of its own.

        Hosts use one field, or copies in every chunk. Only an answer that was whole once, cut into a stream by a
        gateway, has its text first and the entries with that text after it.
        """
        told_apart = self._open and self.field in ("reasoning_content", "reasoning")
        return told_apart and reasoning_fields(delta) == ("reasoning_details",)

    def feed(self, delta: Mapping[str, Any], text: str) -> None:
        """A delta came, or a whole message, whose reasoning is this text."""
        details = delta.get("reasoning_details")
        for one in details if isinstance(details, list) else ():
            if isinstance(one, dict):
                self._add(one)
        if text and not self._named:
            self._named = True
            fields = reasoning_fields(delta)
            self.field = None if fields[0] == _USUAL and len(fields) > 1 else fields[0]
        self._open = self._open or bool(text)

    def close(self) -> list[SignatureReported]:
        """The reasoning is over, as far as one can tell: something else begins."""
        for (key, name), pieces in self._pieces.items():
            self._details[key][name] = "".join(pieces)
        details = _wanted_back(self._details.values())
        # Without a text there is no other field that the host would know again.
        field = self.field if self._open else "reasoning_details" if details else None
        self._details, self._pieces, self._open = {}, {}, False
        return [SignatureReported(None, details, field)] if details or field else []

    def _add(self, entry: Json) -> None:
        """Entries grow piece by piece under their streaming index, which must not go back to the host."""
        key = entry.get("index", len(self._details))
        key = key if isinstance(key, (int, str)) else str(key)
        known = self._details.setdefault(key, {})
        for name, value in entry.items():
            if name in _GROWING and isinstance(value, str):
                self._pieces.setdefault((key, name), []).append(value)
                value = ""
            if name != "index":
                known[name] = value


def _wanted_back(entries: Iterable[Json]) -> tuple[Json, ...]:
    """What has to go back to the host beside the text, which is told (and mended) by itself.

    A signed entry stays whole. Of those that only carry text, the first one's form is
    kept, and nothing at all when that is the usual one.
    """
    out: list[Json] = []
    formed = False
    for entry in entries:
        if entry.get("signature") or not {"text", "summary"} & entry.keys():
            out.append(entry)
        elif not formed:
            formed = True
            form = {name: value for name, value in entry.items() if name not in ("text", "summary")}
            out += [form] if form.get("type") != "reasoning.text" else []
    return tuple(out)


def decode_response(body: Json) -> list[UpstreamEvent]:
    """What a whole response says, as a stream of one chunk would."""
    error = error_in(body)
    if error is not None:
        return [UpstreamFailed(host_error(error))]
    choices, usage = body.get("choices"), read_usage(body)
    out: list[UpstreamEvent] = [_began(body)]
    if usage is not None:
        out.append(UsageReported(usage))
    first = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(first, dict) or not isinstance(first.get("message"), dict):
        return [*out, UnknownPayload(body)]
    message = first["message"]
    entries = message.get("tool_calls")
    numbered = [
        {**one, "index": place}
        for place, one in enumerate(entries if isinstance(entries, list) else ())
        if isinstance(one, dict)
    ]
    heard = ChatDecoder()._choice(first, {**message, "tool_calls": numbered})
    ends = [one for one in heard if isinstance(one, FinishReported)] or [FinishReported(None)]
    out += [one for one in heard if not isinstance(one, FinishReported)]
    out += [ToolCallEnded(place) for place in range(len(numbered))]
    return [*out, *ends, StreamEnded()]


def _began(payload: Json) -> ResponseStarted:
    id, model, created = payload.get("id"), payload.get("model"), payload.get("created")
    return ResponseStarted(
        id if isinstance(id, str) and id else None,
        model if isinstance(model, str) else None,
        created if isinstance(created, int) else None,
    )


def read_usage(payload: Json) -> Usage | None:
    """The usage of a chunk or a response, at its top or in its first choice; None where nothing is told."""
    raw = told_usage(payload)
    if raw is None:
        return None
    prompt, answer = raw.get("prompt_tokens_details"), raw.get("completion_tokens_details")
    cached = raw.get("cached_tokens")
    if isinstance(prompt, dict) and isinstance(prompt.get("cached_tokens"), int):
        cached = prompt["cached_tokens"]
    thought = answer.get("reasoning_tokens") if isinstance(answer, dict) else None
    return Usage(
        input_tokens=token_count(raw.get("prompt_tokens")),
        output_tokens=token_count(raw.get("completion_tokens")),
        cached_tokens=token_count(cached),
        reasoning_tokens=token_count(thought),
        raw=raw,
    )
