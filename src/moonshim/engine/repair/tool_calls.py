"""Every call of an answer, native or found in markers, takes the same way: name, arguments, duplicates, identifier.

A call goes out as it arrives, unless there is a reason to hold it until it is whole:
its name is not known yet, `assembled` was asked for, or the other source may be
sending the same calls a second time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from moonshim.engine.frames import FrameOutput, HeldFrames, grow_block
from moonshim.engine.grammar.protocol import CallStarted, Channel, OrphanStarted
from moonshim.engine.ids import IdRepairer
from moonshim.engine.repair.argument_record import ArgumentsRecord
from moonshim.engine.repair.arguments import Arguments, PlainArguments, SafeArguments, may_be_object
from moonshim.engine.repair.blocks import BlockTracker
from moonshim.engine.repair.cumulative import CumulativeDeltas
from moonshim.engine.repair.duplicates import DuplicateWatch, Source
from moonshim.engine.repair.finish import CALL_UNREADABLE
from moonshim.engine.repair.tool_names import DeclaredTools, unwrap
from moonshim.engine.values.conversation import Tool
from moonshim.engine.values.events import BlockClosed, BlockDelta, BlockOpened, Failed, Repaired
from moonshim.engine.values.options import KimiOptions
from moonshim.engine.values.text_pieces import TextPieces

if TYPE_CHECKING:
    from moonshim.engine.repair.schema_reader import Schema

__all__ = ["Source", "ToolCallTracker", "TrackedCall"]

_PLAIN_KEYS: Final = frozenset(
    {"type", "properties", "required", "additionalProperties", "title", "description", "$schema"}
)
_STRING_KEYS: Final = frozenset(
    {"type", "title", "description", "default", "examples", "enum", "format", "pattern", "minLength", "maxLength"}
)


_DROPPED: Final = frozenset({"arguments_doubled", "arguments_trailing", "arguments_leading_junk"})
"""Repairs that drop what the host has charged for."""


class TrackedCall:
    """One call on its way. `block` is its place in the answer once it has gone out."""

    __slots__ = (
        "arguments",
        "block",
        "channel",
        "complete",
        "deltas",
        "ended",
        "extras",
        "held",
        "held_before",
        "held_frames",
        "held_size",
        "host_index",
        "name",
        "raw",
        "source",
        "spilled",
        "whole",
        "wire_id",
    )

    def __init__(self, source: Source, channel: Channel, wire_id: str | None, name: str | None) -> None:
        self.source: Source = source
        self.channel: Channel = channel
        self.wire_id: str | None = wire_id
        self.name: str | None = name
        self.block: int = -1
        self.host_index: int | None = None
        """The index under which the host sends a native call."""
        self.extras: dict[str, Any] | None = None
        """Unknown fields of the host's own deltas; None for a call that was found in markers."""
        self.arguments: Arguments
        self.deltas: CumulativeDeltas | None = None
        """Set for native calls, until it is clear how their deltas add up."""
        self.whole: bool = False
        """Held until it is whole."""
        self.raw: TextPieces | None = None
        """The arguments as they came, while the name is not known."""
        self.held: TextPieces = TextPieces()
        self.held_size: int = 0
        self.spilled: bool = False
        """Over the limit without a name: the rest goes out as text."""
        self.held_before: str = ""
        """What was held back of the arguments before the last text was read on the fast path."""
        self.ended: bool = False
        self.complete: bool = False
        self.held_frames: HeldFrames | None = None
        """Set for native calls: the frames that wait for arguments held back."""

    @property
    def is_awaited(self) -> bool:
        """Whether frames wait for it."""
        is_held = self.held_frames is not None and self.held_frames.is_awaited
        return is_held or (self.deltas is not None and self.deltas.waits)


