"""What a client has to be told, and how: values that the table of clients is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from moonshim.errors import MoonshimError

__all__ = ["CannotLaunch", "Client", "ClientPlan", "LaunchContext", "ModelInfo"]


class CannotLaunch(MoonshimError):
    """The client cannot be started; the message says why and what to do."""

    code = "cannot_launch"


class ModelInfo(Struct, frozen=True):
    """A model as the gateway lists it."""

    id: str
    context_window: int | None = None
    output_limit: int | None = None
    provider: str = ""
    sees_images: bool = True
    """Also where the gateway does not know."""
    thinks: bool = True
    efforts: tuple[str, ...] = ()
    """The efforts that thinking can be set to; `none` means that it can be disabled. Empty: it cannot be set."""


class LaunchContext(Struct, frozen=True, kw_only=True):
    """Everything that a client's settings depend on."""

    url: str
    """Of the gateway, without `/v1`."""
    key: str
    model: ModelInfo
    small_model: ModelInfo
    models: tuple[ModelInfo, ...]
    """All models of the gateway."""
    session: str
    """An id for this launch, which hosts use as cache key."""
    arguments: tuple[str, ...] = ()
    """The user's own, for the client."""
    version: Callable[[], str] = lambda: ""
    """Asks the program for its version; empty if it does not say."""
    has_judge: bool = False
    """Whether the gateway decides in Claude Code's auto mode what may run."""
    folder: Path
    """A private folder for overlay files; it is removed at the end."""
    environ: Mapping[str, str]


class ClientPlan(Struct, frozen=True, kw_only=True):
    """How to start a client. Only `env` and `files` may contain the key: other users can see arguments."""

    arguments: tuple[str, ...] = ()
    """Put before the user's own."""
    env: dict[str, str] = {}
    unset: tuple[str, ...] = ()
    """Variables that would override ours."""
    files: dict[str, str] = {}
    """Overlay files, by their path in the folder of the context."""
    notes: tuple[str, ...] = ()
    """What the user should know before the client starts, a line each."""


class Client(Struct, frozen=True, kw_only=True):
    """One client: its program, how to install it, and its settings."""

    name: str
    title: str
    program: str
    install: str
    guide: str
    """Its page in the documentation."""
    other_name: str | None = None
    """Accepted in place of `name`."""
    agent: str = "moonshim"
    """How its User-Agent starts, where that is known: some hosts accept only agents that they know."""
    has_small_model: bool = True
    """Whether it can use another model for titles and summaries."""
    plan: Callable[[LaunchContext], ClientPlan]
    last_session: Callable[[LaunchContext, float], str | None] = lambda context, since: None
    """The id of the session that was used last, if that was after this time and the client can resume it."""
