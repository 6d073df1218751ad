"""A command of the chat, its result, and the error for wrong usage: values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from moonshim.errors import MoonshimError

if TYPE_CHECKING:
    from moonshim.chat.session import Session

__all__ = ["Command", "CommandResult", "UsageError"]


class CommandResult(Struct, frozen=True):
    """The output, and what the terminal does next."""

    text: str = ""
    then: Literal["", "retry", "unfold", "leave"] = ""
    column: int = 0
    """For a table with two columns: where the second begins."""


class UsageError(MoonshimError):
    """A command was used incorrectly; the message explains what is wrong."""

    code = "misused_command"


class Command(Struct, frozen=True):
    """One command."""

    usage: str
    """Its arguments: `[name|auto]`."""
    help: str
    run: Callable[[Session, str], CommandResult]
    complete: Callable[[Session], Sequence[str]] = lambda session: ()
