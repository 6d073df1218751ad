"""The answer of a host, whatever it comes as -> the answer to the client, whatever that must leave as."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Literal, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from moonshim.compat import renamed_arguments
from moonshim.engine.dialects.protocol import Encoder, Template
from moonshim.engine.dialects.registry import dialect_named
from moonshim.engine.hosts.errors.classify import problem_in_body, problem_of_failure
from moonshim.engine.plan import Plan
from moonshim.engine.repair.finish import STREAM_ENDED
from moonshim.engine.response.body import Mended, mend_response
from moonshim.engine.response.stream import Framing, Mender
from moonshim.engine.response.writers import ChoicesCollector
from moonshim.engine.values.conversation import Message, Usage, add_usage
from moonshim.engine.values.events import Event, Failed, Finished, Repaired
from moonshim.engine.wire.json_codec import decode_object, encode
from moonshim.engine.wire.sse import BYTE_ORDER_MARK, MAX_EVENT_BYTES, merge_comments
from moonshim.errors import InvalidInput, Problem, blame_of

__all__ = ["MAX_ANSWER_BYTES", "Form", "ResponseStream", "detect_form", "form_of", "read_reply"]

Form: TypeAlias = Literal["sse", "ndjson", "json"]

MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
_FORMS: Final[dict[str, Form]] = {
    "text/event-stream": "sse",
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
}
_EVENTS: Final = (b"data:", b"event:", b"id:", b"retry:", b":")
"""How an event stream begins."""
_BLANK: Final = b" \t\r\n"
_EMPTY: Final = "empty_answer"


class ResponseStream(Protocol):
    """One answer on its way to the client. One object for each response."""

    def feed(self, data: bytes) -> bytes:
        """More bytes of the host came; the bytes that may leave."""

    def flush(self) -> bytes:
        """The host is done; the rest. A stream that failed ends in an error, a whole answer that failed is empty."""

    def fail(self, problem: Problem) -> bytes:
        """The connection to the host broke: the bytes that end the stream with this error. Nothing comes after it."""

    def start_retry(self, input_format: Form) -> None:
        """The host was asked again, since `wants_retry`: its next response follows."""

    def release_ending(self) -> bytes:
        """Usage is waited for no longer: the bytes that were held back for it."""

    @property
    def took_fast_path(self) -> bool:
        """Whether the bytes that came last are text of the model and nothing else: no error, and no end."""

    @property
    def wants_retry(self) -> bool:
        """Whether the response is over and failed because of what the model wrote, and another one can replace it.

        A response that leaves as it comes can be replaced as long as only reasoning has left; one that leaves at its
        end can always be. To be asked for when all bytes came.
        """

    @property
    def retry_reason(self) -> str | None:
        """The code of that failure."""

    @property
    def awaits_usage(self) -> bool:
        """Whether only usage is missing, and the ending is held back for it: see `release_ending`."""

    @property
    def complete(self) -> bool:
        """Whether the host has sent the finish reason; only usage may still come."""

    @property
    def message(self) -> Message:
        """The message so far."""

    @property
    def ending(self) -> Finished | Failed | None:
        """How the answer ended, once it has."""

    @property
    def usage(self) -> Usage | None:
        """What it cost, in numbers that mean the same for every host."""

    @property
    def repair_counts(self) -> dict[str, int]:
        """How often each rule acted."""

    @property
    def repairs(self) -> list[Repaired]:
        """The repairs in order: the first few hundred."""

    @property
    def reasoning_field(self) -> str | None:
        """The field in which a Chat host sends reasoning; None: none yet, or in copies."""

    @property
    def problem(self) -> Problem | None:
        """What went wrong, if the response failed; once it is set, the rest of the host's bytes is of no use."""


def form_of(content_type: str | None) -> Form:
    """What a response is, as its content type says. Its first bytes may say otherwise: see `FormDetector`.

    >>> form_of("text/event-stream; charset=utf-8"), form_of(None)
    ('sse', 'json')
    """
    return _FORMS.get((content_type or "").partition(";")[0].strip().lower(), "json")


