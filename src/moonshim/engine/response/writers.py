"""The writers of a response: encoded in the client's dialect, collected as events, or patched by the dialect itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Generic, TypeVar

from moonshim.engine.dialects.protocol import (
    Body,
    ChoicesEncoder,
    Encoder,
    PatchContext,
    ResponseContext,
    Template,
    Writer,
)
from moonshim.engine.dialects.registry import dialect_named
from moonshim.engine.frames import HostFrame, Released
from moonshim.engine.plan import Plan
from moonshim.engine.repair.repair_log import RepairLog
from moonshim.engine.values.events import Event

__all__ = ["ChoicesCollector", "EncodingWriter", "EventCollector", "writer_for"]

Origin = TypeVar("Origin")


class EventCollector:
    """An encoder that writes nothing: it keeps the events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def feed(self, event: Event) -> list[Body]:
        self.events.append(event)
        return []

    def template(self, index: int) -> Template | None:
        return None


class ChoicesCollector(EventCollector):
    """Keeps the events of every choice: `events` are those of the first."""

    def __init__(self) -> None:
        super().__init__()
        self._others: dict[int, EventCollector] = {}

    def for_choice(self, index: int) -> Encoder:
        return self._others.setdefault(index, EventCollector())

    @property
    def choices(self) -> dict[int, list[Event]]:
        """The events of all choices, by index."""
        return {0: self.events} | {index: other.events for index, other in self._others.items()}


class EncodingWriter(Generic[Origin]):
    """Writes a response in the client's dialect, whatever the host's is."""

    ends_with_reason: Final = False
    keeps_frames: Final = False
    passes_text: Final = False
    is_idle: Final = True
    ignored: Final[frozenset[str]] = frozenset()

    def __init__(self, encoder: Encoder, reply: ResponseContext, client: str) -> None:
        self._encoder = encoder
        self._others: dict[int, Encoder] = {}
        self._reply = reply
        self._client = dialect_named(client)
        self.single = not isinstance(encoder, ChoicesEncoder) or self._client.encode_choices is None

    def write(self, frame: HostFrame[Origin]) -> list[Released[Origin]]:
        """The payloads for the events of this frame; what has no payload (a comment) leaves as it came."""
        if not frame.parts:
            return [Released(frame.origin)] if frame.payload is None and frame.origin is not None else []
        payloads: list[Body] = []
        for part in frame.parts:
            encoder = self._encoder_of(part.index) if part.index else self._encoder
            for event in part.events:
                payloads += encoder.feed(event)
        return [Released(None, payloads)] if payloads else []

    def write_ending(self, frame: HostFrame[Origin], events: Sequence[Event]) -> list[Released[Origin]]:
        """The payloads that end the response."""
        payloads = [payload for event in events for payload in self._encoder.feed(event)]
        return [Released(None, payloads)] if payloads else []

    def write_body(self, frame: HostFrame[Origin]) -> Body:
        """The whole response in the client's dialect."""
        choices = {part.index: part.events for part in frame.parts}
        if self._client.encode_choices is not None and not self.single:
            return self._client.encode_choices(choices, self._reply)
        return self._client.encode_response(choices[0], self._reply)

    def write_without_ending(self, frames: Sequence[HostFrame[Origin]]) -> list[Released[Origin]]:
        """The encoder has not seen an ending yet, so it can go on."""
        return []

    def template(self, index: int) -> Template | None:
        """How the next piece of this block is written."""
        return self._encoder.template(index)

    def _encoder_of(self, index: int) -> Encoder:
        encoder = self._others.get(index)
        if encoder is None:
            assert isinstance(self._encoder, ChoicesEncoder), "the pipeline sends only the first choice to others"
            encoder = self._others[index] = self._encoder.for_choice(index)
        return encoder


def writer_for(plan: Plan, log: RepairLog, encoder: Encoder | None = None) -> Writer[Any]:
    """The writer for this plan. With an `encoder`, that writes the response."""
    client = plan.client or dialect_named("openai_chat")
    upstream = plan.upstream or client
    # Chat has no event types: what stages made of a response cannot be matched with the host's chunks.
    patches = client.name == upstream.name and (client.has_event_names or not plan.translates)
    if encoder is None and client.patch_writer is not None and patches:
        context = PatchContext(
            reply=plan.reply,
            names=plan.names,
            repair_deltas=plan.options.repair_deltas,
            has_client=plan.client is not None,
            hides_usage=plan.hides_usage,
            report=log.add,
        )
        return client.patch_writer(context)
    return EncodingWriter(encoder or client.encoder(plan.reply), plan.reply, client.name)
