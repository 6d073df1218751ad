"""What an agent does between the answers of its model, as values: they come between the engine's own events."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from moonshim.engine.values.conversation import Message, ToolCall, ToolResult, Usage
from moonshim.engine.values.events import Event

__all__ = [
    "AgentEvent",
    "Ending",
    "MessageSaved",
    "RoundStarted",
    "RunEnded",
    "SaveFailed",
    "Step",
    "ToolEnded",
    "ToolStarted",
]

Ending: TypeAlias = Literal["answered", "rounds", "repeating", "failed", "cancelled", "refused"]
"""Why a run is over: the model answered; too many rounds; the same call again and again; the host failed; somebody
stopped it; somebody who was asked did not allow a call and wants to be asked nothing more."""


class RoundStarted(Struct, frozen=True):
    """The model is asked; the first round is 1. The events of its answer follow."""

    number: int
    model: str


class ToolStarted(Struct, frozen=True):
    """A tool is run. Those of one answer run at once, and begin in the order of their calls."""

    call: ToolCall


class ToolEnded(Struct, frozen=True):
    """A call has its result; told in the order of the calls, as soon as those before it have theirs.

    A call that is not run (no such tool, wrong arguments, not allowed) has a result, too, and no `ToolStarted`.
    """

    call: ToolCall
    result: ToolResult
    seconds: float = 0.0


class MessageSaved(Struct, frozen=True):
    """A message is in the history, and in its file if there is one."""

    message: Message


class SaveFailed(Struct, frozen=True):
    """The history's file cannot be written: the conversation goes on in memory. Told once, until that works again."""

    detail: str


class RunEnded(Struct, frozen=True):
    """The run is over; comes last, always. The history can be gone on from, whatever the reason."""

    reason: Ending
    message: Message | None = None
    """The last answer of the model, if there is one."""
    detail: str = ""
    """For a person: what failed, and what to do."""
    usage: Usage | None = None
    """Of all rounds of this run together, as far as the host counted."""


AgentEvent: TypeAlias = RoundStarted | ToolStarted | ToolEnded | MessageSaved | SaveFailed | RunEnded
Step: TypeAlias = Event | AgentEvent
"""Whatever `Agent.run_stream` gives."""
