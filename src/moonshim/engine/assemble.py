"""Events <-> Message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import assert_never

from msgspec.structs import replace

from moonshim.engine.ids import CanonicalIds
from moonshim.engine.values.conversation import Message, Part, Reasoning, Text, ToolCall
from moonshim.engine.values.events import (
    BlockClosed,
    BlockDelta,
    BlockOpened,
    BlockSigned,
    Event,
    Failed,
    Finished,
    Opaque,
    Repaired,
    Started,
)
from moonshim.engine.values.text_pieces import TextPieces

__all__ = ["Assembler", "assemble", "replay"]


class _OpenBlock:
    """A block and its text so far, in few pieces however many were received."""

    __slots__ = ("opened", "pieces", "signed")

    def __init__(self, opened: BlockOpened) -> None:
        self.opened = opened
        self.signed: BlockSigned | None = None
        self.pieces = TextPieces()

    def sign(self, signed: BlockSigned) -> None:
        """Add data that the host requires back; earlier data stays valid."""
        known = self.signed
        if known is not None:
            signature, field = signed.signature or known.signature, signed.field or known.field
            signed = BlockSigned(signed.index, signature, known.details + signed.details, field)
        self.signed = signed

    def add(self, text: str) -> None:
        self.pieces.append(text)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class Assembler:
    """Collects the events of one response; `message` is the response so far.

    `names` has the client's names of the tools that have another name at the host.
    """

    __slots__ = ("_blocks", "_names", "_order", "ending")

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        self._names = names
        self._blocks: dict[int, _OpenBlock] = {}
        self._order: list[_OpenBlock] = []
        self.ending: Finished | Failed | None = None

    def feed(self, event: Event) -> None:
        match event:
            case BlockDelta(index=index, text=text):
                self.grow(index, text)
            case BlockOpened(index=index, name=name):
                if self._names and name is not None and name in self._names:
                    event = replace(event, name=self._names[name])
                block = _OpenBlock(event)
                self._blocks[index] = block
                self._order.append(block)
            case BlockSigned(index=index):
                self._blocks[index].sign(event)
            case BlockClosed() | Repaired() | Started() | Opaque():
                pass
            case Finished() | Failed():
                self.ending = event
            case _:
                assert_never(event)

    def extend(self, events: Iterable[Event]) -> None:
        """Several events, in order."""
        for event in events:
            self.feed(event)

    def grow(self, index: int, text: str) -> None:
        """Append text to a block, like a `BlockDelta`."""
        self._blocks[index].add(text)

    @property
    def message(self) -> Message:
        ids = CanonicalIds()
        return Message("assistant", tuple(_part(block, ids) for block in self._order))

    def tool_calls(self) -> list[tuple[int, ToolCall]]:
        """The calls so far, each with its block index, in the order they started."""
        numbered = zip(self._order, self.message.parts, strict=True)
        return [(block.opened.index, part) for block, part in numbered if isinstance(part, ToolCall)]


def _part(block: _OpenBlock, ids: CanonicalIds) -> Part:
    text = block.text
    match block.opened.kind:
        case "text":
            return Text(text)
        case "reasoning":
            signed = block.signed
            return (
                Reasoning(text) if signed is None else Reasoning(text, signed.signature, signed.details, signed.field)
            )
        case "call":
            wire_id = block.opened.call_id or ""
            return ToolCall(ids.new(wire_id), block.opened.name or "", text, wire_id)


def assemble(events: Iterable[Event]) -> Message:
    """The message that these events describe."""
    assembler = Assembler()
    for event in events:
        assembler.feed(event)
    return assembler.message


def replay(message: Message) -> list[Event]:
    """The events of this message, block by block. Media cannot occur in a response.

    >>> message = Message("assistant", (Reasoning("Hm."), Text("Hello")))
    >>> assemble(replay(message)) == message
    True
    """
    events: list[Event] = []
    for part in message.parts:
        index = sum(isinstance(event, BlockOpened) for event in events)
        match part:
            case Text(text=text):
                events += [BlockOpened(index, "text"), BlockDelta(index, text), BlockClosed(index)]
            case Reasoning(text=text):
                events += [BlockOpened(index, "reasoning"), BlockDelta(index, text)]
                if part.signature is not None or part.details or part.field is not None:
                    events.append(BlockSigned(index, part.signature, part.details, part.field))
                events.append(BlockClosed(index))
            case ToolCall(name=name, arguments=arguments):
                wire_id = part.wire_id if part.wire_id is not None else part.id
                opened = BlockOpened(index, "call", wire_id, name)
                events += [opened, BlockDelta(index, arguments), BlockClosed(index)]
            case _:
                pass
    return events
