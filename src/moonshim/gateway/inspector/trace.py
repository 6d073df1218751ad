"""What passes through one exchange -> a trace, in memory and bounded: bytes and times, looked at only when asked for.

Recording must cost next to nothing while nobody looks: a chunk is copied to the end of a buffer.
Everything else (frames, repairs, the conversation) is computed by `views` when somebody opens the exchange.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from struct import Struct
from typing import Any, Final

from msgspec.structs import replace

from moonshim.engine.exchange import Exchange, Form
from moonshim.engine.hosts.profile import HostProfile
from moonshim.engine.plan import Plan
from moonshim.engine.values.conversation import Change, Message
from moonshim.engine.values.verdicts import CallToJudge, Verdict
from moonshim.errors import Problem
from moonshim.gateway.inspector.shapes import MessageShape, shape_of
from moonshim.gateway.observe.record import RequestRecord
from moonshim.usage.record import UsageRecord

__all__ = ["ExchangeTrace", "TracedAttempt", "Tracer"]

MEBIBYTE: Final = 1024 * 1024
MAX_TRACES: Final = 2000
MAX_BYTES: Final = 64 * MEBIBYTE
BODY_BYTES: Final = 12 * MEBIBYTE
"""A larger request is not recorded; its metadata is."""
STREAM_BYTES: Final = 24 * MEBIBYTE
"""Of a longer response only the beginning is recorded."""
_STEP: Final = 16 * 1024
"""How often the size of what is recorded is checked, in bytes."""
_MARK: Final = Struct("dii")
"""Of one piece: when it came, its bytes, and the bytes that the client got for it; -1: the same ones."""
_SAME: Final = -1
_CHUNK: Final = _MARK.size
_SHAPE: Final = 120
"""Bytes that the shape of a part takes."""


_pack: Final = _MARK.pack


class TracedAttempt:
    """One request to a host, and what came back."""

    __slots__ = (
        "body",
        "booked",
        "broke",
        "came",
        "changes",
        "connect_seconds",
        "continues",
        "ended",
        "error",
        "error_body",
        "input_format",
        "marks",
        "model",
        "opened",
        "output_format",
        "plan",
        "profile",
        "provider",
        "secrets",
        "started",
        "status",
        "went",
    )

    def __init__(self, provider: str, model: str, started: float, *, continues: bool = False) -> None:
        self.provider, self.model, self.started = provider, model, started
        self.continues = continues
        """The client gets this response in the same stream, after that of the attempt before."""
        self.connect_seconds: float | None = None
        """None: no connection, or one that was open already."""
        self.opened: float | None = None
        """When the status and headers of the response came; times are seconds of a monotonic clock."""
        self.ended: float | None = None
        self.error: str | None = None
        self.broke: Problem | None = None
        """Why its response broke off."""
        self.status: int | None = None
        self.error_body: bytes | None = None
        """What the host sent with an error status."""
        self.body: bytes | None = None
        """As it was sent."""
        self.changes: list[Change] = []
        self.plan: Plan | None = None
        self.profile: HostProfile | None = None
        self.input_format: Form = "json"
        self.output_format: Form = "json"
        self.secrets: tuple[str, ...] = ()
        # Three buffers that grow, instead of objects per piece: those would take new memory each time, which costs
        # more than everything else about recording.
        self.came, self.went = bytearray(), bytearray()
        """What the host sent; what the client got, where that is something else. Empty in privacy mode."""
        self.marks = bytearray()
        self.booked: UsageRecord | None = None
        """Its tokens and cost, or those of the whole stream that it is the last part of."""

    @property
    def has_pieces(self) -> bool:
        """Whether bytes of the response are recorded."""
        return bool(self.came or self.went)

    @property
    def pieces(self) -> list[tuple[float, bytes, bytes]]:
        """(time, from the host, to the client): what came, and what left because of it."""
        # The marks first: a piece that is added meanwhile has no mark yet.
        marks, came, went = bytes(self.marks), bytes(self.came), bytes(self.went)
        pieces: list[tuple[float, bytes, bytes]] = []
        read = written = 0
        for when, size, sent in _MARK.iter_unpack(marks):
            data = came[read : read + size]
            read += size
            if sent != _SAME:
                out = went[written : written + sent]
                written += sent
            pieces.append((when, data, data if sent == _SAME else out))
        return pieces

    @property
    def sizes(self) -> list[tuple[float, int]]:
        """(time, bytes from the host): all that privacy mode records of them."""
        return [(when, size) for when, size, _ in _MARK.iter_unpack(bytes(self.marks))]


class ExchangeTrace:
    """One exchange: its record, the client's request, and the attempts at hosts."""

    __slots__ = (
        "_clock",
        "_current",
        "_full",
        "_private",
        "_size",
        "_tracer",
        "_unreported",
        "attempts",
        "body",
        "dropped",
        "ended",
        "id",
        "record",
        "request_bytes",
        "request_read",
        "shapes",
        "started",
        "truncated",
        "verdicts",
    )

    def __init__(self, tracer: Tracer, number: str, record: RequestRecord, clock: Callable[[], float]) -> None:
        self._tracer, self._clock, self._private = tracer, clock, tracer.private
        self.id, self.record = number, record
        self.started = clock()
        self.request_read: float | None = None
        self.request_bytes = 0
        self.ended: float | None = None
        self.body: bytes | None = None
        self.shapes: list[MessageShape] = []
        """The conversation without its text, in privacy mode."""
        self.attempts: list[TracedAttempt] = []
        self.truncated = False
        self.verdicts: Sequence[tuple[CallToJudge, Verdict]] = ()
        """What the judge said about the calls of the response."""
        self.dropped = False
        """No longer recorded, to make room for others, although it may still run."""
        self._size = self._unreported = 0
        self._full = False
        """Nothing more of the response is recorded."""
        self._current = TracedAttempt("", "", 0.0)

    @property
    def private(self) -> bool:
        return self._private

    @property
    def version(self) -> int:
        """Grows with everything that is added."""
        return sum(1 + len(one.marks) for one in self.attempts) + (self.ended is not None)

    def request(self, pieces: list[bytes]) -> None:
        """The client's request has been read."""
        self.request_read = self._clock()
        self.request_bytes = size = sum(map(len, pieces))
        if self._records(size):
            self.body = b"".join(pieces)
            self._grow(size)

    def conversation(self, messages: Sequence[Message]) -> None:
        """The messages of the request; of them, privacy mode records the shapes."""
        if self._private and not self.dropped:
            self.shapes = [shape_of(message) for message in messages]
            self._grow(_SHAPE * sum(1 + len(one.parts) for one in self.shapes))

    def attempt(self, exchange: Exchange, provider: str, model: str, *, continues: bool = False) -> None:
        """A request is about to be sent to a host."""
        attempt = TracedAttempt(provider, model, self._clock(), continues=continues)
        prepared = exchange.prepared
        attempt.profile = prepared.profile
        attempt.changes = prepared.changes
        if self._private:
            attempt.changes = [replace(one, detail="") for one in prepared.changes]
        elif self.body is not None:
            # A plan holds the conversation, which the attempts share. It takes about as much as the request.
            if not self.attempts:
                self._grow(len(self.body))
            attempt.plan = None if self.dropped else prepared.plan
        self.attempts.append(attempt)
        self._current = attempt
        self._tracer.changed(self)

    def sent(self, exchange: Exchange, body: bytes) -> None:
        """The request to the host, encoded. A second one of the same attempt continues its stream."""
        attempt = self.attempts[-1]
        if attempt.opened is not None:
            attempt.ended = self._clock()
            self.attempt(exchange, attempt.provider, attempt.model, continues=True)
            attempt = self.attempts[-1]
        attempt.secrets = exchange.secrets
        if self._records(len(body)):
            attempt.body = body
            self._grow(len(body))

    def opened(self, exchange: Exchange, connect_seconds: float | None = None) -> None:
        """The host accepted the request; its response follows."""
        attempt = self.attempts[-1]
        attempt.opened, attempt.connect_seconds = self._clock(), connect_seconds
        attempt.status = 200
        attempt.input_format, attempt.output_format = exchange.input_format, exchange.output_format

    def refused(self, status: int, body: bytes) -> None:
        """The host answered with an error status."""
        attempt = self.attempts[-1]
        attempt.status = status
        if self._records(len(body)):
            attempt.error_body = body
            self._grow(len(body))

    def broke(self, problem: Problem, last: bytes) -> None:
        """The response broke off; `last` is what the client was sent then."""
        self.attempts[-1].broke = problem
        self.chunk(b"", last)

    def chunk(self, data: bytes, out: bytes) -> None:
        """Bytes of the host, and the bytes that the client is sent for them."""
        if self._full:
            self.truncated = True
            return
        attempt, size, sent = self._current, len(data), _SAME
        if self._private:
            self._unreported += _CHUNK
        elif data == out:
            attempt.came += data
            self._unreported += size + _CHUNK
        else:
            sent = len(out)
            attempt.came += data
            attempt.went += out
            self._unreported += size + sent + _CHUNK
        attempt.marks += _pack(self._clock(), size, sent)
        if self._unreported > _STEP:
            self._report_size()

    def counted(self, record: RequestRecord, answer: Message) -> None:
        """The tokens of the current attempt are known; `answer` is what came of its response."""
        if record.booking is not None:
            self.attempts[-1].booked = copy(record.booking)
        if self._private and not self.dropped and answer.parts:
            self.shapes = [one for one in self.shapes if not one.answer] + [shape_of(answer, is_answer=True)]

    def judged(self, verdicts: Sequence[tuple[CallToJudge, Verdict]]) -> None:
        """The verdicts about all calls are there. In privacy mode they have no text."""
        if self._private:
            verdicts = [(replace(call, arguments=""), replace(verdict, explanation="")) for call, verdict in verdicts]
        if not self.dropped:
            self.verdicts = verdicts
            self._grow(sum(len(call.arguments) + len(verdict.explanation) + _SHAPE for call, verdict in verdicts))

    def asked_again(self, reason: str) -> None:
        """The answer of the attempt failed, and another one for the same request follows in its place."""
        self.attempts[-1].error = reason

    def failed(self, error: str) -> None:
        """The attempt failed before anything of its response was passed on."""
        attempt = self.attempts[-1]
        attempt.ended, attempt.error = self._clock(), error
        self._tracer.changed(self)

    def finish(self) -> None:
        """The exchange is over."""
        self.ended = self._clock()
        if self.attempts and self.attempts[-1].ended is None:
            self.attempts[-1].ended = self.ended
        self._report_size()
        self._tracer.finished(self)

    def _records(self, size: int) -> bool:
        return size <= BODY_BYTES and not self._private and not self.dropped

    def _grow(self, size: int) -> None:
        self._unreported += size
        self._report_size()

    def _report_size(self) -> None:
        size, self._unreported = self._unreported, 0
        self._size += size
        self._full = self._size > STREAM_BYTES
        self._tracer.grew(size)

    def forget(self) -> int:
        """Drop what was recorded; return how many bytes that were."""
        size, self._size = self._size, 0
        self.body, self.dropped, self._full = None, True, True
        self.shapes, self.verdicts = [], ()
        for attempt in self.attempts:
            attempt.body = attempt.error_body = attempt.plan = None
            attempt.came, attempt.went, attempt.marks = bytearray(), bytearray(), bytearray()
        return size


