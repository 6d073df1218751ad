"""An answer becomes the events of a Messages stream, or one whole message, as strict clients want them.

One block is open at a time: what belongs to another waits until that is closed. A text block
begins with its first character, so that none is empty. Every thinking block has a signature:
the host's own where that is all there is to keep, otherwise a token of ours. The input of a
call always comes in deltas.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, TypeAlias, assert_never

from msgspec.structs import replace

from moonshim.engine.dialects.anthropic.blocks import LEGAL_ID, REDACTED, parse_input
from moonshim.engine.dialects.anthropic.errors import render_failed
from moonshim.engine.dialects.anthropic.parts import Json
from moonshim.engine.dialects.anthropic.safeguards import write_safeguard_results
from moonshim.engine.dialects.anthropic.searches import write_citation, write_results, write_search
from moonshim.engine.dialects.anthropic.stop_reasons import FINISH_REASONS, STOP_REASONS
from moonshim.engine.dialects.anthropic.usage import write_usage
from moonshim.engine.dialects.protocol import TEXT, ResponseContext, Template
from moonshim.engine.ids.spelling import UniqueIds, add_client_suffix, anthropic_id
from moonshim.engine.signing import SignedPayload, is_signed
from moonshim.engine.values.conversation import Usage
from moonshim.engine.values.events import (
    BlockClosed,
    BlockDelta,
    BlockOpened,
    BlockSigned,
    Event,
    Failed,
    Finished,
    Opaque,
    Repaired,
    Started,
)
from moonshim.engine.values.searches import ClientEvent, SearchEnded, SearchStarted, TextCited
from moonshim.engine.values.tool_calls import walk_calls
from moonshim.engine.values.verdicts import CallsJudged

__all__ = ["MessagesEncoder", "encode_response"]

_OTHER: Final = re.compile(r"[^a-zA-Z0-9_-]")
_OWN_ID: Final = re.compile(r"msg_[a-zA-Z0-9_-]+")
_STARTS: Final[dict[str, Json]] = {
    "text": {"type": "text", "text": ""},
    "reasoning": {"type": "thinking", "thinking": "", "signature": ""},
}
_DELTAS: Final = {
    "text": ("text_delta", "text"),
    "reasoning": ("thinking_delta", "thinking"),
    "call": ("input_json_delta", "partial_json"),
}
_OWN_EVENTS: Final = frozenset({"message_start", "message_delta", "message_stop", "error"})


class _Block:
    """A block that has begun: `number` is its index on the wire, once something of it is there."""

    __slots__ = ("complete", "number", "opened", "said", "signature", "signed")

    def __init__(self, opened: BlockOpened) -> None:
        self.opened = opened
        self.number: int | None = None
        self.said = False
        self.complete = True
        self.signed = BlockSigned(opened.index)
        self.signature: str | None = None


class MessagesEncoder:
    """Writes one answer. Trusts its input: blocks are balanced, and one ending comes last."""

    def __init__(self, reply: ResponseContext) -> None:
        self._reply = reply
        self._id = ""
        self._over = False
        self._count = 0
        self._ids: UniqueIds | None = None
        self._open: _Block | None = None
        self._waiting: dict[int, list[Event]] = {}
        self._foreign: dict[int, int] = {}
        self._foreign_open: int | None = None
        self._suspended: BlockOpened | None = None
        self._searches = 0
        self._call_ids: dict[int, str] = {}
        """The ids that the client has got, by the index of the block."""
        self._judged: CallsJudged | None = None

    def feed(self, event: ClientEvent) -> list[Json]:
        """The payloads that tell this event."""
        if self._over:
            return []
        match event:
            case BlockDelta(index=index) | BlockSigned(index=index) | BlockClosed(index=index):
                return self._in_turn(index, event)
            case BlockOpened(index=index):
                return self._start(Started()) + self._in_turn(index, event)
            case Started():
                return self._start(event)
            case Finished():
                return self._finish(event)
            case Failed():
                self._over = True
                # Clients run a call that is told to have ended: half of one is not.
                half = self._open is not None and self._open.opened.kind == "call"
                return [*([] if half else self._shut()), *self._end_foreign(), render_failed(event)]
            case Opaque(payload=payload):
                return self._pass(payload)
            case Repaired():
                return []
            case SearchStarted():
                return [*self._interrupt(), *self._whole_block(*write_search(event))]
            case SearchEnded(error=error):
                self._searches += error is None
                return [*self._interrupt(), *self._whole_block(write_results(event, self._reply.signer))]
            case TextCited():
                return self._cite(event)
            case CallsJudged():
                self._judged = event
                return []
            case _:
                assert_never(event)

    def template(self, index: int) -> Template | None:
        """How the next piece of this block is told, once something of it was."""
        block = self._open
        if self._over or block is None or block.opened.index != index or not block.said:
            return None
        return Template(_piece(block, TEXT))

    # -- the message -----------------------------------------------------------------

    def _start(self, started: Started) -> list[Json]:
        if self._id:
            return []
        given = started.id or ""
        # Claude Code takes answers of one name for one answer, and hosts of Chat repeat theirs (Ollama has 999).
        named = self._reply.is_named and not _OWN_ID.fullmatch(given)
        self._id = _message_id(self._reply.id if named else given or self._reply.id)
        message: Json = {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._reply.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": write_usage(self._with_input(started.usage)),
        }
        return [{"type": "message_start", "message": message}]

    def _with_input(self, usage: Usage | None) -> Usage | None:
        """Clients show from the start how full the context is: an estimate, where the host has not said it."""
        if self._reply.input_estimate is None or (usage is not None and usage.input_tokens is not None):
            return usage
        return replace(usage or Usage(), input_tokens=self._reply.input_estimate)

    def _finish(self, finished: Finished) -> list[Json]:
        out = self._start(Started()) + self._shut()
        while self._waiting:
            for one in self._waiting.pop(next(iter(self._waiting))):
                out += self._write(one)
            out += self._shut()
        out += self._end_foreign()
        self._over = True
        reason = stop_reason(finished)
        stopped = finished.stop_sequence if reason == "stop_sequence" else None
        delta: Json = {"stop_reason": reason, "stop_sequence": stopped}
        if self._judged is not None:
            delta["safeguard_results"] = write_safeguard_results(self._judged, self._call_ids)
        usage = write_usage(self._with_input(finished.usage))
        if self._searches:
            usage["server_tool_use"] = {"web_search_requests": self._searches}
        ending = {"type": "message_delta", "delta": delta, "usage": usage}
        return [*out, ending, {"type": "message_stop"}]

    # -- blocks, one at a time -------------------------------------------------------

    def _in_turn(self, index: int, event: Event) -> list[Json]:
        if self._open is not None and self._open.opened.index != index:
            self._waiting.setdefault(index, []).append(event)
            return []
        out = self._write(event)
        while self._open is None and self._waiting:
            waited = self._waiting.pop(next(iter(self._waiting)))
            for one in waited:
                out += self._write(one)
        return out

    def _write(self, event: Event) -> list[Json]:
        if isinstance(event, BlockOpened):
            self._open = _Block(event)
            return self._begin(self._open) if event.kind == "call" else []
        if self._suspended is not None and isinstance(event, BlockDelta) and event.index == self._suspended.index:
            # A block of the host's own came between: the text goes on behind it, in a block of its own.
            self._open, self._suspended = _Block(self._suspended), None
        block = self._open
        if block is None:
            return []
        match event:
            case BlockDelta(text=text):
                return self._grow(block, text)
            case BlockSigned():
                return self._sign(block, event)
            case BlockClosed(complete=complete) if block.opened.kind == "call" and not complete:
                # How the answer ends decides whether its end is told; what comes behind it waits.
                block.complete = False
                return []
            case BlockClosed():
                return self._shut()
        return []

    def _begin(self, block: _Block) -> list[Json]:
        if block.number is not None:
            return []
        kind = block.opened.kind
        start = self._tool_use(block.opened) if kind == "call" else dict(_STARTS[kind])
        return [*self._end_foreign(), self._numbered(block, start)]

    def _numbered(self, block: _Block, start: Json) -> Json:
        block.number, self._count = self._count, self._count + 1
        return {"type": "content_block_start", "index": block.number, "content_block": start}

    def _tool_use(self, opened: BlockOpened) -> Json:
        given = opened.call_id or f"toolu_{self._id.removeprefix('msg_')}_{self._count}"
        whole = LEGAL_ID.fullmatch(given) is not None
        wire_id = self._distinct().take(
            lambda mark: add_client_suffix(given, mark) if whole else anthropic_id(given, mark)
        )
        self._call_ids[opened.index] = wire_id
        tool = self._reply.tools.get(opened.name or "")
        name = tool.name if tool is not None else opened.name or ""
        return {"type": "tool_use", "id": wire_id, "name": name, "input": {}}

    def _distinct(self) -> UniqueIds:
        """The identifiers that the client has already, read when there is a call: most answers have none."""
        if self._ids is None:
            self._ids = UniqueIds()
            self._ids.taken.update(seen.id for seen in walk_calls(self._reply.request.messages))
        return self._ids

    def _grow(self, block: _Block, text: str) -> list[Json]:
        kind = block.opened.kind
        if kind == "call" and not block.said:
            # White space alone is no JSON yet, and clients parse what there is.
            text = text.lstrip()
        if not text:
            return []
        block.said = True
        return [*self._begin(block), _piece(block, text)]

    def _sign(self, block: _Block, signed: BlockSigned) -> list[Json]:
        """The host's own signature goes out at once; a token of ours waits for all that it has to hold."""
        before = block.signed
        block.signed = BlockSigned(
            signed.index,
            signed.signature or before.signature,
            signed.details or before.details,
            signed.field or before.field,
        )
        if not _is_enough(block.signed):
            return []
        return [*self._begin(block), *self._signature(block, block.signed.signature or "")]

    def _signature(self, block: _Block, signature: str) -> list[Json]:
        if block.signature == signature:
            return []
        block.signature = signature
        return [_delta(block, {"type": "signature_delta", "signature": signature})]

    def _shut(self) -> list[Json]:
        """Close the open block, with all that it still lacks. For a call that broke off nothing is made up."""
        block, self._open = self._open, None
        if block is None or (block.opened.kind == "text" and not block.said):
            return []
        out: list[Json] = []
        if block.opened.kind == "reasoning":
            redacted = _redacted(block)
            if redacted is not None:
                out = [self._numbered(block, redacted)]
            else:
                out += self._begin(block)
                if not _is_enough(block.signed):
                    out += self._signature(block, self._token(block.signed))
        elif block.opened.kind == "call" and not block.said:
            out.append(_delta(block, {"type": "input_json_delta", "partial_json": "{}" if block.complete else ""}))
        return [*out, {"type": "content_block_stop", "index": block.number}]

    def _token(self, signed: BlockSigned) -> str:
        own = None if is_signed(signed.signature) else signed.signature
        return self._reply.signer.sign(SignedPayload(signature=own, details=signed.details, field=signed.field))

    # -- searches --------------------------------------------------------------------

    def _interrupt(self) -> list[Json]:
        """What is open ends: a block of its own follows."""
        return self._start(Started()) + self._shut() + self._end_foreign()

    def _whole_block(self, block: Json, *deltas: Json) -> list[Json]:
        number, self._count = self._count, self._count + 1
        return [
            {"type": "content_block_start", "index": number, "content_block": block},
            *({"type": "content_block_delta", "index": number, "delta": delta} for delta in deltas),
            {"type": "content_block_stop", "index": number},
        ]

    def _cite(self, cited: TextCited) -> list[Json]:
        block = self._open
        if block is None or block.opened.index != cited.index or block.number is None:
            return []
        return [_delta(block, {"type": "citations_delta", "citation": write_citation(cited, self._reply.signer)})]

    # -- what only Messages hosts say ------------------------------------------------

    def _pass(self, payload: Json) -> list[Json]:
        """A payload of a Messages host that we have no word for, under our own numbers of blocks."""
        kind = payload.get("type")
        if not isinstance(kind, str) or kind in _OWN_EVENTS or "choices" in payload:
            return []
        index = payload.get("index")
        if kind == "content_block_start":
            if self._open is not None and self._open.opened.kind == "call":
                return []
            self._suspended = None if self._open is None else self._open.opened
            out = self._start(Started()) + self._shut() + self._end_foreign()
            number, self._count = self._count, self._count + 1
            self._foreign_open = number
            if isinstance(index, int):
                self._foreign[index] = number
            return [*out, payload | {"index": number}]
        if kind in ("content_block_delta", "content_block_stop"):
            known = self._foreign.get(index) if isinstance(index, int) else None
            if known is not None and known != self._foreign_open:
                return []  # It has ended.
            speaks = self._open is not None and self._open.opened.kind == "text"
            if known is None and kind == "content_block_delta" and speaks and self._open is not None:
                known = self._open.number  # A citation, for the text that is being told.
            if kind == "content_block_stop" and known is not None and known == self._foreign_open:
                self._foreign_open = None
            return [] if known is None else [payload | {"index": known}]
        return [payload]

    def _end_foreign(self) -> list[Json]:
        """A block that only its host knows, and never ended, ends where something else begins."""
        number, self._foreign_open = self._foreign_open, None
        return [] if number is None else [{"type": "content_block_stop", "index": number}]


