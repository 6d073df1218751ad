"""The short way: frames of a known shape, whose text needs nothing, leave without being parsed, as they came or anew.

It is provably the same as the long way: the shape proves what the frame says, the
text goes through the very same grammar and repairs, and as soon as anything is out
of the ordinary, the long way takes over from where things stand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from moonshim.engine.dialects.protocol import NUMBER, TEXT, Template
from moonshim.engine.repair.repairer import NOT_PARSED, ParsedText, named_part
from moonshim.engine.repair.tool_calls import TrackedCall
from moonshim.engine.response.choice import Choice
from moonshim.engine.response.chunk_mender import PARKED_LIMIT, ChunkMender, Released
from moonshim.engine.response.frame_templates import FrameTemplate, PlainFrameTemplate, learn_shape, plain_shape
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
    """Takes frames while all is ordinary. `shape` is None when the next frame must go the long way."""

    __slots__ = ("_chunks", "_known", "_misses", "_render", "_tail", "_waiting", "shape")

    def __init__(self, chunks: ChunkMender[Frame], render: Callable[[bytes], bytes]) -> None:
        self._chunks = chunks
        self._render = render
        self.shape: FrameTemplate | None = None
        self._known: FrameTemplate | None = None
        self._misses = 0
        self._waiting: list[tuple[bytes, int, int]] = []
        """Frames whose last characters are held back: bytes, length of their text, how much of it is held."""
        self._tail = ""

    def take(self, shape: FrameTemplate, raw: bytes) -> Taken:
        """A frame that begins and ends like the shape: what leaves, or None when nothing was done with it."""
        try:
            text = _decode_string(raw[len(shape.head) - 1 : len(raw) - len(shape.tail) + 1])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        if not text:
            return None
        if shape.renames:
            raw = shape.sent(raw)
        answer = shape.state.answer
        if shape.channel is None:
            call = answer.flowing(shape.index)
            if call is None or answer.numbers[call.block] != shape.index:
                # Nothing to continue, or clients know the call by another number.
                return None
            mended = call.arguments.feed(text) if self._waiting else answer.glance_at_arguments(call, text)
            return raw if mended is None else self._late_arguments(shape, raw, text, call, mended)
        if self._waiting:
            return self._held_back(shape, raw, text, answer.read(shape.channel, text))
        result = answer.glance_at_text(shape.channel, text)
        if result is None:
            return raw
        if isinstance(result, str):
            before, after = shape.grown(answer.numbers[answer.growing])
            return self._render(before + _encode_string(result) + after)
        if result is NOT_PARSED:
            return None
        return self._held_back(shape, raw, text, result)

    def _late_arguments(self, shape: FrameTemplate, raw: bytes, text: str, call: TrackedCall, mended: str) -> Taken:
        """A comma, say, waits for what follows it: the frame waits here, and leaves as it came."""
        held = call.arguments.held
        parked = 0 if mended else sum(size for _, size, _ in self._waiting)
        if held and parked + len(text) > PARKED_LIMIT:
            only_late = False
        else:
            only_late = shape.state.answer.is_only_late(call, self._tail, text, mended)
        if not only_late:
            call.glanced = self._tail
            return self._go_on(shape, raw, mended)
        out = b""
        if mended:
            out = b"".join(one[0] for one in self._waiting)
            self._waiting.clear()
        self._tail = held
        if not held:
            return out + raw
        self._waiting.append((raw, len(text), min(len(held), len(text))))
        return out

    def _held_back(self, shape: FrameTemplate, raw: bytes, text: str, fed: ParsedText) -> bytes | list[Released[Frame]]:
        """Something is held back: as long as that is ordinary text, frames wait and leave as they came."""
        assert shape.channel is not None
        fed.before = self._tail
        held = shape.state.answer.held_ordinary(shape.channel, self._tail, fed, text)
        if held is None:
            return self._go_on(shape, raw, fed)
        out = b""
        if len(held) <= len(text):
            out = b"".join(one[0] for one in self._waiting)
            self._waiting.clear()
        self._tail = held
        if not held:
            return out + raw
        self._waiting.append((raw, len(text), min(len(held), len(text))))
        named = named_part(held)
        if sum(size for _, size, _ in self._waiting) - named > PARKED_LIMIT:
            self.hand_over()
            return [Released(Frame(out, None)), *self._chunks.part()]
        return out

    def _go_on(self, shape: FrameTemplate, raw: bytes, fed: ParsedText | str) -> list[Released[Frame]]:
        """The long way for a frame whose text has already been read."""
        self.hand_over()
        payload = shape.payload(raw)
        chunk = decode_object(payload)
        assert chunk is not None, "a frame of a known shape is a chunk"
        released = self._chunks.feed(chunk, Frame(raw, payload), fed)
        self.settle(is_idle=True)
        return released

    def hand_over(self) -> None:
        """Frames that wait here wait on the long way from now on."""
        shape = self.shape
        for raw, _, share in self._waiting:
            assert shape is not None
            payload = shape.payload(raw)
            chunk = decode_object(payload)
            assert chunk is not None, "a frame of a known shape is a chunk"
            self._chunks.adopt(chunk, Frame(raw, payload), shape.channel, share)
        if self._waiting:
            self._waiting.clear()
            self._tail = ""
            self.shape = None

    def learn(self, frame: Frame, chunk: Mapping[str, Any], sent: Frame | None = None) -> None:
        """Remember the shape of a chunk that came the long way; give up when no two are alike.

        `sent` is the frame as it leaves if nothing is wrong with it, where that is not as it came: under another name.
        """
        known = self._known
        if frame.fault is not None or frame.head or frame.data is None:
            return
        if known is not None and frame.raw.startswith(known.head) and frame.raw.endswith(known.tail):
            self._misses = 0
            return
        if self._misses >= _MISSES:
            return
        state = self._chunks.calm_choice()
        if state is not None:
            self._misses += 1
            self._known = self._shape(frame, sent or frame, chunk, state) or known

    def _shape(self, frame: Frame, sent: Frame, chunk: Mapping[str, Any], state: Choice) -> FrameTemplate | None:
        assert sent.data is not None
        shape = learn_shape(sent.raw, sent.data, chunk, state)
        if shape is None or self._chunks.has_own_role(chunk):
            return None
        return shape if sent is frame or shape.comes_as(frame.raw, sent.raw) else None

    def settle(self, *, is_idle: bool) -> None:
        """The long way is done for now: whether the next frame may be read at a glance."""
        self.shape = self._known if is_idle and self._chunks.calm_choice() is not None else None


class _Pattern:
    """How the pieces of one block are written: what stands before the text, between it and the number, and behind."""

    __slots__ = ("before", "behind", "between", "block", "count")

    def __init__(self, block: int, template: Template, data: bytes) -> None:
        self.block = block
        self.count = template.count
        self.before, _, rest = data.partition(_TEXT)
        self.between, _, self.behind = rest.partition(_NUMBER)


class TranslatingFastPath:
    """The short way of an answer that is written anew. `shape` is None when the next frame must go the long way.

    It is open behind a frame of the known shape that went the long way: whatever that changed
    in those who read the host and write for the client, the next one changes nothing there. The
    text leaves in the host's own bytes, within what the encoder says is around it.
    """

    __slots__ = (
        "_answer",
        "_before",
        "_fresh",
        "_known",
        "_misses",
        "_names_events",
        "_passes",
        "_pattern",
        "_render",
        "_translator",
        "shape",
    )

    def __init__(
        self, translator: ResponsePipeline[Frame], render: Callable[[bytes, bytes], bytes], *, has_event_names: bool
    ) -> None:
        self._translator = translator
        self._answer = translator.answer
        self._render = render
        self._names_events = has_event_names
        self.shape: PlainFrameTemplate | None = None
        self._known: PlainFrameTemplate | None = None
        self._fresh = False
        """Whether the payload that came last has the known shape."""
        self._misses = 0
        self._before = ""
        """What is held back of the text."""
        self._passes = False
        """Whether frames that need nothing leave as they came."""
        self._pattern: _Pattern | None = None

    def take(self, shape: PlainFrameTemplate, raw: bytes) -> Taken:
        """A frame that begins and ends like the shape: what leaves, or None when nothing was done with it."""
        said = raw[shape.start : shape.stop]
        try:
            text = _decode_string(said)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        if not text:
            return None
        answer, channel = self._answer, shape.channel
        if channel is None:
            call = answer.flowing(shape.index)
            if call is None:
                return None
            before = call.arguments.held
            mended = call.arguments.feed(text) if before else answer.glance_at_arguments(call, text)
            if mended is not None:
                return self._late_arguments(shape, raw, text, call, before, mended)
            block = call.block
        elif self._before:
            return self._held_back(shape, raw, text, answer.read(channel, text))
        else:
            result = answer.glance_at_text(channel, text)
            if result is None:
                block = answer.speaking
            elif isinstance(result, str):
                block = answer.growing
            elif result is NOT_PARSED:
                return None
            else:
                return self._held_back(shape, raw, text, result)
        if self._passes:
            return raw
        pattern = self._pattern
        if pattern is None or pattern.block != block:
            return self._first(block, text, said)
        if pattern.count is None:
            return pattern.before + said + pattern.between
        return b"%b%b%b%d%b" % (pattern.before, said, pattern.between, pattern.count(text), pattern.behind)

    def _late_arguments(
        self, shape: PlainFrameTemplate, raw: bytes, text: str, call: TrackedCall, before: str, mended: str
    ) -> Taken:
        """A comma, say, waits for what follows it: what is decided leaves at once."""
        if self._translator.same_dialect or not self._answer.is_only_late(call, before, text, mended):
            call.glanced = before
            return self._go_on(shape, raw, text, mended)
        return self._first(call.block, mended, _encode_string(mended)) if mended else b""

    def _first(self, block: int, text: str, said: bytes) -> Taken:
        """A piece of a block of which nothing was written by a template yet."""
        template = self._translator.template(block)
        if template is None:
            return self._translator.tell(block, text)
        data = encode(template.payload)
        assert data.count(_TEXT) == 1
        line = event_line(template.payload.get("type")) if self._names_events else b""
        pattern = self._pattern = _Pattern(block, template, self._render(data, line))
        number = b"" if pattern.count is None else b"%d" % pattern.count(text)
        return pattern.before + said + pattern.between + number + pattern.behind

    def _held_back(self, shape: PlainFrameTemplate, raw: bytes, text: str, fed: ParsedText) -> Taken:
        """Something is or was held back: what is speech leaves at once, and whatever else the long way."""
        fed.before = self._before
        assert shape.channel is not None
        said = None if self._translator.same_dialect else self._answer.said_only(shape.channel, fed)
        if said is None:
            return self._go_on(shape, raw, text, fed)
        self._before = self._answer.held(shape.channel)
        return self._first(self._answer.speaking, said, _encode_string(said)) if said else b""

    def _go_on(self, shape: PlainFrameTemplate, raw: bytes, text: str, fed: ParsedText | str) -> list[Released[Frame]]:
        """The long way for a frame whose text has already been read."""
        payload, frame = {}, None
        if self._translator.same_dialect:
            frame = shape.frame(raw)
            payload = decode_object(frame.data or b"") or {}
        released = self._translator.resume(shape.only, text, fed, payload, frame)
        self.settle(is_idle=True)
        return released

    def hand_over(self) -> None:
        """No frame waits here."""

    def learn(self, frame: Frame, payload: dict[str, Any]) -> None:
        """Remember the shape of a payload that came the long way; give up when no two are alike."""
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
            return self._translator.only_text(payload) == known.only
        if self._misses >= _MISSES:
            return False
        only = self._translator.only_text(payload)
        shape = None if only is None else plain_shape(frame, payload, only)
        if shape is None:
            return False
        self._misses += 1
        self._known = shape
        return True

    def settle(self, *, is_idle: bool) -> None:
        """The long way is done for now: whether the next frame may be read at a glance."""
        self._before, self._pattern, self._passes = "", None, self._translator.passes
        self.shape = self._known if is_idle and self._fresh and self._translator.is_calm else None

    def restart(self) -> None:
        """Another answer of the host begins."""
        self._answer = self._translator.answer
        self._fresh = False
        self.settle(is_idle=False)