@renamed_arguments(comes="input_format", goes="output_format", hold_empty="may_retry")
def read_reply(
    plan: Plan,
    *,
    input_format: Form,
    output_format: Form,
    may_retry: bool = False,
    limit: int = MAX_ANSWER_BYTES,
    encoder: Encoder | None = None,
    collect: bool = True,
) -> ResponseStream:
    """Read a response that is a stream, JSON lines or one body, and write it as any of these.

    `input_format` is what the host calls the response; its first bytes may say otherwise: see `FormDetector`.
    `limit` bounds the bytes of a response; a longer one ends in an error. With `may_retry`, another response can follow
    one that `wants_retry`. `encoder` writes the stream, where that is not the client's dialect; one that writes nothing
    still gets the events. Without `collect`, the `message` of a stream stays empty.
    """
    if output_format == "ndjson" and plan.client is not None and plan.client.done is None:
        raise InvalidInput(f"{plan.client.name} has no NDJSON form", field="goes")

    def reader_for(form: Form) -> _Reader:
        if form == "json":
            return _WholeResponse(plan, output_format, may_retry=may_retry, limit=limit, encoder=encoder)
        if output_format == "json":
            return _CollectedResponse(plan, form, may_retry=may_retry, limit=limit)
        mender = Mender(
            plan=plan,
            framing=form,
            output_format=output_format,
            may_retry=may_retry,
            limit=min(limit, MAX_EVENT_BYTES),
            encoder=encoder,
            collect=collect,
        )
        return _StreamedResponse(mender, limit, form)

    return _ReceivedResponse(reader_for, input_format, limit, is_stream_wanted=output_format != "json")


# --- what it is -------------------------------------------------------------------------------------------------


class FormDetector:
    """The first bytes of a response -> what it is.

        data: event: id: retry: :   an event stream; one that is labelled so is, unless it begins with an object
        {                           lines, if the first one is a chunk, and a stream was wanted or another line follows;
                                    under the label of lines, unless the first one is a whole response. Otherwise a body
        anything else               what the label says

    White space and byte order marks before that do not count. The result does not depend on the chunking, and the work
    is linear.

    >>> detector = FormDetector("json", is_stream_wanted=True)
    >>> detector.feed(b"\\n da"), detector.feed(b"ta: {"), detector.take()
    (None, 'sse', b'data: {')
    """

    def __init__(self, label: Form, *, is_stream_wanted: bool) -> None:
        self._label, self._is_stream_wanted = label, is_stream_wanted
        self._held = bytearray()
        self.received = 0
        """The number of bytes that came, with white space."""
        self._has_mark = self._begins_object = self._awaits_second = False
        """There was a byte order mark; the first line begins an object; it is a chunk, and alone so far."""
        self._searched = 0
        """How far the lines of an object were searched."""

    def take(self) -> bytes:
        """Everything that came, without the white space before it. It is not held any longer."""
        data = bytes(self._held)
        self._held.clear()
        return BYTE_ORDER_MARK + data if self._has_mark else data

    @property
    def size(self) -> int:
        """The number of bytes held."""
        return len(self._held)

    def feed(self, data: bytes) -> Form | None:
        """More bytes came: what the response is; None if they do not show it yet."""
        self._held += data
        self.received += len(data)
        if self._begins_object:
            return self._form_of_object()
        if self._label == "sse" and self._held.startswith((b"\r", b"\n")):
            return "sse"  # blank lines are signs of life
        start = bytes(self._held).lstrip(_BLANK)
        while start.startswith(BYTE_ORDER_MARK):
            self._has_mark, start = True, start.removeprefix(BYTE_ORDER_MARK).lstrip(_BLANK)
        self._held[:] = start
        if BYTE_ORDER_MARK.startswith(start):  # part of one, or nothing
            return None
        if start.startswith(b"{"):
            self._begins_object = True
            return self._form_of_object()
        if self._label == "sse" or start.startswith(_EVENTS):
            return "sse"
        return None if any(event.startswith(start) for event in _EVENTS) else self._label

    def end(self) -> Form:
        """Nothing more comes: what the response is."""
        if not self._begins_object:
            return self._label
        return "json" if self._awaits_second else self._form_of_line(bytes(self._held)) or "json"

    def _form_of_object(self) -> Form | None:
        held = self._held
        if not self._awaits_second:
            end = held.find(b"\n", self._searched)
            self._searched = len(held) if end < 0 else end
            if end < 0 or (form := self._form_of_line(bytes(held[:end]))) is not None:
                return None if end < 0 else form
            self._awaits_second = True
        second = bytes(held[self._searched :]).lstrip(_BLANK)
        self._searched = len(held)
        if not second:
            return None
        return "ndjson" if second.startswith(b"{") else "json"

    def _form_of_line(self, line: bytes) -> Form | None:
        """What a response is that begins with this line; None: that depends on the next one."""
        if self._label == "ndjson":
            return "json" if _is_whole_response(decode_object(line) or {}) else "ndjson"
        if not _is_chunk(line):
            return "json"
        return "ndjson" if self._is_stream_wanted else None