class Tracer:
    """The traces of one process, newest last; the oldest are dropped when there are too many or they are too large."""

    def __init__(
        self,
        *,
        private: bool = False,
        max_bytes: int = MAX_BYTES,
        max_traces: int = MAX_TRACES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.private = private
        """Record shapes and times, no text."""
        self._max_bytes, self._max_traces, self._clock = max_bytes, max_traces, clock
        self._traces: OrderedDict[str, ExchangeTrace] = OrderedDict()
        self._bytes = 0
        self._listeners: set[Callable[[ExchangeTrace], None]] = set()
        self._finished_listeners: list[Callable[[ExchangeTrace], None]] = []

    def start(self, record: RequestRecord) -> ExchangeTrace:
        number = os.urandom(16).hex()
        trace = self._traces[number] = ExchangeTrace(self, number, record, self._clock)
        if len(self._traces) > self._max_traces:
            self._drop_oldest()
        self.changed(trace)
        return trace

    def get(self, number: str) -> ExchangeTrace | None:
        return self._traces.get(number)

    def __iter__(self) -> Iterator[ExchangeTrace]:
        return iter(self._traces.values())

    def __len__(self) -> int:
        return len(self._traces)

    @property
    def held_bytes(self) -> int:
        return self._bytes

    def grew(self, size: int) -> None:
        self._bytes += size
        while self._bytes > self._max_bytes and self._traces:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        _, oldest = self._traces.popitem(last=False)
        self._bytes -= oldest.forget()

    def changed(self, trace: ExchangeTrace) -> None:
        for listener in self._listeners:
            listener(trace)

    def finished(self, trace: ExchangeTrace) -> None:
        for listener in self._finished_listeners:
            listener(trace)
        self.changed(trace)

    def listen(self, listener: Callable[[ExchangeTrace], None]) -> Callable[[], None]:
        """Call this for every exchange that starts, changes noticeably or ends; returns what stops it."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    def when_finished(self, listener: Callable[[ExchangeTrace], None]) -> None:
        self._finished_listeners.append(listener)

    def to_json(self) -> dict[str, Any]:
        return {"exchanges": len(self), "bytes": self._bytes, "max_bytes": self._max_bytes}
