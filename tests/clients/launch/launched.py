"""What a test of `moonshim launch` knows of a client: its package, a user's settings, and how to drive it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec import Struct

from tests.clients.client import Shell

__all__ = ["CLOSED", "OTHER", "Launched", "UserFiles"]

CLOSED: Final = "http://127.0.0.1:9/v1"
"""An address in the user's settings, at which nothing listens: a request that goes there fails."""
OTHER: Final = "other-model"
"""A model in the user's settings, which the host does not have."""


class UserFiles(Struct, frozen=True, kw_only=True):
    """Where the files of a user are."""

    home: Path
    work: Path
    """The project, in which the client is started."""
    server: tuple[str, ...]
    """The command of an MCP server."""


class Launched(Struct, frozen=True, kw_only=True):
    """One client."""

    name: str
    """As in `moonshim launch NAME`."""
    package: str
    """On npm, or PyPI (`on_pypi`)."""
    folder: str
    """Under `.clients/`."""
    on_pypi: bool = False
    needs_scripts: bool = False
    settings: Callable[[UserFiles], dict[str, str]]
    """Files of the user with conflicting settings, by their path in the home folder; they must stay as they are."""
    state: Callable[[UserFiles], dict[str, str]] = lambda _: {}
    """Further files, in which the client itself writes."""
    once: Callable[[str], tuple[str, ...]]
    """A prompt -> arguments with which the client answers it and ends."""
    shell: Shell | None
    """Its tool for commands; None if it has no tools, but runs a line that begins with `/run`."""
    has_mcp: bool = True
    has_cache_key: bool = True
    """Whether its requests must have one."""
    environment: dict[str, str] = {}
    arguments: tuple[str, ...] = ()
    """For the terminal."""
    ready: tuple[str, ...]
    """How a line begins that is on the screen when a person can type."""
    answers: tuple[tuple[str, str], ...] = ()
    """Questions that it may ask before it is ready, and the keys that answer them."""
    picker: str = ""
    """What is typed to choose a model from a list."""
    unwanted: tuple[str, ...] = ()
    """What must never be on its screen."""
    quit: tuple[str, ...]
    """Keys that end it, one after the other."""
