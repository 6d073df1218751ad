"""Every response takes this path: decode > repair > write. Payloads of the host in, payloads for the client out.

    decoder.feed(payload) -> upstream events -> repairer of the choice -> events of the frame -> writer.write(frame)

A frame leaves when nothing in it is undecided. Code that observes the response (the log of repairs, the assembled
message) reads the events of a frame when it leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

from msgspec.structs import replace

from moonshim.engine.dialects.protocol import Dialect, Encoder, Template, Writer
from moonshim.engine.dialects.registry import dialect_named
from moonshim.engine.frames import ChoicePart, FrameQueue, HostFrame, Released
from moonshim.engine.grammar.protocol import Notice
from moonshim.engine.plan import Plan
from moonshim.engine.repair.finish import ANSWER_FAILURES, EMPTY_ANSWER, STREAM_ENDED
from moonshim.engine.repair.repair_log import RepairLog
from moonshim.engine.repair.repairer import ParsedText
from moonshim.engine.response.choice import Choice
from moonshim.engine.response.stages import Stages, take_ending
from moonshim.engine.response.usage_total import UsageTotal
from moonshim.engine.response.writers import writer_for
from moonshim.engine.upstream_events import (
    BlockEnded,
    ChoiceSelected,
    FinishReported,
    LogprobsReported,
    OnlyText,
    ResponseStarted,
    SignatureReported,
    StreamEnded,
    TextDelta,
    ToolCallEnded,
    UnknownFields,
    UnknownPayload,
    UpstreamEvent,
    UpstreamFailed,
    UsageReported,
)
from moonshim.engine.values.conversation import Message, Usage
from moonshim.engine.values.events import (
    BlockDelta,
    CallPiece,
    Event,
    Failed,
    Finished,
    Opaque,
    Repaired,
    Started,
)

__all__ = ["HELD_LIMIT", "ResponsePipeline"]

Body: TypeAlias = dict[str, Any]
Origin = TypeVar("Origin")
_DETAIL_LENGTH: Final = 200
HELD_LIMIT: Final = 27
"""Characters that frames may keep waiting: the longest marker less one."""


class ResponsePipeline(Generic[Origin]):
    """Takes the host's payloads with their origin (the bytes they came in), and gives what may leave, in order.

    What can be decided leaves at once. The frames that end a response wait (`_held_back`): in Chat for the usage that
    shows whether a call is missing, where tools are declared; and with `may_retry`, if the response is worth a second
    request, until the input ends or `start_retry` says that the host was asked again.
    """

    def __init__(
        self, plan: Plan, *, collect: bool = True, encoder: Encoder | None = None, may_retry: bool = False
    ) -> None:
        self._plan, self._collect, self._may_retry = plan, collect, may_retry
        self._upstream: Dialect = plan.upstream or dialect_named("openai_chat")
        self._same_wire = plan.client is not None and plan.client is self._upstream and plan.client.has_event_names
        self.log = RepairLog()
        self.writer: Writer[Origin] = writer_for(plan, self.log, encoder)
        self._ends_with_reason, self._single = self.writer.ends_with_reason, self.writer.single
        self._keeps_frames, self._ignored = self.writer.keeps_frames, self.writer.ignored
        self._passes_logprobs = not self._keeps_frames and not self._same_wire and plan.client is self._upstream
        self._stages = Stages(plan, self.log, collect=collect)
        self._collects_choices = (collect and not self._stages.is_active) or plan.options.assemble_tool_deltas
        self._earlier_message = Message("assistant")
        """The message of the responses before a retry."""
        self._usage = UsageTotal(plan.cache_ttl)
        self._renumbers = may_retry and not self._ends_with_reason
        self._holds_ending = self._ends_with_reason and (may_retry or plan.fails_lost_calls)
        """Whether blocks are numbered on after a retry."""
        self._begin()

    def _begin(self) -> None:
        """One response of the host begins."""
        self.decoder = self._upstream.decoder()
        self._choices: dict[int, Choice] = {}
        self._unwritten: dict[int, Choice] = {}
        """Choices that the client's dialect has no place for: they are read for what is wrong with them."""
        if not self._ends_with_reason:
            self._choice(0)
        self._queue: FrameQueue[Origin] = FrameQueue()
        self._held_back: list[HostFrame[Origin]] = []
        """The frames from the finish reason on, while they wait."""
        self.awaits_usage = False
        """Whether they wait for the usage that follows the finish reason."""
        self._accounted = False
        self._counted = False
        """Whether the usage of the whole response has come."""
        self._ending: Finished | Failed | None = None
        """How the response ends, where that is written last."""
        self._error: Failed | None = None
        """The last error that the host reported, or that it ended with."""
        self._failed = False
        """Whether an error has ended all choices."""
        self._started = False  # whether the client knows that the response has begun
        self._stream_ended = False  # whether the host said so
        self.closed = False  # whether the ending has left, where that is written last
        self.sent_ending: Finished | Failed | None = None
        self.saw_chunks = False

    # -- the response so far ---------------------------------------------------------

    @property
    def usage(self) -> Body | None:
        """The usage as the host reported it."""
        return self._usage.raw

    @property
    def normalized_usage(self) -> Usage | None:
        """The usage in numbers that mean the same for every host, with the output of the responses before a retry."""
        return self._usage.total

    def message(self, index: int = 0) -> Message:
        """What has left of a choice."""
        if self._stages.is_active:
            return self._stages.message(index)
        choice = self._choices.get(index)
        message = Message("assistant") if choice is None or not self._collect else choice.message
        if index or not self._earlier_message.parts:
            return message
        return Message("assistant", self._earlier_message.parts + message.parts)

    def ending(self, index: int = 0) -> Finished | Failed | None:
        """How a choice ended, once it has."""
        if index == 0 and self.sent_ending is not None:
            return self.sent_ending
        choice = self._choices.get(index)
        return self._error if choice is None else choice.repairer.ending

    @property
    def reasoning_field(self) -> str | None:
        """The field in which a Chat host sends the reasoning of the first choice."""
        choice = self._choices.get(0)
        return None if choice is None else choice.reasoning_field

    @property
    def finished(self) -> bool:
        """Whether every choice has ended well."""
        endings = [choice.repairer.ending for choice in self._choices.values()]
        return bool(endings) and all(isinstance(ending, Finished) for ending in endings)

    @property
    def has_failed(self) -> bool:
        """Whether the response, or one of its choices, ended in an error."""
        endings = [self._ending, *(choice.repairer.ending for choice in self._choices.values())]
        return self._error is not None or any(isinstance(ending, Failed) for ending in endings)

    @property
    def complete(self) -> bool:
        """Whether the host has said how every choice ends."""
        if self.closed or self._failed or self._held_back:
            return True
        choices = self._choices.values()
        return bool(choices) and all(one.finish is not None or one.repairer.ending is not None for one in choices)

    @property
    def retry_reason(self) -> str | None:
        """Why the response is worth a second request: it is over and no answer, and only reasoning has left."""
        choice = self._choices.get(0)
        if len(self._choices) != 1 or choice is None or not choice.is_silent:
            return None
        ending = self._ending if isinstance(self._ending, Failed) else choice.likely_ending
        if isinstance(ending, Failed):
            return ending.code if ending.code in ANSWER_FAILURES and self._error is None else None
        empty = isinstance(ending, Finished) and ending.reason == "stop" and choice.repairer.only_reasoning
        return EMPTY_ANSWER.code if empty else None

    # -- what comes ------------------------------------------------------------------

    def feed(self, payload: Body, origin: Origin | None) -> list[Released[Origin]]:
        """A payload of the host."""
        return self._handle(self.decoder.feed(payload), HostFrame(origin, payload))

    def feed_body(self, body: Body) -> list[Released[Origin]]:
        """A whole response, to be written as a stream."""
        return self._handle(self._upstream.decode_response(body), HostFrame(None, body))

    def mend_body(self, body: Body) -> Body:
        """A whole response, to be written as one."""
        frame: HostFrame[Origin] = HostFrame(None, body)
        self._take_all(self._upstream.decode_response(body), frame)
        self._finish_choices(frame)
        self._account([frame])
        for part in frame.parts:
            self._observe(part)
        if not self._ends_with_reason:
            frame.parts[0].events += self._close_events()
        return self.writer.write_body(frame)

    def pass_through(self, origin: Origin) -> list[Released[Origin]]:
        """Something that has no payload (a comment). It keeps its place, and ends the waiting.

        Hosts send comments while they have nothing to send: then no client should wait for the next word.
        """
        released = self.release_held()
        self._queue.append(HostFrame(origin, None))
        return released + self._release_ready()

    def done(self, origin: Origin | None) -> list[Released[Origin]]:
        """The host said that the stream is over, in a frame that leaves last if it has an `origin`."""
        released = self._handle([*self.decoder.flush(), StreamEnded()], HostFrame(None, None))
        if self._held_back and self._ends_with_reason:
            released += self._end_wait()
        if origin is None:
            return released
        if self._held_back and self._ends_with_reason:
            if self.finished:  # unlike a comment it does not pass the ending, and nothing follows an error
                self._held_back.append(HostFrame(origin, None))
            return released
        return released + self.pass_through(origin)

    def end(self) -> list[Released[Origin]]:
        """The input ended."""
        self._may_retry = False
        frame: HostFrame[Origin] = HostFrame(None, None)
        self._take_all(self.decoder.flush(), frame)
        if not self._choices and self._error is None and not self._stream_ended:
            self.log.add(Repaired("failed", STREAM_ENDED.code), 0)
            self._error = frame.failed = STREAM_ENDED
        elif not self.closed and not self._held_back:
            self._finish_choices(frame)
        self._queue.append(frame)
        if self._ends_with_reason:
            return self._end_wait() + self.release_held() + self._end_wait()
        held, self._held_back = self._held_back, []
        released = self.release_held()
        return released if self.closed else released + self._close(held[0] if held else frame)

    def release_ending(self) -> list[Released[Origin]]:
        """The usage that the ending waits for does not come: it leaves without."""
        return self._end_wait() if self.awaits_usage else []

    def fail(self, failed: Failed) -> list[Released[Origin]]:
        """The host is gone: what was held back leaves, and the error is the last payload."""
        if self.closed:
            return []
        self.log.add(Repaired("failed", failed.code), 0)
        return self._handle([*self.decoder.flush(), UpstreamFailed(failed)], HostFrame(None, None))

    def start_retry(self) -> list[Released[Origin]]:
        """The host was asked again: its next response continues this one, all of which leaves but the ending."""
        frame: HostFrame[Origin] = HostFrame(None, None)
        self._take_all(self.decoder.flush(), frame)
        if not self._held_back:
            self._finish_choices(frame)
        self._queue.append(frame)
        released = self.release_held()
        self._earlier_message = self.message()
        self._usage.start_retry()
        for held in self._held_back:
            for part in held.parts:
                part.events = [event for event in part.events if not isinstance(event, Failed)]
        released += self.writer.write_without_ending(self._held_back)
        self._stages.start_retry()
        self._begin()
        self._started = True
        return released

    # -- the fast path: payloads whose text was read before they were parsed -------------

    def idle_choice(self) -> Choice | None:
        """The only choice, if everything has left, so that its next text may take the fast path."""
        if self._stages.is_active or self._queue.frames or len(self._choices) != 1 or not self.writer.is_idle:
            return None
        choice = self._choices.get(0)
        if choice is None or choice.carry.carried or self._held_back or not choice.repairer.is_idle:
            return None
        if choice.restorer is not None or (choice.fence is not None and choice.fence.is_undecided):
            return None
        return choice

    def template(self, block: int) -> Template | None:
        """How the next piece of this block is written."""
        return self.writer.template(self._stages.first_block + block)

    def write_delta(self, block: int, text: str) -> list[Released[Origin]]:
        """A piece of a block that was read on the fast path, and whose block has no template."""
        frame: HostFrame[Origin] = HostFrame(None, None)
        self._part(frame, self._choices[0]).events.append(BlockDelta(self._stages.first_block + block, text))
        return self.writer.write(frame)

    def resume(
        self, only: OnlyText, text: str, parsed: ParsedText | str, payload: Body, origin: Origin | None
    ) -> list[Released[Origin]]:
        """Continue with a payload whose text the fast path has read, and could not handle: `parsed` is the result."""
        frame, part = self._frame_of(only, text, payload, origin)
        repairer = self._choices[0].repairer
        if isinstance(parsed, ParsedText):
            assert only.channel is not None
            repairer.feed_text(only.channel, text, part, parsed)
        else:
            repairer.feed_call(CallPiece(only.index, arguments=text), part, parsed)
        return self._enqueue(frame, over=False)

    def adopt(self, only: OnlyText, text: str, share: int, payload: Body, origin: Origin) -> None:
        """Queue a frame that the fast path has read, and whose last characters, `share` of them, are undecided."""
        frame, part = self._frame_of(only, text, payload, origin)
        self._choices[0].repairer.adopt(only.channel, text[: len(text) - share], share, part)
        self._queue.append(frame)

    def _frame_of(
        self, only: OnlyText, text: str, payload: Body, origin: Origin | None
    ) -> tuple[HostFrame[Origin], ChoicePart]:
        frame = HostFrame(origin, payload)
        part = self._part(frame, self._choices[0])
        if only.channel is not None:
            part.read.append(TextDelta(only.channel, text))
        else:
            part.read.append(CallPiece(only.index, arguments=text))
        frame.read = part.read
        if only.channel is not None or self._ends_with_reason:
            frame.size = len(text)
        return frame, part

    # -- decode > repair -------------------------------------------------------------

    def _choice(self, index: int) -> Choice:
        """The choice with this index; one that cannot be written is read for what is wrong with it."""
        written = index == 0 or not self._single
        choices = self._choices if written else self._unwritten
        choice = choices.get(index)
        if choice is None:
            choice = choices[index] = Choice(index, self._plan, collect=written and self._collects_choices)
            if not written:
                self.log.add(Repaired("not_said", "the client's dialect has only one choice"), index)
        return choice

    @staticmethod
    def _part(frame: HostFrame[Origin], choice: Choice) -> ChoicePart:
        """A new part of the frame."""
        part = ChoicePart(index=choice.index, numbers=choice.repairer.numbers)
        frame.parts.append(part)
        return part

    def _all_parts(self, frame: HostFrame[Origin], choices: Iterable[Choice]) -> list[tuple[Choice, ChoicePart]]:
        """These choices with their parts of the frame, which the host did not send, or which is a whole response."""
        known = {part.index: part for part in frame.parts}
        return [(choice, known.get(choice.index) or self._part(frame, choice)) for choice in choices]

    def _handle(self, events: list[UpstreamEvent], frame: HostFrame[Origin]) -> list[Released[Origin]]:
        return self._enqueue(frame, over=self._take_all(events, frame))

    def _take_all(self, events: list[UpstreamEvent], frame: HostFrame[Origin]) -> bool:
        """Repair what was read, into the frame; whether the stream is over."""
        frame.read = events
        choice = None if self._ends_with_reason else self._choices[0]
        part = self._part(frame, choice) if choice is not None else None
        over = False
        for event in events:
            if type(event) is ChoiceSelected:
                choice = self._choice(event.index)
                part = self._part(frame, choice) if self._ends_with_reason or event.index else frame.parts[0]
                continue
            if choice is None and type(event) is TextDelta:
                choice = self._choice(0)
                part = self._part(frame, choice)
            if part is not None:
                part.read.append(event)
            over = self._take(event, choice, part, frame) or over
        if self._unwritten:
            self._report_unwritten(frame)
        return over

    def _report_unwritten(self, frame: HostFrame[Origin]) -> None:
        """Choices that cannot be written: only what was wrong with them is of use."""
        for part in frame.parts[1:]:
            for event in part.events:
                if isinstance(event, Repaired):
                    self.log.add(event, part.index)
        del frame.parts[1:]

    def _take(
        self, event: UpstreamEvent, choice: Choice | None, part: ChoicePart | None, frame: HostFrame[Origin]
    ) -> bool:
        """Repair one thing that the host sent, into its part of the frame; whether the stream is over."""
        if self.closed or (self._held_back and not self._ends_with_reason):
            # After a failure of a stage it is not the host that goes on too long.
            if self._stages.failed is None and type(event) is not StreamEnded:
                self.log.add(Repaired("after_done", str(frame.payload)[:_DETAIL_LENGTH]), 0)
            return False
        if choice is not None and part is not None:
            return self._take_part(event, choice, part, frame)
        return self._take_top(event, None, frame)

    def _take_top(self, event: UpstreamEvent, part: ChoicePart | None, frame: HostFrame[Origin]) -> bool:
        """What belongs to no choice; `part` is the one that it came in, if any."""
        match event:
            case ResponseStarted():
                self.saw_chunks = True
                self._usage.add(event.usage)
                if part is not None and not self._started and not self._ends_with_reason:
                    part.events.append(Started(event.id, event.model, event.created, event.usage))
            case UsageReported(usage=usage):
                self._usage.add(usage)
            case Notice(rule=rule, detail=detail):
                if rule in self._ignored:
                    return False
                if part is not None:
                    part.events.append(Repaired(rule, detail))
                else:
                    self.log.add(Repaired(rule, detail), 0)
            case UnknownPayload(payload=payload):
                self._pass_unknown(event, frame)
                if self._same_wire and part is not None:
                    part.events.append(Opaque(payload))
            case UpstreamFailed(failed=failed, choice=index):
                return self._fail_choices(failed, index, frame)
            case StreamEnded():
                self._finish_choices(frame, over=True)
                return True
            case _:
                raise AssertionError(f"{type(event).__name__} belongs to a choice")
        return False

    def _take_part(self, event: UpstreamEvent, choice: Choice, part: ChoicePart, frame: HostFrame[Origin]) -> bool:
        repairer = choice.repairer
        match event:
            case TextDelta(channel=channel, text=text):
                self.saw_chunks = True
                if channel == "text":
                    choice.calls_before_reasoning = None
                elif choice.calls_before_reasoning is None:
                    choice.calls_before_reasoning = repairer.calls
                frame.size += len(text)
                if choice.carry.carried or not text.isascii():
                    text = choice.carry.join(channel, text, part)
                if text:
                    repairer.feed_text(channel, text, part)
            case CallPiece():
                self.saw_chunks = True
                self._take_call(event, choice, part, frame)
            case FinishReported():
                self.saw_chunks = True
                # Where the ending is written last, what follows the reason still belongs to the response.
                choice.finish = choice.finish or event
                if self._ends_with_reason:
                    choice.flush_halves(part)
                    repairer.finish(event.reason, part)
                    if self._plan.options.assemble_tool_deltas:
                        part.summary = choice.tool_calls
            case SignatureReported():
                choice.sign(event, part)
            case BlockEnded():
                choice.calls_before_reasoning = None
                repairer.pause(part)
            case ToolCallEnded(index=index):
                if not self._ends_with_reason:
                    repairer.close_call(index, part)
            case LogprobsReported(logprobs=logprobs):
                if self._passes_logprobs:
                    part.events.append(Opaque({"logprobs": logprobs}))
            case UnknownFields(fields=fields):
                if not self._keeps_frames:
                    for name, value in fields.items():
                        part.events.append(Repaired("not_said", f"{name}: {value}"[:_DETAIL_LENGTH]))
            case _:
                return self._take_top(event, part, frame)
        return False

    def _take_call(self, piece: CallPiece, choice: Choice, part: ChoicePart, frame: HostFrame[Origin]) -> None:
        if not self._ends_with_reason:
            choice.close_other_call(piece.index, part)
        elif choice.repairer.watch is not None:
            if not piece.is_unlisted:
                part.ids.append(choice.repairer.watch.feed(piece, part))
            return
        else:
            frame.size += len(piece.arguments)
        choice.feed_call(piece, part)

    def _pass_unknown(self, unknown: UnknownPayload, frame: HostFrame[Origin]) -> None:
        """A payload that the decoder cannot read: a client of the same dialect may."""
        frame.is_unknown = True
        if not unknown.known:
            detail = unknown.detail or str(unknown.payload)[:_DETAIL_LENGTH]
            self.log.add(Repaired("not_a_chunk", detail), 0)

    def _finish_choices(self, frame: HostFrame[Origin], *, over: bool = False) -> None:
        """No more comes of any choice. `over`: the host said so, and then one without a finish reason has ended too."""
        self._stream_ended = self._stream_ended or over
        for choice, part in self._all_parts(frame, [*self._choices.values(), *self._unwritten.values()]):
            repairer = choice.repairer
            choice.flush_halves(part)
            if repairer.ending is not None:
                if self._ends_with_reason:
                    repairer.drain_late(part)
            elif self._failed and self._error is not None:
                repairer.abandon(self._error, part)
            elif choice.finish is not None or (over and self.saw_chunks):
                repairer.finish(choice.finish.reason if choice.finish is not None else None, part)
            else:
                repairer.break_off(part)
            if self._plan.options.assemble_tool_deltas and self._ends_with_reason:
                part.summary = choice.tool_calls
        if self._unwritten:
            self._report_unwritten(frame)

    def _fail_choices(self, failed: Failed, index: int | None, frame: HostFrame[Origin]) -> bool:
        """The host reported an error, of all choices or of one; whether the stream is over."""
        if not self._ends_with_reason:
            for choice, part in self._all_parts(frame, self._choices.values()):
                choice.repairer.abandon(failed, part)
            self._ending = failed
            return True
        self._error = frame.failed = failed
        failing = [*self._choices.values()] if index is None else [*filter(None, [self._choices.get(index)])]
        for choice, part in self._all_parts(frame, failing):
            choice.flush_halves(part)
            choice.repairer.abandon(failed, part)
        # The frames of other choices go on waiting.
        self._failed = self._failed or index is None
        return index is None

    # -- write -----------------------------------------------------------------------

    def _enqueue(self, frame: HostFrame[Origin], *, over: bool) -> list[Released[Origin]]:
        waits = False
        for part in frame.parts:
            waits = waits or part.waiting > 0
        if not waits and not over and not self._queue.frames:
            released = self._release(frame)
        else:
            if waits and (frame.size or self._ends_with_reason):
                frame.count_text()
            self._queue.append(frame)
            released = [] if over else self._release_ready()
            if over or (self._queue.frames and self._waits_too_long(frame)):
                released += self.release_held()
        if self._stages.is_active and (failed := self._stages.failed) is not None and not self.closed:
            self._ending, over = failed, True
        return released + self._close(frame) if over and not self._ends_with_reason else released

    def _waits_too_long(self, frame: HostFrame[Origin]) -> bool:
        """Only a frame that may leave as it came is worth waiting for."""
        if not self._keeps_frames or self._queue.is_full:
            return True
        if frame.has_marker_call:
            return True  # it cannot leave as it came
        if self._queue.size <= HELD_LIMIT:
            return False
        named = sum(self._choices[index].repairer.named_held_size for index in self._queue.awaited())
        return self._queue.size - named > HELD_LIMIT

    def release_held(self) -> list[Released[Origin]]:
        """Frames wait no longer: they leave with what is decided, the rest goes out with a later one."""
        for index in self._queue.awaited():
            self._choices[index].repairer.release_all()
        return self._release_ready()

    def _release_ready(self) -> list[Released[Origin]]:
        released: list[Released[Origin]] = []
        for frame in self._queue.take_ready():
            released += self._release(frame)
        return released

    def _release(self, frame: HostFrame[Origin]) -> list[Released[Origin]]:
        for part in frame.parts:
            self._observe(part)
        if not self._holds_ending:
            return self.writer.write(frame)
        if frame.payload is None and frame.origin is not None:
            return self.writer.write(frame)  # comments pass
        self._counted = self._counted or any(type(event) is UsageReported for event in frame.read)
        ends = any(isinstance(event, (Finished, Failed)) for part in frame.parts for event in part.events)
        if not self._held_back and not ends:
            self._counted = False  # usage before the end is not that of the whole response
            return self.writer.write(frame)
        self._held_back.append(frame)
        self.awaits_usage = self._plan.fails_lost_calls and not self._counted and len(self._choices) == 1
        return [] if self.awaits_usage else self._end_wait()

    def _end_wait(self) -> list[Released[Origin]]:
        """The usage came, or does not come: the ending leaves, unless the host should be asked again."""
        self.awaits_usage = False
        self._account(self._held_back)
        if self._may_retry and self.retry_reason is not None:
            return []
        held, self._held_back = self._held_back, []
        return [released for one in held for released in self.writer.write(one)]

    def _account(self, frames: Sequence[HostFrame[Origin]]) -> None:
        """A response for which its host charged clearly more than it sent ends in an error."""
        choice, accounted = self._choices.get(0), self._accounted
        self._accounted = True
        if accounted:
            return
        failed = (
            choice.repairer.account(self._usage.current) if choice is not None and len(self._choices) == 1 else None
        )
        if failed is None:
            return
        billed = self._usage.current.output_tokens if self._usage.current is not None else None
        self.log.add(Repaired("call_lost", f"{billed} tokens charged"), 0)
        self.log.add(Repaired("failed", failed.code), 0)
        self._ending = failed if self._ending is not None else None
        for frame in frames:
            for part in frame.parts:
                part.events = [failed if isinstance(event, Finished) else event for event in part.events]

    def _observe(self, part: ChoicePart) -> None:
        """The events of a frame that leaves: repairs are logged, the rest is assembled and written."""
        events, repaired = part.events, False
        choice = self._choices[part.index]
        if choice.restorer is not None:
            events = part.events = choice.restorer.feed(events)
        if choice.fence is not None:
            events = part.events = choice.fence.feed(events)
        for event in events:
            if type(event) is Repaired:
                repaired = True
                self.log.add(event, part.index)
        if repaired and not self._stages.is_active:
            events = part.events = [event for event in events if type(event) is not Repaired]
        ends = bool(events) and isinstance(events[-1], (Finished, Failed))
        if not self._ends_with_reason and (ends or self._ending is not None):
            events, ending = take_ending(events, failed=isinstance(self._ending, Failed))
            if part.index == 0:
                self._ending = ending or self._ending
            elif ending is not None:
                events = [*events, ending]  # only the end of the first choice is that of the response
            part.events = events
        if self._stages.is_active or self._renumbers:
            part.events = self._stages.feed(events, part.index)
        if not self._stages.is_active:
            assembler = choice.assembler
            if assembler is not None:
                assembler.extend(events)

    def _close(self, frame: HostFrame[Origin]) -> list[Released[Origin]]:
        """The ending leaves; nothing comes after it."""
        self._account([])
        if self._may_retry and self.retry_reason is not None and not self.closed:
            self._held_back = [frame]
            return []
        return self.writer.write_ending(frame, self._close_events()) if not self.closed else []

    def _close_events(self) -> list[Event]:
        self.closed, self._held_back = True, []
        ending = self._stages.failed or self._ending
        if ending is None:
            return []
        if isinstance(ending, Finished):
            finish = self._choices[0].finish
            ending = replace(
                ending,
                raw_reason=finish.raw if finish is not None else None,
                stop_sequence=finish.stop_sequence if finish is not None else None,
                usage=self._usage.total,
            )
        events = self._stages.feed([ending])
        self.sent_ending = next((one for one in events if isinstance(one, (Finished, Failed))), ending)
        return events
