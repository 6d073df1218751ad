"""An agent for Kimi models: a provider with reliable streaming tool calls, and the agent loop."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moonshim.agent.events import MessageSaved, RoundStarted, RunEnded, SaveFailed, Step, ToolEnded, ToolStarted
    from moonshim.agent.execution.runner import Allowed
    from moonshim.agent.history import History, HistoryError, HistoryFile, HistoryNotSaved, read_history
    from moonshim.agent.loop import Agent, AgentBusy, AgentStopped
    from moonshim.agent.marked_text import as_marked_text, parse_marked_text
    from moonshim.agent.provider import AnswerFailed, Provider
    from moonshim.agent.stream import AnswerStream, ExchangeResult, assemble_message
    from moonshim.agent.tools import AgentTool, ToolFailed, tool
    from moonshim.config import Timeouts

__all__ = [
    "Agent",
    "AgentBusy",
    "AgentStopped",
    "AgentTool",
    "Allowed",
    "AnswerFailed",
    "AnswerStream",
    "ExchangeResult",
    "History",
    "HistoryError",
    "HistoryFile",
    "HistoryNotSaved",
    "MessageSaved",
    "Provider",
    "RoundStarted",
    "RunEnded",
    "SaveFailed",
    "Step",
    "Timeouts",
    "ToolEnded",
    "ToolFailed",
    "ToolStarted",
    "as_marked_text",
    "assemble_message",
    "parse_marked_text",
    "read_history",
    "tool",
]

_HOMES = {
    "Agent": "loop",
    "AgentBusy": "loop",
    "AgentStopped": "loop",
    "AgentTool": "tools",
    "Allowed": "execution.runner",
    "AnswerFailed": "provider",
    "AnswerStream": "stream",
    "ExchangeResult": "stream",
    "History": "history",
    "HistoryError": "history",
    "HistoryFile": "history",
    "HistoryNotSaved": "history",
    "MessageSaved": "events",
    "SaveFailed": "events",
    "Provider": "provider",
    "RoundStarted": "events",
    "RunEnded": "events",
    "Step": "events",
    "Timeouts": "endpoint",
    "ToolStarted": "events",
    "ToolEnded": "events",
    "ToolFailed": "tools",
    "assemble_message": "stream",
    "as_marked_text": "marked_text",
    "parse_marked_text": "marked_text",
    "read_history": "history",
    "tool": "tools",
}

_OLD_NAMES = {
    "Exchanged": "ExchangeResult",
    "HistoryNotKept": "HistoryNotSaved",
    "MessageKept": "MessageSaved",
    "NotKept": "SaveFailed",
    "RoundBegan": "RoundStarted",
    "ToolBegan": "ToolStarted",
    "answered": "assemble_message",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        # Imported on first use: the values alone do not need an HTTP client.
        from importlib import import_module

        if name in _OLD_NAMES:
            name = import_module("moonshim.compat").new_name(__name__, name, _OLD_NAMES)
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            home = import_module(f"{__name__}.{_HOMES[name]}")
        except ModuleNotFoundError as error:
            if error.name != "aiohappyeyeballs":
                raise
            install = 'pip install ".[agent]"   (in a checkout of Moonshim)'
            raise ModuleNotFoundError(f"moonshim.agent needs aiohappyeyeballs: {install}") from error
        value = globals()[name] = getattr(home, name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
