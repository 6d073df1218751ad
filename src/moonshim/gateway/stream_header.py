"""What is known of a stream that was logged <-> the first line of its file, which SSE readers take for a comment.

    : moonshim {"outcome":{"word":"ok","bytes":4711,"whole":true}      ,"request_id":"…",…,"request":{…}}

The outcome has a place of fixed width: it is known when everything else is long written.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from moonshim.json_text import decode_object, encode

__all__ = ["OUTCOME_AT", "StreamHeader", "StreamOutcome", "read_header", "render_header", "render_outcome"]

Json: TypeAlias = dict[str, Any]

OPENING: Final = b": moonshim "
OUTCOME_AT: Final = len(OPENING) + len(b'{"outcome":')
"""Where the outcome is written, in bytes from the start of the file."""
OUTCOME_BYTES: Final = 120
REQUEST_LIMIT: Final = 4 * 1024 * 1024
"""How long a request may be in the header; of a longer one its tools are kept, and if need be not even these."""


class StreamOutcome(msgspec.Struct, frozen=True):
    """How it ended."""

    word: str = "unfinished"
    """As in the log of requests; `unfinished` is what a file says whose gateway died."""
    bytes: int = 0
    whole: bool = True
    """False: not all that came was written, since the disk was full or too slow, or it was too much."""


class StreamHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay has to know: who was asked what."""

    outcome: StreamOutcome = StreamOutcome()
    request_id: str = ""
    time: str = ""
    client: str = ""
    provider: str | None = None
    host: str | None = None
    model: str | None = None
    dialect: str = "openai_chat"
    """The host's."""
    request: Json | None = None
    """The body that was sent to the host, without secrets."""
    request_whole: bool = True


def render_header(header: StreamHeader) -> bytes:
    """The line, with its end; and an empty one behind it, so that the first event begins on its own."""
    request, whole = _bounded(header.request)
    said = msgspec.structs.asdict(header) | {"request": msgspec.Raw(request), "request_whole": whole}
    del said["outcome"]
    rest = msgspec.json.encode(said)[1:]
    return b'%b{"outcome":%b,%b\n\n' % (OPENING, render_outcome(header.outcome), rest)


def render_outcome(outcome: StreamOutcome) -> bytes:
    """Always of the same length: what is said, and blanks."""
    short = msgspec.structs.replace(outcome, word=outcome.word[:40])
    return msgspec.json.encode(short).ljust(OUTCOME_BYTES)


def read_header(line: bytes) -> StreamHeader | None:
    """The header, if this is the first line of a log.

    >>> read_header(render_header(StreamHeader(model="kimi-k2.5"))).model
    'kimi-k2.5'
    >>> read_header(b": keep-alive")
    """
    if not line.startswith(OPENING):
        return None
    said = decode_object(line[len(OPENING) :])
    try:
        return msgspec.convert(said, StreamHeader)
    except msgspec.ValidationError:
        return None


def _bounded(request: Json | None) -> tuple[bytes, bool]:
    """The request as JSON, and whether all of it is there."""
    if request is None:
        return b"null", True
    whole = encode(request)
    if len(whole) <= REQUEST_LIMIT:
        return whole, True
    tools = encode({name: request[name] for name in ("model", "tools", "tool_choice") if name in request})
    return (tools if len(tools) <= REQUEST_LIMIT else b"null"), False
