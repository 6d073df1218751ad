"""What a client has built in, as a test sees it: the files, the host, the model's part, and how the run is judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from moonshim.simulator import Model
from moonshim.simulator.http.recorded import RecordedRequest
from tests.clients.cases import Case
from tests.clients.client import Client, Command, Place
from tests.clients.judging import Ended

__all__ = ["BuiltIn", "Feature", "Run", "Scene"]


class Scene(Struct, frozen=True, kw_only=True):
    """One run before it starts."""

    work: Path
    word: str
    """Known to the search, the document or the server only. In the answer it shows that the feature worked."""


class Run(Struct, frozen=True, kw_only=True):
    """One run after it ended."""

    scene: Scene
    ended: Ended
    answer: str
    requests: Sequence[RecordedRequest]
    """Those that the host got."""
    lines: Sequence[dict[str, Any]]
    """Of the gateway's log."""

    def results(self, tool: str) -> list[str]:
        """What the model got from calls of this tool."""
        turns = [turn for seen in self.requests if seen.request is not None for turn in seen.request.turns]
        return [result.text for turn in turns for result in turn.results if result.name.endswith(tool)]

    def changes(self) -> set[str]:
        """The kinds of changes to requests that the gateway reported."""
        return {name for line in self.lines for name in line.get("changes") or {}}

    def repairs(self) -> set[str]:
        """The kinds of repairs of responses that the gateway reported."""
        return {name for line in self.lines for name in line.get("repairs") or {}}


class Feature(Struct, frozen=True, kw_only=True):
    """One thing that clients have built in, at one host."""

    name: str
    about: str
    host: Case
    model: Callable[[Scene], Model]
    thinking_tokens: int = 0
    """What the model thinks at least, of the tokens that a response may have."""
    prompt: str
    """`{word}` in it is the word."""
    has_word: bool = True
    """Whether the word must be in the answer."""
    prepare: Callable[[Scene], None] = lambda _: None
    """Writes files into the working directory, before the client starts."""
    provider: dict[str, Any] = {}
    """Further settings of the provider."""
    config: Callable[[Scene], dict[str, Any]] = lambda _: {}
    """Further tables of the gateway's configuration."""
    judge: Callable[[Run], Iterator[str]]
    """What is wrong, besides a missing word, an exit code, leaked markers and requests that the host refused."""


class BuiltIn(Struct, frozen=True, kw_only=True):
    """A feature in a client: with the settings and arguments that turn it on."""

    client: Client
    feature: Feature
    command: Callable[[Scene, Place], Command]
    answer: Callable[[str], str] | None = None
    """What it printed -> the final answer, if it prints something else than usual."""

    @property
    def name(self) -> str:
        return f"built-in {self.client.name}"
