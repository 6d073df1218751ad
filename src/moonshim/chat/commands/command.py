"""What a command of the chat is, what it answers, and how it says that it was used wrongly: values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from moonshim.errors import MoonshimError

if TYPE_CHECKING:
    from moonshim.chat.session import Session

__all__ = ["Command", "CommandResult", "UsageError"]


class CommandResult(Struct, frozen=True):
    """What is told, and what the terminal does next."""

    text: str = ""
    then: Literal["", "retry", "unfold", "leave"] = ""
    column: int = 0
    """Of a table with two columns: where the second begins."""


class UsageError(MoonshimError):
    """A command cannot be used like this; the text says how."""

    code = "misused_command"


class Command(Struct, frozen=True):
    """One command."""

    usage: str
    """Behind its name: `[name|auto]`."""
    help: str
    run: Callable[[Session, str], CommandResult]
    complete: Callable[[Session], Sequence[str]] = lambda session: ()
