"""Mends an answer and writes it in the client's dialect: payloads of the host in, payloads for the client out.

Where both sides speak the same dialect, a payload that says what the host's own said leaves
as that came, and one that had to be changed keeps the host's other fields.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, Generic, TypeAlias, TypeVar, assert_never

from msgspec import Struct
from msgspec.structs import replace

from moonshim.conversation import Message, Usage
from moonshim.dialect import Dialect, Encoder
from moonshim.errors import InvalidInput
from moonshim.events import BlockClosed, BlockDelta, CallPiece, Event, Failed, Finished, Opaque, Repaired, Started
from moonshim.heard import Began, Broke, CallClosed, Counted, Ended, Heard, Over, Paused, Signed, Spoke, Unread
from moonshim.mending import PARKED_FRAMES, PARKED_LIMIT, Choice, Released
from moonshim.plan import Plan
from moonshim.repair.log import RepairLog
from moonshim.repair.slip import Slip

__all__ = ["EventCollector", "Translator", "keep_fields"]

Body: TypeAlias = dict[str, Any]
Origin = TypeVar("Origin")
_SHOWN: Final = 200
_UNTOLD: Final = 8
_BLOCKS: Final = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
    "input_json_delta": "call",
}
"""To which kind of block a delta belongs."""


class EventCollector:
    """An encoder that writes nothing: it keeps the events, for an answer that goes out whole."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def feed(self, event: Event) -> list[Body]:
        self.events.append(event)
        return []


class _Frame(Generic[Origin]):
    """A payload of the host on its way, and what became of it."""

    __slots__ = ("origin", "passes", "payload", "size", "slip")

    def __init__(self, origin: Origin | None, payload: Body, slip: Slip) -> None:
        self.origin = origin
        self.payload = payload
        self.slip = slip
        self.size = 0
        self.passes = False
        """It says nothing that we have a word for, and leaves as it came."""


class _Ending(Struct, Generic[Origin]):
    event: Finished | Failed
    frame: _Frame[Origin]


