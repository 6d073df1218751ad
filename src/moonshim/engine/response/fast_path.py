"""The fast path: frames that differ from a known one in a single string are not parsed.

Most chunks of a stream are alike but for their text. A `FrameTemplate` knows their bytes, so
the text is cut out, read by the repairer, and leaves in the host's own frame or in one that the writer
has given once. Whatever is not that simple takes the slow path, which stays the only judge: the
fast path opens after a frame of the known shape that took the slow path, so whatever that
changed in decoder and writer, the next one changes nothing there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from moonshim.engine.assemble import Assembler
from moonshim.engine.dialects.protocol import NUMBER, TEXT, Template
from moonshim.engine.frames import Released
from moonshim.engine.repair.blocks import BlockTracker
from moonshim.engine.repair.repairer import NOT_PARSED, ParsedText, ResponseRepairer, named_prefix_length
from moonshim.engine.repair.tool_calls import TrackedCall
from moonshim.engine.response.frame_templates import FrameTemplate, learn_template
from moonshim.engine.response.pipeline import HELD_LIMIT, ResponsePipeline
from moonshim.engine.wire.json_codec import decode_object, encode
from moonshim.engine.wire.sse import Frame, event_line

__all__ = ["FastPath"]

Taken: TypeAlias = bytes | list[Released[Frame]] | None

_MISSES: Final = 32
"""After so many new shapes without one that comes again, learning stops."""
_decode_string: Final = msgspec.json.Decoder(str).decode
_encode_string: Final = msgspec.json.Encoder().encode
_TEXT: Final = encode(TEXT)
_NUMBER: Final = encode(NUMBER)


class _DeltaPattern:
    """How the pieces of one block are written: the bytes before the text, between it and the number, and after."""

    __slots__ = ("after", "before", "between", "block", "count")

    def __init__(self, block: int, template: Template, data: bytes) -> None:
        self.block = block
        self.count = template.count
        self.before, _, rest = data.partition(_TEXT)
        self.between, _, self.after = rest.partition(_NUMBER)


class FastPath:
    """Takes frames while all is ordinary. `template` is None when the next frame must take the slow path."""

    __slots__ = (
        "_assembler",
        "_before",
        "_blocks",
        "_fresh",
        "_has_event_names",
        "_keeps_frames",
        "_known",
        "_misses",
        "_passes_text",
        "_pattern",
        "_pipeline",
        "_reads_alike",
        "_render",
        "_repairer",
        "_waiting",
        "template",
    )

    def __init__(
        self, pipeline: ResponsePipeline[Frame], render: Callable[[bytes, bytes], bytes], *, has_event_names: bool
    ) -> None:
        self._pipeline = pipeline
        self._render = render
        self._has_event_names = has_event_names
        self._keeps_frames = pipeline.writer.keeps_frames
        self._reads_alike = pipeline.decoder.reads_alike
        self._repairer: ResponseRepairer
        self._assembler: Assembler | None
        self._blocks: BlockTracker
        self.template: FrameTemplate | None = None
        self._known: FrameTemplate | None = None
        self._fresh = False
        """Whether the last payload has the known shape."""
        self._misses = 0
        self._before = ""
        """The text that is held back."""
        self._passes_text = False
        """Whether frames that need nothing leave as they came."""
        self._pattern: _DeltaPattern | None = None
        self._waiting: list[tuple[bytes, str, int]] = []
        """Frames whose last characters are held back: as they leave, their text, how much of it is held."""

    # -- frames ----------------------------------------------------------------------

    def take(self, template: FrameTemplate, raw: bytes) -> Taken:
        """A frame that begins and ends like the template: what leaves, or None when nothing was done with it."""
        raw_text = raw[template.start : template.stop]
        try:
            text = _decode_string(raw_text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        if not text:
            return None
        repairer, channel, passes = self._repairer, template.channel, self._passes_text
        if channel is None:
            call = repairer.continued_call(template.index)
            if call is None or (passes and repairer.numbers[call.block] != template.index):
                # Nothing to continue, or clients know the call by another number.
                return None
            before = call.arguments.held
            mended = call.arguments.feed(text) if before else repairer.feed_arguments_fast(call, text)
            if mended is not None:
                return self._take_late_arguments(template, raw, text, call, before, mended)
            block = call.block
        elif self._before:
            return self._take_held(template, raw, text, repairer.parse(channel, text))
        else:
            result = repairer.feed_text_fast(channel, text)
            if result is None:
                block = self._blocks.current
            elif isinstance(result, str):
                block, passes = repairer.growing, False
            elif result is NOT_PARSED:
                return None
            else:
                return self._take_held(template, raw, text, result)
        if self._assembler is not None:
            self._assembler.grow(block, text)
        if passes:
            return template.outgoing(raw) if template.renames else raw
        pattern = self._pattern
        if pattern is None or pattern.block != block:
            return self._write_first(block, text, raw_text)
        if pattern.count is None:
            return pattern.before + raw_text + pattern.between
        return b"%b%b%b%d%b" % (pattern.before, raw_text, pattern.between, pattern.count(text), pattern.after)

    def _take_late_arguments(
        self, template: FrameTemplate, raw: bytes, text: str, call: TrackedCall, before: str, mended: str
    ) -> Taken:
        """A comma, say, waits for what follows it: what is decided leaves at once, or with its own frame."""
        held = call.arguments.held
        only_late = self._repairer.is_only_late(call, before, text, mended)
        waiting = 0 if mended else sum(len(one) for _, one, _ in self._waiting)
        if not only_late or (self._passes_text and held and waiting + len(text) > HELD_LIMIT):
            call.held_before = before
            return self._take_slow_path(template, raw, text, mended)
        if self._passes_text:
            return self._wait(template, raw, text, held, call.block, decided=bool(mended))
        if self._keeps_frames:
            call.held_before = before
            return self._take_slow_path(template, raw, text, mended)
        return self._write_piece(call.block, mended)

    def _take_held(self, template: FrameTemplate, raw: bytes, text: str, parsed: ParsedText) -> Taken:
        """Something is or was held back: plain text leaves at once or with its frame, all else takes the slow path."""
        repairer, channel, before = self._repairer, template.channel, self._before
        parsed.before = before
        assert channel is not None
        if self._passes_text:
            held = repairer.take_held_text(channel, before, parsed, text)
            if held is None:
                return self._take_slow_path(template, raw, text, parsed)
            block = self._blocks.current
            out = self._wait(template, raw, text, held, block, decided=len(held) <= len(text))
            if sum(len(one) for _, one, _ in self._waiting) - named_prefix_length(held) > HELD_LIMIT:
                self.hand_over()
                return [Released(Frame(out, None)), *self._pipeline.release_held()]
            return out
        plain = None if self._keeps_frames else repairer.take_plain_text(channel, parsed)
        if plain is None:
            return self._take_slow_path(template, raw, text, parsed)
        self._before = repairer.held(channel)
        return self._write_piece(self._blocks.current, plain)

    def _wait(self, template: FrameTemplate, raw: bytes, text: str, held: str, block: int, *, decided: bool) -> bytes:
        """A frame whose end is `held` waits, and leaves as it came; those before it leave if their end is `decided`."""
        leaving: list[tuple[bytes, str, int]] = []
        if decided:
            leaving, self._waiting = self._waiting, leaving
        frame = (template.outgoing(raw) if template.renames else raw, text, min(len(held), len(text)))
        (self._waiting if held else leaving).append(frame)
        self._before = held
        if self._assembler is not None:
            for _, one, _ in leaving:
                self._assembler.grow(block, one)
        return b"".join(one for one, _, _ in leaving)

    def hand_over(self) -> None:
        """Frames that wait here wait on the slow path from now on."""
        if not self._waiting:
            return
        template = self.template
        assert template is not None
        for sent, text, share in self._waiting:
            frame = template.frame(sent)
            payload = decode_object(frame.data or b"")
            assert payload is not None, "a frame of a known shape is a payload"
            self._pipeline.adopt(template.only, text, share, payload, frame)
        self._waiting = []
        self._before = ""
        self.template = None

    def _write_piece(self, block: int, text: str) -> Taken:
        if not text:
            return b""
        if self._assembler is not None:
            self._assembler.grow(block, text)
        return self._write_first(block, text, _encode_string(text))

    def _write_first(self, block: int, text: str, raw_text: bytes) -> Taken:
        """A piece of a block of which nothing was written by a pattern yet."""
        template = self._pipeline.template(block)
        if template is None:
            return self._pipeline.write_delta(block, text)
        data = encode(template.payload)
        assert data.count(_TEXT) == 1
        line = event_line(template.payload.get("type")) if self._has_event_names else b""
        pattern = self._pattern = _DeltaPattern(block, template, self._render(data, line))
        number = b"" if pattern.count is None else b"%d" % pattern.count(text)
        return pattern.before + raw_text + pattern.between + number + pattern.after

    def _take_slow_path(
        self, template: FrameTemplate, raw: bytes, text: str, parsed: ParsedText | str
    ) -> list[Released[Frame]]:
        """The slow path for a frame whose text has already been read."""
        self.hand_over()
        payload: dict[str, Any] = {}
        frame = None
        if self._keeps_frames:
            frame = template.frame(template.outgoing(raw) if template.renames else raw)
            payload = decode_object(frame.data or b"") or {}
        released = self._pipeline.resume(template.only, text, parsed, payload, frame)
        self.settle(is_idle=True)
        return released

    # -- shapes ----------------------------------------------------------------------

    def learn(self, frame: Frame, payload: dict[str, Any], sent: Frame) -> None:
        """Remember the shape of a payload that took the slow path; give up when no two are alike.

        `sent` is the frame as it leaves if nothing has to be repaired: with the client's name of the model.
        """
        self._fresh = frame.fault is None and self._is_known(frame, payload, sent)

    def _is_known(self, frame: Frame, payload: dict[str, Any], sent: Frame) -> bool:
        known, raw = self._known, frame.raw
        if known is not None and raw.startswith(known.head) and raw.endswith(known.tail):
            try:
                _decode_string(raw[known.start : known.stop])
            except (msgspec.DecodeError, UnicodeDecodeError):
                return False
            self._misses = 0
            # What was text may be something unknown by now, in a block of another kind.
            return self._reads_alike or self._pipeline.decoder.only_text(payload) == known.only
        if self._misses >= _MISSES:
            return False
        only = self._pipeline.decoder.only_text(payload)
        template = None if only is None else learn_template(sent, payload, only)
        if template is None or not (sent is frame or template.learn_incoming(raw, sent.raw)):
            return False
        self._misses += 1
        self._known = template
        return True

    def settle(self, *, is_idle: bool) -> None:
        """The slow path is done for now: whether the next frame may take the fast path."""
        self._before, self._pattern = "", None
        self.template = None
        choice = self._pipeline.idle_choice() if is_idle and self._fresh else None
        if choice is not None:
            self._repairer, self._assembler = choice.repairer, choice.assembler
            self._blocks = choice.repairer.blocks
            self._passes_text = self._pipeline.writer.passes_text
            self.template = self._known

    def restart(self) -> None:
        """Another response of the host begins."""
        self._fresh = False
        self.settle(is_idle=False)
