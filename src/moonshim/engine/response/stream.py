"""The mender: bytes of a stream in, mended bytes out, of the same framing or of another."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final, Literal, TypeAlias, Unpack

from msgspec.structs import replace

from moonshim.compat import FormerName, renamed_arguments
from moonshim.engine.dialects.protocol import Dialect, Encoder
from moonshim.engine.dialects.registry import dialect_named
from moonshim.engine.frames import Released
from moonshim.engine.plan import PlanArguments, plan_for
from moonshim.engine.response.fast_path import FastPath
from moonshim.engine.response.frame_templates import Renamer
from moonshim.engine.response.pipeline import ResponsePipeline
from moonshim.engine.values.conversation import Message, Usage
from moonshim.engine.values.events import Failed, Finished, Repaired, failure_from
from moonshim.engine.wire.json_codec import decode_object, encode
from moonshim.engine.wire.ndjson import NdjsonFramer, render_ndjson
from moonshim.engine.wire.sse import MAX_EVENT_BYTES, Frame, SseFramer, event_line, render_sse
from moonshim.errors import InvalidInput, Problem

__all__ = ["Framing", "Mender", "fill_error"]

Framing: TypeAlias = Literal["sse", "ndjson"]
_FRAMINGS: Final = ("sse", "ndjson")
_EVENT: Final = re.compile(rb"^event: ?([^\n]*)$", re.MULTILINE)
_DONE: Final = b"[DONE]"


class Mender:
    """Repairs one streaming response, from bytes to bytes, as it arrives. Create one object for each response.

    With the `plan` from `prepare_request`, the stream is read in the host's dialect and written in the client's, with
    the model name that the client requested. Without a plan, both sides use Chat, and these arguments describe the
    request: `model`, and if known `tools`, `tool_choice`, `history` and `options`.
    With a plan, an event of more than `limit` bytes ends the stream with an error.

    A frame that needs no repair is returned byte for byte. A repaired frame keeps all its other fields. Data is held
    back only while it is undecided. With `may_retry`, the ending of a response that is no answer is held back: see
    `start_retry`. If tools are declared, the finish chunk of Chat waits for the usage after it.

    >>> mender = Mender(model="kimi-k2.5")
    >>> mender.feed(b'data: {"choices": [{"index": 0, "delta": {"content": "Hi"}}]}\\n\\n')
    b'data: {"choices": [{"index": 0, "delta": {"content": "Hi"}}]}\\n\\n'
    """

    @renamed_arguments(goes="output_format", hold_empty="may_retry")
    def __init__(
        self,
        *,
        framing: Framing = "sse",
        collect: bool = True,
        output_format: Framing | None = None,
        encoder: Encoder | None = None,
        may_retry: bool = False,
        limit: int = MAX_EVENT_BYTES,
        fast_path: bool = True,
        **request: Unpack[PlanArguments],
    ) -> None:
        """Create a mender.

        - `framing`, `output_format`: the framing of the input and of the output, `sse` or `ndjson`. The output has the
          framing of the input by default, and is always `sse` for clients of dialects other than Chat.
        - `encoder`: writes the response if it is translated.
        - `fast_path`: if False, every frame is parsed. The output is the same, but takes longer.

        Raises `InvalidInput` for an invalid argument.
        """
        for name, value in (("framing", framing), ("output_format", output_format or framing)):
            if value not in _FRAMINGS:
                raise InvalidInput(f"{name} must be 'sse' or 'ndjson', not {value!r}", field=name)
        plan = plan_for(**request)
        self._plan, self._input_format, self._limit = plan, framing, limit
        self._client: Dialect = plan.client or dialect_named("openai_chat")
        self._upstream: Dialect = plan.upstream or self._client
        # Only Chat has an NDJSON form.
        self._output_format: Framing = (output_format or framing) if self._client.done is not None else "sse"
        self._render_frame = render_sse if self._output_format == "sse" else render_ndjson
        self._may_retry = may_retry
        self._pending = b""
        self._over = False
        self.problem: Problem | None = None
        """The problem that ended the response early (`fail`, or an event over the limit); None if there was none."""
        self.took_fast_path: bool = False
        """Whether the bytes that `feed` got last are text of the model and nothing else: no error, and no end."""
        self._pipeline: ResponsePipeline[Frame] = ResponsePipeline(
            plan, collect=collect, encoder=encoder, may_retry=may_retry
        )
        self._patches_chat = self._pipeline.writer.ends_with_reason
        """Whether chunks of Chat leave as they came, with all that is between them."""
        self._model = plan.reply.model
        self._renamer: Renamer | None = None
        if self._patches_chat and plan.client is not None:
            self._renamer = Renamer(plan.reply.model, self._render_frame)
        self._fast_path: FastPath | None = None
        if fast_path and (not self._patches_chat or self._output_format == framing):
            self._fast_path = FastPath(self._pipeline, self._render_frame, has_event_names=self._client.has_event_names)
        self._begin()

    def _begin(self) -> None:
        """One answer of the host begins."""
        self._framer: SseFramer | NdjsonFramer = (
            SseFramer(self._limit) if self._input_format == "sse" else NdjsonFramer(self._limit)
        )
        self._done = False
        self._faults: set[str] = set()
        self._passed = 0
        self._ended = False

    def feed(self, data: bytes) -> bytes:
        """Process received bytes, and return the bytes to send to the client."""
        fast_path = self._fast_path
        template = fast_path.template if fast_path is not None else None
        if (
            fast_path is not None
            and template is not None
            and type(data) is bytes
            and data.startswith(template.head)
            and data.endswith(template.tail)
            and self._framer.idle
            and len(data) <= self._limit
        ):
            taken = fast_path.take(template, data)
            if type(taken) is bytes:
                self.took_fast_path = True
                return taken
            if taken is not None:
                out = bytearray()
                self._send(taken, out)  # type: ignore[arg-type]
                self.took_fast_path = False
                return bytes(out)
        self.took_fast_path = False
        data = data if type(data) is bytes else _as_bytes(data)
        if self.problem is not None:
            return b""
        out = self._out() if self._pending else bytearray()
        for frame in self._framer.feed(data):
            if fast_path is None:
                self._take(frame, out)
            elif not self._take_fast(fast_path, frame, out):
                fast_path.hand_over()
                self._take(frame, out)
                fast_path.settle(is_idle=not self._done and self.problem is None)
        return bytes(out)

    def _take_fast(self, fast_path: FastPath, frame: Frame, out: bytearray) -> bool:
        """A frame that did not come alone, or not in one piece: whether nothing more is to be done with it."""
        template, raw = fast_path.template, frame.raw
        if (
            template is None
            or frame.fault is not None
            or not raw.startswith(template.head)
            or not raw.endswith(template.tail)
        ):
            return False
        taken = fast_path.take(template, raw)
        if type(taken) is bytes:
            out += taken
        elif taken is not None:
            self._send(taken, out)  # type: ignore[arg-type]
        return taken is not None

    def feed_body(self, body: dict[str, Any]) -> bytes:
        """Convert a complete response of a host that does not stream, and return the bytes of the stream.

        Raises `InvalidInput` if host and client both use Chat, because then there is nothing to translate.
        """
        if self._patches_chat:
            raise InvalidInput("a whole response becomes a stream only with an encoder", field="encoder")
        out = self._out()
        self._send(self._pipeline.feed_body(body), out)
        self._done = True  # a body has no marker at its end
        return bytes(out)

    def flush(self) -> bytes:
        """End the stream after the last input, and return the remaining bytes.

        A stream that ends without a finish reason gets an error event, never the finish reason `tool_calls`.
        """
        out = self._out()
        if self.problem is None:
            self._take_rest(out)
        if self.problem is None:
            self._end(out)
        self._over = True
        return bytes(out)

    def fail(self, problem: Problem) -> bytes:
        """End the stream because the host failed or stalled, and return the remaining bytes for the client.

        They contain the data that was held back, the end of open blocks, and the error. A response that already has a
        finish reason gets no error. After this call, the mender returns nothing more.
        """
        out = self._out()
        self.took_fast_path = False
        if self.problem is None and not self._over:
            self._take_rest(out)
            if self._pipeline.complete:
                self._end(out)
            else:
                self._break_off(problem, out)
        self._over = True
        return bytes(out)

    def start_retry(self) -> None:
        """Continue with a second response of the host, because the first one is no answer.

        The reasoning stays, its ending is discarded, and the client sees a single response. Raises `InvalidInput`
        unless `may_retry` is set, `wants_retry` is True, and the stream was not ended by `flush` or `fail`.
        """
        if not self.wants_retry or self._over:
            raise InvalidInput("only a response that cannot be used can be continued by another", field="may_retry")
        out = self._out()
        self._take_rest(out)
        self._send(self._pipeline.start_retry(), out)
        if self._fast_path is not None:
            self._fast_path.restart()
        self._pending = bytes(out)
        self._begin()

    def use_framing(self, framing: Framing) -> None:
        """Read the response that follows `start_retry` in this framing. To be called before its first bytes."""
        if framing != self._input_format:
            self._input_format, self._fast_path = framing, None
            self._begin()

    @property
    def wants_retry(self) -> bool:
        """Whether the response is over and no answer, and nothing but reasoning has left: see `start_retry`."""
        return self._may_retry and self._pipeline.retry_reason is not None

    @property
    def retry_reason(self) -> str | None:
        """The error code of a response that is worth a second request; None for any other."""
        return self._pipeline.retry_reason if self._may_retry else None

    @property
    def awaits_usage(self) -> bool:
        """Whether the finish reason is held back for the usage that follows it: see `release_ending`."""
        return self._pipeline.awaits_usage

    def release_ending(self) -> bytes:
        """The usage that is waited for does not come soon: the bytes of the ending."""
        out = self._out()
        self._send(self._pipeline.release_ending(), out)
        return bytes(out)

    @property
    def complete(self) -> bool:
        """Whether the host has sent the finish reason; only usage may still come."""
        return self._pipeline.complete

    @property
    def repairs(self) -> list[Repaired]:
        """The first 256 repairs, in order."""
        return list(self._pipeline.log.repairs)

    @property
    def repair_counts(self) -> dict[str, int]:
        """The number of repairs by rule, including those that `repairs` does not contain."""
        return dict(self._pipeline.log.counts)

    @property
    def message(self) -> Message:
        """The assembled message of the first choice so far; empty with `collect=False`."""
        return self._pipeline.message(0)

    def message_of(self, choice: int) -> Message:
        """The assembled message of a choice so far, by its index (`n > 1`)."""
        return self._pipeline.message(choice)

    @property
    def ending(self) -> Finished | Failed | None:
        """How the first choice ended; None while it has not."""
        return self._pipeline.ending(0)

    @property
    def reasoning_field(self) -> str | None:
        """The field in which a Chat host sends reasoning and expects it back.

        None if there was no reasoning yet, or if several fields contain the same text.
        """
        return self._pipeline.reasoning_field

    @property
    def usage(self) -> dict[str, Any] | None:
        """The usage as the host reported it."""
        return self._pipeline.usage

    @property
    def normalized_usage(self) -> Usage | None:
        """The usage as token counts with the same meaning for every host."""
        return self._pipeline.normalized_usage

    counted: ClassVar[FormerName] = FormerName("normalized_usage")
    again: ClassVar[FormerName] = FormerName("start_retry")
    whole: ClassVar[FormerName] = FormerName("feed_body")

    # -- how it ends -----------------------------------------------------------------

    def _out(self) -> bytearray:
        """What goes out next begins with what had to wait for it."""
        out = bytearray(self._pending)
        self._pending = b""
        return out

    def _take_rest(self, out: bytearray) -> None:
        """No more bytes come: what is left of the last frame."""
        if self._fast_path is not None:
            self._fast_path.hand_over()
        for frame in self._framer.flush():
            if not self._is_half(frame):
                self._take(frame, out)
        if self._fast_path is not None:
            self._fast_path.settle(is_idle=False)

    def _end(self, out: bytearray) -> None:
        # What is no chunk may be something that both sides understand, unless we know better.
        if self._patches_chat and self._plan.client is None and self._passed and not self._pipeline.saw_chunks:
            return
        self._send(self._pipeline.end(), out)
        if not self._done and self._pipeline.finished and self._upstream.done is not None:
            if self._input_format == "sse":
                self._pipeline.log.add(Repaired("missing_done", "[DONE]"), 0)
            if self._patches_chat and self._output_format == "sse":
                out += render_sse(_DONE)
        self._done = True

    def _break_off(self, problem: Problem, out: bytearray) -> None:
        self.problem = problem
        error_body = self._client.render_problem(problem)
        released = self._pipeline.fail(replace(failure_from(problem), message=error_body["error"]["message"]))
        if released and released[-1].payloads:
            fill_error(problem, error_body, released[-1].payloads[-1])
        self._send(released, out)

    def _is_half(self, frame: Frame) -> bool:
        """Whether the input ended inside a chunk: half of one would break the client before it sees the error."""
        if frame.fault is None or frame.data is None:
            return False
        beginning = frame.data.strip()
        half_done = beginning != _DONE and _DONE.startswith(beginning)
        if not half_done and (not beginning.startswith(b"{") or decode_object(frame.data) is not None):
            return False
        self._pipeline.log.add(Repaired("cut_off_frame", frame.data.decode("utf-8", "replace")), 0)
        return True

    # -- one frame -------------------------------------------------------------------

    def _take(self, frame: Frame, out: bytearray) -> None:
        if self.problem is not None:
            return
        if frame.fault is not None:
            if frame.fault not in self._faults:
                self._faults.add(frame.fault)
                self._pipeline.log.add(Repaired("framing", frame.fault), 0)
            if frame.fault == "oversized" and self._plan.client is not None:
                # Half an event is of no use; after the end of a response it changes nothing.
                if not self._pipeline.complete:
                    self._break_off(_too_large(self._limit), out)
                return
        if frame.head and self._plan.client is not None:
            frame = self._without_id(frame)
        data = frame.data
        if self._done and data is not None and "after_done" not in self._faults:
            self._faults.add("after_done")
            self._pipeline.log.add(Repaired("after_done", data[:200].decode("utf-8", "replace")), 0)
        if data is None or (self._done and self._patches_chat):
            self._pass_through(frame, out)
        elif data.strip() == _DONE:
            origin = None
            # For a client, an error is the end: some would take `[DONE]` for a good one. A recording stays as it is.
            is_unwanted = self._plan.client is not None and self._pipeline.has_failed
            if self._patches_chat and self._output_format in ("sse", self._input_format) and not is_unwanted:
                # Lines of JSON need no such word.
                same = data == _DONE and self._output_format == self._input_format
                origin = frame if same else Frame(self._render_frame(_DONE, frame.head), _DONE, frame.head)
            self._send(self._pipeline.done(origin), out)
            self._done = True
        else:
            self._take_payload(frame, data, out)

    def _pass_through(self, frame: Frame, out: bytearray) -> None:
        """A comment means the same in every dialect: that the host is still there."""
        data = frame.data
        if self._patches_chat:
            # A named event without data is one that OpenAI's clients read, and fail on; a comment is none.
            readable = data is not None or self._plan.client is None or not frame.raw.strip() or frame.raw[:1] == b":"
            passes = self._output_format == self._input_format and readable and (data is None or data.strip() != _DONE)
        else:
            passes = frame.raw.startswith(b":") and self._output_format == "sse"
        if passes:
            self._send(self._pipeline.pass_through(frame), out)

    def _without_id(self, frame: Frame) -> Frame:
        """The frame without `id:` lines: the openai package fails on any comment after one."""
        lines = frame.head.splitlines(keepends=True)
        kept = [line for line in lines if line.partition(b":")[0].rstrip(b"\n") != b"id"]
        if len(kept) == len(lines):
            return frame
        if "id" not in self._faults:
            self._faults.add("id")
            self._pipeline.log.add(Repaired("framing", "id"), 0)
        head = b"".join(kept)
        if frame.data is None:
            return Frame(head + b"\n" if head else b"", None, head, frame.fault)
        return Frame(render_sse(frame.data, head), frame.data, head, frame.fault)

    def _take_payload(self, frame: Frame, data: bytes, out: bytearray) -> None:
        payload: dict[str, Any] | None = decode_object(data)
        self._passed += 1
        if payload is None:
            self._pipeline.log.add(Repaired("not_json", data[:200].decode("utf-8", "replace")), 0)
            if self._patches_chat and self._plan.client is None:
                self._send(self._pipeline.pass_through(self._reframed(frame, data)), out)
            # Else there is a client, which would fail on it, and would not even see the error that may follow.
            return
        sent = frame
        if self._patches_chat:
            if self._output_format != self._input_format:
                sent = self._reframed(frame, data)
            if self._renamer is not None and payload.get("model", self._model) != self._model:
                sent = self._renamer.rename(sent, payload)
        elif frame.head or self._pipeline.writer.keeps_frames:
            payload, frame = self._with_type(frame, payload)
            sent = frame
        released = self._pipeline.feed(payload, sent)
        if self._fast_path is not None:
            self._fast_path.learn(frame, payload, sent)
        self._send(released, out)

    def _reframed(self, frame: Frame, data: bytes) -> Frame:
        """The frame in the framing of the output."""
        if self._output_format == self._input_format:
            return frame
        # Between the tokens of JSON a line feed is white space.
        return Frame(self._render_frame(data.replace(b"\n", b" ")), data)

    def _with_type(self, frame: Frame, payload: dict[str, Any]) -> tuple[dict[str, Any], Frame]:
        """A payload with the type that its event is named after, and its frame with both."""
        found = _EVENT.search(frame.head) if frame.head else None
        event = found[1] if found is not None else None
        if event is not None and "type" not in payload:
            payload = {"type": event.decode("utf-8", "replace"), **payload}
            event = None
        if self._pipeline.writer.keeps_frames:
            line = event_line(payload.get("type"))
            if event is None or line != b"event: %b\n" % event:
                frame = self._with_event_name(frame, payload, line)
        return payload, frame

    def _with_event_name(self, frame: Frame, payload: dict[str, Any], head: bytes) -> Frame:
        """The frame with its event's name and type, should it leave as it came: clients of Messages go by both."""
        try:
            return Frame(self._render_frame(encode(payload), head), frame.data, head)
        except RecursionError:
            return frame

    def _send(self, released: list[Released[Frame]], out: bytearray) -> None:
        for one in released:
            if one.payloads is None:
                if one.origin is not None:
                    out += one.origin.raw
                continue
            head = one.origin.head if one.origin is not None else b""
            for payload in one.payloads:
                if self._client.has_event_names:
                    head = event_line(payload.get("type"))
                try:
                    out += self._render_frame(encode(payload), head)
                except RecursionError:
                    # Nested too deep to write again: as it came is the best there is.
                    out += one.origin.raw if one.origin is not None else b""
                head = b""
        if self._pipeline.closed and not self._ended and isinstance(self._pipeline.sent_ending, Finished):
            self._ended = True
            if self._client.done is not None and self._output_format == "sse":
                out += render_sse(self._client.done)


def fill_error(problem: Problem, error_body: dict[str, Any], last: dict[str, Any]) -> None:
    """The payload that ends a failed stream has the fields of an error body, and its status."""
    response = last.get("response")
    if isinstance(response, dict):
        # Responses has words of its own for an answer that broke off.
        response["error"]["status"] = problem.status
        return
    error = last["error"] | {key: value for key, value in error_body["error"].items() if value is not None}
    last |= error_body | {"error": error | {"status": problem.status}}
    if problem.code is not None:
        last["error"].setdefault("code", problem.code)


def _too_large(limit: int) -> Problem:
    message = f"The host sent an event of more than {limit:,} bytes."
    return Problem(status=502, kind="server", message=message, code="event_too_large", permanent=True)


def _as_bytes(data: object) -> bytes:
    if isinstance(data, bytes):
        return data
    if isinstance(data, (bytearray, memoryview)):
        return bytes(data)
    raise InvalidInput(f"feed takes bytes, not {type(data).__name__}", field="data")
