"""Numbers the blocks of one answer: speech in two channels, and calls."""

from __future__ import annotations

from moonshim.engine.frames import FrameOutput
from moonshim.engine.grammar.protocol import Channel
from moonshim.engine.upstream_events import SignatureReported
from moonshim.engine.values.events import BlockClosed, BlockDelta, BlockOpened, BlockSigned

__all__ = ["BlockTracker"]


class BlockTracker:
    """Keeps blocks balanced: at most one block of speech is open, and a call closes it."""

    __slots__ = ("_count", "current", "has_reasoning", "has_text", "next_number", "numbers", "open_channel")

    def __init__(self) -> None:
        self._count = 0
        self.open_channel: Channel | None = None
        self.current: int = -1
        self.numbers: dict[int, int] = {}
        """The block of each call -> its number among the calls, under which clients know it."""
        self.next_number: int = 0
        self.has_reasoning: bool = False
        self.has_text: bool = False
        """Whether the text has anything but white space in it."""

    def add_text(self, channel: Channel, text: str, output: FrameOutput) -> None:
        if not text:
            return
        if self.open_channel != channel:
            self.close_text_block(output)
            self.open_channel = channel
            self.current = self._next()
            output.events.append(BlockOpened(self.current, channel))
        output.events.append(BlockDelta(self.current, text))
        if channel == "reasoning":
            self.has_reasoning = True
        elif not self.has_text:
            self.has_text = not text.isspace()

    def close_text_block(self, output: FrameOutput) -> None:
        """Close the block of speech, if one is open."""
        if self.open_channel is not None:
            output.events.append(BlockClosed(self.current))
            self.open_channel = None

    def sign(self, signed: SignatureReported, output: FrameOutput) -> None:
        """What belongs to the open reasoning block; without one, it is reasoning that is not shown."""
        is_open = self.open_channel == "reasoning"
        if not is_open and signed.signature is None and not signed.details:
            return
        if not is_open:
            self.close_text_block(output)
            self.current = self._next()
            output.events.append(BlockOpened(self.current, "reasoning"))
        output.events.append(BlockSigned(self.current, signed.signature, signed.details, signed.field))
        if not is_open:
            output.events.append(BlockClosed(self.current))

    def open_call(self, output: FrameOutput) -> int:
        self.close_text_block(output)
        block = self._next()
        self.numbers[block] = self.next_number
        self.next_number += 1
        return block

    def open_host_call(self, output: FrameOutput, number: int) -> int:
        """A call whose number is the host's own."""
        self.close_text_block(output)
        block = self._next()
        self.numbers[block] = number
        self.next_number = max(self.next_number, number + 1)
        return block

    def _next(self) -> int:
        self._count += 1
        return self._count - 1