class ToolCallTracker:
    """Delivers the calls of one choice, in order, each once."""

    def __init__(
        self,
        declared: DeclaredTools,
        options: KimiOptions,
        ids: IdRepairer,
        blocks: BlockTracker,
        *,
        fails_lost_calls: bool = False,
    ) -> None:
        self._declared = declared
        self._options = options
        self._ids = ids
        self._blocks = blocks
        self._assembled = options.tool_call_streaming == "assembled"
        self._schemas: dict[str, Schema | None] = {}
        """Those of the tools that were called."""
        self._duplicates = DuplicateWatch()
        self.delivered: int = 0
        self.records: list[tuple[str, TrackedCall]] = []
        """The calls that went out, with their names at the host."""
        self.cut_off: bool = False
        """Whether some call broke off in the middle of its arguments."""
        self.invalid: bool = False
        """Whether the arguments of some call are not JSON."""
        self.cut = False
        """Set when the answer was truncated: what is missing is then not made up."""
        self.got_more: bool = False
        """Whether the host sent more than goes out: the same call or arguments twice, say."""
        self.looks_incomplete: bool = False
        """Whether some call looks as if a server had lost a part of its arguments."""
        self.lost: Failed | None = None
        """Why a call of the model cannot be delivered."""
        self.fails_lost_calls: bool = fails_lost_calls
        """Whether that ends the response in an error; otherwise what is left of such a call is text."""
        self.over = False
        """Set when the host said that the response ends in its calls: then native ones are over, too."""

    def begin(self, call: TrackedCall, output: FrameOutput, *, opened: bool = True) -> None:
        """A call begins; its header goes out at once if nothing speaks against it."""
        if call.name is None and call.wire_id:
            found = self._declared.name_in(call.wire_id)
            # A native identifier may be anything: only what is beyond doubt is a name.
            sure = (
                call.source == "markers" or self._declared.knows(found or "") or call.wire_id.startswith("functions.")
            )
            call.name = found if sure else None
        elif call.name is not None:
            fixed = self._declared.fix(call.name)
            if fixed != call.name:
                output.events.append(Repaired("tool_name", f"{call.name} -> {fixed}"))
                call.name = fixed
        if not opened and not self._is_certain(call):
            call.name = None
        call.arguments = self._arguments_for(call.name)
        if call.name is None:
            call.raw = TextPieces()
        call.whole = call.name is None or self._assembled or self._duplicates.may_be_copy(call)
        if not call.whole:
            self._deliver(call, output)

    def begin_from_grammar(self, found: CallStarted, source: Source, output: FrameOutput) -> TrackedCall:
        """A grammar found the header of a call."""
        call = TrackedCall(source, found.channel, found.header or None, found.name)
        self.begin(call, output, opened=found.opened)
        if not found.opened and call.name is not None and self._options.repair_arguments == "off":
            output.events.append(Repaired("arguments_empty", found.header))
            self.grow(call, "{}", output)
        return call

    def begin_orphan(self, found: OrphanStarted, output: FrameOutput) -> TrackedCall | None:
        """Arguments came without the markers before them; None if nothing says whose they are."""
        header = self._declared.name_before(found.line)
        if header is None and self.fails_lost_calls:
            return None
        name, call_id = header if header is not None else (None, "")
        call = TrackedCall("markers", found.channel, call_id or None, name)
        self.begin(call, output)
        return call

    def lose(self, failed: Failed, raw: str, output: FrameOutput) -> None:
        """A call of the model cannot be delivered; the first reason counts."""
        output.events.append(Repaired("unreadable_call" if failed is CALL_UNREADABLE else "call_in_content", raw))
        self.lost = self.lost or failed

    def deltas(self) -> CumulativeDeltas | None:
        """How the deltas of a native call are added up; None: as they come, where arguments are left alone."""
        options = self._options
        return None if options.repair_arguments == "off" else CumulativeDeltas(options.buffer_limit)

    def settle_deltas(self, call: TrackedCall, output: FrameOutput) -> None:
        """No more native deltas come for this call."""
        if call.deltas is not None:
            for new, owner in call.deltas.finish(output):
                self._grow(call, new, owner)
            call.deltas = None

    def grow(self, call: TrackedCall, text: str, output: FrameOutput, mended: str | None = None) -> None:
        """The arguments grow; `mended` is what has already become of this text, if anything has."""
        if call.deltas is None:
            self._grow(call, text, output, mended)
            return
        for new, owner in call.deltas.feed(text, output):
            self._grow(call, new, owner)
        if call.deltas.settled or (call.deltas.begun and call.arguments.complete):
            call.deltas = None

    def _grow(self, call: TrackedCall, text: str, output: FrameOutput, mended: str | None = None) -> None:
        if call.spilled:
            self._blocks.add_text(call.channel, text, output)
            return
        if call.ended:
            output.events.append(Repaired("arguments_trailing", text))
            self.got_more = True
            if may_be_object(text.lstrip()) and not ArgumentsRecord.of(text.strip()).same_as(call.arguments.record):
                # The empty object that went out was a placeholder for this one, or two calls share a name.
                self.invalid = True
            return
        if call.raw is not None:
            call.raw.append(text)
            self._hold(call, len(text), output)
            return
        before, call.held_before = call.held_before, ""
        if mended is None:
            before = call.arguments.held
            mended = call.arguments.feed(text)
        self._report_repairs(call, output)
        self._pass_on(call, before, mended, output)

    def _report_repairs(self, call: TrackedCall, output: FrameOutput) -> None:
        for repair in call.arguments.drain():
            self.got_more = self.got_more or repair.rule in _DROPPED
            output.events.append(repair)

    def _pass_on(self, call: TrackedCall, before: str, mended: str, output: FrameOutput) -> None:
        """Mended arguments go out, or are held with the rest of the call."""
        if call.block >= 0 and call.held_frames is not None and (before or call.arguments.held):
            call.held_frames.resolve(before, mended, call.arguments.held, grow_block(call.block), output)
        elif not mended:
            return
        elif call.block >= 0:
            output.events.append(BlockDelta(call.block, mended))
        else:
            call.held.append(mended)
            self._hold(call, len(mended), output)

    def settle(self, call: TrackedCall, output: FrameOutput) -> None:
        """Something else comes: an empty object that might have been followed by the real one is the real one."""
        if call.ended or call.raw is not None or call.spilled:
            return
        before = call.arguments.held
        if before:
            self._pass_on(call, before, call.arguments.settle(), output)

    def end(self, call: TrackedCall, output: FrameOutput, *, closed: bool) -> None:
        """The call is over; `closed` when the host or a marker said so."""
        if call.ended:
            return
        lost = repeats = False
        if call.deltas is not None:
            for new, owner in call.deltas.finish(output):
                self._grow(call, new, owner)
            lost, repeats = call.deltas.lost, call.deltas.is_cumulative
        call.ended = True
        if call.spilled:
            return
        whole = closed and not lost and not repeats
        if call.raw is not None and not self._infer_name(call, "".join(call.raw), output, closed=whole):
            return
        # A call in markers that nothing ended broke off; a native one has no end of its own but the answer's.
        broken_off = lost or (not closed and (self.cut or call.source == "markers"))
        over = closed or (self.over and call.source == "native")
        repeats = call.source == "native" and (repeats or call.arguments.repeats)
        # Where deltas may have repeated earlier text, only arguments that are whole as they are can be trusted.
        over = over and not repeats
        two_values = repeats and call.arguments.trails
        before = call.arguments.held
        rest = call.arguments.close(cut=broken_off, over=over)
        self._report_repairs(call, output)
        self._pass_on(call, before, rest, output)
        call.complete = call.arguments.complete and not two_values
        tool = self._declared.by_name.get(call.name or "")
        properties = (tool.parameters or {}).get("properties") if tool is not None else None
        if properties and "" not in properties and self.fails_lost_calls and call.arguments.record.has_empty_key:
            # A server that found no key filed the value under none.
            call.complete = False
        if call.arguments.invalid or two_values:
            self.invalid = True
        elif not call.complete:
            # Whatever ended the call: it cannot be run.
            output.events.append(Repaired("arguments_unfinished" if closed else "arguments_truncated", call.name or ""))
            self.cut_off = True
        if (properties and call.arguments.record.is_empty) or call.arguments.rewritten:
            self.looks_incomplete = True
        if call.block < 0:
            self._deliver_whole(call, output)
        else:
            self._close(call, output)

    def finish(self, output: FrameOutput) -> None:
        """No more calls will come: those that waited for a duplicate go out."""
        for call in self._duplicates.release():
            self._deliver(call, output)
            self._close(call, output)

    # -- names -----------------------------------------------------------------------

    def _is_certain(self, call: TrackedCall) -> bool:
        """Without arguments, a header is a call if its name is declared, or spelled out in full."""
        if call.name is None:
            return False
        if self._declared.names is None:
            return (call.wire_id or "").partition(":")[0] == f"functions.{call.name}"
        return self._declared.knows(call.name)

    def _infer_name(self, call: TrackedCall, raw: str, output: FrameOutput, *, closed: bool) -> bool:
        """The call is whole and has no name yet: find it, or let the call go out as the text that it is."""
        name = call.name
        if name is None and raw:
            # What is wrong with the arguments must not hide whose they are.
            trial = self._arguments_for(None)
            tidy = trial.feed(raw) + trial.close(cut=not closed, over=closed)
            wrapped = unwrap(tidy)
            arguments = wrapped.arguments if wrapped is not None else tidy
            name = self._declared.fix(wrapped.name) if wrapped is not None else self._declared.fitting(_decode(tidy))
            if name is None and (wrapped := self._declared.beside(tidy)) is not None:
                name, arguments = wrapped.name, wrapped.arguments
            if name is not None:
                raw = arguments
                output.events.append(Repaired("tool_name_inferred", f"{call.wire_id or ''} -> {name}"))
                for repair in trial.drain():
                    output.events.append(repair)
        if name is None and self.fails_lost_calls:
            self.lose(CALL_UNREADABLE, f"{call.wire_id or ''}{raw}", output)
            return False
        if name is None:
            output.events.append(Repaired("unreadable_call", f"{call.wire_id or ''}{raw}"))
            self._blocks.add_text(call.channel, f"{call.wire_id or ''}{raw}", output)
            return False
        call.name, call.raw = name, None
        call.arguments = self._arguments_for(name)
        call.whole = True
        mended = call.arguments.feed(raw)
        call.held = TextPieces()
        if mended:
            call.held.append(mended)
        return True

    def set_name(self, call: TrackedCall, name: str, output: FrameOutput) -> None:
        """A call that was begun without a name got one: what was held goes on its way."""
        raw, call.raw, call.name = call.raw or TextPieces(), None, name
        call.arguments = self._arguments_for(name)
        call.held_size = 0
        call.whole = self._assembled or self._duplicates.may_be_copy(call)
        if not call.whole:
            self._deliver(call, output)
        if raw:
            self._grow(call, "".join(raw), output)

    def _arguments_for(self, name: str | None) -> Arguments:
        options, record = self._options, ArgumentsRecord()
        if options.repair_arguments == "off":
            return PlainArguments(record)
        tool = self._declared.by_name.get(name or "")
        needed = self.fails_lost_calls and name is not None and self._declared.needs_arguments(name)
        schema = self._schema_of(tool) if options.repair_arguments == "schema" and tool is not None else None
        if schema is not None:
            # Many tools take strings alone, and it is the largest part of the engine.
            from moonshim.engine.repair.schema import SchemaArguments

            return SchemaArguments(record, schema, limit=options.buffer_limit, only_object=True, needed=needed)
        return SafeArguments(record, limit=options.buffer_limit, only_object=True, needed=needed)

    def _schema_of(self, tool: Tool) -> Schema | None:
        """What its arguments are mended by; None where nothing but a string can stand in a string's place."""
        if tool.name not in self._schemas:
            self._schemas[tool.name] = None
            if tool.parameters and not _takes_only_strings(tool.parameters):
                from moonshim.engine.repair.schema_reader import Schema

                self._schemas[tool.name] = Schema(tool.parameters)
        return self._schemas[tool.name]

    # -- holding and delivering ------------------------------------------------------

    def _hold(self, call: TrackedCall, size: int, output: FrameOutput) -> None:
        call.held_size += size
        if call.held_size <= self._options.buffer_limit:
            return
        output.events.append(Repaired("buffer_limit", f"call of {call.name or 'an unknown tool'}"))
        if call.raw is None:
            call.whole = False
            self._deliver(call, output)
        else:
            call.spilled = True
            if self.fails_lost_calls:
                self.lost = self.lost or CALL_UNREADABLE
            self._blocks.add_text(call.channel, (call.wire_id or "") + "".join(call.raw), output)
            call.raw = None

    def _deliver(self, call: TrackedCall, output: FrameOutput) -> None:
        assert call.name is not None
        if self._declared.names and not self._declared.knows(call.name):
            output.events.append(Repaired("undeclared_tool", call.name))
        call_id, rule = self._ids.assign(call.name, call.wire_id)
        if rule is not None:
            output.events.append(Repaired(rule, f"{call.wire_id or ''} -> {call_id}"))
        if call.source == "markers":
            output.events.append(Repaired("marker_call", f"{call.wire_id or ''} -> {call.name}"))
        call.wire_id = call_id
        call.block = self._blocks.open_call(output)
        number = self._blocks.numbers[call.block]
        if call.host_index is not None and call.host_index != number:
            output.events.append(Repaired("tool_index", f"{call.host_index} -> {number}"))
        output.events.append(BlockOpened(call.block, "call", call_id, call.name, call.extras))
        self.delivered += 1
        self.records.append((call.name, call))
        if self._options.repair_deltas:
            self._duplicates.deliver(call)
        if call.held:
            output.events.append(BlockDelta(call.block, "".join(call.held)))
            call.held.clear()

    # -- the same call twice ---------------------------------------------------------

    def _deliver_whole(self, call: TrackedCall, output: FrameOutput) -> None:
        """A call that was held has ended: it goes out, unless it is a copy, or may still prove to be one."""
        if self._duplicates.is_copy(call):
            self._drop_copy(call, output)
        elif not self._duplicates.wait(call):
            self._deliver(call, output)
            self._close(call, output)

    def _close(self, call: TrackedCall, output: FrameOutput) -> None:
        output.events.append(BlockClosed(call.block, call.complete))
        copy, free = self._duplicates.end(call)
        if copy is not None:
            self._drop_copy(copy, output)
        for one in free:
            self._deliver_whole(one, output)

    def _drop_copy(self, call: TrackedCall, output: FrameOutput) -> None:
        self.got_more = True
        output.events.append(Repaired("duplicate_call", f"{call.name} from {call.source}"))


def _takes_only_strings(schema: dict[str, Any]) -> bool:
    """Whether a schema declares strings and nothing else, in the plainest words.

    >>> _takes_only_strings({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]})
    True
    >>> _takes_only_strings({"type": "object", "properties": {"lines": {"type": "array"}}})
    False
    """
    given = schema.get("properties", {})
    return (
        schema.keys() <= _PLAIN_KEYS
        and isinstance(schema.get("additionalProperties", False), bool)
        and isinstance(given, dict)
        and all(
            isinstance(one, dict) and one.get("type") == "string" and one.keys() <= _STRING_KEYS
            for one in given.values()
        )
    )


def _decode(raw: str) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