def detect_form(data: bytes, label: Form, *, is_stream_wanted: bool) -> Form:
    """What a response is that came as a whole, or as far as it came.

    >>> detect_form(b'data: {"choices": []}\\n\\n', "json", is_stream_wanted=True)
    'sse'
    """
    detector = FormDetector(label, is_stream_wanted=is_stream_wanted)
    return detector.feed(data) or detector.end()


def _is_chunk(line: bytes) -> bool:
    """Whether a line is a whole chunk of Chat, the only API that hosts stream in lines."""
    if b'"message"' in line and b'"delta"' not in line:
        return False  # a body may be large: it is not decoded twice
    chunk = decode_object(line) or {}
    return isinstance(chunk.get("choices"), list) and not _is_whole_response(chunk)


def _is_whole_response(body: dict[str, Any]) -> bool:
    choices = body.get("choices")
    if not isinstance(choices, list):
        return body.get("type") == "message" and "content" in body
    return body.get("object") == "chat.completion" or any(
        isinstance(choice, dict) and "message" in choice and "delta" not in choice for choice in choices
    )


class _Reader(ResponseStream, Protocol):
    """Reads a response of one form."""

    def use_form(self, form: Form) -> None:
        """The response that `start_retry` announced has this form. To be called before its first bytes."""


class _ReceivedResponse:
    """A response whose first bytes decide which reader reads it; until they do, nothing leaves.

    The response after `start_retry` continues in the same reader, and may have another form.
    """

    def __init__(
        self, reader_for: Callable[[Form], _Reader], label: Form, limit: int, *, is_stream_wanted: bool
    ) -> None:
        self._reader_for, self._limit, self._is_stream_wanted = reader_for, limit, is_stream_wanted
        self._label, self._is_first = label, True
        self._reader = reader_for(label)
        self._detector: FormDetector | None = FormDetector(label, is_stream_wanted=is_stream_wanted)
        self._unsent = b""
        """What the reader gave when only a property was asked for."""

    def feed(self, data: bytes) -> bytes:
        detector = self._detector
        if detector is None:
            return self._reader.feed(data)
        form = detector.feed(data)
        if form is None and detector.received <= self._limit:
            return b""
        out = self._start(detector, form or detector.end())
        if form is None and detector.received > self._limit:  # also if it was all white space
            out += self._reader.feed(b" " * (self._limit + 1))
        return out

    def flush(self) -> bytes:
        self._settle()
        self._detector = None
        return self._take_unsent() + self._reader.flush()

    def fail(self, problem: Problem) -> bytes:
        self._settle()
        self._detector = None
        return self._take_unsent() + self._reader.fail(problem)

    def start_retry(self, input_format: Form) -> None:
        self._reader.start_retry(input_format)
        self._label, self._is_first = input_format, False
        self._detector = FormDetector(input_format, is_stream_wanted=self._is_stream_wanted)

    def release_ending(self) -> bytes:
        return self._reader.release_ending()

    def _settle(self) -> None:
        """No more bytes come that could show the form."""
        if self._detector is not None and self._detector.size:
            self._unsent = self._start(self._detector, self._detector.end())

    def _start(self, detector: FormDetector, form: Form) -> bytes:
        self._detector = None
        if not self._is_first:
            self._reader.use_form(form)
        elif form != self._label:
            self._reader = self._reader_for(form)
        return self._take_unsent() + self._reader.feed(detector.take())

    def _take_unsent(self) -> bytes:
        unsent, self._unsent = self._unsent, b""
        return unsent

    @property
    def took_fast_path(self) -> bool:
        return self._reader.took_fast_path

    @property
    def wants_retry(self) -> bool:
        self._settle()
        return self._reader.wants_retry

    @property
    def retry_reason(self) -> str | None:
        self._settle()
        return self._reader.retry_reason

    @property
    def awaits_usage(self) -> bool:
        return self._reader.awaits_usage

    @property
    def complete(self) -> bool:
        return self._reader.complete

    @property
    def message(self) -> Message:
        return self._reader.message

    @property
    def ending(self) -> Finished | Failed | None:
        return self._reader.ending

    @property
    def usage(self) -> Usage | None:
        return self._reader.usage

    @property
    def repair_counts(self) -> dict[str, int]:
        return self._reader.repair_counts

    @property
    def repairs(self) -> list[Repaired]:
        return self._reader.repairs

    @property
    def reasoning_field(self) -> str | None:
        return self._reader.reasoning_field

    @property
    def problem(self) -> Problem | None:
        return self._reader.problem


