"""The events of a Messages stream, or one whole message, become what the host says.

Kimi's own endpoints and the proxies before them bend the protocol; all of this is read:
input in the start of a block, in deltas, or in both; a second `content_block_stop`, or one
that carries the signature; `message_start` repeated as a sign of life; `stop_reason` at
either level of `message_delta`, or in the first or the last event; no `message_stop`; events
without their `type`; deltas of blocks that never began.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from moonshim.engine.dialects.anthropic.errors import NOT_RETRYABLE
from moonshim.engine.dialects.anthropic.input_json import InputText
from moonshim.engine.dialects.anthropic.parts import Json, encode_json
from moonshim.engine.dialects.anthropic.stop_reasons import FINISH_REASONS
from moonshim.engine.dialects.anthropic.usage import UsageReader
from moonshim.engine.grammar.protocol import Channel, Notice
from moonshim.engine.upstream_events import (
    BlockEnded,
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
from moonshim.engine.values.events import CallPiece, Failed

__all__ = ["MessagesDecoder", "decode_response"]

_DELTA_FIELDS: Final = {
    "text": "text_delta",
    "thinking": "thinking_delta",
    "partial_json": "input_json_delta",
    "signature": "signature_delta",
}
_SPEECH: Final[dict[str, Channel]] = {"text": "text", "thinking": "reasoning"}


class _Block:
    """One block of the answer, as far as it was told."""

    __slots__ = ("call", "kind", "open", "said", "signature", "stopped", "text", "wire_id")

    def __init__(self, kind: str, wire_id: str | None = None) -> None:
        self.kind = kind
        self.wire_id = wire_id
        self.open = True
        self.stopped = False
        """Its stop came. A call without any input is still open then: the model may have been cut off before it."""
        self.said = False
        self.signature: str | None = None
        self.call = -1
        self.text = InputText(None)


class MessagesDecoder:
    """Reads the events of one stream. Never raises: what cannot be read is `UnknownPayload`."""

    reads_alike: Final = False

    def __init__(self) -> None:
        self._usage = UsageReader()
        self._blocks: dict[int, _Block] = {}
        self._unfilled: list[_Block] = []
        """Calls that came to their stop before any input."""
        self._last: int = -1
        self._calls = 0
        self._began = False
        self._first_reason: Any = None
        self._early: list[Any] = []
        self._ended = False
        self._over = False
        self._cited = False
        self._signed = SignatureReported()
        self._thinks = False
        self._repeated: set[str] = set()
        """Events that came more than once and were reported."""

    # -- events ----------------------------------------------------------------------

    def feed(self, payload: Json) -> list[UpstreamEvent]:
        """What this event says."""
        kind = payload.get("type")
        handle = _HANDLERS.get(kind if isinstance(kind, str) else _kind_of(payload))
        return [UnknownPayload(payload)] if handle is None else handle(self, payload)

    def flush(self) -> list[UpstreamEvent]:
        """The input is over. A call that was not closed stays open: nobody said that it is whole."""
        out: list[UpstreamEvent] = []
        for block in self._blocks.values():
            if block.call >= 0 and block.open:
                block.open = False
                rest = block.text.finish()
                out += [CallPiece(block.call, arguments=rest)] if rest and rest != "{}" else []
                out += block.text.notices()
        return out

    def only_text(self, payload: Json) -> OnlyText | None:
        """Where the text stands, if this is a delta of speech, or of input that goes out as it comes."""
        delta = _object(payload, "delta")
        block, kind = self._blocks.get(_index(payload, self._last)), delta.get("type")
        if payload.get("type") != "content_block_delta" or block is None or block.kind not in _KNOWN_BLOCKS:
            return None
        match kind:
            case "text_delta" if _text(delta, "text"):
                return OnlyText(("delta", "text"), "text")
            case "thinking_delta" if _text(delta, "thinking"):
                return OnlyText(("delta", "thinking"), "reasoning")
            case "input_json_delta" if _text(delta, "partial_json") and block.call >= 0 and block.text.flows:
                return OnlyText(("delta", "partial_json"), index=block.call)
        return None

    def _message_start(self, payload: Json) -> list[UpstreamEvent]:
        if self._began:
            return self._repeat("message_start")
        message = _object(payload, "message")
        content = message.get("content")
        self._early = content if isinstance(content, list) else []
        self._first_reason = message.get("stop_reason")
        return [self._begin(message)]

    def _begin(self, message: Json) -> ResponseStarted:
        self._began = True
        return ResponseStarted(
            _text(message, "id"), _text(message, "model"), None, self._usage.read(message.get("usage"))
        )

    def _message(self, message: Json) -> list[UpstreamEvent]:
        """A whole message, told as the stream that it would have been."""
        out: list[UpstreamEvent] = [] if self._began else [self._begin(message)]
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        out += self._whole(blocks if isinstance(blocks, list) else [])
        out += self._count(message.get("usage"))
        out += self._end(message.get("stop_reason"), message.get("stop_sequence"))
        return [*out, *self._close()]

    def _whole(self, blocks: list[Any]) -> list[UpstreamEvent]:
        out: list[UpstreamEvent] = []
        for block in blocks:
            index = self._last + 1
            out += self._block_start({"type": "content_block_start", "index": index, "content_block": block})
            call = self._blocks.get(index)
            if call is not None and call.call >= 0 and call.text.is_empty:
                out += self._grow(call, "")  # a whole block has its `{}`, and no deltas
            stop = self._block_stop({"type": "content_block_stop", "index": index})
            out += [one for one in stop if not isinstance(one, UnknownPayload)]
        return out

    def _block_start(self, payload: Json) -> list[UpstreamEvent]:
        given = payload.get("content_block")
        if not isinstance(given, dict):
            return [UnknownPayload(payload)]
        index, kind = _index(payload, self._last + 1), _text(given, "type") or ""
        known, wire_id = self._blocks.get(index), _text(given, "id")
        if known is not None and known.call >= 0 and wire_id and known.wire_id == wire_id:
            return self._repeat("content_block_start")
        out = self._settle()
        self._last = index
        block = self._blocks[index] = _Block(kind, wire_id)
        if kind == "tool_use":
            return [*out, self._open_call(block, wire_id, _text(given, "name"), given.get("input"))]
        if kind == "redacted_thinking":
            return [*out, *self._redacted(given)]
        if kind not in _SPEECH:
            return [*out, UnknownPayload(payload)]
        self._signed = SignatureReported()
        out += self._speak(_SPEECH[kind], given.get(kind), block)
        signature = given.get("signature")
        return out + self._sign(block, signature if isinstance(signature, str) else None, at_once=False)

    def _block_delta(self, payload: Json) -> list[UpstreamEvent]:
        delta, index = _object(payload, "delta"), _index(payload, self._last)
        block, kind = self._blocks.get(index), delta.get("type")
        if not isinstance(kind, str):
            kind = next((name for field, name in _DELTA_FIELDS.items() if field in delta), "")
        if block is not None and block.kind not in _KNOWN_BLOCKS:
            return [UnknownPayload(payload, known=True)]
        if block is None:
            block = self._blocks[index] = _Block("")
            self._last = index
        match kind:
            case "text_delta":
                return self._speak("text", delta.get("text"), block)
            case "thinking_delta":
                return self._speak("reasoning", delta.get("thinking"), block)
            case "signature_delta":
                return self._sign(block, _text(delta, "signature"), at_once=True)
            case "input_json_delta":
                return self._grow(block, delta.get("partial_json"))
            case "citations_delta":
                known, self._cited = self._cited, True
                return [UnknownPayload(payload, known)]
        return [UnknownPayload(payload)]

    def _block_stop(self, payload: Json) -> list[UpstreamEvent]:
        block = self._blocks.get(_index(payload, self._last))
        if block is None:
            return []
        if block.kind not in _KNOWN_BLOCKS:
            return [UnknownPayload(payload, known=True)]
        out = self._repeat("content_block_stop") if block.stopped else []
        if block.kind == "thinking":
            out += self._sign(block, _text(payload, "signature"), at_once=True)
            if block.open and not block.said and block.signature is None:
                # A thought without words is not the same as no thought.
                out.append(SignatureReported())
            elif block.open and block.signature is not None and self._signed.signature != block.signature:
                out.append(self._signed_with(block.signature))
        if block.open and block.said and block.kind in _SPEECH:
            self._thinks = False
            out.append(BlockEnded())
        block.stopped = True
        if block.call >= 0 and block.text.is_empty:
            self._unfilled.append(block)
            return out
        return out + self._close_call(block)

    def _message_delta(self, payload: Json) -> list[UpstreamEvent]:
        delta = _object(payload, "delta")
        usage = payload.get("usage")
        out = self._count(usage or delta.get("usage"))
        reason = delta.get("stop_reason") or payload.get("stop_reason")
        return out + self._end(reason, delta.get("stop_sequence") or payload.get("stop_sequence"))

    def _message_stop(self, payload: Json) -> list[UpstreamEvent]:
        message = _object(payload, "message")
        out = self._count(payload.get("usage") or message.get("usage"))
        reason = payload.get("stop_reason") or message.get("stop_reason") or self._first_reason
        return [*out, *self._end(reason, None), *self._close()]

    def _error(self, payload: Json) -> list[UpstreamEvent]:
        error = payload.get("error")
        given = error if isinstance(error, dict) else {"message": error}
        code, message = _text(given, "type") or "api_error", given.get("message")
        words = message if isinstance(message, str) and message else "The host reported an error."
        return [UpstreamFailed(Failed(code, words, code not in NOT_RETRYABLE))]

    def _ping(self, payload: Json) -> list[UpstreamEvent]:
        return [UnknownPayload(payload, known=True)]

    # -- what they are made of -------------------------------------------------------

    def _speak(self, channel: Channel, text: Any, block: _Block) -> list[UpstreamEvent]:
        if not isinstance(text, str) or not text:
            return []
        block.said = True
        self._thinks = channel == "reasoning"
        return [TextDelta(channel, text)]

    def _sign(self, block: _Block, signature: str | None, *, at_once: bool) -> list[UpstreamEvent]:
        if not signature or signature == block.signature:
            return []
        block.signature = signature
        return [self._signed_with(signature)] if at_once else []

    def _signed_with(self, signature: str) -> SignatureReported:
        self._signed = SignatureReported(signature, self._signed.details)
        return self._signed

    def _redacted(self, given: Json) -> list[UpstreamEvent]:
        """A thought of its own, also where the host forgot to end the one before."""
        before: list[UpstreamEvent] = [BlockEnded()] if self._thinks else []
        self._thinks, self._signed = False, SignatureReported()
        return [*before, SignatureReported(None, ({"type": "redacted_thinking", "data": given.get("data")},))]

    def _open_call(self, block: _Block, wire_id: str | None, name: str | None, given: Any) -> CallPiece:
        block.call, block.text = self._calls, InputText(given)
        self._calls += 1
        self._thinks = False
        return CallPiece(block.call, wire_id, name)

    def _grow(self, block: _Block, partial: Any) -> list[UpstreamEvent]:
        out: list[UpstreamEvent] = []
        if block.call < 0:
            out.append(self._open_call(block, None, None, None))
            block.kind, block.open = "tool_use", True
            if block.stopped:
                self._unfilled.append(block)
        text = partial if isinstance(partial, str) else _written(partial)
        grown = block.text.feed(text)
        return [*out, CallPiece(block.call, arguments=grown)] if grown else out

    def _settle(self) -> list[UpstreamEvent]:
        """The answer goes on: calls that came to their stop without any input are meant to have none."""
        unfilled, self._unfilled = self._unfilled, []
        return [one for block in unfilled for one in self._close_call(block)]

    def _close_call(self, block: _Block, *, cut: bool = False) -> list[UpstreamEvent]:
        was_open, block.open = block.open, False
        if block.call < 0 or not was_open:
            return []
        if cut and block.text.is_empty:
            return []
        rest = block.text.finish()
        closed: list[UpstreamEvent] = [*block.text.notices(), ToolCallEnded(block.call)]
        return [CallPiece(block.call, arguments=rest), *closed] if rest else closed

    def _repeat(self, event: str) -> list[UpstreamEvent]:
        """An event that came before and says nothing new, reported once."""
        known = event in self._repeated
        self._repeated.add(event)
        return [] if known else [Notice("event_repeated", event)]

    def _count(self, usage: Any) -> list[UpstreamEvent]:
        counted = self._usage.read(usage)
        return [] if counted is None else [UsageReported(counted)]

    def _end(self, raw: Any, stop_sequence: Any) -> list[UpstreamEvent]:
        if self._ended or not isinstance(raw, str) or not raw:
            return []
        self._ended = True
        out: list[UpstreamEvent] = []
        if not self._blocks:
            out += self._whole(self._early)
        reason = FINISH_REASONS.get(raw, raw)
        for block in self._blocks.values():
            out += self._close_call(block, cut=reason in _CUT_SHORT)
        stopped = stop_sequence if isinstance(stop_sequence, str) else None
        return [*out, FinishReported(reason, raw, stopped)]

    def _close(self) -> list[UpstreamEvent]:
        if self._over:
            return []
        self._over = True
        return [*self._settle(), *self.flush(), StreamEnded()]


_CUT_SHORT: Final = ("length", "content_filter")
_KNOWN_BLOCKS: Final = frozenset({"", "text", "thinking", "redacted_thinking", "tool_use"})
_HANDLERS: Final[dict[str, Callable[[MessagesDecoder, Json], list[UpstreamEvent]]]] = {
    "message_start": MessagesDecoder._message_start,
    "content_block_start": MessagesDecoder._block_start,
    "content_block_delta": MessagesDecoder._block_delta,
    "content_block_stop": MessagesDecoder._block_stop,
    "message_delta": MessagesDecoder._message_delta,
    "message_stop": MessagesDecoder._message_stop,
    "message": MessagesDecoder._message,
    "error": MessagesDecoder._error,
    "ping": MessagesDecoder._ping,
}


def decode_response(body: Json) -> list[UpstreamEvent]:
    """What a whole message says, as one stream would.

    >>> said = decode_response({"content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn"})
    >>> said[1:]
    [TextDelta(channel='text', text='Hi'), BlockEnded(),
     FinishReported(reason='stop', raw='end_turn', stop_sequence=None), StreamEnded()]
    """
    decoder = MessagesDecoder()
    if body.get("type") == "error" or ("error" in body and "content" not in body):
        return decoder._error(body)
    if "content" not in body:
        return [UnknownPayload(body)]
    return decoder._message(body)


def _kind_of(payload: Json) -> str:
    """Which event this is, where the host leaves its type to the `event:` line."""
    delta = payload.get("delta")
    if "content_block" in payload:
        return "content_block_start"
    if isinstance(delta, dict) and not delta.keys().isdisjoint(("type", *_DELTA_FIELDS)):
        return "content_block_delta"
    if "stop_reason" in payload or (isinstance(delta, dict) and "stop_reason" in delta) or "usage" in payload:
        return "message_delta"
    for key, kind in (("message", "message_start"), ("index", "content_block_stop"), ("error", "error")):
        if key in payload:
            return kind
    return "" if payload else "message_stop"


def _object(payload: Json, key: str) -> Json:
    value = payload.get(key)
    return value if isinstance(value, dict) else {}


def _text(payload: Json, key: str) -> str | None:
    value = payload.get(key)
    return value if isinstance(value, str) else None


def _index(payload: Json, default: int) -> int:
    value = payload.get("index")
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _written(value: Any) -> str:
    try:
        return "" if value is None else encode_json(value)
    except ValueError:
        return ""
