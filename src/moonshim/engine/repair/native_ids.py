"""Native tool deltas where only identifiers are repaired: the deltas stay as they are."""

from __future__ import annotations

from moonshim.engine.frames import FrameOutput
from moonshim.engine.ids import IdRepairer
from moonshim.engine.repair.argument_record import ArgumentsRecord
from moonshim.engine.repair.arguments import PlainArguments
from moonshim.engine.repair.blocks import BlockTracker
from moonshim.engine.values.events import BlockClosed, BlockDelta, BlockOpened, CallPiece, Repaired

__all__ = ["NativeIdWatcher"]


class _Watched:
    __slots__ = ("arguments", "block", "id", "is_free", "wire_id")

    def __init__(self, block: int, wire_id: str | None, new_id: str) -> None:
        self.block = block
        self.wire_id = wire_id
        self.id = new_id
        self.arguments = PlainArguments(ArgumentsRecord())
        self.is_free = False
        """Whether it takes any text: then only its host knows where that ends."""


class NativeIdWatcher:
    """Follows native calls by their index, and decides which identifier each delta should carry."""

    def __init__(self, ids: IdRepairer, blocks: BlockTracker, *, mends: bool) -> None:
        self._ids = ids
        self._mends = mends
        self._blocks = blocks
        self._calls: dict[int, _Watched] = {}

    @property
    def count(self) -> int:
        return len(self._calls)

    @property
    def cut_off(self) -> bool:
        return any(not call.arguments.complete and not call.is_free for call in self._calls.values())

    def feed(self, piece: CallPiece, output: FrameOutput) -> str | None:
        """The identifier to write in place of the one that came; None leaves the entry alone."""
        index = piece.index or 0
        call = self._calls.get(index)
        if call is None:
            if not piece.name:
                return None
            new_id, rule = self._ids.assign(piece.name, piece.id) if self._mends else (piece.id or "", None)
            call = self._calls[index] = _Watched(self._blocks.open_host_call(output, index), piece.id, new_id)
            call.is_free = "custom" in piece.extras
            if rule is not None:
                output.events.append(Repaired(rule, f"{piece.id or ''} -> {new_id}"))
            output.events.append(BlockOpened(call.block, "call", new_id, piece.name, {}))
        if piece.arguments:
            call.arguments.feed(piece.arguments)
            output.events.append(BlockDelta(call.block, piece.arguments))
        if piece.id is None:
            return call.id if piece.name and call.wire_id is None and self._mends else None
        return call.id if piece.id == call.wire_id and call.id != piece.id else None

    def finish(self, output: FrameOutput) -> None:
        for call in self._calls.values():
            output.events.append(BlockClosed(call.block, call.arguments.complete))