class Translator(Generic[Origin]):
    """Takes the host's payloads with their origin (the bytes they came in, say), and tells what may leave, in order.

    What can be decided leaves at once. The ending waits until the host says that the stream
    is over, since usage may come behind it.
    """

    def __init__(self, plan: Plan, *, collect: bool = True, encoder: Encoder | None = None) -> None:
        if plan.client is None or plan.upstream is None:
            raise InvalidInput("this plan was not made by prepare_request", field="plan")
        self._upstream: Dialect = plan.upstream
        self._decoder = plan.upstream.decoder()
        self._encoder = encoder if encoder is not None else plan.client.encoder(plan.reply)
        self._speaks_alike: Final = plan.client.name == plan.upstream.name and plan.client.names_events
        self.same_dialect: Final = self._speaks_alike and encoder is None
        """Whether frames can leave as they came: where payloads have a type to be known again by."""
        self.log = RepairLog()
        self._choice = Choice(0, plan, self.log, collect=collect)
        self._queue: deque[_Frame[Origin]] = deque()
        self._twins: _Twins[Origin] | None = _Twins() if self.same_dialect else None
        self._parked = 0
        self._usage: Usage | None = None
        self._ending: _Ending[Origin] | None = None
        self._raw_reason: Ended | None = None
        self._thought_at: int | None = None
        """How many calls there were when the thought began that is being told."""
        self._calling: int | None = None
        """The call that the host is telling."""
        self._closed = False
        self._told_ending: Finished | Failed | None = None
        self.saw_chunks = False

    # -- what people ask for ---------------------------------------------------------

    @property
    def usage(self) -> Body | None:
        """The usage as the host told it."""
        return self._usage.raw if self._usage is not None else None

    def message(self, index: int = 0) -> Message:
        """What was said so far."""
        return self._choice.message if index == 0 else Message("ai")

    def ending(self, index: int = 0) -> Finished | Failed | None:
        """How the answer ended, once it has."""
        if index != 0:
            return None
        return self._told_ending or self._choice.answer.ending

    @property
    def finished(self) -> bool:
        """Whether the answer has ended well."""
        return isinstance(self._choice.answer.ending, Finished)

    @property
    def is_over(self) -> bool:
        """Whether the answer has ended well, and all of it has left."""
        return self._closed and isinstance(self._told_ending, Finished)

    # -- what comes ------------------------------------------------------------------

    def feed(self, payload: Body, origin: Origin) -> list[Released[Origin]]:
        """A payload came."""
        return self._hear(self._decoder.feed(payload), payload, origin)

    def whole(self, body: Body) -> None:
        """A whole response came."""
        self._hear(self._upstream.decode_response(body), body, None)

    def passing(self, origin: Origin) -> list[Released[Origin]]:
        """Something that is no payload came (a comment): it ends the waiting, and passes."""
        self._choice.answer.leave()
        return [*self._leave(), Released(origin)]

    def done(self, origin: Origin | None) -> list[Released[Origin]]:
        """The host said that the stream is over."""
        return self._hear([*self._decoder.flush(), Over()], {}, origin)

    def end(self) -> list[Released[Origin]]:
        """The input ended."""
        released = self._hear(self._decoder.flush(), {}, None)
        if self._closed:
            return released
        frame = self._frame({}, None)
        if self._ending is None and self._choice.answer.ending is None:
            self._flush_halves(frame)
            if self._raw_reason is not None:
                self._choice.answer.finish(self._raw_reason.reason, frame.slip)
            else:
                self._choice.answer.break_off(frame.slip)
        self._queue.append(frame)
        self._choice.answer.leave()
        return released + self._leave() + self._close(frame)

    def _frame(self, payload: Body, origin: Origin | None) -> _Frame[Origin]:
        return _Frame(origin, payload, Slip(self._choice.observe))

    def _hear(self, heard: list[Heard], payload: Body, origin: Origin | None) -> list[Released[Origin]]:
        frame = self._frame(payload, origin)
        over = False
        for one in heard:
            over = self._take(one, frame) or over
        self._queue.append(frame)
        self._parked += frame.size
        released = [] if over else self._leave()
        if over or (self._queue and self._waits_too_long()):
            self._choice.answer.leave()
            released += self._leave()
        return released + self._close(frame) if over else released

    def _waits_too_long(self) -> bool:
        """Only a frame that may leave as it came is worth waiting for."""
        return not self.same_dialect or self._parked > PARKED_LIMIT or len(self._queue) > PARKED_FRAMES

    def _take(self, heard: Heard, frame: _Frame[Origin]) -> bool:
        """What the host says goes to the answer, with this frame's slip; whether the stream is over."""
        answer, slip = self._choice.answer, frame.slip
        if self._closed:
            self.log.add(Repaired("after_done", str(frame.payload)[:_SHOWN]), 0)
            return False
        match heard:
            case Began():
                self.saw_chunks = True
                self._count(heard.usage)
                slip.put(Started(heard.id, heard.model, heard.created, heard.usage))
            case Spoke(channel=channel, text=text):
                self.saw_chunks = True
                if channel == "text":
                    self._thought_at = None
                elif self._thought_at is None:
                    self._thought_at = answer.calls
                frame.size += len(text)
                text = self._choice.carry.join(channel, text, slip)
                if text:
                    answer.say(channel, text, slip)
            case CallPiece():
                self.saw_chunks = True
                self._thought_at = None
                if heard.index != self._calling:
                    # Its arguments may be whole: then it is over, and clients need not wait for the end to run it.
                    if self._calling is not None:
                        answer.close_call(self._calling, slip)
                    self._calling = heard.index
                key = ("arguments", heard.index)
                answer.call(replace(heard, arguments=self._choice.carry.join(key, heard.arguments, slip)), slip)
            case Paused():
                self._thought_at = None
                answer.pause(slip)
            case CallClosed(index=index):
                answer.close_call(index, slip)
            case Signed():
                self._sign(heard, slip)
            case Counted(usage=usage):
                self._count(usage)
            case Ended():
                self.saw_chunks = True
                # What comes behind it still belongs to the answer, so that is judged when the stream is over.
                self._raw_reason = self._raw_reason or heard
            case Broke(failed=failed):
                answer.abandon(failed, slip)
                self._ending = _Ending(failed, frame)
                return True
            case Over():
                self._flush_halves(frame)
                if answer.ending is None:
                    self._over(frame)
                return True
            case Unread(payload=payload, known=known):
                frame.passes = frame.passes or self.same_dialect
                if not known:
                    self.log.add(
                        Repaired("not_said" if not self.same_dialect else "not_a_chunk", str(payload)[:_SHOWN]), 0
                    )
                if self._speaks_alike:
                    slip.put(Opaque(payload))
            case _:
                assert_never(heard)
        return False

    def _sign(self, signed: Signed, slip: Slip) -> None:
        """A signature says that a thought is as the host wrote it. One that had a call in it no longer is."""
        answer = self._choice.answer
        if signed.signature and not signed.details and self._thought_at not in (None, answer.calls):
            slip.put(Repaired("signature_dropped", "a call was taken out of the thought that it signs"))
        else:
            answer.sign(signed, slip)

    def _over(self, frame: _Frame[Origin]) -> None:
        """The stream is over. If nobody said why: an answer is an answer, silence is not."""
        if self._raw_reason is not None or self.saw_chunks:
            reason = self._raw_reason.reason if self._raw_reason is not None else None
            self._choice.answer.finish(reason, frame.slip)
        else:
            self._choice.answer.break_off(frame.slip)

    def _flush_halves(self, frame: _Frame[Origin]) -> None:
        for channel, rest in self._choice.carry.flush(frame.slip):
            if channel in ("text", "reasoning"):
                self._choice.answer.say(channel, rest, frame.slip)

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
        while self._queue and not self._queue[0].slip.waiting:
            frame = self._queue.popleft()
            self._parked -= frame.size
            released += self._release(frame)
        return released

    def _release(self, frame: _Frame[Origin]) -> list[Released[Origin]]:
        payloads: list[Body] = []
        events = _joined(frame.slip.events) if self.same_dialect else frame.slip.events
        failed = self._ending is not None and isinstance(self._ending.event, Failed)
        failed = failed or any(isinstance(event, Failed) for event in events)
        for event in events:
            if isinstance(event, (Finished, Failed)):
                self._ending = _Ending(event, frame)
            elif failed and isinstance(event, BlockClosed):
                # Nobody said that it is whole, only that there is no more: clients must not run it.
                payloads += self._encoder.feed(replace(event, complete=False))
            elif not isinstance(event, Repaired):
                payloads += self._encoder.feed(event)
        return self._matched(payloads, frame)

    def _close(self, frame: _Frame[Origin]) -> list[Released[Origin]]:
        """The ending goes out; nothing comes after it."""
        ending, self._closed = self._ending, True
        if ending is None:
            return []
        event = ending.event
        if isinstance(event, Finished):
            said = self._raw_reason
            event = replace(
                event,
                raw_reason=said.raw if said is not None else None,
                stop_sequence=said.stop_sequence if said is not None else None,
                usage=self._usage,
            )
        self._told_ending = event
        return self._matched(self._encoder.feed(event), frame)

    def _matched(self, payloads: list[Body], frame: _Frame[Origin]) -> list[Released[Origin]]:
        if self._twins is None:
            return [Released(None, payloads)] if payloads else []
        return self._twins.match(payloads, frame, over=self._closed)


