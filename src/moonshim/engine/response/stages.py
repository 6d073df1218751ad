"""The events of a response -> those that the client gets, after the stages of the plan's transformers."""

from __future__ import annotations

from msgspec.structs import replace

from moonshim.engine.assemble import Assembler
from moonshim.engine.plan import Plan
from moonshim.engine.repair.repair_log import RepairLog
from moonshim.engine.stages import TransformerFailed
from moonshim.engine.values.conversation import Message
from moonshim.engine.values.events import (
    BlockClosed,
    BlockDelta,
    BlockOpened,
    BlockSigned,
    Event,
    Failed,
    Finished,
    Repaired,
)

__all__ = ["Stages", "take_ending"]


class Stages:
    """Runs events through the stages of one response, and numbers its blocks on after a retry."""

    __slots__ = ("_assembler", "_blocks", "_chain", "_log", "first_block", "is_active")

    def __init__(self, plan: Plan, log: RepairLog, *, collect: bool) -> None:
        self._chain = plan.stages()
        self._log = log
        self.is_active = bool(self._chain)
        """Whether there are any stages."""
        self._assembler = Assembler(plan.names) if self.is_active and collect else None
        self._blocks = 0
        self.first_block = 0
        """The number of blocks before a retry."""

    @property
    def failure(self) -> TransformerFailed | None:
        """The stage that failed, if one did."""
        return self._chain.failure if self.is_active else None

    @property
    def message(self) -> Message:
        """What the stages made of the response so far."""
        return self._assembler.message if self._assembler is not None else Message("assistant")

    def start_retry(self) -> None:
        """The blocks of another response follow."""
        self.first_block = self._blocks

    def feed(self, events: list[Event]) -> list[Event]:
        """What is written for these events."""
        out: list[Event] = []
        for event in events:
            if isinstance(event, BlockOpened):
                self._blocks += 1
            if self.first_block and isinstance(event, (BlockOpened, BlockDelta, BlockSigned, BlockClosed)):
                event = replace(event, index=self.first_block + event.index)
            for one in self._chain.feed(event) if self.is_active else (event,):
                if isinstance(one, Repaired):
                    if one is not event:
                        self._log.add(one, 0)
                    continue
                if self._assembler is not None and not isinstance(one, (Finished, Failed)):
                    self._assembler.feed(one)
                out.append(one)
        return out


def take_ending(events: list[Event], *, failed: bool) -> tuple[list[Event], Finished | Failed | None]:
    """The events without the ending, which is written last. Calls that a failure cuts off are incomplete."""
    ending = events[-1] if events else None
    if not isinstance(ending, (Finished, Failed)):
        ending = None
    else:
        events = events[:-1]
        failed = failed or isinstance(ending, Failed)
    if failed:
        # Nothing says that such a call is whole, only that there is no more of it: clients must not run it.
        events = [replace(event, complete=False) if isinstance(event, BlockClosed) else event for event in events]
    return events, ending
