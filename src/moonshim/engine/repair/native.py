"""Native tool deltas, in every shape hosts send them -> calls in the call tracker.

Indexes arrive missing, as strings, or shared by two calls; identifiers on every
delta; names in pieces; arguments before the name. First wins for identity,
arguments concatenate.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from moonshim.engine.frames import FrameOutput, HeldFrames
from moonshim.engine.grammar.protocol import (
    CallDelta,
    CallEnded,
    CallLost,
    CallResumed,
    CallStarted,
    Grammar,
    GrammarEvent,
    Notice,
    OrphanStarted,
    TextFound,
)
from moonshim.engine.repair.cumulative import is_placeholder
from moonshim.engine.repair.finish import CALL_UNREADABLE
from moonshim.engine.repair.tool_calls import ToolCallTracker, TrackedCall
from moonshim.engine.repair.tool_names import DeclaredTools
from moonshim.engine.values.events import BlockDelta, CallPiece, Repaired
from moonshim.engine.wire.json_codec import decode_object

__all__ = ["NativeCalls"]

_MARKERS_AT_END: Final = re.compile(r"(?:\s*<\|tool_calls?(?:_section)?_end\|>)*\s*\Z")
_REPORTED: Final = 1024
"""How many characters of text beside calls in the arguments of another call are reported."""


class _Slot:
    """A call as far as its deltas have come."""

    __slots__ = (
        *("after", "call", "extras", "header", "id", "in_id", "index", "inner", "late_name", "name", "reported"),
        "unread",
    )

    def __init__(self, index: int | None) -> None:
        self.index = index
        self.id: str | None = None
        self.in_id = ""
        """Arguments that came in the id."""
        self.name = ""
        self.late_name = ""
        self.reported: set[str] = set()
        """What was odd about its deltas, each reported once."""
        self.extras: dict[str, Any] = {}
        self.header: FrameOutput | None = None
        """The frame that brought the name, while that may still grow."""
        self.call: TrackedCall | None = None
        self.after: Grammar | None = None
        """Reads what follows the arguments, once something does."""
        self.inner: TrackedCall | None = None
        """The call that was found there, while it is open."""
        self.unread = ""
        """What was found beside such calls, as far as it is reported."""


class NativeCalls:
    """Tells which call each delta belongs to, and passes it on as soon as its name is certain."""

    def __init__(
        self, tracker: ToolCallTracker, declared: DeclaredTools, after_arguments: Callable[[], Grammar] | None = None
    ) -> None:
        self._tracker = tracker
        self._declared = declared
        self._by_index: dict[int, _Slot] = {}
        self._by_id: dict[str, _Slot] = {}
        self._last: _Slot | None = None
        self._unsettled: dict[_Slot, None] = {}
        """Calls whose name may still come, or grow; only that of the last one can have begun to."""
        self._open: dict[TrackedCall, None] = {}
        self._awaited: dict[TrackedCall, None] = {}
        """Calls that frames wait for."""
        self._empty: dict[TrackedCall, bool] = {}
        """Calls whose arguments are `{}` so far, and whether they are over if that is all.

        Some hosts send that for all calls, in one frame, before the real arguments.
        """
        self._emptied: FrameOutput | None = None
        """The frame that the last of them came in."""
        self._unfinished: TrackedCall | None = None
        """The host has said that it is whole, and it is not: it may be the last, and cut off."""
        self._after_arguments = after_arguments
        self.begun = False
        """Whether anything came since the last `finish`."""
        self._read_on: dict[_Slot, None] = {}
        """Those whose arguments are followed by something."""

    def feed(self, piece: CallPiece, output: FrameOutput, mended: str | None = None) -> None:
        self.begun = True
        slot = self._slot_for(piece, output)
        if slot is not self._last:
            self.settle_names(output, but=slot)
            self._end_odd(output)
            replaces = slot.call is not None and slot.call in self._empty
            joins = output is self._emptied and bool(piece.arguments) and is_placeholder(piece.arguments)
            if not replaces and not joins:
                self._settle_arguments(output)
            self._last = slot
        if piece.id and "{" in piece.id:
            piece = self._split_id(slot, piece, output)
        if piece.odd:
            self._report_once(slot, piece.odd, output)
        if piece.extras:
            slot.extras |= piece.extras
        self._take_name(slot, piece, output)
        if slot.call is None:
            if piece.arguments or (self._declared.knows(slot.name) and not self._declared.may_grow(slot.name)):
                self._begin(slot, output)
            elif slot.header is None and (slot.name or slot.id):
                slot.header = output
                output.waiting += 1
        if piece.arguments and slot.call is not None:
            self._grow(slot, slot.call, piece.arguments, output, mended)
            if slot.call.arguments.complete and slot.call.arguments.held:
                self._empty[slot.call], self._emptied = False, output
            elif self._empty:
                self._empty.pop(slot.call, None)
            if slot.call.is_awaited:
                self._awaited[slot.call] = None

    def _split_id(self, slot: _Slot, piece: CallPiece, output: FrameOutput) -> CallPiece:
        """A server that found no arguments marker left the arguments in the id."""
        assert piece.id is not None
        head, brace, rest = piece.id.partition("{")
        slot.id = head.strip() or None
        slot.in_id = _MARKERS_AT_END.sub("", brace + rest)
        self._report_once(slot, "arguments in the id", output)
        return replace(piece, id=slot.id)

    @property
    def is_idle(self) -> bool:
        """Whether no name is open and nothing is held back."""
        return not (self._unsettled or self._empty) and not (
            (last := next(reversed(self._open), None)) is not None and (last.whole or last.arguments.held)
        )

    def unfinished(self) -> TrackedCall | None:
        """The call that came last, if it has no arguments, or not all of them: text may bring the rest."""
        call = self._last.call if self._last is not None else None
        if call is None or call.raw is not None or call.ended or call.spilled or call not in self._open:
            return None
        return None if call.arguments.complete else call

    def hand_over(self, call: TrackedCall, output: FrameOutput) -> None:
        """The rest of this call comes as text: the host sends no more of it."""
        self._tracker.settle_deltas(call, output)
        self._open.pop(call, None)
        self._empty.pop(call, None)
        if self._unfinished is call:
            self._unfinished = None

    def continued_call(self, index: int) -> TrackedCall | None:
        """The call that this index continues, when all that can follow is more of its arguments."""
        slot = self._by_index.get(index)
        if slot is None or slot is not self._last or slot.call is None:
            return None
        call = slot.call
        if slot.after is not None:
            return None
        return call if call.block >= 0 and not call.ended and call.deltas is None else None

    def adopt(self, decided: str, share: int, output: FrameOutput) -> None:
        """A frame waits for so many characters of the arguments of the last call; the rest of it was read."""
        call = self._last.call if self._last is not None else None
        assert call is not None
        assert call.held_frames is not None
        if decided:
            output.events.append(BlockDelta(call.block, decided))
        call.held_frames.hold(output, share)
        self._awaited[call] = None

    def close(self, index: int, output: FrameOutput, *, explicit: bool) -> None:
        """End this call if its arguments are complete. `explicit`: the host said that it is over."""
        slot = self._by_index.get(index)
        if slot is None:
            return
        self.settle_names(output)
        call = slot.call
        if call is None or call.raw is not None:
            return
        if call in self._empty and not explicit:
            self._empty[call] = True
            return
        self._end_after(slot, output)
        self._read_id(slot, output)
        self._empty.pop(call, None)
        self._tracker.settle(call, output)
        if call.arguments.complete and call in self._open:
            del self._open[call]
            self._tracker.end(call, output, closed=False)
        elif explicit and call in self._open:
            self._unfinished = call

    def finish(self, output: FrameOutput) -> None:
        """No more deltas: every call is as whole as it will be."""
        self.settle_names(output)
        for slot in [*self._read_on]:
            self._end_after(slot, output)
        for slot in [*self._by_index.values(), *self._by_id.values()]:
            self._read_id(slot, output)
        for call in self._open:
            self._tracker.end(call, output, closed=False)
        self.begun = False
        self._open.clear()
        self._empty.clear()
        self._emptied = None
        self._unfinished = None
        self._by_index.clear()
        self._by_id.clear()
        self._last = None

    def release_all(self) -> None:
        """No frame waits any longer; what is held goes out with a later one."""
        slot = self._last
        if slot is not None and slot.header is not None:
            slot.header.waiting -= 1
            slot.header = None
        for call in self._awaited:
            if call.held_frames is not None:
                call.held_frames.release_all()
            if call.deltas is not None:
                call.deltas.release_all()
        self._awaited.clear()

    @staticmethod
    def _report_once(slot: _Slot, what: str, output: FrameOutput) -> None:
        if what not in slot.reported:
            slot.reported.add(what)
            output.events.append(Repaired("tool_delta", what))

    # -- its arguments, and what follows them ----------------------------------------

    def _grow(self, slot: _Slot, call: TrackedCall, text: str, output: FrameOutput, mended: str | None) -> None:
        """Where the model forgot to end a call, some hosts send the next one, in markers, as part of its arguments."""
        if slot.after is None:
            self._tracker.grow(call, text, output, mended)
            if self._after_arguments is None or not call.arguments.complete:
                return
            text = call.arguments.take_trail()
            if not text:
                return
            slot.after = self._after_arguments()
            self._read_on[slot] = None
        self._follow(slot, call, slot.after.feed(text), output)

    def _follow(self, slot: _Slot, call: TrackedCall, found: list[GrammarEvent], output: FrameOutput) -> None:
        for one in found:
            match one:
                case TextFound(text=text):
                    if call.ended:
                        slot.unread = (slot.unread + text)[:_REPORTED]
                    else:
                        call.arguments.add_trail(text)
                case CallLost(raw=raw, rest=rest):
                    if self._tracker.fails_lost_calls:
                        self._tracker.lose(CALL_UNREADABLE, raw, output)
                    elif call.ended:
                        slot.unread = (slot.unread + rest)[:_REPORTED]
                    else:
                        call.arguments.add_trail(rest)
                case OrphanStarted() | CallResumed():
                    raise AssertionError("the grammar behind arguments reads whole calls")
                case CallStarted():
                    self._end(call, output, closed=True)
                    slot.inner = self._tracker.begin_from_grammar(one, "native", output)
                    self._open[slot.inner] = None
                    output.events.append(Repaired("marker_call", f"{one.header} -> {slot.inner.name or ''}"))
                case CallDelta(text=text):
                    assert slot.inner is not None
                    self._tracker.grow(slot.inner, text, output)
                case CallEnded(closed=closed):
                    assert slot.inner is not None
                    self._end(slot.inner, output, closed=closed)
                case Notice():
                    output.events.append(Repaired(one.rule, one.detail))

    def _end(self, call: TrackedCall, output: FrameOutput, *, closed: bool) -> None:
        if call in self._open:
            del self._open[call]
            self._tracker.end(call, output, closed=closed)

    def _end_after(self, slot: _Slot, output: FrameOutput) -> None:
        """Nothing more follows the arguments of this call."""
        if slot.after is None or slot.call is None:
            return
        self._follow(slot, slot.call, slot.after.flush(), output)
        del self._read_on[slot]
        slot.after = None
        if slot.unread.strip():
            output.events.append(Repaired("arguments_trailing", slot.unread))
        slot.unread = ""

    # -- which call ------------------------------------------------------------------

    def _read_id(self, slot: _Slot, output: FrameOutput) -> None:
        """Arguments in an id are those of its call, unless it has others: then one of the two is lost."""
        in_id, slot.in_id = slot.in_id, ""
        call = slot.call
        if not in_id or call is None or call.ended:
            return
        if call.arguments.record.size or ("<|" in in_id and decode_object(in_id.encode("utf-8", "replace")) is None):
            self._tracker.lose(CALL_UNREADABLE, in_id, output)
        else:
            self._tracker.grow(call, in_id, output)

    def _end_odd(self, output: FrameOutput) -> None:
        """Another call begins: one whose arguments have no end of their own is over."""
        slot = self._last
        if slot is None or slot.call is None:
            return
        self._read_id(slot, output)
        if slot.call.arguments.unbraced and slot.call in self._open:
            del self._open[slot.call]
            self._tracker.end(slot.call, output, closed=True)

    def _slot_for(self, piece: CallPiece, output: FrameOutput) -> _Slot:
        if piece.index is not None:
            slot = self._by_index.get(piece.index)
            if slot is None or (piece.id and slot.id and piece.id != slot.id) or self._is_another(slot, piece):
                # Another identifier, or another name, under the same index is another call.
                known = self._by_id.get(piece.id) if piece.id else None
                slot = known if known is not None and known.index == piece.index else self._new(piece.index)
        elif piece.id and piece.id in self._by_id:
            slot = self._by_id[piece.id]
        elif self._last is None or (piece.id and self._last.id) or self._is_another(self._last, piece):
            slot = self._new(None)
        else:
            slot = self._last
        if piece.id and slot.id is None:
            slot.id = piece.id
            self._by_id.setdefault(piece.id, slot)
        elif piece.id:
            self._report_once(slot, "an id on every delta", output)
        return slot

    def _new(self, index: int | None) -> _Slot:
        slot = _Slot(index)
        self._unsettled[slot] = None
        if index is not None:
            self._by_index[index] = slot
        return slot

    @staticmethod
    def _is_another(slot: _Slot, piece: CallPiece) -> bool:
        """Whether a name without an identifier is another call's: this one has its name, and has gone on."""
        if not piece.name or piece.id or slot.call is None or not slot.name:
            return False
        if slot.index is None:
            return slot.call.arguments.complete or piece.name != slot.name
        return slot.call.arguments.complete and piece.name != slot.name

    # -- its name --------------------------------------------------------------------

    def _take_name(self, slot: _Slot, piece: CallPiece, output: FrameOutput) -> None:
        if not piece.name:
            return
        if slot.name:
            self._report_once(slot, "a name split over several deltas", output)
        if slot.call is None:
            if piece.name != slot.name:
                slot.name += piece.name
        elif slot.call.raw is not None:
            if piece.name != slot.late_name:
                slot.late_name += piece.name
            if not self._declared.may_grow(slot.late_name) and self._declared.names is not None:
                self._set_late_name(slot, output)
        elif piece.name != slot.call.name and not slot.name:
            # The identifier contained another name, and the call has gone out under it.
            output.events.append(
                Repaired("tool_name", f"{piece.name} arrived after the call of {slot.call.name} had started")
            )

    def _set_late_name(self, slot: _Slot, output: FrameOutput) -> None:
        """The arguments came before the name."""
        assert slot.call is not None
        self._report_once(slot, "arguments before the name", output)
        slot.name, slot.late_name = slot.late_name, ""
        del self._unsettled[slot]
        self._tracker.set_name(slot.call, self._declared.fix(slot.name), output)

    def _begin(self, slot: _Slot, output: FrameOutput) -> None:
        call = TrackedCall("native", "text", slot.id, slot.name or None)
        call.extras, slot.extras = slot.extras, {}
        call.host_index = slot.index
        call.held_frames = HeldFrames()
        call.deltas = self._tracker.deltas()
        slot.call = call
        del self._unsettled[slot]
        header, slot.header = slot.header, None
        if header is not None:
            header.waiting -= 1
        self.end_whole(output)
        self._open[call] = None
        self._tracker.begin(call, header if header is not None else output)
        if call.raw is not None:
            # The name may still come: until then the slot is not settled.
            self._unsettled[slot] = None

    def settle(self, output: FrameOutput) -> None:
        """Something else begins: names and empty objects are what they are, and held calls are whole."""
        if self._last is None and not self._unsettled and not self._open:
            return
        self.settle_names(output)
        self._settle_arguments(output)
        self.end_whole(output)

    def _settle_arguments(self, output: FrameOutput) -> None:
        """Placeholders that nothing has replaced are the arguments."""
        empty, self._empty, self._emptied = self._empty, {}, None
        for call, over in empty.items():
            self._tracker.settle(call, output)
            if (over or call.whole) and call in self._open:
                del self._open[call]
                self._tracker.end(call, output, closed=False)

    def end_whole(self, output: FrameOutput) -> None:
        """A call that is held until it is whole is so when something else begins; one that stopped was not cut off."""
        stopped, self._unfinished = self._unfinished, None
        if stopped is not None and stopped in self._open:
            del self._open[stopped]
            self._tracker.end(stopped, output, closed=True)
        last = next(reversed(self._open), None)
        if last is not None and last.whole and last.raw is None and last.arguments.complete and last not in self._empty:
            self._tracker.end(last, output, closed=False)
            del self._open[last]

    def settle_names(self, output: FrameOutput, *, but: _Slot | None = None) -> None:
        """Something else came: a name that could have grown has not."""
        slot = self._last
        if slot is None or slot is but or slot not in self._unsettled:
            return
        if slot.call is None and (slot.name or slot.id):
            self._begin(slot, output)
        elif slot.call is not None and slot.late_name:
            self._set_late_name(slot, output)
