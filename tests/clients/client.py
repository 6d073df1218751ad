"""What a driver says of its client: what to install, and how one prompt becomes a command, a home and its files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import Struct

__all__ = ["Client", "Command", "Dialect", "Place", "Shell"]

Dialect: TypeAlias = Literal["chat", "messages", "responses"]


class Place(Struct, frozen=True, kw_only=True):
    """Where one run happens: nothing outside of it is read or written."""

    installed: Path
    """The folder with `node_modules` in it."""
    home: Path
    work: Path
    """The working directory; what the tool is to find is in it."""
    url: str
    """The address to talk to, without `/v1`."""
    model: str
    prompt: str

    def program(self, name: str) -> str:
        return str(self.installed / "node_modules" / ".bin" / name)


class Command(Struct, frozen=True):
    """What to start. The environment has nothing else in it but a PATH, HOME, and proxies that lead nowhere."""

    arguments: tuple[str, ...]
    environment: dict[str, str] = {}


class Shell(Struct, frozen=True, kw_only=True):
    """The client's own tool for commands: its name, its parameter for the command, and what else it insists on."""

    tool: str
    command: str = "command"
    more: dict[str, Any] = {}

    def arguments(self, command: str) -> dict[str, Any]:
        return {self.command: command, **self.more}


class Client(Struct, frozen=True, kw_only=True):
    """One client in one of its ways to talk."""

    name: str
    dialect: Dialect
    folder: str
    """Clients with the same folder are installed once."""
    packages: tuple[str, ...]
    """As in package.json; the first gives the version that is shown."""
    needs_scripts: bool = False
    """Whether its program is put in its place by a script of the package."""
    command: Callable[[Place], Command]
    """Writes what it needs into the home, and says what to start."""
    shell: Shell
    reads_files: bool = True
    """Whether it has a tool for that besides the shell."""
    answer: Callable[[str], str] = str.strip
    """What it printed -> the final answer."""
