"""The events of an agent run. The engine's events of each response come between them."""

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
"""Why a run ended: the model answered, the round limit was reached, the model repeated the same call, the request
failed, the run was cancelled, or a call was denied with `Allowed.stop`."""


class RoundStarted(Struct, frozen=True):
    """A model call starts. The events of its response follow."""

    number: int
    """The number of the round; the first one is 1."""
    model: str
    """The name of the model that is called."""


class ToolStarted(Struct, frozen=True):
    """A tool starts. The tools of one response run in parallel and start in the order of their calls."""

    call: ToolCall
    """The call, with the arguments as the model wrote them."""


class ToolEnded(Struct, frozen=True):
    """A call has its result. Results are reported in the order of the calls.

    A call that is not run (unknown tool, invalid arguments, permission denied) has a result too, but no `ToolStarted`.
    """

    call: ToolCall
    """The call."""
    result: ToolResult
    """The result that the model gets; `is_error` is set if the tool failed."""
    seconds: float = 0.0
    """How long the tool ran."""


class MessageSaved(Struct, frozen=True):
    """A message was added to the history, and to its file if there is one."""

    message: Message
    """The message."""


class SaveFailed(Struct, frozen=True):
    """The history file cannot be written. The conversation continues in memory.

    The event is not repeated until writing has worked again.
    """

    detail: str
    """The error message, with the path and the reason."""


class RunEnded(Struct, frozen=True):
    """The run is over. This is always the last event. The history can be continued, whatever the reason."""

    reason: Ending
    """`answered`, `rounds` (limit reached), `repeating` (the same call again and again), `failed`, `cancelled` or
    `refused` (a call was denied with `Allowed.stop`)."""
    message: Message | None = None
    """The model's last message, if there is one."""
    detail: str = ""
    """A sentence for the user: what happened, and what to do."""
    usage: Usage | None = None
    """The token usage of all rounds of this run, as far as the host reported it."""


AgentEvent: TypeAlias = RoundStarted | ToolStarted | ToolEnded | MessageSaved | SaveFailed | RunEnded
Step: TypeAlias = Event | AgentEvent
"""Any event that `Agent.run_stream` yields: an engine event or an agent event."""
