"""What is known of a stream that was logged <-> the first line of its file, which SSE readers take for a comment.

    : moonshim {"outcome":{"word":"ok","bytes":4711,"whole":true}      ,"request_id":"…",…,"request":{…}}

The outcome has a place of fixed width: it is known when everything else is long written.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from moonshim.engine.plan import Plan
from moonshim.engine.prepare import read_request
from moonshim.engine.response.reply import Form
from moonshim.engine.values.conversation import Change
from moonshim.engine.values.options import KimiOptions
from moonshim.engine.wire.json_codec import decode_object, encode

__all__ = ["OUTCOME_AT", "StreamHeader", "StreamOutcome", "plan_of", "read_header", "render_header", "render_outcome"]

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
    client_dialect: str | None = None
    """What the client speaks; None in logs of older versions, as everything below."""
    asked_model: str | None = None
    """The model's name in the client's request, which the answer repeats."""
    input_format: Form | None = None
    """What the host's answer was read as."""
    output_format: Form | None = None
    """What the client was sent."""
    options: Json | None = None
    """How the answer was mended: the effective `KimiOptions`."""
    grammar: str | None = None
    changes: tuple[Change, ...] | None = None
    """What was changed in the client's request, and why."""
    request: Json | None = None
    """The body that was sent to the host, without secrets."""
    request_whole: bool = True


def render_header(header: StreamHeader) -> bytes:
    """The line, with its end; and an empty one behind it, so that the first event begins on its own."""
    request, whole = _encode_bounded(header.request)
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


def plan_of(header: StreamHeader, *, model: str | None = None, options: KimiOptions | None = None) -> Plan:
    """How the gateway mended this answer: for its host and its client, with its options, unless others are given.

    Plug-ins are not in a log, so what they did to the answer is not repeated.
    """
    asked = read_request(header.request, dialect=header.dialect, default_model=header.model)
    # What was sent is in the host's dialect; the answer goes to a client that may speak another.
    asked.dialect = header.client_dialect or header.dialect
    if header.asked_model:
        asked.request = msgspec.structs.replace(asked.request, model=header.asked_model)
    if options is None and header.options is not None and model is None:
        options = KimiOptions.from_json(header.options)
    overrides = None if header.grammar is None else {"grammar": header.grammar}
    prepared = asked.prepare(
        upstream=header.dialect,
        host=header.host,
        model=model or header.model,
        options=options,
        overrides=overrides,
    )
    return prepared.plan


def _encode_bounded(request: Json | None) -> tuple[bytes, bool]:
    """The request as JSON, and whether all of it is there."""
    if request is None:
        return b"null", True
    whole = encode(request)
    if len(whole) <= REQUEST_LIMIT:
        return whole, True
    tools = encode({name: request[name] for name in ("model", "tools", "tool_choice") if name in request})
    return (tools if len(tools) <= REQUEST_LIMIT else b"null"), False