def stop_reason(finished: Finished) -> str:
    """What a client of Messages is told: the host's own word, where it is one and still true."""
    raw = finished.raw_reason
    if raw is not None and FINISH_REASONS.get(raw) == finished.reason:
        return raw
    if finished.reason == "stop" and finished.stop_sequence is not None:
        return "stop_sequence"
    return STOP_REASONS.get(finished.reason, "end_turn")


def _is_enough(signed: BlockSigned) -> bool:
    """Whether the host's own signature is all that has to come back."""
    return bool(signed.signature) and not is_signed(signed.signature) and not signed.details and signed.field is None


def _redacted(block: _Block) -> Json | None:
    """A block whose thought was not shown at all, as a Messages host says it."""
    signed = block.signed
    if block.number is not None or signed.signature or signed.field is not None or len(signed.details) != 1:
        return None
    detail = signed.details[0]
    return detail if detail.get("type") == REDACTED and isinstance(detail.get("data"), str) else None


def _piece(block: _Block, text: str) -> Json:
    name, field = _DELTAS[block.opened.kind]
    return _delta(block, {"type": name, field: text})


def _delta(block: _Block, delta: Json) -> Json:
    return {"type": "content_block_delta", "index": block.number, "delta": delta}


def _message_id(given: str) -> str:
    """The same for the same.

    >>> _message_id("chatcmpl-1"), _message_id("msg_1")
    ('msg_chatcmpl-1', 'msg_1')
    """
    return given if _OWN_ID.fullmatch(given) else f"msg_{_OTHER.sub('-', given) or 'empty'}"