# --- how it is read ---------------------------------------------------------------------------------------------


class _StreamedResponse:
    """From stream to stream: the mender does it all, up to a number of bytes."""

    def __init__(self, mender: Mender, limit: int, input_format: Framing) -> None:
        self._mender, self._mend = mender, mender.feed
        self._limit, self._room = limit, limit
        self._sse = input_format == "sse"
        self._flushed = False

    def feed(self, data: bytes) -> bytes:
        out = self._mend(merge_comments(data) if self._sse else data)
        self._room -= len(data)
        if self._room < 0 and self._mender.problem is None:
            out += self._mender.fail(_too_large(self._limit))
        return out

    @property
    def took_fast_path(self) -> bool:
        return self._mender.took_fast_path

    def flush(self) -> bytes:
        self._flushed = True
        return self._mender.flush()

    def fail(self, problem: Problem) -> bytes:
        return self._mender.fail(problem)

    def start_retry(self, input_format: Form) -> None:
        self._mender.start_retry()

    def use_form(self, form: Form) -> None:
        if form != "json":  # a body would be an error: a stream has begun
            self._sse = form == "sse"
            self._mender.use_framing(form)

    def release_ending(self) -> bytes:
        return self._mender.release_ending()

    @property
    def wants_retry(self) -> bool:
        return self._mender.wants_retry

    @property
    def retry_reason(self) -> str | None:
        return self._mender.retry_reason

    @property
    def awaits_usage(self) -> bool:
        return self._mender.awaits_usage

    @property
    def complete(self) -> bool:
        return self._mender.complete

    @property
    def message(self) -> Message:
        return self._mender.message

    @property
    def ending(self) -> Finished | Failed | None:
        return self._mender.ending

    @property
    def usage(self) -> Usage | None:
        return self._mender.normalized_usage

    @property
    def repair_counts(self) -> dict[str, int]:
        return self._mender.repair_counts

    @property
    def repairs(self) -> list[Repaired]:
        return self._mender.repairs

    @property
    def reasoning_field(self) -> str | None:
        return self._mender.reasoning_field

    @property
    def problem(self) -> Problem | None:
        return self._mender.problem or _problem_of(self._mender.ending, over=self._flushed)


class _Replaced(Struct, frozen=True):
    """What is left of a response of which nothing leaves, since it was asked for again."""

    usage: Usage | None = None
    repair_counts: dict[str, int] = {}
    repairs: list[Repaired] = []

    def and_then(self, usage: Usage | None, repair_counts: dict[str, int], repairs: list[Repaired]) -> _Replaced:
        """With the response that follows."""
        counts = dict(Counter(self.repair_counts) + Counter(repair_counts))
        return _Replaced(self.total(usage), counts, self.repairs + repairs)

    def total(self, usage: Usage | None) -> Usage | None:
        """With the usage of the response that follows: the client asked once, so the input is that of one request."""
        earlier = self.usage
        if usage is None or earlier is None:
            return usage or earlier
        output = Usage(output_tokens=earlier.output_tokens, reasoning_tokens=earlier.reasoning_tokens, raw=earlier.raw)
        total = add_usage(output, usage) or usage
        return replace(total, raw=usage.raw | total.raw)

    def counted(self, encoder: Encoder) -> Encoder:
        """The encoder for the response that follows, which has cost more than its host says."""
        return encoder if self.usage is None else _CountingEncoder(encoder, self)


