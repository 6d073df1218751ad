"""The fast path: frames of a known shape, whose text needs nothing, leave without being parsed, as they came or anew.

It is provably the same as the slow path: the shape proves what the frame says, the
text goes through the very same grammar and repairs, and as soon as anything is out
of the ordinary, the slow path takes over from where things stand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from moonshim.engine.dialects.protocol import NUMBER, TEXT, Template
from moonshim.engine.repair.repairer import NOT_PARSED, ParsedText, named_prefix_length
from moonshim.engine.repair.tool_calls import TrackedCall
from moonshim.engine.response.choice import Choice
from moonshim.engine.response.chunk_mender import HELD_LIMIT, ChunkMender, Released
from moonshim.engine.response.frame_templates import FrameTemplate, PlainFrameTemplate, learn_template, plain_template
from moonshim.engine.response.pipeline import ResponsePipeline
from moonshim.engine.wire.json_codec import decode_object, encode
from moonshim.engine.wire.sse import Frame, event_line

__all__ = ["FastPath", "TranslatingFastPath"]

Taken: TypeAlias = bytes | list[Released[Frame]] | None

_MISSES: Final = 32
"""After so many chunks that were each of another shape, learning stops."""

_decode_string: Final = msgspec.json.Decoder(str).decode
_encode_string: Final = msgspec.json.Encoder().encode
_TEXT: Final = encode(TEXT)
_NUMBER: Final = encode(NUMBER)


class FastPath:
    """Takes frames while all is ordinary. `template` is None when the next frame must take the slow path."""

    __slots__ = ("_chunks", "_known", "_misses", "_render", "_tail", "_waiting", "template")

    def __init__(self, chunks: ChunkMender[Frame], render: Callable[[bytes], bytes]) -> None:
        self._chunks = chunks
        self._render = render
        self.template: FrameTemplate | None = None
        self._known: FrameTemplate | None = None
        self._misses = 0
        self._waiting: list[tuple[bytes, int, int]] = []
        """Frames whose last characters are held back: bytes, length of their text, how much of it is held."""
        self._tail = ""

    def take(self, template: FrameTemplate, raw: bytes) -> Taken:
        """A frame that begins and ends like the shape: what leaves, or None when nothing was done with it."""
        try:
            text = _decode_string(raw[len(template.head) - 1 : len(raw) - len(template.tail) + 1])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        if not text:
            return None
        if template.renames:
            raw = template.outgoing(raw)
        repairer = template.state.repairer
        if template.channel is None:
            call = repairer.continued_call(template.index)
            if call is None or repairer.numbers[call.block] != template.index:
                # Nothing to continue, or clients know the call by another number.
                return None
            mended = call.arguments.feed(text) if self._waiting else repairer.feed_arguments_fast(call, text)
            return raw if mended is None else self._late_arguments(template, raw, text, call, mended)
        if self._waiting:
            return self._take_held(template, raw, text, repairer.parse(template.channel, text))
        result = repairer.feed_text_fast(template.channel, text)
        if result is None:
            return raw
        if isinstance(result, str):
            before, after = template.argument_frame(repairer.numbers[repairer.growing])
            return self._render(before + _encode_string(result) + after)
        if result is NOT_PARSED:
            return None
        return self._take_held(template, raw, text, result)

    def _late_arguments(self, template: FrameTemplate, raw: bytes, text: str, call: TrackedCall, mended: str) -> Taken:
        """A comma, say, waits for what follows it: the frame waits here, and leaves as it came."""
        held = call.arguments.held
        waiting_size = 0 if mended else sum(size for _, size, _ in self._waiting)
        if held and waiting_size + len(text) > HELD_LIMIT:
            only_late = False
        else:
            only_late = template.state.repairer.is_only_late(call, self._tail, text, mended)
        if not only_late:
            call.held_before = self._tail
            return self._take_slow_path(template, raw, mended)
        out = b""
        if mended:
            out = b"".join(one[0] for one in self._waiting)
            self._waiting.clear()
        self._tail = held
        if not held:
            return out + raw
        self._waiting.append((raw, len(text), min(len(held), len(text))))
        return out

    def _take_held(
        self, template: FrameTemplate, raw: bytes, text: str, parsed: ParsedText
    ) -> bytes | list[Released[Frame]]:
        """Something is held back: as long as that is ordinary text, frames wait and leave as they came."""
        assert template.channel is not None
        parsed.before = self._tail
        held = template.state.repairer.take_held_text(template.channel, self._tail, parsed, text)
        if held is None:
            return self._take_slow_path(template, raw, parsed)
        out = b""
        if len(held) <= len(text):
            out = b"".join(one[0] for one in self._waiting)
            self._waiting.clear()
        self._tail = held
        if not held:
            return out + raw
        self._waiting.append((raw, len(text), min(len(held), len(text))))
        named = named_prefix_length(held)
        if sum(size for _, size, _ in self._waiting) - named > HELD_LIMIT:
            self.hand_over()
            return [Released(Frame(out, None)), *self._chunks.release_held()]
        return out

    def _take_slow_path(self, template: FrameTemplate, raw: bytes, parsed: ParsedText | str) -> list[Released[Frame]]:
        """The slow path for a frame whose text has already been read."""
        self.hand_over()
        payload = template.payload(raw)
        chunk = decode_object(payload)
        assert chunk is not None, "a frame of a known shape is a chunk"
        released = self._chunks.feed(chunk, Frame(raw, payload), parsed)
        self.settle(is_idle=True)
        return released

    def hand_over(self) -> None:
        """Frames that wait here wait on the slow path from now on."""
        template = self.template
        for raw, _, share in self._waiting:
            assert template is not None
            payload = template.payload(raw)
            chunk = decode_object(payload)
            assert chunk is not None, "a frame of a known shape is a chunk"
            self._chunks.adopt(chunk, Frame(raw, payload), template.channel, share)
        if self._waiting:
            self._waiting.clear()
            self._tail = ""
            self.template = None

    def learn(self, frame: Frame, chunk: Mapping[str, Any], sent: Frame | None = None) -> None:
        """Remember the shape of a chunk that took the slow path; give up when no two are alike.

        `sent` is the frame as it leaves if nothing has to be repaired, where the model is renamed.
        """
        known = self._known
        if frame.fault is not None or frame.head or frame.data is None:
            return
        if known is not None and frame.raw.startswith(known.head) and frame.raw.endswith(known.tail):
            self._misses = 0
            return
        if self._misses >= _MISSES:
            return
        state = self._chunks.idle_choice()
        if state is not None:
            self._misses += 1
            self._known = self._learn_template(frame, sent or frame, chunk, state) or known

    def _learn_template(
        self, frame: Frame, sent: Frame, chunk: Mapping[str, Any], state: Choice
    ) -> FrameTemplate | None:
        assert sent.data is not None
        template = learn_template(sent.raw, sent.data, chunk, state)
        if template is None or self._chunks.has_own_role(chunk):
            return None
        return template if sent is frame or template.learn_incoming(frame.raw, sent.raw) else None

    def settle(self, *, is_idle: bool) -> None:
        """The slow path is done for now: whether the next frame may be read on the fast path."""
        self.template = self._known if is_idle and self._chunks.idle_choice() is not None else None


class _DeltaPattern:
    """How the pieces of one block are written: what stands before the text, between it and the number, and behind."""

    __slots__ = ("before", "behind", "between", "block", "count")

    def __init__(self, block: int, template: Template, data: bytes) -> None:
        self.block = block
        self.count = template.count
        self.before, _, rest = data.partition(_TEXT)
        self.between, _, self.behind = rest.partition(_NUMBER)


class TranslatingFastPath:
    """The fast path of an answer that is written anew. `template` is None when the next frame must take the slow path.

    It is open behind a frame of the known shape that took the slow path: whatever that changed
    in those who read the host and write for the client, the next one changes nothing there. The
    text leaves in the host's own bytes, within what the encoder says is around it.
    """

    __slots__ = (
        "_before",
        "_fresh",
        "_has_event_names",
        "_known",
        "_misses",
        "_passes",
        "_pattern",
        "_pipeline",
        "_render",
        "_repairer",
        "template",
    )

    def __init__(
        self, pipeline: ResponsePipeline[Frame], render: Callable[[bytes, bytes], bytes], *, has_event_names: bool
    ) -> None:
        self._pipeline = pipeline
        self._repairer = pipeline.repairer
        self._render = render
        self._has_event_names = has_event_names
        self.template: PlainFrameTemplate | None = None
        self._known: PlainFrameTemplate | None = None
        self._fresh = False
        """Whether the payload that came last has the known shape."""
        self._misses = 0
        self._before = ""
        """What is held back of the text."""
        self._passes = False
        """Whether frames that need nothing leave as they came."""
        self._pattern: _DeltaPattern | None = None

    def take(self, template: PlainFrameTemplate, raw: bytes) -> Taken:
        """A frame that begins and ends like the shape: what leaves, or None when nothing was done with it."""
        raw_text = raw[template.start : template.stop]
        try:
            text = _decode_string(raw_text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        if not text:
            return None
        repairer, channel = self._repairer, template.channel
        if channel is None:
            call = repairer.continued_call(template.index)
            if call is None:
                return None
            before = call.arguments.held
            mended = call.arguments.feed(text) if before else repairer.feed_arguments_fast(call, text)
            if mended is not None:
                return self._late_arguments(template, raw, text, call, before, mended)
            block = call.block
        elif self._before:
            return self._take_held(template, raw, text, repairer.parse(channel, text))
        else:
            result = repairer.feed_text_fast(channel, text)
            if result is None:
                block = repairer.current_block
            elif isinstance(result, str):
                block = repairer.growing
            elif result is NOT_PARSED:
                return None
            else:
                return self._take_held(template, raw, text, result)
        if self._passes:
            return raw
        pattern = self._pattern
        if pattern is None or pattern.block != block:
            return self._first(block, text, raw_text)
        if pattern.count is None:
            return pattern.before + raw_text + pattern.between
        return b"%b%b%b%d%b" % (pattern.before, raw_text, pattern.between, pattern.count(text), pattern.behind)

    def _late_arguments(
        self, template: PlainFrameTemplate, raw: bytes, text: str, call: TrackedCall, before: str, mended: str
    ) -> Taken:
        """A comma, say, waits for what follows it: what is decided leaves at once."""
        if self._pipeline.same_dialect or not self._repairer.is_only_late(call, before, text, mended):
            call.held_before = before
            return self._take_slow_path(template, raw, text, mended)
        return self._first(call.block, mended, _encode_string(mended)) if mended else b""

    def _first(self, block: int, text: str, raw_text: bytes) -> Taken:
        """A piece of a block of which nothing was written by a template yet."""
        template = self._pipeline.template(block)
        if template is None:
            return self._pipeline.write_delta(block, text)
        data = encode(template.payload)
        assert data.count(_TEXT) == 1
        line = event_line(template.payload.get("type")) if self._has_event_names else b""
        pattern = self._pattern = _DeltaPattern(block, template, self._render(data, line))
        number = b"" if pattern.count is None else b"%d" % pattern.count(text)
        return pattern.before + raw_text + pattern.between + number + pattern.behind

    def _take_held(self, template: PlainFrameTemplate, raw: bytes, text: str, parsed: ParsedText) -> Taken:
        """Something is or was held back: what is speech leaves at once, and whatever else the slow path."""
        parsed.before = self._before
        assert template.channel is not None
        raw_text = None if self._pipeline.same_dialect else self._repairer.take_plain_text(template.channel, parsed)
        if raw_text is None:
            return self._take_slow_path(template, raw, text, parsed)
        self._before = self._repairer.held(template.channel)
        return self._first(self._repairer.current_block, raw_text, _encode_string(raw_text)) if raw_text else b""

    def _take_slow_path(
        self, template: PlainFrameTemplate, raw: bytes, text: str, parsed: ParsedText | str
    ) -> list[Released[Frame]]:
        """The slow path for a frame whose text has already been read."""
        payload, frame = {}, None
        if self._pipeline.same_dialect:
            frame = template.frame(raw)
            payload = decode_object(frame.data or b"") or {}
        released = self._pipeline.resume(template.only, text, parsed, payload, frame)
        self.settle(is_idle=True)
        return released

    def hand_over(self) -> None:
        """No frame waits here."""

    def learn(self, frame: Frame, payload: dict[str, Any]) -> None:
        """Remember the shape of a payload that took the slow path; give up when no two are alike."""
        self._fresh = frame.fault is None and self._is_known(frame, payload)

    def _is_known(self, frame: Frame, payload: dict[str, Any]) -> bool:
        known, raw = self._known, frame.raw
        if known is not None and raw.startswith(known.head) and raw.endswith(known.tail):
            try:
                _decode_string(raw[known.start : known.stop])
            except (msgspec.DecodeError, UnicodeDecodeError):
                return False
            self._misses = 0
            # What was a text may be something that nobody knows by now, in a block of another kind.
            return self._pipeline.only_text(payload) == known.only
        if self._misses >= _MISSES:
            return False
        only = self._pipeline.only_text(payload)
        template = None if only is None else plain_template(frame, payload, only)
        if template is None:
            return False
        self._misses += 1
        self._known = template
        return True

    def settle(self, *, is_idle: bool) -> None:
        """The slow path is done for now: whether the next frame may be read on the fast path."""
        self._before, self._pattern, self._passes = "", None, self._pipeline.passes
        self.template = self._known if is_idle and self._fresh and self._pipeline.is_idle else None

    def restart(self) -> None:
        """Another answer of the host begins."""
        self._repairer = self._pipeline.repairer
        self._fresh = False
        self.settle(is_idle=False)
