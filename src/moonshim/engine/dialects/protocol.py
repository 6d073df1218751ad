"""The interface of a dialect: a frozen record of functions, the same for every dialect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias, TypeVar, runtime_checkable

from msgspec import Struct, field

from moonshim.engine.frames import HostFrame, Released
from moonshim.engine.signing import Signer
from moonshim.engine.upstream_events import OnlyText, UpstreamEvent
from moonshim.engine.values.conversation import Change, Message, Request, Tool
from moonshim.engine.values.events import Event, Repaired
from moonshim.engine.values.searches import ClientEvent
from moonshim.errors import Problem

__all__ = [
    "NUMBER",
    "TEXT",
    "Body",
    "ChoicesEncoder",
    "ClientEncoder",
    "Decoder",
    "Dialect",
    "Encoder",
    "PatchContext",
    "ResponseContext",
    "Template",
    "Writer",
    "with_overrides",
]

Body: TypeAlias = dict[str, Any]
Origin = TypeVar("Origin")

TEXT: Final = "\u2400text\u2400"
NUMBER: Final = 2400240024002400
"""Placeholders in a `Template` for the text and the sequence number of a payload."""


class ResponseContext(Struct, frozen=True, kw_only=True):
    """What an encoder needs to know about the request."""

    model: str
    """The model name that the client requested."""
    id: str = "moonshim"
    """Source of the response ids when the host sends none."""
    is_named: bool = False
    """`id` is unique: it then identifies the response, whatever id the host sends, in protocols whose clients store
    responses by id (Responses, and Messages over Chat)."""
    created: int = 0
    """Unix time, used when the host sends none."""
    clock: Callable[[], float] | None = None
    """Returns the Unix time, for dialects that report when a response was completed (Responses)."""
    request: Request = field(default_factory=lambda: Request(model=""))
    """The client's parsed request, for dialects that repeat parts of it in the response."""
    tools: Mapping[str, Tool] = {}
    """The client's tools, keyed by the name under which the host knows them."""
    signer: Signer = field(default_factory=Signer)
    input_estimate: int | None = None
    """An estimate of the input tokens, for a stream that starts with their number before the host has reported it."""


class Decoder(Protocol):
    """Decodes the payloads of one stream. One object per response."""

    @property
    def reads_alike(self) -> bool:
        """Whether payloads that differ only in their text always mean the same, whatever came before them."""

    def feed(self, payload: Body) -> list[UpstreamEvent]:
        """Decode a payload. Never raises: what cannot be read becomes `UnknownPayload`."""

    def flush(self) -> list[UpstreamEvent]:
        """End of input: return what was held back."""

    def only_text(self, payload: Body) -> OnlyText | None:
        """The position of the text if this payload contains nothing else; called after its `feed`.

        The next payload, if it differs in that text only, then means exactly that text and does not change the
        decoder.
        """


class Template(Struct, frozen=True):
    """The payload for the next text delta of a block, and for those after it: valid until the next event is fed."""

    payload: Body
    """With `TEXT` in place of the text and, if there is a `count`, `NUMBER` in place of the sequence number."""
    count: Callable[[str], int] | None = None
    """Must be called with every text written from the template; returns its sequence number."""


class Encoder(Protocol):
    """Encodes one response as the payloads of a stream. Trusts its input: blocks are balanced, one end event comes
    last.

    Several calls may be open at a time; a dialect that supports only one holds back the others.
    """

    def feed(self, event: Event) -> list[Body]:
        """The payloads for this event."""

    def template(self, index: int) -> Template | None:
        """The template for the next non-empty text delta of this block; None if it must go through `feed`."""


@runtime_checkable
class ChoicesEncoder(Protocol):
    """An encoder of the first choice of a response, whose dialect has room for others beside it (Chat)."""

    def for_choice(self, index: int) -> Encoder:
        """The encoder of another choice. That choice ends on its own; the end of the first one is the last event."""


class ClientEncoder(Encoder, Protocol):
    """An encoder of a dialect: it also writes the searches that were run for the response."""

    def feed(self, event: ClientEvent) -> list[Body]:
        """The payloads for this event."""


class PatchContext(Struct, frozen=True, kw_only=True):
    """What a writer needs to know that sends the host's own payloads, patched where something had to change."""

    reply: ResponseContext
    names: Mapping[str, str]
    """The client's names of the tools that have another name at the host."""
    repair_deltas: bool
    has_client: bool
    """Whether there is a client whose SDK has to read the result; a recording is mended without one."""
    hides_usage: bool
    """The client did not ask for a chunk of usage, though the host was asked for one."""
    report: Callable[[Repaired, int], None]
    """Takes a repair that the writer made, with the index of its choice."""


