"""The mender: bytes of a stream in, mended bytes of the same framing out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from moonshim.conversation import Message
from moonshim.errors import InvalidInput
from moonshim.events import Failed, Finished, Repaired
from moonshim.glance import ShortWay
from moonshim.json_text import decode_object, encode
from moonshim.mending import ChunkMender, Released
from moonshim.ndjson import NdjsonFramer, render_ndjson
from moonshim.options import KimiOptions
from moonshim.plan import Plan, Tools, plan_for
from moonshim.sse import Frame, SseFramer, render_sse
from moonshim.translating import Translator

__all__ = ["Mender"]

_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]+", re.ASCII)
_EVENT: Final = re.compile(rb"^event: ?([^\n]*)$", re.MULTILINE)


class Mender:
    """Mends one stream while it flows. One object for each response.

    With the `plan` of `prepare_request` the answer comes from the host's dialect and leaves
    in the client's. Without one, both sides speak Chat.

    A frame that needs nothing leaves byte for byte as it came; one that needs a repair
    keeps all its other fields. What can be decided goes out at once.

    >>> mender = Mender(model="kimi-k2.5")
    >>> mender.feed(b'data: {"choices": [{"index": 0, "delta": {"content": "Hi"}}]}\\n\\n')
    b'data: {"choices": [{"index": 0, "delta": {"content": "Hi"}}]}\\n\\n'
    """

    def __init__(
        self,
        *,
        plan: Plan | None = None,
        model: str | None = None,
        tools: Tools | None = None,
        tool_choice: Any = None,
        history: Iterable[Mapping[str, Any] | Message] | None = None,
        options: KimiOptions | None = None,
        framing: Literal["sse", "ndjson"] = "sse",
        collect: bool = True,
    ) -> None:
        if framing not in ("sse", "ndjson"):
            raise InvalidInput(f"framing must be 'sse' or 'ndjson', not {framing!r}", field="framing")
        plan = plan_for(plan=plan, model=model, tools=tools, tool_choice=tool_choice, history=history, options=options)
        self._framer: SseFramer | NdjsonFramer = SseFramer() if framing == "sse" else NdjsonFramer()
        self._client = plan.client if plan.translates else None
        # Nobody reads other dialects than Chat as NDJSON.
        self._is_sse = framing == "sse" or self._client is not None
        self._render_frame = render_sse if self._is_sse else render_ndjson
        self._done = False
        self._faults: set[str] = set()
        self._passed = 0
        self._ended = False
        self._chunks: ChunkMender[Frame] | Translator[Frame]
        self._short: ShortWay | None = None
        if self._client is not None:
            self._chunks = Translator(plan, collect=collect)
        else:
            self._chunks = ChunkMender(plan, collect=collect)
            self._short = ShortWay(self._chunks, self._render_frame)

    def feed(self, data: bytes) -> bytes:
        """More bytes came; the bytes that may leave."""
        short = self._short
        shape = short.shape if short is not None else None
        if (
            short is not None
            and shape is not None
            and type(data) is bytes
            and data.startswith(shape.head)
            and data.endswith(shape.tail)
        ):
            taken = short.take(shape, data)
            if type(taken) is bytes:
                return taken
            if taken is not None:
                out = bytearray()
                self._send(taken, out)  # type: ignore[arg-type]
                return bytes(out)
        data = _as_bytes(data)
        out = bytearray()
        if short is not None:
            short.hand_over()
        for frame in self._framer.feed(data):
            self._take(frame, out)
        if short is not None:
            short.settle(calm=self._framer.idle and not self._done)
        return bytes(out)

    def flush(self) -> bytes:
        """The input is over; the rest. A stream that just ended gets an error event, never a `tool_calls`."""
        out = bytearray()
        if self._short is not None:
            self._short.hand_over()
        for frame in self._framer.flush():
            if not self._is_half(frame):
                self._take(frame, out)
        if isinstance(self._chunks, Translator):
            self._send(self._chunks.end(), out)
        elif not self._done and (self._chunks.saw_chunks or not self._passed):
            self._send(self._chunks.end(), out)
            if self._is_sse and self._chunks.finished:
                self._chunks.log.add(Repaired("missing_done", "[DONE]"), 0)
                out += render_sse(b"[DONE]")
        self._done = True
        if self._short is not None:
            self._short.settle(calm=False)
        return bytes(out)

    @property
    def repairs(self) -> list[Repaired]:
        """What was put right, in order: the first few hundred."""
        return list(self._chunks.log.repairs)

    @property
    def repair_counts(self) -> dict[str, int]:
        """How often each rule acted, all of them counted."""
        return dict(self._chunks.log.counts)

    @property
    def message(self) -> Message:
        """The assembled answer so far (of the first choice); empty with `collect=False`."""
        return self._chunks.message(0)

    def message_of(self, choice: int) -> Message:
        """The assembled answer of another choice (`n > 1`)."""
        return self._chunks.message(choice)

    @property
    def ending(self) -> Finished | Failed | None:
        """How the first choice ended, once it has."""
        return self._chunks.ending(0)

    @property
    def usage(self) -> dict[str, Any] | None:
        """The usage as the host told it."""
        return self._chunks.usage

    def _is_half(self, frame: Frame) -> bool:
        """Whether the input ended inside a chunk: half of one would break the client before it sees the error."""
        if frame.fault != "unterminated" or frame.data is None or not frame.data.lstrip().startswith(b"{"):
            return False
        if decode_object(frame.data) is not None:
            return False
        self._chunks.log.add(Repaired("cut_off_frame", frame.data.decode("utf-8", "replace")), 0)
        return True

    # -- one frame -------------------------------------------------------------------

    def _take(self, frame: Frame, out: bytearray) -> None:
        if frame.fault is not None and frame.fault not in self._faults:
            self._faults.add(frame.fault)
            self._chunks.log.add(Repaired("framing", frame.fault), 0)
        data = frame.data
        if self._done and data is not None and "after_done" not in self._faults:
            self._faults.add("after_done")
            self._chunks.log.add(Repaired("after_done", data[:200].decode("utf-8", "replace")), 0)
        if isinstance(self._chunks, Translator):
            self._translate(self._chunks, frame, out)
        elif data is None or self._done:
            self._send(self._chunks.passing(frame), out)
        elif data.strip() == b"[DONE]":
            if data != b"[DONE]":
                frame = Frame(self._render_frame(b"[DONE]", frame.head), b"[DONE]", frame.head)
            self._send(self._chunks.done(frame), out)
            self._done = True
        else:
            chunk = decode_object(data)
            self._passed += 1
            if chunk is None:
                self._chunks.log.add(Repaired("not_json", data[:200].decode("utf-8", "replace")), 0)
                self._send(self._chunks.passing(frame), out)
            else:
                self._send(self._chunks.feed(chunk, frame), out)
                if self._short is not None:
                    self._short.learn(frame, chunk)

    def _translate(self, translator: Translator[Frame], frame: Frame, out: bytearray) -> None:
        data = frame.data
        if data is None:
            # A comment means the same in every dialect: that somebody is still there.
            if frame.raw.startswith(b":"):
                self._send(translator.passing(frame), out)
            return
        if data.strip() == b"[DONE]":
            self._send(translator.done(None), out)
            self._done = True
            return
        payload = decode_object(data)
        if payload is None:
            translator.log.add(Repaired("not_json", data[:200].decode("utf-8", "replace")), 0)
            return
        found = _EVENT.search(frame.head) if frame.head else None
        event = found[1] if found is not None else None
        if event is not None and "type" not in payload:
            payload = {"type": event.decode("utf-8", "replace"), **payload}
            event = None
        if translator.same_dialect:
            line = _event_line(payload.get("type"))
            frame = frame if event is not None and line == b"event: %b\n" % event else self._named(frame, payload, line)
        self._send(translator.feed(payload, frame), out)

    def _named(self, frame: Frame, payload: dict[str, Any], head: bytes) -> Frame:
        """The frame with its event's name and type, should it leave as it came: clients of Messages go by both."""
        try:
            return Frame(self._render_frame(encode(payload), head), frame.data, head)
        except RecursionError:
            return frame

    def _send(self, released: list[Released[Frame]], out: bytearray) -> None:
        for one in released:
            if one.chunks is None:
                if one.origin is not None:
                    out += one.origin.raw
                continue
            head = one.origin.head if one.origin is not None else b""
            for chunk in one.chunks:
                if self._client is not None and self._client.names_events:
                    head = _event_line(chunk.get("type"))
                try:
                    out += self._render_frame(encode(chunk), head)
                except RecursionError:
                    # Nested too deep to write again: as it came is the best there is.
                    out += one.origin.raw if one.origin is not None else b""
                head = b""
        if isinstance(self._chunks, Translator) and self._chunks.is_over and not self._ended:
            self._ended = True
            if self._client is not None and self._client.done is not None:
                out += render_sse(self._client.done)


def _event_line(kind: object) -> bytes:
    """The line that names an event; none for a name that could be read as something else."""
    if not isinstance(kind, str) or _NAME.fullmatch(kind) is None:
        return b""
    return b"event: %b\n" % kind.encode()


def _as_bytes(data: object) -> bytes:
    if isinstance(data, bytes):
        return data
    if isinstance(data, (bytearray, memoryview)):
        return bytes(data)
    raise InvalidInput(f"feed takes bytes, not {type(data).__name__}", field="data")
