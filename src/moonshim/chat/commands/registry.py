"""A line that starts with a slash -> its effect on a chat, and its output.

`COMMANDS` is the whole list: usage, purpose, completions, and the function of each. A function gets the chat and the
words after the name, and returns a `CommandResult`; wrong usage raises `UsageError`, whose message explains the right
one.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from moonshim.chat.commands import conversation as talk
from moonshim.chat.commands import model as models
from moonshim.chat.commands.command import Command, CommandResult, UsageError
from moonshim.errors import MoonshimError

if TYPE_CHECKING:
    from moonshim.chat.session import Session

__all__ = ["COMMANDS", "KEYS", "is_command", "run_command"]

_LINE: Final = re.compile(r"/([A-Za-z?]*)(?:\s+(.*))?", re.DOTALL)
_NEAREST: Final = 3
_LONGEST: Final = "export"
"""Its usage would push the column of all others to the right."""


def is_command(line: str) -> bool:
    """Whether a line is a command. `/etc/hosts is odd` is a sentence.

    >>> is_command("/model kimi-k3"), is_command("/etc/hosts is odd"), is_command("hello")
    (True, False, False)
    """
    return _LINE.fullmatch(line.strip()) is not None


def run_command(session: Session, line: str) -> CommandResult:
    """Run a command. Never raises: errors become the output."""
    found = _LINE.fullmatch(line.strip())
    name, words = (found[1].lower(), (found[2] or "").strip()) if found else ("", "")
    name = _OTHER_NAMES.get(name, name)
    command = COMMANDS.get(name)
    if command is None:
        return CommandResult(_unknown(name))
    try:
        return command.run(session, words)
    except UsageError as error:
        return CommandResult(f"{error}\nusage: /{name} {command.usage}".rstrip())
    except MoonshimError as error:
        return CommandResult(str(error))
    except OSError as error:
        return CommandResult(f"/{name}: {error.filename or ''}: {error.strerror or error}".replace(": :", ":"))


def _unknown(name: str) -> str:
    close = get_close_matches(name, COMMANDS, n=_NEAREST, cutoff=0.6)
    close += [known for known in COMMANDS if name and known.startswith(name) and known not in close]
    nearest = f" (did you mean {', '.join(f'/{known}' for known in close)}?)" if close else ""
    return f"unknown command /{name}{nearest}\n/help lists all commands"


def _help(session: Session, words: str) -> CommandResult:
    if words:
        name = words.removeprefix("/").lower()
        command = COMMANDS.get(_OTHER_NAMES.get(name, name))
        return CommandResult(
            _unknown(name) if command is None else f"/{name} {command.usage}".rstrip() + f"\n  {command.help}"
        )
    width = max(len(f"/{name} {command.usage}") for name, command in COMMANDS.items() if name != _LONGEST)
    lines = [
        f"{usage:<{width}}  {command.help}" if len(usage) <= width else f"{usage}\n{'':<{width}}  {command.help}"
        for usage, command in ((f"/{name} {command.usage}", command) for name, command in COMMANDS.items())
    ]
    return CommandResult("\n".join([*lines, "", *KEYS]), column=width + 2)


def _leave(session: Session, words: str) -> CommandResult:
    return CommandResult(then="leave")


KEYS: Final = (
    "Enter sends. Alt-Enter, Ctrl-J or a trailing backslash starts a new line.",
    "Up, Down and Ctrl-R search earlier input. Tab completes commands, models, formats and file names.",
    "Ctrl-T shows or hides reasoning. Ctrl-C stops the answer; press it twice to exit. Ctrl-D exits.",
)
_OTHER_NAMES: Final = {"quit": "exit", "q": "exit", "h": "help", "?": "help", "": "help"}


COMMANDS: Final[dict[str, Command]] = {
    "help": Command("[command]", "list the commands and keys", _help, lambda session: list(COMMANDS)),
    "model": Command("[name]", "list the models, or switch to another", models.model, models.model_names),
    "provider": Command("[name]", "list the providers, or switch to another", models.provider, models.provider_names),
    "toolformat": Command(
        "[name|auto]", "show or set how tools are described to the model", models.tool_format, models.format_names
    ),
    "tools": Command("[name]", "list the tools, or show one", models.tools, models.tool_names),
    "thinking": Command("[on|off|effort]", "show or set the thinking effort", models.thinking, models.efforts),
    "fold": Command("[on|off]", "hide or show reasoning (also Ctrl-T)", models.fold, lambda session: ("on", "off")),
    "history": Command("[number]", "list the messages, or show one in full", talk.history),
    "save": Command("[name]", "show where the conversation is saved, or save a copy", talk.save),
    "load": Command("[name]", "list saved conversations, or continue one", talk.load, talk.conversations),
    "export": Command(
        "openai|anthropic|vercel|markdown [file]", "export the conversation to a file", talk.export, talk.exports
    ),
    "retry": Command("", "retry the last turn: continue it if it failed, redo it if it was answered", talk.retry),
    "undo": Command("", "remove the last turn", talk.undo),
    "clear": Command("", "start a new conversation; this one stays saved", talk.clear),
    "cost": Command("", "show tokens, cost and repairs so far", talk.cost),
    "exit": Command("", "exit the chat", _leave),
}