class _CountingEncoder:
    """Writes the usage of a response together with that of the one that it replaces."""

    def __init__(self, encoder: Encoder, replaced: _Replaced) -> None:
        self._encoder, self._replaced = encoder, replaced

    def feed(self, event: Event) -> list[dict[str, Any]]:
        if isinstance(event, Finished):
            event = replace(event, usage=self._replaced.total(event.usage))
        return self._encoder.feed(event)

    def template(self, index: int) -> Template | None:
        return self._encoder.template(index)


class _CollectedResponse(_StreamedResponse):
    """From stream to whole answer: nothing leaves before the end, and nothing at all if that is an error."""

    def __init__(self, plan: Plan, input_format: Framing, *, may_retry: bool, limit: int) -> None:
        self._plan, self._input_format, self._may_retry = plan, input_format, may_retry
        self._replaced = _Replaced()
        self._start(limit)

    def _start(self, limit: int) -> None:
        self._collector = ChoicesCollector()
        mender = Mender(
            plan=self._plan,
            framing=self._input_format,
            encoder=self._replaced.counted(self._collector),
            may_retry=self._may_retry,
            limit=limit,
        )
        super().__init__(mender, limit, self._input_format)

    def feed(self, data: bytes) -> bytes:
        super().feed(data)
        if self._mender.problem is not None:
            self._collector = ChoicesCollector()  # nothing of it is written
        return b""

    def flush(self) -> bytes:
        self._end()
        if self.problem is not None:
            return b""
        return encode(_encode_collected(self._plan, self._collector))

    def _end(self) -> None:
        if not self._flushed:
            super().flush()

    def fail(self, problem: Problem) -> bytes:
        super().fail(problem)
        return b""

    def release_ending(self) -> bytes:
        super().release_ending()
        return b""

    @property
    def wants_retry(self) -> bool:
        return self.retry_reason is not None

    @property
    def retry_reason(self) -> str | None:
        if self._mender.wants_retry or not self._may_retry:
            return self._mender.retry_reason
        if self.complete:
            self._end()  # only then is it certain how it ended
        return _code_of(self._mender)

    def start_retry(self, input_format: Form) -> None:
        if not self.wants_retry:
            raise _cannot_retry()
        if self._mender.wants_retry:
            self._mender.start_retry()
            return
        self._replaced = _Replaced(self.usage, self.repair_counts, self.repairs)
        self._start(self._limit)

    @property
    def usage(self) -> Usage | None:
        return self._replaced.total(super().usage)

    @property
    def repair_counts(self) -> dict[str, int]:
        return dict(Counter(self._replaced.repair_counts) + Counter(super().repair_counts))

    @property
    def repairs(self) -> list[Repaired]:
        return self._replaced.repairs + super().repairs


class _Outcome(Struct, frozen=True):
    """What became of a whole answer."""

    message: Message = Message("assistant")
    ending: Finished | Failed | None = None
    usage: Usage | None = None
    repair_counts: dict[str, int] = {}
    repairs: list[Repaired] = []
    problem: Problem | None = None
    reasoning_field: str | None = None