class _Twins(Generic[Origin]):
    """Where both sides speak the same dialect: what goes out leaves as the host's own frame that says it.

    A payload may be told later than it came (a block is opened by its first word), so
    frames that have told nothing yet are remembered, as many as can be of use. The end of
    a block may be told earlier than it came: it waits for the host's next word.
    """

    def __init__(self) -> None:
        self._untold: deque[_Frame[Origin]] = deque(maxlen=_UNTOLD)
        self._early: list[Body] = []
        self._shifted = False
        """Blocks have other numbers than the host's own: from now on they are known by nothing."""

    def match(self, payloads: list[Body], frame: _Frame[Origin], *, over: bool) -> list[Released[Origin]]:
        """What goes out for this frame, each payload as the host's own where there is one."""
        if not self._shifted and any(self._is_shifted(payload, frame) for payload in payloads):
            self._shifted = True
        if self._shifted:
            return self._anew(payloads, frame)
        if self._early and frame.passes and "index" in frame.payload:
            payloads, self._early = [*self._early, *payloads], []
        if frame.passes and not over:
            if payloads in ([], [frame.payload]) and self._opening(frame):
                return self._wait(frame)
            if not payloads and frame.origin is not None and "index" not in frame.payload:
                return [Released(frame.origin)]
        elif self._early:
            payloads, self._early = [*self._early, *payloads], []
        if frame.origin is not None and frame not in self._untold:
            self._untold.append(frame)
        released: list[Released[Origin]] = []
        for place, payload in enumerate(payloads, 1):
            twins = [one for one in self._untold if _is_twin(one.payload, payload)]
            exact = (one for one in twins if keep_fields(one.payload, payload) is one.payload)
            twin = next(exact, twins[-1] if twins else None)
            if twin is not None:
                released += self._pass_by(twin, payload)
                kept = keep_fields(twin.payload, payload)
                released.append(Released(twin.origin) if kept is twin.payload else Released(None, [kept]))
            elif place == len(payloads) and payload.get("type") == "content_block_stop" and not over:
                self._early = [payload]
            else:
                released.append(Released(None, [payload]))
        return released

    def _is_shifted(self, payload: Body, frame: _Frame[Origin]) -> bool:
        """Whether a block goes out under another number than it came by."""
        kind = payload.get("type")
        if kind == "content_block_start":
            begun = (*self._untold, frame)
            return not any(_is_twin(one.payload, payload) and _opens_alike(one.payload, payload) for one in begun)
        pieces = kind == "content_block_delta" and frame.payload.get("type") == "content_block_delta"
        return pieces and frame.payload.get("index") != payload.get("index")

    def _anew(self, payloads: list[Body], frame: _Frame[Origin]) -> list[Released[Origin]]:
        """Blocks are written anew; what belongs to no block still leaves as it came, where it says the same."""
        waiting = [one.origin for one in self._untold if one.passes and "index" not in one.payload]
        payloads = [*self._early, *payloads]
        self._early = []
        self._untold.clear()
        released = [Released(origin) for origin in waiting]
        if frame.passes and not payloads and "index" not in frame.payload:
            return [*released, Released(frame.origin)]
        for payload in payloads:
            alike = "index" not in payload and _is_twin(frame.payload, payload)
            kept = keep_fields(frame.payload, payload) if alike else payload
            same = kept is frame.payload and frame.origin is not None
            released.append(Released(frame.origin) if same else Released(None, [kept]))
        return released

    def _opening(self, frame: _Frame[Origin]) -> bool:
        """Whether the block that the host has just begun is not told yet: what passes stays behind its start."""
        started = [one for one in self._untold if one.payload.get("type") == "content_block_start"]
        index = frame.payload.get("index")
        return bool(started) and index in (None, started[-1].payload.get("index"))

    def _wait(self, frame: _Frame[Origin]) -> list[Released[Origin]]:
        """Of signs of life only one waits, so that their client goes on hearing them."""
        earlier = [one for one in self._untold if one.passes and "index" not in one.payload]
        if "index" in frame.payload or not earlier:
            self._untold.append(frame)
            return []
        self._untold.remove(earlier[0])
        self._untold.append(frame)
        return [Released(earlier[0].origin)]

    def _pass_by(self, twin: _Frame[Origin], payload: Body) -> list[Released[Origin]]:
        """Frames before this one that no payload will be like: what says nothing, or nothing that we know, leaves."""
        released: list[Released[Origin]] = []
        while (passed := self._untold.popleft()) is not twin:
            if _follows(passed.payload, payload) and (passed.passes or _is_empty(passed.payload)):
                released.append(Released(passed.origin))
        return released


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


