"""The interface of a dialect: a frozen record of functions, the same for every dialect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

from msgspec import Struct, field

from moonshim.engine.signing import Signer
from moonshim.engine.upstream_events import OnlyText, UpstreamEvent
from moonshim.engine.values.conversation import Change, Message, Request, Tool
from moonshim.engine.values.events import Event
from moonshim.errors import Problem

__all__ = ["NUMBER", "TEXT", "Body", "Decoder", "Dialect", "Encoder", "ResponseContext", "Template", "with_overrides"]

Body: TypeAlias = dict[str, Any]

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


class Decoder(Protocol):
    """Decodes the payloads of one stream. One object per response."""

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
    encoder: Callable[[ResponseContext], Encoder]
    encode_response: Callable[[Sequence[Event], ResponseContext], Body]
    """All events of one response -> a complete response."""
    render_problem: Callable[[Problem], Body]
    has_event_names: bool
    """Whether stream frames have `event:` lines, which repeat the payload's `type`."""
    done: bytes | None
    """Sent after the last payload."""
    heartbeat: bytes
    """Keeps the connection to a waiting client alive, without any other effect."""
    terminal_markers: tuple[bytes, ...]
    """After these, clients stop reading without waiting for the end of the stream."""
