"""An agent's own events, as values: they come between the engine's events of each response."""

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
"""Why a run ended: the model answered; too many rounds; the same call repeated; the host failed; it was cancelled;
permission for a call was denied and the run was to end."""


class RoundStarted(Struct, frozen=True):
    """The model is called; the first round is 1. The events of its response follow."""

    number: int
    model: str


class ToolStarted(Struct, frozen=True):
    """A tool is run. Those of one response run in parallel, and start in the order of their calls."""

    call: ToolCall


class ToolEnded(Struct, frozen=True):
    """A call has its result; reported in the order of the calls, as soon as those before it have theirs.

    A call that is not run (unknown tool, wrong arguments, not allowed) has a result too, but no `ToolStarted`.
    """

    call: ToolCall
    result: ToolResult
    seconds: float = 0.0


class MessageSaved(Struct, frozen=True):
    """A message is in the history, and in its file if there is one."""

    message: Message


class SaveFailed(Struct, frozen=True):
    """The history's file cannot be written: the conversation continues in memory. Reported once, until it works
    again."""

    detail: str


class RunEnded(Struct, frozen=True):
    """The run is over; always the last event. The history can be continued, whatever the reason."""

    reason: Ending
    message: Message | None = None
    """The last response of the model, if there is one."""
    detail: str = ""
    """For people: what failed, and what to do."""
    usage: Usage | None = None
    """Sum over all rounds of this run, as far as the host reported usage."""


AgentEvent: TypeAlias = RoundStarted | ToolStarted | ToolEnded | MessageSaved | SaveFailed | RunEnded
Step: TypeAlias = Event | AgentEvent
"""Any event of `Agent.run_stream`."""
