"""Numbers the blocks of one answer: speech in two channels, and calls."""

from __future__ import annotations

from moonshim.engine.grammar.protocol import Channel
from moonshim.engine.repair.frame_output import FrameOutput
from moonshim.engine.upstream_events import SignatureReported
from moonshim.engine.values.events import BlockClosed, BlockDelta, BlockOpened, BlockSigned

__all__ = ["BlockTracker"]


class BlockTracker:
    """Keeps blocks balanced: at most one block of speech is open, and a call closes it."""

    __slots__ = ("_count", "current", "next_number", "numbers", "reasoned", "speaking", "spoke")

    def __init__(self) -> None:
        self._count = 0
        self.speaking: Channel | None = None
        self.current: int = -1
        self.numbers: dict[int, int] = {}
        """The block of each call -> its number among the calls, under which clients know it."""
        self.next_number: int = 0
        self.reasoned: bool = False
        self.spoke: bool = False
        """Whether the answer itself has said anything but white space."""

    def say(self, channel: Channel, text: str, output: FrameOutput) -> None:
        if not text:
            return
        if self.speaking != channel:
            self.close_text_block(output)
            self.speaking = channel
            self.current = self._next()
            output.put(BlockOpened(self.current, channel))
        output.put(BlockDelta(self.current, text))
        if channel == "reasoning":
            self.reasoned = True
        elif not self.spoke:
            self.spoke = not text.isspace()

    def close_text_block(self, output: FrameOutput) -> None:
        """Close the block of speech, if one is open."""
        if self.speaking is not None:
            output.put(BlockClosed(self.current))
            self.speaking = None

    def sign(self, signed: SignatureReported, output: FrameOutput) -> None:
        """What belongs to the reasoning being told; without any, it is a thought that is not shown."""
        shown = self.speaking == "reasoning"
        if not shown and signed.signature is None and not signed.details:
            return
        if not shown:
            self.close_text_block(output)
            self.current = self._next()
            output.put(BlockOpened(self.current, "reasoning"))
        output.put(BlockSigned(self.current, signed.signature, signed.details, signed.field))
        if not shown:
            output.put(BlockClosed(self.current))

    def open_call(self, output: FrameOutput) -> int:
        self.close_text_block(output)
        block = self._next()
        self.numbers[block] = self.next_number
        self.next_number += 1
        return block

    def open_watched(self, output: FrameOutput, number: int) -> int:
        """A call whose number is the host's own."""
        self.close_text_block(output)
        block = self._next()
        self.numbers[block] = number
        self.next_number = max(self.next_number, number + 1)
        return block

    def _next(self) -> int:
        self._count += 1
        return self._count - 1
