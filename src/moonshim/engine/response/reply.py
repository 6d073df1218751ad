"""The answer of a host, whatever it comes as -> the answer to the client, whatever that must leave as."""

from __future__ import annotations

from typing import Any, Final, Literal, Protocol, TypeAlias

from msgspec import Struct

from moonshim.compat import renamed_arguments
from moonshim.engine.dialects.protocol import Encoder
from moonshim.engine.dialects.registry import dialect_named
from moonshim.engine.hosts.errors.classify import read_problem
from moonshim.engine.plan import Plan
from moonshim.engine.repair.finish import STREAM_ENDED
from moonshim.engine.response.body import Mended, mend_response
from moonshim.engine.response.stream import Framing, Mender
from moonshim.engine.response.writers import ChoicesCollector
from moonshim.engine.stages import TransformerFailed
from moonshim.engine.values.conversation import Message, Usage
from moonshim.engine.values.events import Failed, Finished, Repaired
from moonshim.engine.wire.json_codec import decode_object, encode
from moonshim.engine.wire.sse import BYTE_ORDER_MARK, MAX_EVENT_BYTES, merge_comments
from moonshim.errors import InvalidInput, Problem, ProblemKind

__all__ = ["MAX_ANSWER_BYTES", "Form", "ResponseStream", "form_of", "read_reply"]

Form: TypeAlias = Literal["sse", "ndjson", "json"]

MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
_FORMS: Final[dict[str, Form]] = {
    "text/event-stream": "sse",
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
}
_STATUSES: Final[dict[ProblemKind, int]] = {
    "invalid_request": 400,
    "authentication": 401,
    "quota": 402,
    "permission": 403,
    "not_found": 404,
    "too_large": 413,
    "rate_limit": 429,
    "overloaded": 503,
    "timeout": 504,
}
"""The status of an error that came with status 200."""
_EVENTS: Final = (b"data:", b"event:", b":")


class ResponseStream(Protocol):
    """One answer on its way to the client. One object for each response."""

    def feed(self, data: bytes) -> bytes:
        """More bytes of the host came; the bytes that may leave."""

    def flush(self) -> bytes:
        """The host is done; the rest. A stream that failed ends in an error, a whole answer that failed is empty."""

    def fail(self, problem: Problem) -> bytes:
        """The connection to the host broke: the bytes that end the stream with this error. Nothing comes after it."""

    def start_retry(self) -> None:
        """The host was asked again, since its response was only reasoning: its next response follows."""

    @property
    def took_fast_path(self) -> bool:
        """Whether the bytes that came last are text of the model and nothing else: no error, and no end."""

    @property
    def only_reasoning(self) -> bool:
        """Whether the response is complete, has ended well and contains nothing but reasoning."""

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
    """What an answer comes as.

    >>> form_of("text/event-stream; charset=utf-8"), form_of(None)
    ('sse', 'json')
    """
    return _FORMS.get((content_type or "").partition(";")[0].strip().lower(), "json")


@renamed_arguments(comes="input_format", goes="output_format")
def read_reply(
    plan: Plan,
    *,
    input_format: Form,
    output_format: Form,
    hold_empty: bool = False,
    limit: int = MAX_ANSWER_BYTES,
    encoder: Encoder | None = None,
    collect: bool = True,
) -> ResponseStream:
    """Read a response that is a stream, JSON lines or one body, and write it as any of these.

    `limit` bounds the bytes of a response; a longer one ends in an error. With `hold_empty`, `start_retry` can follow a
    response of nothing but reasoning. `encoder` writes the stream, where that is not the client's dialect; one that
    writes nothing still gets the events. Without `collect`, the `message` of a stream stays empty.
    """
    if output_format == "ndjson" and plan.client is not None and plan.client.done is None:
        raise InvalidInput(f"{plan.client.name} has no NDJSON form", field="goes")
    if input_format == "json":
        return _WholeResponse(plan, output_format, hold_empty=hold_empty, limit=limit, encoder=encoder)
    if output_format == "json":
        return _CollectedResponse(plan, input_format, hold_empty=hold_empty, limit=limit)
    mender = Mender(
        plan=plan,
        framing=input_format,
        output_format=output_format,
        hold_empty=hold_empty,
        limit=min(limit, MAX_EVENT_BYTES),
        encoder=encoder,
        collect=collect,
    )
    return _StreamedResponse(mender, limit, input_format)


class _StreamedResponse:
    """From stream to stream: the mender does it all, up to a number of bytes."""

    def __init__(self, mender: Mender, limit: int, input_format: Framing) -> None:
        self._mender, self._mend = mender, mender.feed
        self._limit, self._room = limit, limit
        self._sse = input_format == "sse"
        self._flushed = False
        self.start_retry = mender.start_retry

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

    @property
    def only_reasoning(self) -> bool:
        return self._mender.only_reasoning

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