class _WholeResponse:
    """From a whole answer to a whole one, patched where that is enough; or to a stream, all at once.

    Nothing leaves before the end. All bytes came when `wants_retry` or `flush` is called: the first of them reads the
    response, which is JSON; one that is asked for again may be followed by a stream.

        JSON -> JSON             `_mended`, patched
        stream, or to a stream   `_mender`; what it wrote is in `_out`
        no response              `_problem`

    A response that is asked for again is replaced by the next one. Only what a mender can continue stays: reasoning.
    """

    took_fast_path = False
    awaits_usage = False

    def __init__(
        self, plan: Plan, output_format: Form, *, may_retry: bool, limit: int, encoder: Encoder | None
    ) -> None:
        self._plan, self._output_format, self._limit, self._may_retry = plan, output_format, limit, may_retry
        self._encoder = encoder
        self._data = bytearray()
        self._body: dict[str, Any] | None = None
        self._problem: Problem | None = None
        self._replaced = _Replaced()
        self._restart()

    def _restart(self) -> None:
        self._collector = ChoicesCollector()
        self._mender: Mender | None = None
        self._out = b""
        self._await_body()

    def _await_body(self) -> None:
        self._data.clear()
        self._is_read = self._is_flushed = self._has_ended = False
        self._mended: Mended | None = None
        self._outcome = _Outcome()

    # -- what comes ------------------------------------------------------------------

    def feed(self, data: bytes) -> bytes:
        if self._problem is None:
            self._data += data
            if len(self._data) > self._limit:
                self._data.clear()
                self._problem = _too_large(self._limit)
        return b""

    def flush(self) -> bytes:
        self._read()
        if self._is_flushed:
            return b""
        if self._problem is not None:
            return self.fail(self._problem)
        self._is_flushed = True
        if self._mender is not None:
            self._end(self._mender)
        if self._output_format != "json":
            return self._out
        if self._outcome.problem is not None:
            return b""
        if self._mended is None:
            return encode(_encode_collected(self._plan, self._collector))
        return bytes(self._data) if self._mended.body is self._body else encode(self._mended.body)

    def fail(self, problem: Problem) -> bytes:
        if self._is_flushed:
            return b""
        if self._outcome.ending is not None:  # it was read, and only the next request failed
            return self.flush()
        self._problem, self._is_flushed = problem, True
        if self._output_format == "json":
            self._outcome = _Outcome(ending=Failed(problem.code or problem.kind, problem.message), problem=problem)
            return b""
        mender = self._mender = self._mender or self._new_mender()
        out = self._out + mender.fail(problem)
        self._note(mender, mender.normalized_usage, over=True)
        return out

    def release_ending(self) -> bytes:
        return b""

    def use_form(self, form: Form) -> None:
        """It is found when the response is read."""

    def start_retry(self, input_format: Form) -> None:
        if not self.wants_retry:
            raise _cannot_retry()
        if self._mended is not None and self._body is not None and _code_of(self._mended) == _EMPTY:
            self._mender = self._new_mender()
            self._mender.feed_body(self._body)
        if self._mender is not None and self._mender.wants_retry:
            self._mender.start_retry()
            self._await_body()
            return
        outcome = self._outcome
        self._replaced = _Replaced(outcome.usage, outcome.repair_counts, outcome.repairs)
        self._restart()

    # -- what it is ------------------------------------------------------------------

    def _read(self) -> None:
        """Read the response, which is complete."""
        if self._is_read or self._problem is not None:
            return None
        self._is_read = True
        data = bytes(self._data).lstrip().removeprefix(BYTE_ORDER_MARK)
        form = detect_form(data, "json", is_stream_wanted=True)
        if form != "json":  # only after `start_retry`: otherwise another reader would read it
            mender = self._mender = self._mender or self._new_mender(patches=True)
            mender.use_framing(form)
            self._out += mender.feed(merge_comments(data) if form == "sse" else data)
            return self._note_or_end(mender)
        self._data[:] = data = data.rstrip()
        self._body = body = decode_object(data)
        self._problem = _find_problem(data, body)
        if body is None or self._problem is not None:
            return None
        if self._output_format == "json" and self._mender is None and self._replaced.usage is None:
            mended = self._mended = mend_response(body, plan=self._plan)
            return self._note(mended, mended.usage, over=True)
        mender = self._mender = self._mender or self._new_mender()
        self._out += mender.feed_body(body)
        return self._note_or_end(mender)

    def _note_or_end(self, mender: Mender) -> None:
        if mender.wants_retry:  # a mender that has ended cannot continue
            self._note(mender, mender.normalized_usage)
        else:
            self._end(mender)

    def _end(self, mender: Mender) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._out += mender.flush()
            self._note(mender, mender.normalized_usage, over=True)

    def _note(self, source: Mender | Mended, usage: Usage | None, *, over: bool = False) -> None:
        replaced = self._replaced.and_then(usage, source.repair_counts, source.repairs)
        self._outcome = _Outcome(
            source.message,
            source.ending,
            replaced.usage,
            replaced.repair_counts,
            replaced.repairs,
            _problem_of(source.ending, over=over),
            source.reasoning_field,
        )

    def _new_mender(self, *, patches: bool = False) -> Mender:
        """`patches`: frames that need no repair may leave as they came."""
        encoder = self._encoder or (self._collector if self._output_format == "json" else None)
        if encoder is None and not (patches and self._replaced.usage is None):
            client = self._plan.client or dialect_named("openai_chat")
            encoder = client.encoder(self._plan.reply)
        if encoder is not None:
            encoder = self._replaced.counted(encoder)
        output_format: Framing = "ndjson" if self._output_format == "ndjson" else "sse"
        return Mender(
            plan=self._plan,
            output_format=output_format,
            encoder=encoder,
            may_retry=self._may_retry,
            limit=self._limit,
        )

    # -- what people ask for ---------------------------------------------------------

    @property
    def wants_retry(self) -> bool:
        return self.retry_reason is not None

    @property
    def retry_reason(self) -> str | None:
        if not self._may_retry or not self._data:
            return None
        self._read()
        if self._problem is not None:
            return None
        if self._mender is not None and (self._mender.wants_retry or self._encoder is not None):
            return self._mender.retry_reason
        return _code_of(self._mended or self._outcome)

    @property
    def complete(self) -> bool:
        return self._outcome.ending is not None

    @property
    def message(self) -> Message:
        return self._outcome.message

    @property
    def ending(self) -> Finished | Failed | None:
        return self._outcome.ending

    @property
    def usage(self) -> Usage | None:
        return self._outcome.usage

    @property
    def repair_counts(self) -> dict[str, int]:
        return self._outcome.repair_counts

    @property
    def repairs(self) -> list[Repaired]:
        return self._outcome.repairs

    @property
    def reasoning_field(self) -> str | None:
        return self._outcome.reasoning_field

    @property
    def problem(self) -> Problem | None:
        return self._problem or self._outcome.problem


