"""One answer (one choice) from start to end: text and native deltas as they came -> events, booked to their frames."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from moonshim.engine.frames import FrameOutput, HeldFrames
from moonshim.engine.grammar.kimi.guard import MarkerGuard
from moonshim.engine.grammar.protocol import (
    CallDelta,
    CallEnded,
    CallLost,
    CallResumed,
    CallStarted,
    Channel,
    Grammar,
    GrammarEvent,
    Notice,
    OrphanStarted,
    TextFound,
)
from moonshim.engine.ids import IdRepairer
from moonshim.engine.repair.argument_record import ArgumentsRecord
from moonshim.engine.repair.billed import UNSEEN, arrived_tokens, is_missing, most_tokens
from moonshim.engine.repair.blocks import BlockTracker
from moonshim.engine.repair.finish import (
    CALL_IN_CONTENT,
    CALL_LOST,
    CALL_UNREADABLE,
    CUT_SHORT,
    EMPTY_ANSWER,
    STOPPED,
    STREAM_ENDED,
    is_error,
    resolve_finish,
)
from moonshim.engine.repair.native import NativeCalls
from moonshim.engine.repair.native_ids import NativeIdWatcher
from moonshim.engine.repair.tool_calls import ToolCallTracker, TrackedCall
from moonshim.engine.repair.tool_names import DeclaredTools
from moonshim.engine.upstream_events import SignatureReported
from moonshim.engine.values.conversation import Usage
from moonshim.engine.values.events import BlockDelta, CallPiece, Failed, Finished, Repaired
from moonshim.engine.values.options import KimiOptions
from moonshim.engine.values.text_pieces import TextPieces

__all__ = ["NOT_PARSED", "Expectation", "ParsedText", "ResponseRepairer", "named_prefix_length"]

_CHANNELS: Final[tuple[Channel, Channel]] = ("reasoning", "text")
_SURELY_A_MARKER: Final = 3
_SURELY_MARKERS: Final = ("<｜", "</｜", "<tool_", "</tool_", "<function=", "<parameter=", "<arg_", "[TOOL_", "[ARGS")
"""Beginnings of markers after which it is worth waiting for the rest across an interruption; `<|t`, too."""


class ParsedText:
    """What a grammar found in a text that turned out to need the slow path."""

    __slots__ = ("before", "found", "mended")

    def __init__(self, found: list[GrammarEvent], mended: str | None = None) -> None:
        self.found: list[GrammarEvent] = found
        self.before: str = ""
        """What was held back before."""
        self.mended: str | None = mended
        """What became of the arguments, when they were all that was found."""


NOT_PARSED: Final = ParsedText([])
"""The text has not been looked at."""


class Expectation(Struct, frozen=True):
    """What a complete response to the request has: then one that lacks it can be recognised."""

    fails_lost_calls: bool = False
    """Whether a response that lacks a call of the model ends in an error: tools are declared and may be called."""
    fails_empty: bool = False
    """Whether a response without text and calls does, too."""
    k3: bool = False
    """How the model writes calls, which decides how many tokens they have."""
    thinks: bool | None = None
    """False: the response shows all that the model thinks, or it does not think; None: it may hide some."""


NOTHING_EXPECTED: Final = Expectation()


class ResponseRepairer:
    """Applies every rule to one choice. It is fed what came, in order, and ends exactly once."""

    def __init__(
        self,
        declared: DeclaredTools,
        options: KimiOptions,
        ids: IdRepairer,
        grammars: dict[Channel, Grammar],
        after_arguments: Callable[[], Grammar] | None = None,
        *,
        host_reads_calls: bool = False,
        expectation: Expectation = NOTHING_EXPECTED,
    ) -> None:
        """`after_arguments` makes the grammar that reads what follows the arguments of a native call.
        `host_reads_calls`: a call in markers in the text is none of the model's, or the host would have read it."""
        self._options, self._expectation = options, expectation
        self._grammars = grammars
        self.blocks: BlockTracker = BlockTracker()
        self._tracker = ToolCallTracker(
            declared, options, ids, self.blocks, fails_lost_calls=expectation.fails_lost_calls
        )
        self._native = NativeCalls(self._tracker, declared, after_arguments)
        self.watch: NativeIdWatcher | None = (
            None
            if options.repair_deltas
            else NativeIdWatcher(ids, self.blocks, mends=options.repair_on_mismatch or options.id_normalization)
        )
        """Follows native calls where their deltas are not to be touched but for the identifiers."""
        self._skims: dict[Channel, MarkerGuard | None] = {
            channel: grammar if isinstance(grammar, MarkerGuard) else None for channel, grammar in grammars.items()
        }
        self._held_frames: dict[Channel, HeldFrames] = {"reasoning": HeldFrames(), "text": HeldFrames()}
        self._host_reads_calls = host_reads_calls
        self._open: dict[Channel, TrackedCall] = {}
        self._signed = False
        """Whether the host's reasoning comes with data of its own: then it may be a summary."""
        self._skipped: dict[Channel, _SkippedCall] = {}
        """Calls that are being read in a field, and are not delivered."""
        self._resumable: TrackedCall | None = None
        """A native call without all of its arguments, which the text may bring."""
        self._held: dict[Channel, str] = {"reasoning": "", "text": ""}
        """The text that the grammar of each field holds back."""
        self.numbers: dict[int, int] = self.blocks.numbers
        """The number of each call by its block."""
        self.ending: Finished | Failed | None = None
        self.growing: int = -1
        self._moved = False

    def feed_text(self, channel: Channel, text: str, output: FrameOutput, parsed: ParsedText | None = None) -> None:
        """The host sent text in this field; `parsed` is what has already become of it, if anything has."""
        if parsed is not None:
            self._handle(channel, parsed.before, parsed.found, self._grammars[channel].held, output, parsed.mended)
            return
        if self._native.begun or self._open or self._held["text" if channel == "reasoning" else "reasoning"]:
            self._interrupt(channel, output)
            if channel == "text" and self._native.begun:
                self._offer_rest()
        if channel == "reasoning" and (other := self._grammars.get("text")) is not None:
            # Reasoning has a field of its own here, so `<think>` in the text is only a word.
            other.tags_are_text = True
        grammar = self._grammars.get(channel)
        if grammar is None:
            self._add_text(channel, text, output)
            return
        before = self._held[channel]
        found = grammar.feed(text)
        if not before and len(found) == 1:
            only = found[0]
            if type(only) is TextFound and only.channel == channel and only.text == text:
                # All of it is text, so nothing is held back.
                self._add_text(channel, text, output)
                return
        self._handle(channel, before, found, grammar.held, output)

    def _offer_rest(self) -> None:
        """Text comes behind a native call that is not whole: the server's parser may have given up."""
        call = self._native.unfinished()
        if call is None or call is self._resumable or "text" in self._open or self._tracker.lost is not None:
            return
        grammar = self._grammars.get("text")
        if self._tracker.fails_lost_calls and isinstance(grammar, MarkerGuard) and not self._held["text"]:
            self._resumable = call
            grammar.resume()

    def _add_text(self, channel: Channel, text: str, output: FrameOutput) -> None:
        blocks = self.blocks
        if blocks.open_channel == channel and (blocks.has_text or channel == "reasoning"):
            output.events.append(BlockDelta(blocks.current, text))
        else:
            blocks.add_text(channel, text, output)

    def feed_call(self, piece: CallPiece, output: FrameOutput, mended: str | None = None) -> None:
        """The host sent an entry of a native tool delta."""
        if self._resumable is not None:
            self._resumable = None
            self._handle("text", self._held["text"], self._grammars["text"].flush(), "", output)
        if self._open or self._held["text"] or self._held["reasoning"]:
            self._interrupt(None, output)
        if isinstance(guard := self._grammars.get("text"), MarkerGuard):
            guard.called()
        self._native.feed(piece, output, mended)

    def close_call(self, index: int, output: FrameOutput, *, explicit: bool = True) -> None:
        """The host said that the native call with this index is whole, or has gone on to another."""
        self._native.close(index, output, explicit=explicit)

    def pause(self, output: FrameOutput) -> None:
        """The host ended a block of speech. A call in markers, or half a marker, goes on over the break."""
        held = [(channel, before) for channel, before in self._held.items() if before]
        if self._open or any(_is_surely_a_marker(before) for _, before in held):
            return
        for channel, before in held:
            self._handle(channel, before, self._grammars[channel].flush(), "", output)
        self.blocks.close_text_block(output)

    def sign(self, signed: SignatureReported, output: FrameOutput) -> None:
        """The host said what it wants back with the reasoning that it has just sent."""
        before = self._held["reasoning"]
        self._signed = self._signed or bool(signed.signature or signed.details)
        if before and (signed.signature or signed.details or self.blocks.open_channel != "reasoning"):
            self._handle("reasoning", before, self._grammars["reasoning"].flush(), "", output)
        self.blocks.sign(signed, output)

    # -- the fast path: the same rules for the common case, without the bookkeeping of frames ---

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held back, so that the next text may be read on the fast path."""
        if self.ending is not None or self._held["text"] or self._held["reasoning"] or self._skipped:
            return False
        if self._open and any(call.whole for call in self._open.values()):
            return False
        return not self._native.begun or self._native.is_idle

    def feed_text_fast(self, channel: Channel, text: str) -> ParsedText | str | None:
        """Read text while idle. None: it stays as it is; a string: these arguments of `growing`; else do the rest."""
        grammar = self._grammars.get(channel)
        if grammar is None:
            if self.blocks.open_channel != channel:
                return NOT_PARSED
            self._note_text(channel, text)
            return None
        guard = self._skims[channel]
        if guard is not None:
            if self.blocks.open_channel == channel:
                if guard.skim(text):
                    if channel == "text" and not self.blocks.has_text:
                        self.blocks.has_text = not text.isspace()
                    return None
            elif guard.skim_value(text) and (call := self._open.get(channel)) is not None and call.block >= 0:
                mended = call.arguments.feed(text)
                if mended == text:
                    self.growing = call.block
                    return mended
                return ParsedText([CallDelta(text)], mended)
        found = grammar.feed(text)
        if len(found) != 1:
            return ParsedText(found)
        one = found[0]
        if type(one) is TextFound:
            if one.text != text or one.channel != channel or self.blocks.open_channel != channel:
                return ParsedText(found)
            self._note_text(channel, text)
            return None
        if type(one) is CallDelta:
            call = self._open.get(channel)
            if call is None or call.block < 0:
                return ParsedText(found)
            mended = call.arguments.feed(one.text)
            if mended != text:
                return ParsedText(found, mended)
            self.growing = call.block
            return mended
        return ParsedText(found)

    def held(self, channel: Channel) -> str:
        """What is held back of this field's text."""
        held = self._held[channel] = self._grammars[channel].held
        return held

    def take_plain_text(self, channel: Channel, parsed: ParsedText) -> str | None:
        """What a text gave that was read and that no frame waits for, if it is speech; None when it is more."""
        if not parsed.found:
            return ""
        one = parsed.found[0]
        if (
            type(one) is not TextFound
            or len(parsed.found) > 1
            or one.channel != channel
            or self.blocks.open_channel != channel
        ):
            return None
        self._note_text(channel, one.text)
        return one.text

    def parse(self, channel: Channel, text: str) -> ParsedText:
        """Read text while some is held back: what the grammar found, and nothing done with it yet."""
        return ParsedText(self._grammars[channel].feed(text))

    def _note_text(self, channel: Channel, text: str) -> None:
        """Text goes out with its own frame."""
        if channel == "text" and not self.blocks.has_text:
            self.blocks.has_text = not text.isspace()

    def take_held_text(self, channel: Channel, before: str, parsed: ParsedText, text: str) -> str | None:
        """What is held back now, if so far all is ordinary text; None when it is not."""
        if self.blocks.open_channel != channel or len(parsed.found) > 1:
            return None
        decided = ""
        if parsed.found:
            one = parsed.found[0]
            if type(one) is not TextFound or one.channel != channel:
                return None
            decided = one.text
        held = self._grammars[channel].held
        if decided + held != before + text or (decided and len(held) > len(text)):
            # Also when only some of what frames wait for was decided: that is for the slow path to book.
            return None
        self._note_text(channel, decided or " ")
        return held

    def adopt(self, channel: Channel | None, decided: str, share: int, output: FrameOutput) -> None:
        """A frame that was read on the fast path waits, after all: of its text, `share` characters are held back.

        Without a channel, its text is arguments of the native call that came last.
        """
        if channel is None:
            self._native.adopt(decided, share, output)
            return
        if decided:
            output.events.append(BlockDelta(self.blocks.current, decided))
        self._held[channel] = self._grammars[channel].held
        self._held_frames[channel].hold(output, share)

    def continued_call(self, index: int) -> TrackedCall | None:
        """The native call that an entry with this index, and only arguments, continues."""
        return self._native.continued_call(index)

    def feed_arguments_fast(self, call: TrackedCall, text: str) -> str | None:
        """Read native arguments while idle. None: they stay as they are; else what became of them."""
        mended = call.arguments.feed(text)
        return mended if mended != text or call.arguments.held else None

    def is_only_late(self, call: TrackedCall, before: str, text: str, mended: str) -> bool:
        """Whether nothing changed but that the end waits, or waited (`before`)."""
        return mended + call.arguments.held == before + text and (not mended or mended.startswith(before))

    def finish(self, raw: str | None, output: FrameOutput) -> None:
        """The host said that the response is over, and why (or only that it is: None)."""
        self._tracker.cut = raw in CUT_SHORT or is_error(raw)
        self._tracker.over = raw == "tool_calls"
        self._drain(output)
        if self.ending is not None:
            return
        ending = self.resolve(raw)
        if ending is EMPTY_ANSWER:
            output.events.append(Repaired("empty_answer", "no text and no call"))
        self._end(ending, output)

    def resolve(self, raw: str | None) -> Finished | Failed:
        """How a response with this finish reason ends, if nothing more follows."""
        if self._expectation.fails_empty and raw in (None, "stop", *STOPPED) and self.is_empty:
            return EMPTY_ANSWER
        return resolve_finish(
            raw,
            calls=self.calls > 0,
            cut_off=self._tracker.cut_off or (self.watch is not None and self.watch.cut_off),
            invalid=self._tracker.invalid,
            lost=self._tracker.lost,
            expects_call=self._expectation.fails_lost_calls,
            enforce=self._options.enforce_finish_reason_loop,
        )

    def break_off(self, output: FrameOutput) -> None:
        """The stream ended without a finish reason."""
        self._tracker.cut = True
        self._drain(output)
        if self.ending is None:
            self._end(STREAM_ENDED, output)

    @property
    def is_undecided(self) -> bool:
        """Whether a call may still come of what is being read or held."""
        return bool(self._open) or any(
            isinstance(guard, MarkerGuard) and guard.is_undecided for guard in self._grammars.values()
        )

    @property
    def calls(self) -> int:
        """How many calls have gone out."""
        return self._tracker.delivered + (self.watch.count if self.watch is not None else 0)

    @property
    def only_reasoning(self) -> bool:
        """Whether everything so far is reasoning."""
        return self.blocks.has_reasoning and not self.blocks.has_text and not self.calls

    @property
    def is_empty(self) -> bool:
        """Whether there is neither text nor a call, nor the trace of one."""
        return not (self.blocks.has_text or self.calls or self._tracker.lost)

    def account(self, usage: Usage | None) -> Failed | None:
        """Whether the host charged for clearly more than arrived; None: nothing shows that."""
        expected, ending = self._expectation, self.ending
        if not expected.fails_lost_calls or not isinstance(ending, Finished) or ending.reason in CUT_SHORT:
            return None
        if usage is None or usage.output_tokens is None or self._signed or self._tracker.got_more:
            return None
        guards = [self._grammars.get(channel) for channel in _CHANNELS]
        samples = []
        for guard in guards:
            if not isinstance(guard, MarkerGuard):
                return None
            guard.said.settle()
            samples.append(guard.said.sample)
        tight = self._tracker.looks_incomplete
        leaks = any(isinstance(guard, MarkerGuard) and guard.has_markers for guard in guards)
        shown = self.blocks.has_reasoning or expected.thinks is False
        if not (shown or tight or leaks):
            return None  # it may think without showing it
        calls = [(name, call.arguments.record) for name, call in self._tracker.records]
        arrived = arrived_tokens(samples, calls, k3=expected.k3, tight=tight) + (
            0 if self.blocks.has_reasoning else UNSEEN
        )
        text, scale = samples[0].sampled()
        reasoning = most_tokens(text) * scale
        if not is_missing(usage, arrived, reasoning, tight=tight):
            return None
        self.ending = CALL_LOST
        return CALL_LOST

    def drain_late(self, output: FrameOutput) -> None:
        """Text that came after the end, and was held back, goes out all the same."""
        self._drain(output)
        self.blocks.close_text_block(output)

    def abandon(self, failed: Failed, output: FrameOutput) -> None:
        """The host reported an error: what is held back goes out before it, and nothing comes after."""
        self._tracker.cut = True
        self.drain_late(output)
        if self.ending is None:
            self.ending = failed

    @property
    def named_held_size(self) -> int:
        """How many characters wait under a name of their own, besides the beginning of a marker."""
        return sum(map(named_prefix_length, self._held.values()))

    def release_all(self) -> None:
        """No frame waits any longer for text that is held back."""
        for held_frames in self._held_frames.values():
            held_frames.release_all()
        self._native.release_all()

    # -- the end ---------------------------------------------------------------------

    def _drain(self, output: FrameOutput) -> None:
        # What frames wait for goes out with them, before what only this frame can carry.
        self._native.settle_names(output)
        for channel in sorted(_CHANNELS, key=lambda one: not self._held_frames[one].is_awaited):
            grammar, before = self._grammars.get(channel), self._held[channel]
            if isinstance(grammar, MarkerGuard):
                grammar.end(called=self._tracker.over and not self.calls)
            if grammar is not None and ((found := grammar.flush()) or before):
                self._handle(channel, before, found, "", output)
        self._native.finish(output)
        self._tracker.finish(output)
        if self.watch is not None:
            self.watch.finish(output)

    def _end(self, ending: Finished | Failed, output: FrameOutput) -> None:
        self.blocks.close_text_block(output)
        if isinstance(ending, Finished):
            if ending.reason == "stop" and self.only_reasoning:
                output.events.append(Repaired("empty_answer", "only reasoning, no answer"))
            if ending.reason != (ending.raw_reason or ""):
                output.events.append(Repaired("finish_reason", f"{ending.raw_reason or 'missing'} -> {ending.reason}"))
        else:
            output.events.append(Repaired("failed", ending.code))
        output.events.append(ending)
        self.ending = ending

    # -- what the grammars find ------------------------------------------------------

    def _handle(
        self,
        channel: Channel,
        before: str,
        found: list[GrammarEvent],
        after: str,
        output: FrameOutput,
        mended: str | None = None,
    ) -> None:
        self._held[channel] = after
        self._report_channel(channel, found, output)
        if before or after:
            said_in, lead, rest = _split_leading_text(channel, found)
            if before and not _is_prefix_either_way(lead, before):
                lead, rest = "", found
            # What follows the first speech decides that nothing before it is held any longer.
            still_held = after if not rest else ""
            self._held_frames[channel].resolve(before, lead, still_held, self._text_writer(said_in), output)
            self._follow(channel, rest, output)
            if rest and after:
                self._held_frames[channel].resolve("", "", after, self._text_writer(channel), output)
            return
        self._follow(channel, found, output, mended)

    def _report_channel(self, channel: Channel, found: list[GrammarEvent], output: FrameOutput) -> None:
        """Tags, not the field, decide the channel: reported once."""
        if self._moved or not any(isinstance(one, TextFound) and one.channel != channel for one in found):
            return
        self._moved = True
        output.events.append(Repaired("channel_by_tags", f"part of the {channel} field is not {channel}"))

    def _text_writer(self, channel: Channel) -> Callable[[str, FrameOutput], None]:
        return lambda text, output: self.blocks.add_text(channel, text, output)

    def _follow(
        self, channel: Channel, found: list[GrammarEvent], output: FrameOutput, mended: str | None = None
    ) -> None:
        for one in found:
            match one:
                case TextFound():
                    self._add_text(one.channel, one.text, output)
                case CallStarted() | OrphanStarted():
                    self._begin_call(channel, one, output)
                case CallResumed():
                    assert self._resumable is not None, "only the rest of a call that was offered is resumed"
                    self._open[channel], self._resumable = self._resumable, None
                    self._native.hand_over(self._open[channel], output)
                    output.events.append(Repaired("arguments_in_text", self._open[channel].name or ""))
                case CallDelta():
                    if (skipped := self._skipped.get(channel)) is not None:
                        if skipped.add(one.text) > self._options.buffer_limit:
                            skipped.report(self._tracker, output)
                    else:
                        self._tracker.grow(self._open[channel], one.text, output, mended)
                case CallEnded():
                    if (skipped := self._skipped.pop(channel, None)) is not None:
                        skipped.report(self._tracker, output)
                    else:
                        self._tracker.end(self._open.pop(channel), output, closed=one.closed)
                case CallLost():
                    self._lose_call(channel, one, output)
                case Notice():
                    if one.rule == "stray_marker" and not self._expectation.k3:
                        self._tracker.looks_incomplete = True
                    output.events.append(Repaired(one.rule, one.detail))

    def _begin_call(self, channel: Channel, found: CallStarted | OrphanStarted, output: FrameOutput) -> None:
        if self._host_reads_calls and channel == "text":
            self._skip(channel, CALL_IN_CONTENT, found)
        elif isinstance(found, CallStarted):
            self._open[channel] = self._tracker.begin_from_grammar(found, "markers", output)
        elif (call := self._tracker.begin_orphan(found, output)) is not None:
            self._open[channel] = call
        else:
            self._skip(channel, CALL_UNREADABLE, found)

    def _skip(self, channel: Channel, failed: Failed, found: CallStarted | OrphanStarted) -> None:
        header = found.header or found.name or "" if isinstance(found, CallStarted) else found.line
        self._skipped[channel] = _SkippedCall(failed, header)
        self._tracker.lost = self._tracker.lost or failed

    def _lose_call(self, channel: Channel, lost: CallLost, output: FrameOutput) -> None:
        if not self._tracker.fails_lost_calls:
            output.events.append(Repaired("unreadable_call", lost.raw))
            self._add_text(lost.channel, lost.rest, output)
        elif not lost.rest and self._repeats_last_call(lost.raw):
            output.events.append(Repaired("arguments_doubled", lost.raw))
        elif self._host_reads_calls and channel == "text":
            self._tracker.lose(CALL_IN_CONTENT, lost.raw, output)
        else:
            self._tracker.lose(CALL_UNREADABLE, lost.raw, output)

    def _repeats_last_call(self, raw: str) -> bool:
        """Whether text with an end marker is the arguments of the call before it once more."""
        text = raw[: raw.rfind("<|")].strip()
        records = self._tracker.records
        return bool(records and text) and ArgumentsRecord.of(text).same_as(records[-1][1].arguments.record)

    def _interrupt(self, channel: Channel | None, output: FrameOutput) -> None:
        """Something else begins: the start of what might have been a marker was only text."""
        if channel is not None:
            self._native.settle(output)
        for other, call in self._open.items():
            # Whole, though nothing has said so: it keeps its place before what comes now.
            if other != channel and call.whole and call.raw is None and call.arguments.complete:
                self._tracker.end(call, output, closed=True)
        for other in _CHANNELS:
            before = self._held[other]
            if other == channel or not before:
                continue
            if _is_surely_a_marker(before):
                self._held_frames[other].release_all()
            else:
                self._handle(other, before, self._grammars[other].flush(), "", output)


