"""A call that changes things -> whether it may be run: asked once, always allowed, or not.

"Always" covers exactly the command that was shown. The exceptions are a few commands that only read, whatever their
arguments are (`ls`, `git status`), and tools that write, which are allowed for the files of the folder.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from moonshim.agent.execution.runner import ALLOWED, Allowed
from moonshim.agent.toolbox.folder import WorkingFolder
from moonshim.agent.tools import AgentTool, ToolFailed
from moonshim.chat.render.sanitize import clean_line
from moonshim.engine.values.conversation import ToolCall
from moonshim.engine.wire.json_codec import decode_object

__all__ = ["Ask", "Grant", "Permission", "PermissionAnswer", "grant_for"]

PermissionAnswer: TypeAlias = Literal["once", "always", "no", "stop"]
Ask: TypeAlias = Callable[[ToolCall, "Grant"], Awaitable[PermissionAnswer]]

_COMMAND: Final = "bash"
_PLAIN: Final = re.compile(r"[\w./@:+,=%-]+(?: +[\w./@:+,=%-]+)*")
"""Plain words without shell syntax: no pipes, no quotes, no variables, no second line."""
_READERS: Final = frozenset(
    {
        *("ls", "pwd", "cat", "head", "tail", "wc", "stat", "du", "df", "grep", "diff", "cmp", "cut", "nl", "echo"),
        *("basename", "dirname", "readlink", "realpath", "md5sum", "sha1sum", "sha256sum", "uname", "whoami", "id"),
        *("git status", "git log", "git diff", "git show", "git blame", "git ls-files", "git rev-parse"),
    }
)
"""Commands that run no other program and write no file, whatever plain words follow. A list of programs that do would
never be complete: `tar --checkpoint-action`, `sort --compress-program`, `git -c`, `rsync -e`, every new interpreter."""
_WRITES: Final = "--output"
"""The one option of these that writes a file; git also accepts a prefix of its name."""
_NOT_INTERACTIVE: Final = "This call needs confirmation, and this session cannot ask for it. Use only tools that read."


class Grant(Struct, frozen=True):
    """What "always" would allow."""

    key: str
    label: str
    """For the person who is asked."""


class Permission:
    """Decides, and remembers for as long as the chat lasts. Without `ask`, every call that needs permission is
    refused."""

    def __init__(
        self, folder: Path, *, yolo: bool = False, allowed: Iterable[str] = (), ask: Ask | None = None
    ) -> None:
        self.folder, self.yolo, self.ask = folder, yolo, ask
        self.refused: dict[str, None] = {}
        """The tools whose calls were refused because there was no one to ask, in order."""
        self.always: dict[str, Grant] = {name: Grant(name, f"all calls to {name}") for name in allowed}

    async def __call__(self, tool: AgentTool, call: ToolCall) -> Allowed:
        grant = grant_for(call, self.folder)
        if self.yolo or not tool.asks or call.name in self.always or grant.key in self.always:
            return ALLOWED
        if self.ask is None:
            self.refused[call.name] = None
            return Allowed(False, _NOT_INTERACTIVE, by_user=False)
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
    ...  for text in ("git status -s", "ls -l /tmp", "rm -r build")]
    ['commands that start with `git status`', 'commands that start with `ls`', 'exactly this command']
    """
    # Parsed as the tools do: two parsers could see two paths in one text.
    arguments = decode_object(call.arguments.encode("utf-8", "surrogatepass")) or {}
    if call.name == _COMMAND:
        return _grant_of_command(str(arguments.get("command", "")))
    path = arguments.get("path")
    if not isinstance(path, str):  # not a call that a tool accepts
        return Grant(f"{call.name}\0={call.arguments}", "exactly this call")
    place = WorkingFolder(folder, outside=True)
    try:
        # The tools resolve a path the same way: `~` is a home folder, and links are followed.
        found = place.find(path)
    except ToolFailed:
        return Grant(f"{call.name}\0={path}", f"{call.name} on {clean_line(path)}")
    if not place.has(found):
        return Grant(f"{call.name}\0{found}", f"{call.name} on {clean_line(str(found))}")
    return Grant(f"{call.name}\0", f"{call.name} in this folder")


def _grant_of_command(command: str) -> Grant:
    text = command.strip()
    words = text.split() if _PLAIN.fullmatch(text) else []
    for start in (" ".join(words[:1]), " ".join(words[:2])):
        if start in _READERS and not any(_writes(word) for word in words):
            return Grant(f"{_COMMAND}\0{start}", f"commands that start with `{start}`")
    return Grant(f"{_COMMAND}\0={command}", "exactly this command")


def _writes(word: str) -> bool:
    """
    >>> [_writes(word) for word in ("--output=x", "--outp", "--oneline", "--", "-o")]
    [True, True, False, False, False]
    """
    option = word.partition("=")[0]
    return len(option) > 2 and _WRITES.startswith(option)
