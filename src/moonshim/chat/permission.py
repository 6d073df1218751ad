"""A call that changes things -> whether it may be run: asked once, allowed for good, or not.

What is allowed for good is as narrow as it can be and still be of use: a command by the program and its subcommand
(`git status`), or to the letter where a shell would read more into it; a tool that writes, within the folder.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from json import loads
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from moonshim.agent.running import ALLOWED, Allowed
from moonshim.agent.tools import AgentTool
from moonshim.chat.clean import clean_line
from moonshim.conversation import ToolCall

__all__ = ["Answer", "Ask", "Grant", "Permission", "grant_for"]

Answer: TypeAlias = Literal["once", "always", "no", "stop"]
Ask: TypeAlias = Callable[[ToolCall, "Grant"], Awaitable[Answer]]

_COMMAND: Final = "bash"
_PLAIN: Final = re.compile(r"[\w./@:+,=%-]+(?: +[\w./@:+,=%-]+)*")
"""Words and nothing that a shell reads more into: no pipes, no quotes, no variables, no second line."""
_SUBCOMMAND: Final = re.compile(r"[a-z][a-z-]*")
_RUN_ANYTHING: Final = frozenset(
    {
        *("sh", "bash", "zsh", "dash", "fish", "ksh", "env", "sudo", "doas", "su", "ssh", "xargs", "nohup", "time"),
        *("timeout", "nice", "watch", "eval", "exec", "command", "source", "python", "python3", "perl", "ruby"),
        *("node", "deno", "bun", "php", "lua", "awk", "gawk", "find", "parallel", "docker", "podman", "kubectl"),
        *("npx", "uvx", "pipx", "make"),
    }
)
"""Programs whose arguments are programs."""
_NOBODY: Final = "Nobody can be asked here: only tools that read may be used."


class Grant(Struct, frozen=True):
    """What "always" would allow."""

    key: str
    label: str
    """For the person who is asked."""


class Permission:
    """Decides, and remembers for as long as the chat lasts. Without somebody to `ask`, nothing is allowed that asks."""

    def __init__(
        self, folder: Path, *, yolo: bool = False, allowed: Iterable[str] = (), ask: Ask | None = None
    ) -> None:
        self.folder, self.yolo, self.ask = folder, yolo, ask
        self.always: dict[str, Grant] = {name: Grant(name, f"all calls of {name}") for name in allowed}

    async def __call__(self, tool: AgentTool, call: ToolCall) -> Allowed:
        grant = grant_for(call, self.folder)
        if self.yolo or not tool.asks or call.name in self.always or grant.key in self.always:
            return ALLOWED
        if self.ask is None:
            return Allowed(False, _NOBODY)
        match await self.ask(call, grant):
            case "always":
                self.always[grant.key] = grant
                return ALLOWED
            case "once":
                return ALLOWED
            case "stop":
                return Allowed(False, stop=True)
        return Allowed(False)


def grant_for(call: ToolCall, folder: Path) -> Grant:
    """What "always" would mean for a call.

    >>> [grant_for(ToolCall("1", "bash", '{"command": "%s"}' % text), Path()).label
    ...  for text in ("git status -s", "ls -l /tmp", "rm x; rm y")]
    ['commands that begin with `git status`', 'commands that begin with `ls`', 'exactly this command']
    """
    arguments = _object(call.arguments)
    if call.name == _COMMAND:
        return _grant_of_command(str(arguments.get("command", "")))
    path = arguments.get("path")
    if isinstance(path, str) and not _is_inside(path, folder):
        return Grant(f"{call.name}\0{path}", f"{call.name} of {clean_line(path)}")
    return Grant(f"{call.name}\0", f"{call.name} in this folder")


def _grant_of_command(command: str) -> Grant:
    words = command.strip().split(" ")
    plain = [word for word in words if word]
    if not _PLAIN.fullmatch(command.strip()) or Path(plain[0]).name in _RUN_ANYTHING or "=" in plain[0]:
        return Grant(f"{_COMMAND}\0={command}", "exactly this command")
    start = plain[:2] if len(plain) > 1 and _SUBCOMMAND.fullmatch(plain[1]) else plain[:1]
    return Grant(f"{_COMMAND}\0{' '.join(start)}", f"commands that begin with `{' '.join(start)}`")


def _is_inside(path: str, folder: Path) -> bool:
    try:
        return (folder / path).resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError):
        return False


def _object(arguments: str) -> dict[str, Any]:
    try:
        value = loads(arguments)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
