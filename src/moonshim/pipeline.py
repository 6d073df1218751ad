"""The mender: bytes of a stream in, mended bytes of the same framing out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from moonshim.conversation import Message
from moonshim.errors import InvalidInput
from moonshim.events import Failed, Finished, Repaired
from moonshim.glance import ShortWay
from moonshim.json_text import decode_object, encode
from moonshim.mending import ChunkMender, Released
from moonshim.ndjson import NdjsonFramer, render_ndjson
from moonshim.options import KimiOptions
from moonshim.plan import Tools, plan_for
from moonshim.sse import Frame, SseFramer, render_sse

__all__ = ["Mender"]


class Mender:
    """Mends one stream of Chat chunks while it flows. One object for each response.

    A frame that needs nothing leaves byte for byte as it came; one that needs a repair
    keeps all its other fields. What can be decided goes out at once.

    >>> mender = Mender(model="kimi-k2.5")
    >>> mender.feed(b'data: {"choices": [{"index": 0, "delta": {"content": "Hi"}}]}\\n\\n')
    b'data: {"choices": [{"index": 0, "delta": {"content": "Hi"}}]}\\n\\n'
    """

    def __init__(
        self,
        *,
        model: str,
        tools: Tools | None = None,
        tool_choice: Any = None,
        history: Iterable[Mapping[str, Any] | Message] | None = None,
        options: KimiOptions | None = None,
        framing: Literal["sse", "ndjson"] = "sse",
        collect: bool = True,
    ) -> None:
        if framing not in ("sse", "ndjson"):
            raise InvalidInput(f"framing must be 'sse' or 'ndjson', not {framing!r}", field="framing")
        plan = plan_for(model=model, tools=tools, tool_choice=tool_choice, history=history, options=options)
        self._chunks: ChunkMender[Frame] = ChunkMender(plan, collect=collect)
        self._is_sse = framing == "sse"
        self._framer: SseFramer | NdjsonFramer = SseFramer() if self._is_sse else NdjsonFramer()
        self._render_frame = render_sse if self._is_sse else render_ndjson
        self._done = False
        self._faults: set[str] = set()
        self._passed = 0
        self._short = ShortWay(self._chunks, self._render_frame)

    def feed(self, data: bytes) -> bytes:
        """More bytes came; the bytes that may leave."""
        shape = self._short.shape
        if shape is not None and type(data) is bytes and data.startswith(shape.head) and data.endswith(shape.tail):
            taken = self._short.take(shape, data)
            if type(taken) is bytes:
                return taken
            if taken is not None:
                out = bytearray()
                self._send(taken, out)  # type: ignore[arg-type]
                return bytes(out)
        data = _as_bytes(data)
        out = bytearray()
        self._short.hand_over()
        for frame in self._framer.feed(data):
            self._take(frame, out)
        self._short.settle(calm=self._framer.idle and not self._done)
        return bytes(out)

    def flush(self) -> bytes:
        """The input is over; the rest. A stream that just ended gets an error event, never a `tool_calls`."""
        out = bytearray()
        self._short.hand_over()
        for frame in self._framer.flush():
            if not self._is_half(frame):
                self._take(frame, out)
        if not self._done and (self._chunks.saw_chunks or not self._passed):
            self._send(self._chunks.end(), out)
            if self._is_sse and self._chunks.finished:
                self._chunks.log.add(Repaired("missing_done", "[DONE]"), 0)
                out += render_sse(b"[DONE]")
        self._done = True
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
        if data is None or self._done:
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
                self._short.learn(frame, chunk)

    def _send(self, released: list[Released[Frame]], out: bytearray) -> None:
        for one in released:
            if one.chunks is None:
                if one.origin is not None:
                    out += one.origin.raw
                continue
            head = one.origin.head if one.origin is not None else b""
            for chunk in one.chunks:
                try:
                    out += self._render_frame(encode(chunk), head)
                except RecursionError:
                    # Nested too deep to write again: as it came is the best there is.
                    out += one.origin.raw if one.origin is not None else b""
                head = b""


def _as_bytes(data: object) -> bytes:
    if isinstance(data, bytes):
        return data
    if isinstance(data, (bytearray, memoryview)):
        return bytes(data)
    raise InvalidInput(f"feed takes bytes, not {type(data).__name__}", field="data")
