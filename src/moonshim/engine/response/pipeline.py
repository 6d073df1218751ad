"""Mends an answer and writes it in the client's dialect: payloads of the host in, payloads for the client out.

Where both sides speak the same dialect, a payload that says what the host's own said leaves
as that came, and one that had to be changed keeps the host's other fields.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, TypeAlias, TypeVar, assert_never

from msgspec import Struct
from msgspec.structs import replace

from moonshim.engine.assemble import Assembler
from moonshim.engine.dialects.protocol import Dialect, Encoder, Template
from moonshim.engine.grammar.protocol import Notice
from moonshim.engine.plan import Plan
from moonshim.engine.repair.finish import resolve_finish
from moonshim.engine.repair.frame_output import FrameOutput
from moonshim.engine.repair.repair_log import RepairLog
from moonshim.engine.repair.repairer import ParsedText, ResponseRepairer
from moonshim.engine.response.choice import Choice
from moonshim.engine.response.chunk_mender import HELD_FRAMES, HELD_LIMIT, Released
from moonshim.engine.response.frame_matcher import FrameMatcher, HostFrame
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
from moonshim.engine.values.conversation import Message, Usage
from moonshim.engine.values.events import (
    BlockClosed,
    BlockDelta,
    BlockOpened,
    BlockSigned,
    CallPiece,
    Event,
    Failed,
    Finished,
    Opaque,
    Repaired,
    Started,
)
from moonshim.errors import InvalidInput

__all__ = ["EventCollector", "ResponsePipeline"]

Body: TypeAlias = dict[str, Any]
Origin = TypeVar("Origin")
_DETAIL_LENGTH: Final = 200


class EventCollector:
    """An encoder that writes nothing: it keeps the events, for an answer that goes out whole."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def feed(self, event: Event) -> list[Body]:
        self.events.append(event)
        return []

    def template(self, index: int) -> Template | None:
        return None


class _Ending(Struct, Generic[Origin]):
    event: Finished | Failed
    frame: HostFrame[Origin]


