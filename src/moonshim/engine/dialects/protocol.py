"""What a dialect can do: a frozen record of functions, the same for every dialect."""

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
"""What stands in a `Template` where the text and the number of a payload will stand."""


class ResponseContext(Struct, frozen=True, kw_only=True):
    """What writing an answer in the client's dialect needs to know of the request."""

    model: str
    """The name that the client asked for."""
    id: str = "moonshim"
    """What the answer's identifiers are made of when the host gives none."""
    is_named: bool = False
    """`id` is unlike that of any other answer: then it names the answer, whatever the host calls it, where people keep
    answers by their names (Responses, and Messages over Chat)."""
    created: int = 0
    """Seconds since 1970, when the host does not say."""
    clock: Callable[[], float] | None = None
    """Gives the seconds since 1970, for dialects that say when an answer was completed (Responses)."""
    request: Request = field(default_factory=lambda: Request(model=""))
    """The client's request as it was parsed: dialects that repeat parts of it in the answer do so from here."""
    tools: Mapping[str, Tool] = {}
    """The declared tools by the names under which the host knows them; each has the client's own name."""
    signer: Signer = field(default_factory=Signer)


class Decoder(Protocol):
    """Reads the payloads of one stream. One object for each response."""

    def feed(self, payload: Body) -> list[UpstreamEvent]:
        """What this payload says. Never raises: what cannot be read is `Unread`."""

    def flush(self) -> list[UpstreamEvent]:
        """The input is over: what was kept back."""

    def only_text(self, payload: Body) -> OnlyText | None:
        """Where the text stands, if that is all this payload says; asked behind its `feed`.

        Then another one, that differs in its text alone and comes next, says just that text, and leaves the decoder
        as it is.
        """


class Template(Struct, frozen=True):
    """The payload that tells the next piece of a block, and the one after it: until some event is fed."""

    payload: Body
    """With `TEXT` in the place of the piece; with `NUMBER` in that of its number, if there is a `count`."""
    count: Callable[[str], int] | None = None
    """Has to be told of every piece that is written so; gives its number."""


class Encoder(Protocol):
    """Writes one answer as the payloads of a stream. Trusts its input: blocks are balanced, one ending comes last.

    Several calls may be open at a time; a dialect that can only have one open keeps the later ones back.
    """

    def feed(self, event: Event) -> list[Body]:
        """The payloads that tell this event."""

    def template(self, index: int) -> Template | None:
        """How the next piece of this block, any but an empty one, is told. None: by `feed`, since it takes more."""


def with_overrides(body: Body, put: Mapping[str, Any]) -> Body:
    """The body with the fields that the host spells its own way (`Request.body_overrides`); None leaves one out."""
    kept = {key: value for key, value in body.items() if key not in put}
    return kept | {key: value for key, value in put.items() if value is not None}


class Dialect(Struct, frozen=True, kw_only=True):
    """One protocol, both ways."""

    name: str
    parse_request: Callable[[Any, Signer], tuple[Request, list[Change]]]
    """A body -> the request. Raises `InvalidInput` with the field, and nothing else."""
    render_request: Callable[[Request], tuple[Body, list[Change]]]
    """The request -> a body, and what this dialect could not say."""
    drop_unsupported: Callable[[Request], tuple[Request, list[Change]]]
    """A request that came in this dialect, for a host of another one: what only its own hosts could read is left out
    and told. Raises `InvalidInput` where the meaning would change."""
    parse_messages: Callable[[Iterable[Any]], list[Message]]
    render_messages: Callable[[Sequence[Message]], list[Body]]
    message_extras: type[Struct]
    """What this dialect holds in `Message.extras`, under its name."""
    media_extras: type[Struct]
    """What it holds in `Media.extras`."""
    body_fields: Callable[[Request], Mapping[str, Any]]
    """The fields of the client's body as they came, less messages and tools; empty for one of another dialect."""
    holds_unknown: Callable[[Message], bool]
    """Whether a message has content that only this dialect knows. Such a message is not as empty as its parts look."""
    tool_schema_field: str
    """Where the definition of a tool has its schema, for errors that name it."""
    response_schema_field: str
    """Where a body says what schema the answer has to follow."""
    decoder: Callable[[], Decoder]
    decode_response: Callable[[Body], list[UpstreamEvent]]
    """A whole response -> what it says, as one stream would."""
    encoder: Callable[[ResponseContext], Encoder]
    encode_response: Callable[[Sequence[Event], ResponseContext], Body]
    """All events of one answer -> a whole response."""
    render_problem: Callable[[Problem], Body]
    has_event_names: bool
    """Whether the frames of a stream have `event:` lines, which repeat the payload's `type`."""
    done: bytes | None
    """What is sent behind the last payload."""
    heartbeat: bytes
    """What tells a client that waits that somebody is still there, and nothing else."""
    terminal_markers: tuple[bytes, ...]
    """What clients of a stream go away behind, without waiting for its last byte."""