class _SkippedCall:
    """A call that is read but not delivered: the report of why has its text."""

    def __init__(self, failed: Failed, header: str) -> None:
        self._failed = failed
        self._raw = TextPieces()
        self._raw.append(header)
        self._size = len(header)

    def add(self, text: str) -> int:
        """How much text there is with this piece of the arguments."""
        self._raw.append(text)
        self._size += len(text)
        return self._size

    def report(self, tracker: ToolCallTracker, output: FrameOutput) -> None:
        """Report the text since the last report."""
        if self._raw:
            tracker.lose(self._failed, "".join(self._raw), output)
        self._raw, self._size = TextPieces(), 0


def _is_surely_a_marker(held: str) -> bool:
    return held.startswith(_SURELY_MARKERS) or (held.startswith("<|") and len(held) >= _SURELY_A_MARKER)


def named_prefix_length(held: str) -> int:
    """How many characters may be a bare header, or are a tag of K3 with its attributes."""
    if held[:1].isalnum():
        # Behind a bare header a marker may begin: that waits under no name of its own.
        return len(held.partition("<")[0])
    return len(held) if held.startswith(("<|open|>", "<|close|>")) else 0


def _split_leading_text(channel: Channel, found: list[GrammarEvent]) -> tuple[Channel, str, list[GrammarEvent]]:
    """The text at the start, in one channel and without a break; and the rest."""
    said_in, lead = channel, list[str]()
    for one in found:
        if not isinstance(one, TextFound) or (lead and one.channel != said_in):
            break
        said_in = one.channel
        lead.append(one.text)
    return said_in, "".join(lead), found[len(lead) :]


def _is_prefix_either_way(said: str, held: str) -> bool:
    return said.startswith(held) or held.startswith(said)