class ResponsePipeline(Generic[Origin]):
    """Takes the host's payloads with their origin (the bytes they came in, say), and tells what may leave, in order.

    What can be decided leaves at once. The ending waits until the host says that the stream
    is over, since usage may come behind it; with `hold_empty` one behind reasoning alone waits
    until somebody says that the input ended, or asks the host `start_retry`.
    """

    def __init__(
        self, plan: Plan, *, collect: bool = True, encoder: Encoder | None = None, hold_empty: bool = False
    ) -> None:
        if plan.client is None or plan.upstream is None:
            raise InvalidInput("this plan was not made by prepare_request", field="plan")
        self._plan, self._collect = plan, collect
        self._upstream: Dialect = plan.upstream
        self._encoder = encoder if encoder is not None else plan.client.encoder(plan.reply)
        self._same_wire: Final = plan.client.name == plan.upstream.name and plan.client.has_event_names
        self.same_dialect: Final = self._same_wire and encoder is None
        """Whether frames can leave as they came: where payloads have a type to be known again by."""
        self.log = RepairLog()
        self._stages = plan.stages() or None
        self._assembler = Assembler() if self._stages is not None and collect else None
        """Who hears what the stages made of the answer, which is what the client hears."""
        self._matcher: FrameMatcher[Origin] | None = FrameMatcher() if self.same_dialect else None
        self._hold_empty = hold_empty
        self._earlier_message = Message("assistant")
        self._earlier_usage: Usage | None = None
        """What answers before this one said and cost."""
        self._blocks = self._first_block = 0
        plain = self._stages is None and not hold_empty
        self._write: Callable[[Event], list[Body]] = self._encoder.feed if plain else self._write_staged
        self._begin()

    def _begin(self) -> None:
        """One answer of the host begins."""
        self._decoder = self._upstream.decoder()
        self._choice = Choice(0, self._plan, self.log, collect=self._collect and self._stages is None)
        self._queue: deque[HostFrame[Origin]] = deque()
        self._held_size = 0
        self._usage: Usage | None = None
        self._ending: _Ending[Origin] | None = None
        self._held_ending: HostFrame[Origin] | None = None
        """The frame whose ending is kept back."""
        self._raw_reason: FinishReported | None = None
        self._calls_before_reasoning: int | None = None
        """How many calls there were when the thought began that is being told."""
        self._current_call: int | None = None
        """The call that the host is telling."""
        self._started = False
        """Whether the client knows already that the answer has begun."""
        self._closed = False
        self._sent_ending: Finished | Failed | None = None
        self.saw_chunks = False

    # -- what people ask for ---------------------------------------------------------

    @property
    def usage(self) -> Body | None:
        """The usage as the host told it."""
        return self._usage.raw if self._usage is not None else None

    @property
    def normalized_usage(self) -> Usage | None:
        """The usage in numbers that mean the same for every host; what was answered before counts."""
        return _add_usage(self._usage, self._earlier_usage)

    def message(self, index: int = 0) -> Message:
        """What was said so far."""
        if index:
            return Message("assistant")
        if self._assembler is not None:
            return self._assembler.message
        message = self._choice.message
        return (
            message
            if not self._earlier_message.parts
            else Message("assistant", self._earlier_message.parts + message.parts)
        )

    def ending(self, index: int = 0) -> Finished | Failed | None:
        """How the answer ended, once it has."""
        if index != 0:
            return None
        return self._sent_ending or self._choice.repairer.ending

    @property
    def reasoning_field(self) -> str | None:
        """The field in which a Chat host tells its reasoning."""
        return self._choice.reader.field

    @property
    def finished(self) -> bool:
        """Whether the answer has ended well."""
        return isinstance(self._choice.repairer.ending, Finished)

    @property
    def is_over(self) -> bool:
        """Whether the answer has ended well, and all of it has left."""
        return self._closed and isinstance(self._sent_ending, Finished)

    @property
    def complete(self) -> bool:
        """Whether the host has said how its answer ends."""
        return self._closed or self._held_ending is not None or self._raw_reason is not None

    @property
    def only_reasoning(self) -> bool:
        """Whether the answer has ended well, and said nothing but reasoning."""
        repairer, reason = self._choice.repairer, self._raw_reason
        if repairer.ending is not None or reason is None:
            return self._choice.only_reasoning
        # All that is not sure yet is that nothing comes behind the reason.
        ending = resolve_finish(reason.reason, calls=False, cut_off=False, enforce=True)
        return isinstance(ending, Finished) and ending.reason == "stop" and repairer.is_idle and repairer.only_reasoning

    # -- what comes ------------------------------------------------------------------

    def feed(self, payload: Body, origin: Origin) -> list[Released[Origin]]:
        """A payload came."""
        return self._handle(self._decoder.feed(payload), payload, origin)

    def feed_body(self, body: Body) -> list[Released[Origin]]:
        """A whole response came."""
        return self._handle(self._upstream.decode_response(body), body, None)

    def pass_through(self, origin: Origin) -> list[Released[Origin]]:
        """Something that is no payload came (a comment): it ends the waiting, and passes."""
        self._choice.repairer.release_all()
        return [*self._release_ready(), Released(origin)]

    def done(self, origin: Origin | None) -> list[Released[Origin]]:
        """The host said that the stream is over."""
        return self._handle([*self._decoder.flush(), StreamEnded()], {}, origin)

    def end(self) -> list[Released[Origin]]:
        """The input ended."""
        released = self._handle(self._decoder.flush(), {}, None)
        self._hold_empty = False
        if self._held_ending is not None:
            return released + self._close(self._held_ending)
        if self._closed:
            return released
        frame = self._frame({}, None)
        return released + self._conclude(frame) + self._close(frame)

    def fail(self, failed: Failed) -> list[Released[Origin]]:
        """The host is gone: open blocks are closed, and the error is the last payload."""
        if self._closed:
            return []
        self.log.add(Repaired("failed", failed.code), 0)
        return self._handle([*self._decoder.flush(), UpstreamFailed(failed)], {}, None)

    def start_retry(self) -> list[Released[Origin]]:
        """Another answer of the host follows in the same answer to the client. What there was of the first leaves."""
        released = self._handle(self._decoder.flush(), {}, None)
        if self._held_ending is None:
            released += self._conclude(self._frame({}, None))
        self._earlier_message, self._earlier_usage = self.message(), self.normalized_usage
        self._first_block = self._blocks
        if self._matcher is not None:
            self._matcher = FrameMatcher(shifted=True)
        self._begin()
        self._started = True
        return released

    # -- the fast path: payloads whose text was read before they were parsed ---------------

    @property
    def repairer(self) -> ResponseRepairer:
        """The answer that is being told."""
        return self._choice.repairer

    @property
    def is_idle(self) -> bool:
        """Whether all that was said has left, so that the next text may be read on the fast path."""
        if self._stages is not None or self._queue or (self._matcher is not None and not self._matcher.is_idle):
            return False
        return self._choice.repairer.is_idle and self._choice.carry.is_empty

    @property
    def passes(self) -> bool:
        """Whether a payload that needs nothing leaves as it came."""
        return self._matcher is not None and not self._matcher.rewrites_deltas

    def only_text(self, payload: Body) -> OnlyText | None:
        """Where the text stands, if it is all that the payload said which came last, and that its like would say."""
        return self._decoder.only_text(payload)

    def template(self, block: int) -> Template | None:
        """How the next piece of this block is told."""
        return self._encoder.template(self._first_block + block)

    def write_delta(self, block: int, text: str) -> list[Released[Origin]]:
        """A piece of a block that was read on the fast path, and whose block has no template."""
        payloads = self._write(BlockDelta(block, text))
        return [Released(None, payloads)] if payloads else []

    def resume(
        self, only: OnlyText, text: str, parsed: ParsedText | str, payload: Body, origin: Origin | None
    ) -> list[Released[Origin]]:
        """Continue with a payload whose text the fast path has read, and could not handle: `parsed` is the result."""
        frame = self._frame(payload, origin)
        if isinstance(parsed, ParsedText):
            assert only.channel is not None
            frame.size = len(text)
            self._choice.repairer.feed_text(only.channel, text, frame.output, parsed)
        else:
            self._choice.repairer.feed_call(CallPiece(only.index, arguments=text), frame.output, parsed)
        return self._enqueue(frame, over=False)

    # -- one payload -----------------------------------------------------------------

    def _conclude(self, frame: HostFrame[Origin]) -> list[Released[Origin]]:
        """Nothing more comes of this answer: all of it leaves but the ending."""
        if self._ending is None and self._choice.repairer.ending is None:
            self._flush_halves(frame)
            if self._raw_reason is not None:
                self._choice.repairer.finish(self._raw_reason.reason, frame.output)
            else:
                self._choice.repairer.break_off(frame.output)
        self._queue.append(frame)
        self._choice.repairer.release_all()
        return self._release_ready()

    def _frame(self, payload: Body, origin: Origin | None) -> HostFrame[Origin]:
        return HostFrame(origin, payload, FrameOutput(self._choice.observe))

    def _handle(
        self, upstream_events: list[UpstreamEvent], payload: Body, origin: Origin | None
    ) -> list[Released[Origin]]:
        frame = self._frame(payload, origin)
        over = False
        for one in upstream_events:
            over = self._take(one, frame) or over
        return self._enqueue(frame, over)

    def _enqueue(self, frame: HostFrame[Origin], over: bool) -> list[Released[Origin]]:
        if frame.size and frame.output.waiting:
            frame.size = max(frame.size, frame.output.size)
        self._queue.append(frame)
        self._held_size += frame.size
        released = [] if over else self._release_ready()
        if over or (self._queue and self._waits_too_long()):
            self._choice.repairer.release_all()
            released += self._release_ready()
        if self._stages is not None and self._stages.failure is not None and not self._closed:
            failure = self._stages.failure
            self._ending, over = _Ending(Failed(failure.code, str(failure), retryable=False), frame), True
        return released + self._close(frame) if over else released

    def _waits_too_long(self) -> bool:
        """Only a frame that may leave as it came is worth waiting for."""
        return not self.same_dialect or self._held_size > HELD_LIMIT or len(self._queue) > HELD_FRAMES

    def _take(self, upstream_event: UpstreamEvent, frame: HostFrame[Origin]) -> bool:
        """What the host says goes to the answer, with this frame's output; whether the stream is over."""
        repairer, output = self._choice.repairer, frame.output
        if self._closed or self._held_ending is not None:
            if self._stages is None or self._stages.failure is None:  # else it is not the host who goes on too long
                self.log.add(Repaired("after_done", str(frame.payload)[:_DETAIL_LENGTH]), 0)
            return False
        match upstream_event:
            case ResponseStarted():
                self.saw_chunks = True
                self._count(upstream_event.usage)
                if not self._started:
                    output.put(
                        Started(upstream_event.id, upstream_event.model, upstream_event.created, upstream_event.usage)
                    )
            case TextDelta(channel=channel, text=text):
                self.saw_chunks = True
                if channel == "text":
                    self._calls_before_reasoning = None
                elif self._calls_before_reasoning is None:
                    self._calls_before_reasoning = repairer.calls
                frame.size += len(text)
                text = self._choice.carry.join(channel, text, output)
                if text:
                    repairer.feed_text(channel, text, output)
            case CallPiece():
                self.saw_chunks = True
                self._calls_before_reasoning = None
                if upstream_event.index != self._current_call:
                    # Its arguments may be whole: then it is over, and clients need not wait for the end to run it.
                    if self._current_call is not None:
                        repairer.close_call(self._current_call, output, explicit=False)
                    self._current_call = upstream_event.index
                joined = self._choice.carry.join(("arguments", upstream_event.index), upstream_event.arguments, output)
                repairer.feed_call(
                    upstream_event if joined is upstream_event.arguments else replace(upstream_event, arguments=joined),
                    output,
                )
            case BlockEnded():
                self._calls_before_reasoning = None
                repairer.pause(output)
            case ToolCallEnded(index=index):
                repairer.close_call(index, output)
            case SignatureReported():
                self._sign(upstream_event, output)
            case UsageReported(usage=usage):
                self._count(usage)
            case FinishReported():
                self.saw_chunks = True
                # What comes behind it still belongs to the answer, so that is judged when the stream is over.
                self._raw_reason = self._raw_reason or upstream_event
            case UpstreamFailed(failed=failed):
                repairer.abandon(failed, output)
                self._ending = _Ending(failed, frame)
                return True
            case StreamEnded():
                self._flush_halves(frame)
                if repairer.ending is None:
                    self._over(frame)
                return True
            case Notice(rule=rule, detail=detail):
                output.put(Repaired(rule, detail))
            case UnknownPayload(payload=payload, known=known):
                frame.passes = frame.passes or self.same_dialect
                if not known:
                    self.log.add(
                        Repaired("not_said" if not self.same_dialect else "not_a_chunk", str(payload)[:_DETAIL_LENGTH]),
                        0,
                    )
                if self._same_wire:
                    output.put(Opaque(payload))
            case _:
                assert_never(upstream_event)
        return False

    def _sign(self, signed: SignatureReported, output: FrameOutput) -> None:
        """A signature says that a thought is as the host wrote it. One that had a call in it no longer is."""
        repairer = self._choice.repairer
        if signed.field is not None:
            self._choice.reader.field = signed.field
        if signed.field == "reasoning_content":
            if not signed.signature and not signed.details:
                return  # what everybody expects needs no word
            signed = replace(signed, field=None)
        if signed.signature and not signed.details and self._calls_before_reasoning not in (None, repairer.calls):
            output.put(Repaired("signature_dropped", "a call was taken out of the thought that it signs"))
        else:
            repairer.sign(signed, output)

    def _over(self, frame: HostFrame[Origin]) -> None:
        """The stream is over. If nobody said why: an answer is an answer, silence is not."""
        if self._raw_reason is not None or self.saw_chunks:
            reason = self._raw_reason.reason if self._raw_reason is not None else None
            self._choice.repairer.finish(reason, frame.output)
        else:
            self._choice.repairer.break_off(frame.output)

    def _flush_halves(self, frame: HostFrame[Origin]) -> None:
        for channel, rest in self._choice.carry.flush(frame.output):
            if channel in ("text", "reasoning"):
                self._choice.repairer.feed_text(channel, rest, frame.output)

    def _count(self, usage: Usage | None) -> None:
        """A later count takes the place of an earlier one, number by number."""
        if usage is None:
            return
        known = self._usage
        if known is None:
            self._usage = usage
            return
        numbers = {
            name: value if (value := getattr(usage, name)) is not None else getattr(known, name)
            for name in ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
        }
        self._usage = Usage(**numbers, raw=known.raw | usage.raw)

    # -- what leaves -----------------------------------------------------------------

    def _release_ready(self) -> list[Released[Origin]]:
        released = []
        while self._queue and not self._queue[0].output.waiting:
            frame = self._queue.popleft()
            self._held_size -= frame.size
            released += self._release(frame)
        return released

    def _release(self, frame: HostFrame[Origin]) -> list[Released[Origin]]:
        events = frame.output.events
        if len(events) == 1 and type(events[0]) is BlockDelta:
            return self._match_frame(self._write(events[0]), frame)
        payloads: list[Body] = []
        events = _join_deltas(events) if self.same_dialect else events
        failed = self._ending is not None and isinstance(self._ending.event, Failed)
        failed = failed or any(isinstance(event, Failed) for event in events)
        for event in events:
            if isinstance(event, (Finished, Failed)):
                self._ending = _Ending(event, frame)
            elif failed and isinstance(event, BlockClosed):
                # Nobody said that it is whole, only that there is no more: clients must not run it.
                payloads += self._write(replace(event, complete=False))
            elif self._stages is not None or not isinstance(event, Repaired):
                payloads += self._write(event)
        return self._match_frame(payloads, frame)

    def _write_staged(self, event: Event) -> list[Body]:
        """The payloads that tell what the stages made of an event; blocks are numbered on from answer to answer."""
        if isinstance(event, BlockOpened):
            self._blocks += 1
        if self._first_block and isinstance(event, (BlockOpened, BlockDelta, BlockSigned, BlockClosed)):
            event = replace(event, index=self._first_block + event.index)
        if self._stages is None:
            return self._encoder.feed(event)
        payloads: list[Body] = []
        for staged in self._stages.feed(event):
            self._observe_staged(staged, event)
            payloads += self._encoder.feed(staged)
        return payloads

    def _observe_staged(self, staged: Event, event: Event) -> None:
        """What goes out is what was said, and how it ended."""
        if isinstance(staged, Repaired):
            if staged is not event:
                self.log.add(staged, 0)
        elif isinstance(staged, (Finished, Failed)):
            self._sent_ending = staged
        elif self._assembler is not None:
            if isinstance(staged, BlockOpened) and staged.name is not None:
                staged = replace(staged, name=self._plan.names.get(staged.name, staged.name))
            self._assembler.feed(staged)

    def _close(self, frame: HostFrame[Origin]) -> list[Released[Origin]]:
        """The ending goes out; nothing comes after it."""
        ending = self._ending
        if self._hold_empty and ending is not None and isinstance(ending.event, Finished) and self.only_reasoning:
            self._held_ending = frame
            return []
        self._closed, self._held_ending = True, None
        if ending is None:
            return []
        event = ending.event
        if isinstance(event, Finished):
            reported = self._raw_reason
            event = replace(
                event,
                raw_reason=reported.raw if reported is not None else None,
                stop_sequence=reported.stop_sequence if reported is not None else None,
                usage=self.normalized_usage,
            )
        self._sent_ending = event
        return self._match_frame(self._write(event), frame)

    def _match_frame(self, payloads: list[Body], frame: HostFrame[Origin]) -> list[Released[Origin]]:
        if self._matcher is None:
            return [Released(None, payloads)] if payloads else []
        return self._matcher.match(payloads, frame, over=self._closed)


def _add_usage(usage: Usage | None, spent: Usage | None) -> Usage | None:
    """What an answer cost, with the tokens of one before it that nobody could use."""
    if usage is None or spent is None:
        return usage or spent
    total = {
        name: (getattr(usage, name) or 0) + (getattr(spent, name) or 0)
        for name in ("output_tokens", "reasoning_tokens")
        if getattr(usage, name) is not None
    }
    return replace(usage, **total)


def _join_deltas(events: list[Event]) -> list[Event]:
    """What was said in one frame, and became sure in two steps, is still said in one."""
    out: list[Event] = []
    for event in events:
        last = out[-1] if out else None
        if isinstance(event, BlockDelta) and isinstance(last, BlockDelta) and event.index == last.index:
            out[-1] = BlockDelta(event.index, last.text + event.text)
        else:
            out.append(event)
    return out
