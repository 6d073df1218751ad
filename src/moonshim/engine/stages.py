"""What transformers are, and the chain of their stages: the events of an answer -> those that the client is told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol, get_args

from moonshim.engine.values.conversation import Request
from moonshim.engine.values.events import BlockClosed, BlockDelta, BlockOpened, BlockSigned, Event, Failed, Finished
from moonshim.errors import MoonshimError

__all__ = ["Stage", "StageChain", "Transformer", "TransformerFailed", "name_of"]

_EVENTS: Final = frozenset(get_args(Event))


class Stage(Protocol):
    """Changes one answer while it streams. One object for each answer."""

    def feed(self, event: Event) -> list[Event]:
        """Something happened; what the client is to be told of it, which may be nothing yet. The ending comes last."""

    def flush(self) -> list[Event]:
        """The answer is over: what was kept back. It is told before the ending."""


class Transformer(Protocol):
    """Changes requests on their way to a host, and the answers on their way back.

    One object serves all requests: what belongs to one answer is kept in its stages.
    """

    def prepare(self, request: Request) -> Request:
        """The request as it is to go on. Values are frozen: make others with `msgspec.structs.replace`."""

    def stages(self, plan: Any) -> list[Stage]:
        """New stages for one answer, whose `Plan` this is; they may be asked for more often than they are used."""


class TransformerFailed(MoonshimError):
    """A transformer raised, or gave what is no request or no answer. The message names it, and repeats nothing."""

    code = "transformer_failed"
    status = 500

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"the transformer {name} failed: {why}")
        self.name: str = name
        self.why: str = why

    @classmethod
    def raised(cls, name: str, error: BaseException) -> TransformerFailed:
        """What it raised is the cause. Its message stays there: it may have words of the conversation in it."""
        if isinstance(error, TransformerFailed):
            name, why = error.name, error.why  # somebody nearer to it has said so
        else:
            why = str(error) if isinstance(error, _NoAnswer) else f"it raised {type(error).__name__}"
        failed = cls(name, why)
        failed.__cause__ = error
        return failed


def name_of(transformer: object) -> str:
    """What people call a transformer: its `name`, else that of its class."""
    name = getattr(transformer, "name", None)
    return name if isinstance(name, str) else type(transformer).__name__


class _NoAnswer(Exception):
    """What a stage gave is no part of an answer."""


class _Link:
    """A stage that is held to the protocol: what it gives are events, and blocks are opened before they are told."""

    __slots__ = ("_open", "_stage", "name")

    def __init__(self, name: str, stage: Stage) -> None:
        self.name = name
        self._stage = stage
        self._open: set[int] = set()

    def feed(self, events: list[Event]) -> list[Event]:
        return [returned for event in events for returned in self._check_events(self._stage.feed(event))]

    def end(self, events: list[Event], ending: Finished | Failed) -> tuple[list[Event], Finished | Failed]:
        """What it still has to say, and how it says that the answer ends. A failure stays the failure it is."""
        returned = [
            *self.feed(events),
            *self._check_events(self._stage.feed(ending)),
            *self._check_events(self._stage.flush()),
        ]
        for event in returned:
            if isinstance(event, Finished) and isinstance(ending, Finished):
                ending = event
        if self._open:
            raise _NoAnswer("it left a block open")
        return [event for event in returned if not isinstance(event, (Finished, Failed))], ending

    def _check_events(self, returned: object) -> list[Event]:
        if not isinstance(returned, list):
            raise _NoAnswer(f"it gave {type(returned).__name__}, not a list of events")
        for event in returned:
            if type(event) not in _EVENTS:
                raise _NoAnswer(f"it gave {type(event).__name__}, which is no event")
            if isinstance(event, (BlockDelta, BlockSigned, BlockClosed)) and event.index not in self._open:
                raise _NoAnswer(f"it told something of block {event.index}, which is not open")
            if isinstance(event, BlockOpened) and event.index in self._open:
                raise _NoAnswer(f"it opened block {event.index} twice")
            _keep(self._open, event)
        return returned


class StageChain:
    """Runs the events of one answer through all stages: balanced blocks go in, balanced blocks come out.

    It never raises. When a stage fails, `failure` says so, and all that is still told is that
    what was begun has ended, with the failure of the answer.
    """

    __slots__ = ("_links", "_told", "failure")

    def __init__(self, stages: Iterable[tuple[str, Stage]] = ()) -> None:
        """The stages in the order in which they see the answer, each with the name of its transformer."""
        self._links = [_Link(name, stage) for name, stage in stages]
        self._told: set[int] = set()
        self.failure: TransformerFailed | None = None

    def __bool__(self) -> bool:
        """Whether there are any stages."""
        return bool(self._links)

    def feed(self, event: Event) -> list[Event]:
        """What the client is told of this event. Behind the ending of an answer nothing comes."""
        if not self._links:
            return [event]
        if self.failure is None:
            told = self._through(event)
            if self.failure is None:
                for one in told:
                    _keep(self._told, one)
                return told
        return self._fail(event)

    def _through(self, event: Event) -> list[Event]:
        ending = event if isinstance(event, (Finished, Failed)) else None
        events: list[Event] = [] if ending is not None else [event]
        for link in self._links:
            try:
                if ending is not None:
                    events, ending = link.end(events, ending)
                    continue
                events = link.feed(events)
                if any(isinstance(returned, (Finished, Failed)) for returned in events):
                    raise _NoAnswer("it ended the answer before its host did")
            except BaseException as error:  # nothing is awaited here: no end of the process or the task comes this way
                self.failure = TransformerFailed.raised(link.name, error)
                return []
        return events if ending is None else [*events, ending]

    def _fail(self, event: Event) -> list[Event]:
        if not isinstance(event, (Finished, Failed)):
            return []
        # A call that nobody finished must not be run.
        closed = [BlockClosed(index, complete=False) for index in sorted(self._told)]
        self._told.clear()
        if isinstance(event, Finished):
            event = Failed(TransformerFailed.code, str(self.failure), retryable=False)
        return [*closed, event]


def _keep(opened: set[int], event: Event) -> None:
    if isinstance(event, BlockOpened):
        opened.add(event.index)
    elif isinstance(event, BlockClosed):
        opened.discard(event.index)
