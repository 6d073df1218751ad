"""The short way: frames of a known shape, whose text needs nothing, leave without being parsed.

It is provably the same as the long way: the shape proves what the frame says, the
text goes through the very same grammar and repairs, and as soon as anything is out
of the ordinary, the long way takes over from where things stand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from moonshim.json_text import decode_object
from moonshim.mending import PARKED_LIMIT, Choice, ChunkMender, Released
from moonshim.repair.answer import UNREAD, Fed, is_named_hold
from moonshim.shapes import Shape, learn_shape
from moonshim.sse import Frame

__all__ = ["ShortWay"]

_MISSES: Final = 32
"""After so many chunks that were each of another shape, learning stops."""

_decode_string: Final = msgspec.json.Decoder(str).decode
_encode_string: Final = msgspec.json.Encoder().encode


class ShortWay:
    """Takes frames while all is ordinary. `shape` is None when the next frame must go the long way."""

    __slots__ = ("_chunks", "_known", "_misses", "_render", "_tail", "_waiting", "shape")

    def __init__(self, chunks: ChunkMender[Frame], render: Callable[[bytes], bytes]) -> None:
        self._chunks = chunks
        self._render = render
        self.shape: Shape | None = None
        self._known: Shape | None = None
        self._misses = 0
        self._waiting: list[tuple[bytes, int, int]] = []
        """Frames whose last characters are held back: bytes, length of their text, how much of it is held."""
        self._tail = ""

    def take(self, shape: Shape, raw: bytes) -> bytes | list[Released[Frame]] | None:
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
            mended = answer.glance_at_arguments(call, text)
            return raw if mended is None else self._go_on(shape, raw, mended)
        if self._waiting:
            return self._held_back(shape, raw, text, answer.read(shape.channel, text))
        result = answer.glance_at_text(shape.channel, text)
        if result is None:
            return raw
        if isinstance(result, str):
            before, after = shape.grown(answer.numbers[answer.growing])
            return self._render(before + _encode_string(result) + after)
        if result is UNREAD:
            return None
        return self._held_back(shape, raw, text, result)

    def _held_back(self, shape: Shape, raw: bytes, text: str, fed: Fed) -> bytes | list[Released[Frame]]:
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
        named = len(held) if is_named_hold(held) else 0
        if sum(size for _, size, _ in self._waiting) - named > PARKED_LIMIT:
            self.hand_over()
            return [Released(Frame(out, None)), *self._chunks.part()]
        return out

    def _go_on(self, shape: Shape, raw: bytes, fed: Fed | str) -> list[Released[Frame]]:
        """The long way for a frame whose text has already been read."""
        self.hand_over()
        payload = shape.payload(raw)
        chunk = decode_object(payload)
        assert chunk is not None, "a frame of a known shape is a chunk"
        released = self._chunks.feed(chunk, Frame(raw, payload), fed)
        self.settle(calm=True)
        return released

    def hand_over(self) -> None:
        """Frames that wait here wait on the long way from now on."""
        shape = self.shape
        for raw, _, share in self._waiting:
            assert shape is not None
            assert shape.channel is not None
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

    def _shape(self, frame: Frame, sent: Frame, chunk: Mapping[str, Any], state: Choice) -> Shape | None:
        assert sent.data is not None
        shape = learn_shape(sent.raw, sent.data, chunk, state)
        return shape if shape is None or sent is frame or shape.comes_as(frame.raw, sent.raw) else None

    def settle(self, *, calm: bool) -> None:
        """The long way is done for now: whether the next frame may be read at a glance."""
        self.shape = self._known if calm and self._chunks.calm_choice() is not None else None