def _code_of(source: Mender | Mended | _Outcome) -> str | None:
    """Why a response failed because of what the model wrote; None: it did not."""
    ending = source.ending
    if isinstance(ending, Failed):
        return ending.code if blame_of(ending.code) == "answer" else None
    return _EMPTY if isinstance(source, Mended) and _EMPTY in source.repair_counts else None


def _cannot_retry() -> InvalidInput:
    return InvalidInput("only a response that is worth asking for again can be continued", field="may_retry")


def _encode_collected(plan: Plan, collected: ChoicesCollector) -> dict[str, Any]:
    """The whole response, with every choice that the client's dialect has room for."""
    client = plan.client
    assert client is not None, "the mender has an encoder"
    if client.encode_choices is not None:
        return client.encode_choices(collected.choices, plan.reply)
    return client.encode_response(collected.events, plan.reply)


# --- what went wrong --------------------------------------------------------------------------------------------


def _find_problem(data: bytes, body: dict[str, Any] | None) -> Problem | None:
    """What is wrong with a body that came with status 200 and is no response."""
    if body is None and data.startswith(b"{"):
        message = "The host's response is incomplete: it is not valid JSON. Send the request again."
        return Problem(status=502, kind="server", message=message, code="not_json")
    if body is not None and not body.get("error") and ("choices" in body or "content" in body):
        return None
    return problem_in_body(data)


def _problem_of(ending: Finished | Failed | None, *, over: bool) -> Problem | None:
    """Why an answer failed; one that is over and has not ended did."""
    if isinstance(ending, Finished) or (ending is None and not over):
        return None
    return problem_of_failure(ending or STREAM_ENDED)


def _too_large(limit: int) -> Problem:
    message = f"The host's answer has more than {limit:,} bytes."
    return Problem(status=502, kind="server", message=message, code="answer_too_large", permanent=True)
