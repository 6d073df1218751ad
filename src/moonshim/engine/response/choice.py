"""The state of one choice of a response, from frame to frame."""

from __future__ import annotations

from msgspec.structs import replace

from moonshim.engine.assemble import Assembler
from moonshim.engine.plan import Plan
from moonshim.engine.repair.repairer import ResponseRepairer
from moonshim.engine.repair.surrogates import SurrogateJoiner
from moonshim.engine.upstream_events import FinishReported
from moonshim.engine.values.conversation import Message, Reasoning, ToolCall
from moonshim.engine.values.events import Finished

__all__ = ["Choice"]


class Choice:
    """What is remembered of one choice: its repairer, and the message that its events make."""

    __slots__ = (
        "assembler",
        "calls_before_reasoning",
        "carry",
        "current_call",
        "finish",
        "index",
        "reasoning_field",
        "repairer",
    )

    def __init__(self, index: int, plan: Plan, *, collect: bool) -> None:
        self.index = index
        self.repairer: ResponseRepairer = plan.new_repairer()
        self.assembler: Assembler | None = Assembler(plan.names) if collect else None
        self.carry = SurrogateJoiner()
        self.finish: FinishReported | None = None
        """Why the choice ends, once the host has said so."""
        self.reasoning_field: str | None = None
        """The field in which a Chat host sends reasoning; None: none yet, or in copies."""
        self.calls_before_reasoning: int | None = None
        """Number of calls seen when the current reasoning block started."""
        self.current_call: int | None = None
        """The index of the native call that the host is sending."""

    @property
    def only_reasoning(self) -> bool:
        """Whether the choice has ended well, and contains nothing but reasoning."""
        ending = self.repairer.ending
        return isinstance(ending, Finished) and ending.reason == "stop" and self.repairer.only_reasoning

    @property
    def message(self) -> Message:
        """What has left of the choice so far; empty where nothing is collected."""
        if self.assembler is None:
            return Message("assistant")
        message, field = self.assembler.message, self.reasoning_field
        if field is None or field == "reasoning_content":
            return message
        named = (
            replace(part, field=field) if isinstance(part, Reasoning) and part.field is None else part
            for part in message.parts
        )
        return replace(message, parts=tuple(named))

    def tool_calls(self) -> list[tuple[int, ToolCall]]:
        """The calls that have left so far, each with its number, in the order of the numbers."""
        assert self.assembler is not None
        numbers = self.repairer.numbers
        # A call from markers and one that is only watched may have the same number.
        return sorted(((numbers[block], call) for block, call in self.assembler.tool_calls()), key=lambda one: one[0])