def _opens_alike(came: Body, goes: Body) -> bool:
    """Whether both starts are of one kind of block."""
    one, other = came.get("content_block"), goes.get("content_block")
    return isinstance(one, dict) and isinstance(other, dict) and one.get("type") == other.get("type")


def _is_twin(came: Body, goes: Body) -> bool:
    return came.get("type") == goes.get("type") and came.get("index") == goes.get("index")


def _follows(passed: Body, payload: Body) -> bool:
    """Whether a frame can leave right before this payload: it belongs to no block, or to the same one."""
    if "index" not in passed:
        return True
    if passed["index"] != payload.get("index") or payload.get("type") == "content_block_start":
        return False
    kinds = {_kind_of(passed), _kind_of(payload)}
    return None in kinds or len(kinds) == 1


def _kind_of(payload: Body) -> str | None:
    """The kind of block that this delta belongs to, if it says so."""
    delta = payload.get("delta")
    kind = delta.get("type") if isinstance(delta, dict) else None
    return _BLOCKS.get(kind) if isinstance(kind, str) else None


def _is_empty(payload: Body) -> bool:
    """Whether this is a delta that says nothing: hosts begin the input of a call with one."""
    delta = payload.get("delta")
    return isinstance(delta, dict) and all(not value for name, value in delta.items() if name != "type")


def keep_fields(came: Body, goes: Body) -> Body:
    """What came, if it says all that is to go out; else that, with the fields of what came that it says nothing of."""
    try:
        return came if _says_all(came, goes) else _kept(came, goes)
    except RecursionError:
        return goes


def _says_all(came: Any, goes: Any) -> bool:
    """Whether what came says all that is to go out; what is null need not be said."""
    if isinstance(came, dict) and isinstance(goes, dict):
        if not goes and came:
            return False
        return all(_says(came, key, value) for key, value in goes.items())
    if isinstance(came, list) and isinstance(goes, list):
        return len(came) == len(goes) and all(map(_says_all, came, goes))
    return type(came) is type(goes) and bool(came == goes)


def _says(came: Body, key: str, value: Any) -> bool:
    if key == "usage" and isinstance(value, dict) and isinstance(came.get(key), dict):
        # How much of its count a host repeats, and when, is its own business.
        return all(value.get(name, number) == number for name, number in came[key].items())
    if key not in came:
        # Clients put deltas behind the empty text of a start: that has to be there. A signature is not put behind one.
        return value is None or (key == "signature" and not value)
    return _says_all(came[key], value)


def _kept(came: Body, goes: Body) -> Body:
    """What is to go out, with the fields of the host's own payload that it says nothing of."""
    out = dict(came)
    for key, value in goes.items():
        known = came.get(key)
        if isinstance(known, dict) and isinstance(value, dict) and value and known.get("type") == value.get("type"):
            out[key] = _kept(known, value)
        else:
            out[key] = value
    return out