class Writer(Protocol[Origin]):
    """Writes the frames of one response for the client, in order. One object for each response."""

    @property
    def ends_with_reason(self) -> bool:
        """Whether a choice ends in the frame of its finish reason (Chat), or when the stream is over."""

    @property
    def keeps_frames(self) -> bool:
        """Whether frames can leave as they came, so that it is worth waiting for what is undecided in them."""

    @property
    def single(self) -> bool:
        """Whether only the first choice can be written."""

    @property
    def ignored(self) -> frozenset[str]:
        """Rules that the decoder reports and that this writer does not repair: they are not reported."""

    @property
    def passes_text(self) -> bool:
        """Whether a text frame that needs no repair leaves unchanged."""

    @property
    def is_idle(self) -> bool:
        """Whether no frame waits here for a later one."""

    def write(self, frame: HostFrame[Origin]) -> list[Released[Origin]]:
        """What leaves for this frame."""

    def write_ending(self, frame: HostFrame[Origin], events: Sequence[Event]) -> list[Released[Origin]]:
        """The end of the response, which came in this frame; not used if it `ends_with_reason`."""

    def write_body(self, frame: HostFrame[Origin]) -> Body:
        """The whole response that leaves for this one."""

    def write_without_ending(self, frames: Sequence[HostFrame[Origin]]) -> list[Released[Origin]]:
        """These last frames, less the end of the response: what is written from now on continues it."""

    def template(self, index: int) -> Template | None:
        """How the next piece of this block is written; None: by `write`."""


def with_overrides(body: Body, overrides: Mapping[str, Any]) -> Body:
    """Apply fields in the host's own spelling (`Request.body_overrides`); None removes a field."""
    others = {key: value for key, value in body.items() if key not in overrides}
    return others | {key: value for key, value in overrides.items() if value is not None}


class Dialect(Struct, frozen=True, kw_only=True):
    """One protocol, in both directions."""

    name: str
    parse_request: Callable[[Any, Signer], tuple[Request, list[Change]]]
    """Body -> request. Raises only `InvalidInput`, with the field."""
    render_request: Callable[[Request], tuple[Body, list[Change]]]
    """Request -> body, and what this dialect cannot express."""
    drop_unsupported: Callable[[Request], tuple[Request, list[Change]]]
    """For a request in this dialect to a host of another one: remove and report what only its own hosts understand.
    Raises `InvalidInput` where the meaning would change."""
    parse_messages: Callable[[Iterable[Any]], list[Message]]
    render_messages: Callable[[Sequence[Message]], list[Body]]
    message_extras: type[Struct]
    """The record of this dialect in `Message.extras`."""
    media_extras: type[Struct]
    """Its record in `Media.extras`."""
    messages_field: str = "messages"
    """The body field with the messages, for error messages."""
    body_fields: Callable[[Request], Mapping[str, Any]]
    """The client's body fields as received, without messages and tools; empty for a request of another dialect."""
    holds_unknown: Callable[[Message], bool]
    """Whether a message has content that only this dialect knows. Such a message is not empty, even without parts."""
    tool_schema_field: str
    """The schema field of a tool definition, for error messages."""
    response_schema_field: str
    """The body field with the response schema, for error messages."""
    decoder: Callable[[], Decoder]
    decode_response: Callable[[Body], list[UpstreamEvent]]
    """A complete response -> the same events as a stream."""
    encoder: Callable[[ResponseContext], ClientEncoder]
    patch_writer: Callable[[PatchContext], Writer[Any]] | None
    """Makes the writer for a host that speaks this dialect too; None: responses are always encoded."""
    encode_response: Callable[[Sequence[ClientEvent], ResponseContext], Body]
    """All events of one response -> a complete response."""
    encode_choices: Callable[[Mapping[int, Sequence[Event]], ResponseContext], Body] | None
    """The same for several choices, by their index; None: a response has only one."""
    render_problem: Callable[[Problem], Body]
    counts_input_first: bool
    """Whether a stream starts with the number of input tokens."""
    has_event_names: bool
    """Whether stream frames have `event:` lines, which repeat the payload's `type`."""
    done: bytes | None
    """Sent after the last payload."""
    heartbeat: bytes
    """Keeps the connection to a waiting client alive, without any other effect."""
    terminal_markers: tuple[bytes, ...]
    """After these, clients stop reading without waiting for the end of the stream."""
