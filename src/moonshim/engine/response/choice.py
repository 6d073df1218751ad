"""The state of one choice of a response, from frame to frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from moonshim.engine.assemble import Assembler
from moonshim.engine.dialects.openai_chat.decode import ReasoningReader
from moonshim.engine.dialects.openai_chat.segments import SegmentBuilder
from moonshim.engine.plan import Plan
from moonshim.engine.repair.frame_output import FrameOutput
from moonshim.engine.repair.repair_log import RepairLog
from moonshim.engine.repair.repairer import ResponseRepairer
from moonshim.engine.repair.surrogates import SurrogateJoiner
from moonshim.engine.values.conversation import Message, Reasoning
from moonshim.engine.values.events import BlockOpened, Event, Finished, Repaired

__all__ = ["Choice"]


class _Listener:
    """Hears what happens in one choice. It does not know the choice, so that no ring keeps an answer in memory."""

    __slots__ = ("_assembler", "_index", "_log", "_names")

    def __init__(self, index: int, log: RepairLog, assembler: Assembler | None, names: Mapping[str, str]) -> None:
        self._index, self._log, self._assembler, self._names = index, log, assembler, names

    def observe(self, event: Event) -> None:
        """Something happened: repairs go to the log, the rest to whoever assembles the message."""
        if isinstance(event, Repaired):
            self._log.add(event, self._index)
        elif self._assembler is not None:
            if self._names and isinstance(event, BlockOpened) and event.name is not None and event.name in self._names:
                event = replace(event, name=self._names[event.name])
            self._assembler.feed(event)


class Choice:
    """What is remembered of one choice from frame to frame."""

    __slots__ = (
        "assembler",
        "builder",
        "carry",
        "has_role",
        "index",
        "made_role",
        "names",
        "observe",
        "odd",
        "reader",
        "reasoning",
        "repairer",
        "repeats_role",
    )

    def __init__(self, index: int, plan: Plan, log: RepairLog, *, collect: bool) -> None:
        self.index = index
        self.assembler = Assembler() if collect or plan.options.assemble_tool_deltas else None
        self.names = plan.names
        self.observe = _Listener(index, log, self.assembler, plan.names).observe
        self.repairer: ResponseRepairer = plan.new_repairer(
            self.observe, None if self.assembler is None else self.assembler.grow
        )
        self.builder = SegmentBuilder(self.repairer.numbers, plan.names)
        self.carry = SurrogateJoiner()
        self.reasoning: tuple[str, ...] = ("reasoning_content",)
        self.reader = ReasoningReader()
        self.has_role = False
        self.made_role = False
        """The host told none before it spoke: it was told for it."""
        self.repeats_role = False
        self.odd: set[str] = set()
        """What was wrong with the shape of the choice, each reported once."""

    @property
    def only_reasoning(self) -> bool:
        """Whether the answer has ended well, and said nothing but reasoning."""
        ending = self.repairer.ending
        return isinstance(ending, Finished) and ending.reason == "stop" and self.repairer.only_reasoning

    @property
    def message(self) -> Message:
        """What the choice has said so far, if anybody assembles it."""
        if self.assembler is None:
            return Message("assistant")
        message, field = self.assembler.message, self.reader.field
        if field is None or field == "reasoning_content":
            return message
        named = (
            replace(part, field=field) if isinstance(part, Reasoning) and part.field is None else part
            for part in message.parts
        )
        return replace(message, parts=tuple(named))

    def read_reasoning(self, fields: Mapping[str, Any], text: str) -> None:
        """Note beside the text of a delta, or of a whole message, what the host wants back with it."""
        if self.assembler is not None:
            self.reader.feed(fields, text)

    def sign(self, output: FrameOutput) -> None:
        """Something else begins: the message is to hold what the host wants back of its reasoning."""
        for signed in self.reader.close():
            if signed.details:
                self.repairer.sign(signed, output)