# --- whole messages ---------------------------------------------------------------------------------------------


def encode_response(events: Sequence[ClientEvent], reply: ResponseContext) -> Json:
    """The whole message that these events tell: what a client would have put together from their stream.

    An answer that failed is an error body.
    """
    encoder, message, grown = MessagesEncoder(reply), Json(), _Grown()
    for payload in (one for event in events for one in encoder.feed(event)):
        match payload["type"]:
            case "message_start":
                message = payload["message"] | {"content": []}
            case "content_block_start":
                block = payload.get("content_block")
                message["content"].append(
                    dict(block) if isinstance(block, dict) else {"type": "unknown", "value": block}
                )
            case "content_block_delta":
                delta = payload["delta"]
                field = next((key for key in delta if key != "type"), "")
                grown.setdefault((payload["index"], field), []).append(delta.get(field))
            case "message_delta":
                message |= payload["delta"] | {"usage": payload["usage"]}
            case "error":
                return payload
    for (index, field), pieces in grown.items():
        message["content"][index] |= _joined(field, pieces)
    return message


_Grown: TypeAlias = dict[tuple[int, str], list[Any]]


def _joined(field: str, pieces: list[Any]) -> Json:
    """What the deltas of one kind make of their block."""
    match field:
        case "partial_json":
            arguments = "".join(pieces)
            given = parse_input(arguments)
            # A client must be able to see that this is not what the model meant to send.
            return {"input": {"raw_arguments": arguments} if given is None else given}
        case "signature":
            return {"signature": pieces[-1]}
        case "text" | "thinking":
            return {field: "".join(pieces)}
        case "citation":
            return {"citations": pieces}
    return {}
