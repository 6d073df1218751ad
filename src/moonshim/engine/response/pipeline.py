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
from moonshim.engine.repair.finish import mended_finish
from moonshim.engine.repair.frame_output import FrameOutput
from moonshim.engine.repair.repair_log import RepairLog
from moonshim.engine.repair.repairer import ParsedText, ResponseRepairer
from moonshim.engine.response.choice import Choice
from moonshim.engine.response.chunk_mender import PARKED_FRAMES, PARKED_LIMIT, Released
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
_SHOWN: Final = 200


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
    until somebody says that the input ended, or asks the host `again`.
    """

    def __init__(
        self, plan: Plan, *, collect: bool = True, encoder: Encoder | None = None, hold_empty: bool = False
    ) -> None:
        if plan.client is None or plan.upstream is None:
            raise InvalidInput("this plan was not made by prepare_request", field="plan")
        self._plan, self._collect = plan, collect
        self._upstream: Dialect = plan.upstream
        self._encoder = encoder if encoder is not None else plan.client.encoder(plan.reply)
        self._speaks_alike: Final = plan.client.name == plan.upstream.name and plan.client.has_event_names
        self.same_dialect: Final = self._speaks_alike and encoder is None
        """Whether frames can leave as they came: where payloads have a type to be known again by."""
        self.log = RepairLog()
        self._stages = plan.stages() or None
        self._assembler = Assembler() if self._stages is not None and collect else None
        """Who hears what the stages made of the answer, which is what the client hears."""
        self._twins: FrameMatcher[Origin] | None = FrameMatcher() if self.same_dialect else None
        self._hold_empty = hold_empty
        self._said = Message("assistant")
        self._spent: Usage | None = None
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
        self._parked = 0
        self._usage: Usage | None = None
        self._ending: _Ending[Origin] | None = None
        self._kept: HostFrame[Origin] | None = None
        """The frame whose ending is kept back."""
        self._raw_reason: FinishReported | None = None
        self._thought_at: int | None = None
        """How many calls there were when the thought began that is being told."""
        self._calling: int | None = None
        """The call that the host is telling."""
        self._begun = False
        """Whether the client knows already that the answer has begun."""
        self._closed = False
        self._told_ending: Finished | Failed | None = None
        self.saw_chunks = False

    # -- what people ask for ---------------------------------------------------------

    @property
    def usage(self) -> Body | None:
        """The usage as the host told it."""
        return self._usage.raw if self._usage is not None else None

    @property
    def counted(self) -> Usage | None:
        """The usage in numbers that mean the same for every host; what was answered before counts."""
        return _added(self._usage, self._spent)

    def message(self, index: int = 0) -> Message:
        """What was said so far."""
        if index:
            return Message("assistant")
        if self._assembler is not None:
            return self._assembler.message
        message = self._choice.message
        return message if not self._said.parts else Message("assistant", self._said.parts + message.parts)

    def ending(self, index: int = 0) -> Finished | Failed | None:
        """How the answer ended, once it has."""
        if index != 0:
            return None
        return self._told_ending or self._choice.answer.ending

    @property
    def reasoning_field(self) -> str | None:
        """The field in which a Chat host tells its reasoning."""
        return self._choice.reader.field

    @property
    def finished(self) -> bool:
        """Whether the answer has ended well."""
        return isinstance(self._choice.answer.ending, Finished)

    @property
    def is_over(self) -> bool:
        """Whether the answer has ended well, and all of it has left."""
        return self._closed and isinstance(self._told_ending, Finished)

    @property
    def complete(self) -> bool:
        """Whether the host has said how its answer ends."""
        return self._closed or self._kept is not None or self._raw_reason is not None

    @property
    def only_reasoning(self) -> bool:
        """Whether the answer has ended well, and said nothing but reasoning."""
        answer, reason = self._choice.answer, self._raw_reason
        if answer.ending is not None or reason is None:
            return self._choice.only_reasoned
        # All that is not sure yet is that nothing comes behind the reason.
        ending = mended_finish(reason.reason, calls=False, cut_off=False, enforce=True)
        return isinstance(ending, Finished) and ending.reason == "stop" and answer.is_idle and answer.only_reasoned

    # -- what comes ------------------------------------------------------------------

    def feed(self, payload: Body, origin: Origin) -> list[Released[Origin]]:
        """A payload came."""
        return self._hear(self._decoder.feed(payload), payload, origin)

    def whole(self, body: Body) -> list[Released[Origin]]:
        """A whole response came."""
        return self._hear(self._upstream.decode_response(body), body, None)

    def passing(self, origin: Origin) -> list[Released[Origin]]:
        """Something that is no payload came (a comment): it ends the waiting, and passes."""
        self._choice.answer.release_all()
        return [*self._leave(), Released(origin)]

    def done(self, origin: Origin | None) -> list[Released[Origin]]:
        """The host said that the stream is over."""
        return self._hear([*self._decoder.flush(), StreamEnded()], {}, origin)

    def end(self) -> list[Released[Origin]]:
        """The input ended."""
        released = self._hear(self._decoder.flush(), {}, None)
        self._hold_empty = False
        if self._kept is not None:
            return released + self._close(self._kept)
        if self._closed:
            return released
        frame = self._frame({}, None)
        return released + self._conclude(frame) + self._close(frame)

    def fail(self, failed: Failed) -> list[Released[Origin]]:
        """The host is gone: open blocks are closed, and the error is the last payload."""
        if self._closed:
            return []
        self.log.add(Repaired("failed", failed.code), 0)
        return self._hear([*self._decoder.flush(), UpstreamFailed(failed)], {}, None)

    def again(self) -> list[Released[Origin]]:
        """Another answer of the host follows in the same answer to the client. What there was of the first leaves."""
        released = self._hear(self._decoder.flush(), {}, None)
        if self._kept is None:
            released += self._conclude(self._frame({}, None))
        self._said, self._spent = self.message(), self.counted
        self._first_block = self._blocks
        if self._twins is not None:
            self._twins = FrameMatcher(shifted=True)
        self._begin()
        self._begun = True
        return released

    # -- at a glance: payloads whose text was read before they were parsed ---------------

    @property
    def answer(self) -> ResponseRepairer:
        """The answer that is being told."""
        return self._choice.answer

    @property
    def is_calm(self) -> bool:
        """Whether all that was said has left, so that the next text may be read at a glance."""
        if self._stages is not None or self._queue or (self._twins is not None and not self._twins.is_calm):
            return False
        return self._choice.answer.is_idle and self._choice.carry.is_empty

    @property
    def passes(self) -> bool:
        """Whether a payload that needs nothing leaves as it came."""
        return self._twins is not None and not self._twins.writes_anew

    def only_text(self, payload: Body) -> OnlyText | None:
        """Where the text stands, if it is all that the payload said which came last, and that its like would say."""
        return self._decoder.only_text(payload)

    def template(self, block: int) -> Template | None:
        """How the next piece of this block is told."""
        return self._encoder.template(self._first_block + block)

    def tell(self, block: int, text: str) -> list[Released[Origin]]:
        """A piece of a block that was read at a glance, and whose block has no template."""
        payloads = self._write(BlockDelta(block, text))
        return [Released(None, payloads)] if payloads else []

    def resume(
        self, only: OnlyText, text: str, fed: ParsedText | str, payload: Body, origin: Origin | None
    ) -> list[Released[Origin]]:
        """A payload whose only text was read at a glance, and is more than that: `fed` is what has become of it."""
        frame = self._frame(payload, origin)
        if isinstance(fed, ParsedText):
            assert only.channel is not None
            frame.size = len(text)
            self._choice.answer.say(only.channel, text, frame.output, fed)
        else:
            self._choice.answer.call(CallPiece(only.index, arguments=text), frame.output, fed)
        return self._queued(frame, over=False)

    # -- one payload -----------------------------------------------------------------

    def _conclude(self, frame: HostFrame[Origin]) -> list[Released[Origin]]:
        """Nothing more comes of this answer: all of it leaves but the ending."""
        if self._ending is None and self._choice.answer.ending is None:
            self._flush_halves(frame)
            if self._raw_reason is not None:
                self._choice.answer.finish(self._raw_reason.reason, frame.output)
            else:
                self._choice.answer.break_off(frame.output)
        self._queue.append(frame)
        self._choice.answer.release_all()
        return self._leave()

    def _frame(self, payload: Body, origin: Origin | None) -> HostFrame[Origin]:
        return HostFrame(origin, payload, FrameOutput(self._choice.observe))

    def _hear(self, heard: list[UpstreamEvent], payload: Body, origin: Origin | None) -> list[Released[Origin]]:
        frame = self._frame(payload, origin)
        over = False
        for one in heard:
            over = self._take(one, frame) or over
        return self._queued(frame, over)

    def _queued(self, frame: HostFrame[Origin], over: bool) -> list[Released[Origin]]:
        if frame.size and frame.output.waiting:
            frame.size = max(frame.size, frame.output.size)
        self._queue.append(frame)
        self._parked += frame.size
        released = [] if over else self._leave()
        if over or (self._queue and self._waits_too_long()):
            self._choice.answer.release_all()
            released += self._leave()
        if self._stages is not None and self._stages.failure is not None and not self._closed:
            failure = self._stages.failure
            self._ending, over = _Ending(Failed(failure.code, str(failure), retryable=False), frame), True
        return released + self._close(frame) if over else released

    def _waits_too_long(self) -> bool:
        """Only a frame that may leave as it came is worth waiting for."""
        return not self.same_dialect or self._parked > PARKED_LIMIT or len(self._queue) > PARKED_FRAMES

    def _take(self, heard: UpstreamEvent, frame: HostFrame[Origin]) -> bool:
        """What the host says goes to the answer, with this frame's slip; whether the stream is over."""
        answer, output = self._choice.answer, frame.output
        if self._closed or self._kept is not None:
            if self._stages is None or self._stages.failure is None:  # else it is not the host who goes on too long
                self.log.add(Repaired("after_done", str(frame.payload)[:_SHOWN]), 0)
            return False
        match heard:
            case ResponseStarted():
                self.saw_chunks = True
                self._count(heard.usage)
                if not self._begun:
                    output.put(Started(heard.id, heard.model, heard.created, heard.usage))
            case TextDelta(channel=channel, text=text):
                self.saw_chunks = True
                if channel == "text":
                    self._thought_at = None
                elif self._thought_at is None:
                    self._thought_at = answer.calls
                frame.size += len(text)
                text = self._choice.carry.join(channel, text, output)
                if text:
                    answer.say(channel, text, output)
            case CallPiece():
                self.saw_chunks = True
                self._thought_at = None
                if heard.index != self._calling:
                    # Its arguments may be whole: then it is over, and clients need not wait for the end to run it.
                    if self._calling is not None:
                        answer.close_call(self._calling, output, said=False)
                    self._calling = heard.index
                joined = self._choice.carry.join(("arguments", heard.index), heard.arguments, output)
                answer.call(heard if joined is heard.arguments else replace(heard, arguments=joined), output)
            case BlockEnded():
                self._thought_at = None
                answer.pause(output)
            case ToolCallEnded(index=index):
                answer.close_call(index, output)
            case SignatureReported():
                self._sign(heard, output)
            case UsageReported(usage=usage):
                self._count(usage)
            case FinishReported():
                self.saw_chunks = True
                # What comes behind it still belongs to the answer, so that is judged when the stream is over.
                self._raw_reason = self._raw_reason or heard
            case UpstreamFailed(failed=failed):
                answer.abandon(failed, output)
                self._ending = _Ending(failed, frame)
                return True
            case StreamEnded():
                self._flush_halves(frame)
                if answer.ending is None:
                    self._over(frame)
                return True
            case Notice(rule=rule, detail=detail):
                output.put(Repaired(rule, detail))
            case UnknownPayload(payload=payload, known=known):
                frame.passes = frame.passes or self.same_dialect
                if not known:
                    self.log.add(
                        Repaired("not_said" if not self.same_dialect else "not_a_chunk", str(payload)[:_SHOWN]), 0
                    )
                if self._speaks_alike:
                    output.put(Opaque(payload))
            case _:
                assert_never(heard)
        return False

    def _sign(self, signed: SignatureReported, output: FrameOutput) -> None:
        """A signature says that a thought is as the host wrote it. One that had a call in it no longer is."""
        answer = self._choice.answer
        if signed.field is not None:
            self._choice.reader.field = signed.field
        if signed.field == "reasoning_content":
            if not signed.signature and not signed.details:
                return  # what everybody expects needs no word
            signed = replace(signed, field=None)
        if signed.signature and not signed.details and self._thought_at not in (None, answer.calls):
            output.put(Repaired("signature_dropped", "a call was taken out of the thought that it signs"))
        else:
            answer.sign(signed, output)

    def _over(self, frame: HostFrame[Origin]) -> None:
        """The stream is over. If nobody said why: an answer is an answer, silence is not."""
        if self._raw_reason is not None or self.saw_chunks:
            reason = self._raw_reason.reason if self._raw_reason is not None else None
            self._choice.answer.finish(reason, frame.output)
        else:
            self._choice.answer.break_off(frame.output)

    def _flush_halves(self, frame: HostFrame[Origin]) -> None:
        for channel, rest in self._choice.carry.flush(frame.output):
            if channel in ("text", "reasoning"):
                self._choice.answer.say(channel, rest, frame.output)

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

    def _leave(self) -> list[Released[Origin]]:
        released = []
        while self._queue and not self._queue[0].output.waiting:
            frame = self._queue.popleft()
            self._parked -= frame.size
            released += self._release(frame)
        return released

    def _release(self, frame: HostFrame[Origin]) -> list[Released[Origin]]:
        events = frame.output.events
        if len(events) == 1 and type(events[0]) is BlockDelta:
            return self._matched(self._write(events[0]), frame)
        payloads: list[Body] = []
        events = _joined(events) if self.same_dialect else events
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
        return self._matched(payloads, frame)

    def _write_staged(self, event: Event) -> list[Body]:
        """The payloads that tell what the stages made of an event; blocks are numbered on from answer to answer."""
        if isinstance(event, BlockOpened):
            self._blocks += 1
        if self._first_block and isinstance(event, (BlockOpened, BlockDelta, BlockSigned, BlockClosed)):
            event = replace(event, index=self._first_block + event.index)
        if self._stages is None:
            return self._encoder.feed(event)
        payloads: list[Body] = []
        for told in self._stages.feed(event):
            self._hear_stages(told, event)
            payloads += self._encoder.feed(told)
        return payloads

    def _hear_stages(self, told: Event, event: Event) -> None:
        """What goes out is what was said, and how it ended."""
        if isinstance(told, Repaired):
            if told is not event:
                self.log.add(told, 0)
        elif isinstance(told, (Finished, Failed)):
            self._told_ending = told
        elif self._assembler is not None:
            if isinstance(told, BlockOpened) and told.name is not None:
                told = replace(told, name=self._plan.names.get(told.name, told.name))
            self._assembler.feed(told)

    def _close(self, frame: HostFrame[Origin]) -> list[Released[Origin]]:
        """The ending goes out; nothing comes after it."""
        ending = self._ending
        if self._hold_empty and ending is not None and isinstance(ending.event, Finished) and self.only_reasoning:
            self._kept = frame
            return []
        self._closed, self._kept = True, None
        if ending is None:
            return []
        event = ending.event
        if isinstance(event, Finished):
            said = self._raw_reason
            event = replace(
                event,
                raw_reason=said.raw if said is not None else None,
                stop_sequence=said.stop_sequence if said is not None else None,
                usage=self.counted,
            )
        self._told_ending = event
        return self._matched(self._write(event), frame)

    def _matched(self, payloads: list[Body], frame: HostFrame[Origin]) -> list[Released[Origin]]:
        if self._twins is None:
            return [Released(None, payloads)] if payloads else []
        return self._twins.match(payloads, frame, over=self._closed)


def _added(usage: Usage | None, spent: Usage | None) -> Usage | None:
    """What an answer cost, with the tokens of one before it that nobody could use."""
    if usage is None or spent is None:
        return usage or spent
    total = {
        name: (getattr(usage, name) or 0) + (getattr(spent, name) or 0)
        for name in ("output_tokens", "reasoning_tokens")
        if getattr(usage, name) is not None
    }
    return replace(usage, **total)


def _joined(events: list[Event]) -> list[Event]:
    """What was said in one frame, and became sure in two steps, is still said in one."""
    out: list[Event] = []
    for event in events:
        last = out[-1] if out else None
        if isinstance(event, BlockDelta) and isinstance(last, BlockDelta) and event.index == last.index:
            out[-1] = BlockDelta(event.index, last.text + event.text)
        else:
            out.append(event)
    return out
