"""Configuration and choices -> a chat: an agent, its file, its tools, its usage. No terminal code."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from shlex import quote
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from moonshim.agent.events import RunEnded, Step
from moonshim.agent.history import HistoryFile
from moonshim.agent.loop import Agent
from moonshim.agent.provider import Provider
from moonshim.agent.tools import AgentTool
from moonshim.chat.choices import Choices
from moonshim.chat.conversations import ConversationFolder
from moonshim.chat.permissions import Permission
from moonshim.chat.usage import UsageTotals
from moonshim.config import Target
from moonshim.engine.formats import TOOL_FORMATS
from moonshim.engine.values.events import Failed, Finished, Repaired

__all__ = ["ChatSettings", "Session"]

SYSTEM: Final = """\
You are an assistant in a terminal, with tools. Your working directory is {folder}.
Use the tools to look things up before you answer. Say in one sentence what you do and what the result was. \
Answer in Markdown."""

_NO_CONNECTION: Final = ("upstream_unreachable", "upstream_unresolved")
_NO_SUCH_MODEL: Final = re.compile(r"(?i)not exist|not found|no such|unknown|not a valid")


class ChatSettings(Struct, frozen=True, kw_only=True):
    """The settings other than the model. They stay when the model changes."""

    thinking: str | None = None
    """`on`, `off` or an effort; None for the host's default."""
    tool_format: str | None = None
    system: str | None = None
    rounds: int = 50
    repeats: int = 4


class Session:
    """One chat. Models, formats and conversations can be changed between two turns."""

    def __init__(
        self,
        choices: Choices,
        target: Target,
        *,
        shelf: ConversationFolder,
        history: HistoryFile,
        tools: Sequence[AgentTool],
        permission: Permission,
        setting: ChatSettings = ChatSettings(),  # noqa: B008 - a frozen value
    ) -> None:
        self.choices, self.shelf, self.permission, self.setting = choices, shelf, permission, setting
        self.ledger = UsageTotals()
        self.folded = False
        self.hidden: list[str] = []
        """The folded reasoning of the last turn."""
        self.notes: tuple[str, ...] = ()
        """Messages to show before it begins."""
        self.same_host = ""
        """The options of `moonshim chat` that select the same host again."""
        self._tools = list(tools)
        self._begin(self._new_provider(target), history)
        if setting.tool_format is None:
            self._restore_format()

    # -- the model
    # -------------------------------------------------------------------------------------------------------

    @property
    def provider(self) -> Provider:
        provider = self.agent.provider
        assert isinstance(provider, Provider)
        return provider

    @property
    def history(self) -> HistoryFile:
        history = self.agent.history
        assert isinstance(history, HistoryFile)
        return history

    @property
    def folder(self) -> Path:
        return self.permission.folder

    def switch(self, target: Target) -> None:
        """Switch to another model; a tool format that was set belonged to the previous one."""
        self.setting = replace(self.setting, tool_format=None)
        self.agent.switch(self._new_provider(target))

    def set(self, **changes: Any) -> None:
        """Change a setting for the current model. Raises `InvalidInput` if that is impossible, and changes nothing."""
        setting = replace(self.setting, **changes)
        made = self.provider.with_(tool_format=setting.tool_format, thinking=setting.thinking)
        self.setting = setting
        self.agent.switch(made)

    def _new_provider(self, target: Target) -> Provider:
        return self.choices.provider_for(target, tool_format=self.setting.tool_format, thinking=self.setting.thinking)

    # -- conversations -----------------------------------------------------------------------------------------------

    @property
    def resume_command(self) -> str:
        """The command that continues this conversation, at the same host."""
        path = self.history.path
        name = path.stem if path.parent == self.shelf.folder else str(path.absolute())
        # An address has no list of models to find the conversation's in.
        model = f" --model {quote(self.provider.model)}" if self.choices.config.source == "--base-url" else ""
        return f"moonshim chat{self.same_host}{model} --resume {quote(name)}"

    def start_new(self) -> str:
        """Start a new conversation; return the name of the previous one, or an empty string if that was empty."""
        former = self.history
        name = former.path.stem if former.messages else ""
        history = self.shelf.begin()
        former.close()
        self._begin(self.provider, history)
        return name

    def load(self, name: str) -> None:
        """Continue another conversation, with the current model."""
        path = self.shelf.find(name)
        if path.exists() and path.samefile(self.history.path):
            return
        history = HistoryFile.open(path)
        self.history.close()
        self._begin(self.provider, history)
        self._restore_format()

    def _restore_format(self) -> None:
        """Restore the tool format that was set in this conversation for the current model."""
        one, history = self.provider, self.history
        if (one.model, one.name) == (history.model, history.provider) and history.tool_format in TOOL_FORMATS:
            self.set(tool_format=history.tool_format)

    def _begin(self, provider: Provider, history: HistoryFile) -> None:
        system = self.setting.system if self.setting.system is not None else SYSTEM.format(folder=self.folder)
        self.agent = Agent(
            provider,
            self._tools,
            system=system or None,
            rounds=self.setting.rounds,
            repeats=self.setting.repeats,
            history=history,
            allow=self.permission,
        )

    # -- turns -------------------------------------------------------------------------------------------------------

    async def steps(self, prompt: str | None) -> AsyncIterator[Step]:
        """One turn; without a prompt the last one is retried. Its usage is counted."""
        provider = self.provider
        failed: Failed | None = None
        stream = self.agent.retry_stream() if prompt is None else self.agent.run_stream(prompt)
        try:
            async for step in stream:
                match step:
                    case Finished(usage=usage):
                        self.ledger.add(usage, self.choices.price(provider), provider.base_url)
                    case Failed():
                        self.ledger.add(None, None)
                        failed = step
                    case RunEnded(reason="failed") if failed is not None and (hint := self._next_step(failed)):
                        step = replace(step, detail=f"{step.detail.rstrip('.')}. {hint}")
                    case Repaired():
                        self.ledger.add_repairs([step])
                yield step
        finally:
            await stream.aclose()

    def _next_step(self, failed: Failed) -> str:
        """What to do about a failed response; empty if there is no advice."""
        model, source = self.provider.model, self.choices.config.source
        if failed.code in _NO_CONNECTION and source == "--base-url":
            return "Check that the server is running and that --base-url is correct."
        if failed.code in _NO_CONNECTION and source != "--demo":
            return f"Run `moonshim doctor{self.same_host}` to check the address, the key and the model."
        if model in failed.message and _NO_SUCH_MODEL.search(failed.message):
            near = get_close_matches(model, self.choices.names(), n=3)
            names = f" (did you mean {', '.join(near)}?)" if near else ""
            return f"Choose another model with --model, or with /model in a chat{names}."
        return ""

    async def close(self) -> None:
        self.history.close()
        await self.choices.close()