class _CollectedResponse(_StreamedResponse):
    """From stream to whole answer: nothing leaves before the end, and nothing at all if that is an error."""

    def __init__(self, plan: Plan, input_format: Framing, *, hold_empty: bool, limit: int) -> None:
        self._plan, self._collector = plan, ChoicesCollector()
        mender = Mender(plan=plan, framing=input_format, encoder=self._collector, hold_empty=hold_empty, limit=limit)
        super().__init__(mender, limit, input_format)

    def feed(self, data: bytes) -> bytes:
        super().feed(data)
        if self._mender.problem is not None:
            self._collector = ChoicesCollector()  # nothing of it is written
        return b""

    def flush(self) -> bytes:
        super().flush()
        if self.problem is not None:
            return b""
        return encode(_encode_collected(self._plan, self._collector))

    def fail(self, problem: Problem) -> bytes:
        super().fail(problem)
        return b""


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
    """From a whole answer to a whole one, patched where that is enough; or to a stream, all at once."""

    took_fast_path = False

    def __init__(
        self, plan: Plan, output_format: Form, *, hold_empty: bool, limit: int, encoder: Encoder | None
    ) -> None:
        self._plan, self._output_format, self._limit, self._hold_empty = plan, output_format, limit, hold_empty
        self._encoder = encoder
        self._data = bytearray()
        self._problem: Problem | None = None
        self._outcome = _Outcome()
        self._collector = ChoicesCollector()
        self._mender: Mender | None = None
        """Writes the response as a stream, or as the continuation of one that was only reasoning."""
        self._mended: Mended | None = None
        self._out = b""

    # -- what comes ------------------------------------------------------------------

    def feed(self, data: bytes) -> bytes:
        if self._problem is None:
            self._data += data
            if len(self._data) > self._limit:
                self._data.clear()
                self._problem = _too_large(self._limit)
        return b""

    def flush(self) -> bytes:
        data, self._data = self._text(), bytearray()
        if self._problem is None:
            if data.startswith(_EVENTS):
                return self._pass_on(data)
            body = decode_object(data)
            self._problem = _find_problem(data, body)
            if body is not None and self._problem is None:
                return self._write(body, data)
        return b"" if self._problem is None else self.fail(self._problem)

    def _pass_on(self, data: bytes) -> bytes:
        """A stream after all, whatever its host calls it."""
        response_stream = read_reply(
            self._plan, input_format="sse", output_format=self._output_format, limit=self._limit, encoder=self._encoder
        )
        out = response_stream.feed(data) + response_stream.flush()
        self._outcome = _outcome(response_stream, response_stream.usage, response_stream.problem)
        return out

    def fail(self, problem: Problem) -> bytes:
        if self._outcome.ending is not None:
            return b""
        self._problem = problem
        if self._output_format == "json":
            self._outcome = _Outcome(ending=Failed(problem.code or problem.kind, problem.message), problem=problem)
            return b""
        mender = self._writer()
        out, self._out = self._out + mender.fail(problem), b""
        self._outcome = _outcome(mender, mender.normalized_usage, problem)
        return out

    def start_retry(self) -> None:
        body = decode_object(self._text())
        if body is None or not self._hold_empty or not self.only_reasoning:
            raise InvalidInput(
                "only a response with nothing but reasoning can be continued by another", field="hold_empty"
            )
        mender = self._writer()
        self._out += mender.feed_body(body)
        mender.start_retry()
        self._data.clear()
        self._mended = None

    # -- what leaves -----------------------------------------------------------------

    def _write(self, body: dict[str, Any], data: bytes) -> bytes:
        if self._output_format == "json" and self._mender is None:
            mended = self._mend_once(body)
            self._outcome = _outcome(mended, mended.usage, _problem_of(mended.ending, over=True))
            if self._outcome.problem is not None:
                return b""
            return data if mended.body is body else encode(mended.body)
        mender = self._writer()
        out = self._out + mender.feed_body(body) + mender.flush()
        self._outcome = _outcome(mender, mender.normalized_usage, _problem_of(mender.ending, over=True))
        if self._output_format != "json":
            return out
        if self._outcome.problem is not None:
            return b""
        return encode(_encode_collected(self._plan, self._collector))

    def _writer(self) -> Mender:
        if self._mender is None:
            client = self._plan.client or dialect_named("openai_chat")
            encoder = self._encoder or (
                self._collector if self._output_format == "json" else client.encoder(self._plan.reply)
            )
            output_format: Framing = "ndjson" if self._output_format == "ndjson" else "sse"
            self._mender = Mender(
                plan=self._plan, output_format=output_format, encoder=encoder, hold_empty=self._hold_empty
            )
        return self._mender

    def _mend_once(self, body: dict[str, Any]) -> Mended:
        if self._mended is None:
            self._mended = mend_response(body, plan=self._plan)
        return self._mended

    def _text(self) -> bytes:
        return bytes(self._data).strip().removeprefix(BYTE_ORDER_MARK)

    # -- what people ask for ---------------------------------------------------------

    @property
    def only_reasoning(self) -> bool:
        if self._mender is not None and self._outcome.ending is not None:
            return self._mender.only_reasoning
        if self._mended is None and (body := decode_object(self._text())) is not None:
            self._mend_once(body)
        return self._mended is not None and "empty_answer" in self._mended.repair_counts

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


def _outcome(source: ResponseStream | Mender | Mended, usage: Usage | None, problem: Problem | None) -> _Outcome:
    return _Outcome(
        source.message, source.ending, usage, source.repair_counts, source.repairs, problem, source.reasoning_field
    )


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
    return _problem_from_body(data)


def _problem_of(ending: Finished | Failed | None, *, over: bool) -> Problem | None:
    """Why an answer failed; one that is over and has not ended did."""
    if isinstance(ending, Finished) or (ending is None and not over):
        return None
    failed = ending or STREAM_ENDED
    if failed.code == TransformerFailed.code:
        return Problem(
            status=TransformerFailed.status, kind="server", message=failed.message, code=failed.code, permanent=True
        )
    return _problem_from_body(encode({"error": {"message": failed.message, "code": failed.code}}))


def _problem_from_body(body: bytes) -> Problem:
    """An error under the status that it should have come with."""
    problem = read_problem(200, body, {})
    status = _STATUSES.get(problem.kind, 502)
    return problem if problem.status != 502 or status == 502 else read_problem(status, body, {})


def _too_large(limit: int) -> Problem:
    message = f"The host's answer has more than {limit:,} bytes."
    return Problem(status=502, kind="server", message=message, code="answer_too_large", permanent=True)
