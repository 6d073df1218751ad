"""The events of a response -> those that the client gets, after the stages of the plan's transformers."""

from __future__ import annotations

from msgspec.structs import replace

from moonshim.engine.assemble import Assembler
from moonshim.engine.plan import Plan
from moonshim.engine.repair.repair_log import RepairLog
from moonshim.engine.response.visible_output import VisibleOutput
from moonshim.engine.stages import StageChain
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
    """Runs the events of each choice through stages of its own, and numbers blocks on after a retry."""

    __slots__ = (
        "_assemblers",
        "_blocks",
        "_chains",
        "_collect",
        "_log",
        "_outputs",
        "_plan",
        "first_block",
        "is_active",
    )

    def __init__(self, plan: Plan, log: RepairLog, *, collect: bool) -> None:
        self._plan, self._log, self._collect = plan, log, collect
        self._chains: dict[int, StageChain] = {0: plan.stages()}
        self.is_active = bool(self._chains[0]) or plan.hides_reasoning
        """Whether there are any stages."""
        self._assemblers: dict[int, Assembler] = {}
        self._outputs: dict[int, VisibleOutput] = {}
        """Only if reasoning is hidden. The message keeps it: the host needs it back."""
        self._blocks = 0
        self.first_block = 0
        """The number of blocks before a retry, which only a response with one choice has."""

    @property
    def failed(self) -> Failed | None:
        """How the response ends because a stage of one of its choices failed; None: none did."""
        failure = next((chain.failure for chain in self._chains.values() if chain.failure is not None), None)
        return None if failure is None else Failed(failure.code, str(failure), retryable=False)

    def message(self, choice: int = 0) -> Message:
        """What the stages made of a choice so far."""
        assembler = self._assemblers.get(choice)
        return assembler.message if assembler is not None else Message("assistant")

    def start_retry(self) -> None:
        """The blocks of another response follow."""
        self.first_block = self._blocks

    def feed(self, events: list[Event], choice: int = 0) -> list[Event]:
        """What is written for these events of a choice."""
        out: list[Event] = []
        chain, assembler = self._chain_of(choice) if self.is_active else (None, None)
        first_block = self.first_block if choice == 0 else 0
        for event in events:
            if isinstance(event, BlockOpened) and choice == 0:
                self._blocks += 1
            if first_block and isinstance(event, (BlockOpened, BlockDelta, BlockSigned, BlockClosed)):
                event = replace(event, index=first_block + event.index)
            for one in chain.feed(event) if chain is not None else (event,):
                if isinstance(one, Repaired):
                    if one is not event:
                        self._log.add(one, choice)
                    continue
                if assembler is not None and not isinstance(one, (Finished, Failed)):
                    assembler.feed(one)
                out += [one] if not self._plan.hides_reasoning else self._show(one, choice)
        return out

    def _show(self, event: Event, choice: int) -> list[Event]:
        """What a client gets that turned thinking off."""
        output = self._outputs.get(choice)
        if output is None:
            output = self._outputs[choice] = VisibleOutput(self._plan.visible_limit)
        shown: list[Event] = []
        for one in output.feed(event):
            if isinstance(one, Repaired):
                self._log.add(one, choice)
            else:
                shown.append(one)
        return shown

    def _chain_of(self, choice: int) -> tuple[StageChain, Assembler | None]:
        if choice not in self._chains:
            self._chains[choice] = self._plan.stages()
        if choice not in self._assemblers and self._collect:
            self._assemblers[choice] = Assembler(self._plan.names)
        return self._chains[choice], self._assemblers.get(choice)


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
