"""The transformer protocol, and the chain of stages: events of a response -> events for the client."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol, get_args

from moonshim.engine.values.conversation import Request
from moonshim.engine.values.events import BlockClosed, BlockDelta, BlockOpened, BlockSigned, Event, Failed, Finished
from moonshim.errors import MoonshimError

__all__ = ["Stage", "StageChain", "Transformer", "TransformerFailed", "name_of"]

_EVENTS: Final = frozenset(get_args(Event))


class Stage(Protocol):
    """Transforms one response while it streams. One object per response."""

    def feed(self, event: Event) -> list[Event]:
        """Handle an event; return the events to pass on, possibly none yet. `Finished` or `Failed` comes last."""

    def flush(self) -> list[Event]:
        """End of the response: return what was held back. It is passed on before the last event."""


class Transformer(Protocol):
    """Transforms requests on their way to the host and responses on their way back.

    One object serves all requests: keep the state of a response in its stages.
    """

    def prepare(self, request: Request) -> Request:
        """Return the request to pass on. Values are frozen: use `msgspec.structs.replace`."""

    def stages(self, plan: Any) -> list[Stage]:
        """Create the stages for one response, given its `Plan`. May be called more often than the stages are used."""


class TransformerFailed(MoonshimError):
    """A transformer raised an exception or returned something invalid.

    The message names the transformer and contains no data of the conversation.
    """

    code = "transformer_failed"
    status = 500

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"transformer {name} failed: {why}")
        self.name: str = name
        self.why: str = why

    @classmethod
    def from_error(cls, name: str, error: BaseException) -> TransformerFailed:
        """Wrap an exception as the cause. Its message stays there: it may contain parts of the conversation."""
        if isinstance(error, TransformerFailed):
            name, why = error.name, error.why  # already reported closer to the source
        else:
            why = str(error) if isinstance(error, _InvalidOutput) else f"it raised {type(error).__name__}"
        failed = cls(name, why)
        failed.__cause__ = error
        return failed


def name_of(transformer: object) -> str:
    """Display name of a transformer: its `name`, or that of its class."""
    name = getattr(transformer, "name", None)
    return name if isinstance(name, str) else type(transformer).__name__


class _InvalidOutput(Exception):
    """A stage returned something that is not part of a response."""


class _CheckedStage:
    """Holds a stage to the protocol: it must return events, and open a block before using it."""

    __slots__ = ("_open", "_stage", "name")

    def __init__(self, name: str, stage: Stage) -> None:
        self.name = name
        self._stage = stage
        self._open: set[int] = set()

    def feed(self, events: list[Event]) -> list[Event]:
        return [returned for event in events for returned in self._check_events(self._stage.feed(event))]

    def end(self, events: list[Event], ending: Finished | Failed) -> tuple[list[Event], Finished | Failed]:
        """The remaining events of the stage, and its last event. A failure stays the same failure."""
        returned = [
            *self.feed(events),
            *self._check_events(self._stage.feed(ending)),
            *self._check_events(self._stage.flush()),
        ]
        for event in returned:
            if isinstance(event, Finished) and isinstance(ending, Finished):
                ending = event
        if self._open:
            raise _InvalidOutput("it left a block open")
        return [event for event in returned if not isinstance(event, (Finished, Failed))], ending

    def _check_events(self, returned: object) -> list[Event]:
        if not isinstance(returned, list):
            raise _InvalidOutput(f"it returned {type(returned).__name__}, not a list of events")
        for event in returned:
            if type(event) not in _EVENTS:
                raise _InvalidOutput(f"it returned {type(event).__name__}, which is not an event")
            if isinstance(event, (BlockDelta, BlockSigned, BlockClosed)) and event.index not in self._open:
                raise _InvalidOutput(f"it sent an event for block {event.index}, which is not open")
            if isinstance(event, BlockOpened) and event.index in self._open:
                raise _InvalidOutput(f"it opened block {event.index} twice")
            _track_blocks(self._open, event)
        return returned


class StageChain:
    """Runs the events of one response through all stages: balanced blocks in, balanced blocks out.

    Never raises. When a stage fails, `failure` is set, and the only further events close open blocks and end the
    response with the failure.
    """

    __slots__ = ("_open_blocks", "_stages", "failure")

    def __init__(self, stages: Iterable[tuple[str, Stage]] = ()) -> None:
        """The stages in the order in which they see the response, each with the name of its transformer."""
        self._stages = [_CheckedStage(name, stage) for name, stage in stages]
        self._open_blocks: set[int] = set()
        self.failure: TransformerFailed | None = None

    def __bool__(self) -> bool:
        """Whether there are any stages."""
        return bool(self._stages)

    def feed(self, event: Event) -> list[Event]:
        """The events for the client. Nothing follows the end of a response."""
        if not self._stages:
            return [event]
        if self.failure is None:
            events = self._run_stages(event)
            if self.failure is None:
                for passed in events:
                    _track_blocks(self._open_blocks, passed)
                return events
        return self._fail(event)

    def _run_stages(self, event: Event) -> list[Event]:
        ending = event if isinstance(event, (Finished, Failed)) else None
        events: list[Event] = [] if ending is not None else [event]
        for stage in self._stages:
            try:
                if ending is not None:
                    events, ending = stage.end(events, ending)
                    continue
                events = stage.feed(events)
                if any(isinstance(returned, (Finished, Failed)) for returned in events):
                    raise _InvalidOutput("it ended the response before the host did")
            except BaseException as error:  # nothing is awaited here, so no cancellation or exit can arrive
                self.failure = TransformerFailed.from_error(stage.name, error)
                return []
        return events if ending is None else [*events, ending]

    def _fail(self, event: Event) -> list[Event]:
        if not isinstance(event, (Finished, Failed)):
            return []
        # An unfinished call must not be executed.
        closed = [BlockClosed(index, complete=False) for index in sorted(self._open_blocks)]
        self._open_blocks.clear()
        if isinstance(event, Finished):
            event = Failed(TransformerFailed.code, str(self.failure), retryable=False)
        return [*closed, event]


def _track_blocks(open_blocks: set[int], event: Event) -> None:
    if isinstance(event, BlockOpened):
        open_blocks.add(event.index)
    elif isinstance(event, BlockClosed):
        open_blocks.discard(event.index)
