"""Transformers for tests: each does one thing to requests or to answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from moonshim.engine.stages import Stage
from moonshim.engine.values.conversation import Message, Request, Text
from moonshim.engine.values.events import BlockDelta, Event

__all__ = ["Each", "Passing", "Saying", "Staged"]


class Passing:
    """A stage that changes nothing."""

    def feed(self, event: Event) -> list[Event]:
        return [event]

    def flush(self) -> list[Event]:
        return []


class Each(Passing):
    """A stage that is a function of single events."""

    def __init__(self, work: Callable[[Event], list[Event]], last: Callable[[], list[Event]] = list) -> None:
        self._work, self._last = work, last

    def feed(self, event: Event) -> list[Event]:
        return self._work(event)

    def flush(self) -> list[Event]:
        return self._last()


class Staged:
    """A transformer of answers alone."""

    def __init__(self, *makers: Callable[[], Stage], name: str = "Staged") -> None:
        self.name = name
        self._makers = makers

    def prepare(self, request: Request) -> Request:
        return request

    def stages(self, plan: Any) -> list[Stage]:
        return [make() for make in self._makers]


class Saying:
    """Puts a word before the others: a system message before a request, a letter before each piece of an answer."""

    def __init__(self, word: str = "!") -> None:
        self.word = word

    def prepare(self, request: Request) -> Request:
        return replace(request, messages=(Message("system", (Text(self.word),)), *request.messages))

    def stages(self, plan: Any) -> list[Stage]:
        return [Each(self._said)]

    def _said(self, event: Event) -> list[Event]:
        return [BlockDelta(event.index, self.word + event.text)] if isinstance(event, BlockDelta) else [event]
