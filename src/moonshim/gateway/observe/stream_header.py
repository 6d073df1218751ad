"""Metadata of a logged stream <-> the first line of its file, which SSE readers take for a comment.

    : moonshim {"outcome":{"word":"ok","bytes":4711,"whole":true}      ,"request_id":"…",…,"request":{…}}

The outcome has a field of fixed width, because it is known only after everything else was written.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from moonshim.engine.exchange import MAX_ANSWER_BYTES, Form
from moonshim.engine.plan import Plan
from moonshim.engine.prepare import read_request
from moonshim.engine.values.conversation import Change
from moonshim.engine.values.options import KimiOptions
from moonshim.engine.wire.json_codec import decode_object, encode

__all__ = ["OUTCOME_AT", "StreamHeader", "StreamOutcome", "plan_of", "read_header", "render_header", "render_outcome"]

Json: TypeAlias = dict[str, Any]

OPENING: Final = b": moonshim "
OUTCOME_AT: Final = len(OPENING) + len(b'{"outcome":')
"""Byte offset of the outcome in the file."""
OUTCOME_BYTES: Final = 120
NOTHING_SENT: Final = "upstream_error"
REQUEST_LIMIT: Final = 4 * 1024 * 1024
"""Maximum size of the request in the header. Of a longer one only its tools are stored, if these fit."""


class StreamOutcome(msgspec.Struct, frozen=True):
    """How a stream ended."""

    word: str = "unfinished"
    """As in the request log; `unfinished` if the gateway died before the end, `NOTHING_SENT` if the client got another
    response, or an error, instead of this one."""
    bytes: int = 0
    whole: bool = True
    """False: some bytes are missing because the disk was full or too slow, or the stream was too large."""


class StreamHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay needs to know: which model was asked, how, and with what request."""

    outcome: StreamOutcome = StreamOutcome()
    request_id: str = ""
    time: str = ""
    client: str = ""
    provider: str | None = None
    host: str | None = None
    model: str | None = None
    dialect: str = "openai_chat"
    """Dialect of the host."""
    client_dialect: str | None = None
    """Dialect of the client; None in logs of older versions, as is every field below."""
    asked_model: str | None = None
    """The model's name in the client's request, which the response repeats."""
    input_format: Form | None = None
    """Format in which the host's response was read."""
    output_format: Form | None = None
    """Format in which the client was answered."""
    reply_id: str | None = None
    """Where the host sends no id: the source of the response's own."""
    created: int = 0
    """When the request came, in Unix time: the time of a response whose host sends none."""
    max_answer_bytes: int = MAX_ANSWER_BYTES
    """The gateway ends a response with more bytes than that."""
    options: Json | None = None
    """The effective `KimiOptions` for the response."""
    grammar: str | None = None
    hides_reasoning: bool = False
    """Whether the client got no reasoning, because it turned thinking off."""
    visible_limit: int | None = None
    """The tokens that such a client asked for."""
    changes: tuple[Change, ...] | None = None
    """Changes made to the client's request, and why."""
    request: Json | None = None
    """The body sent to the host, without secrets."""
    request_whole: bool = True


def render_header(header: StreamHeader) -> bytes:
    """The header line, followed by an empty line so that the first event stands on its own."""
    request, whole = _encode_bounded(header.request)
    fields = msgspec.structs.asdict(header) | {"request": msgspec.Raw(request), "request_whole": whole}
    del fields["outcome"]
    rest = msgspec.json.encode(fields)[1:]
    return b'%b{"outcome":%b,%b\n\n' % (OPENING, render_outcome(header.outcome), rest)


def render_outcome(outcome: StreamOutcome) -> bytes:
    """The outcome, padded to a fixed length."""
    short = msgspec.structs.replace(outcome, word=outcome.word[:40])
    return msgspec.json.encode(short).ljust(OUTCOME_BYTES)


def read_header(line: bytes) -> StreamHeader | None:
    """Parse the header, if this is the first line of a log.

    >>> read_header(render_header(StreamHeader(model="kimi-k2.5"))).model
    'kimi-k2.5'
    >>> read_header(b": keep-alive")
    """
    if not line.startswith(OPENING):
        return None
    fields = decode_object(line[len(OPENING) :])
    try:
        return msgspec.convert(fields, StreamHeader)
    except msgspec.ValidationError:
        return None


def plan_of(header: StreamHeader, *, model: str | None = None, options: KimiOptions | None = None) -> Plan:
    """The repair plan that the gateway used for this response, or the same with other options.

    Plug-ins are not part of a log, so their changes to the response are not repeated.
    """
    parsed = read_request(header.request, dialect=header.dialect, default_model=header.model)
    # The logged request is in the host's dialect; the client may use another.
    parsed.dialect = header.client_dialect or header.dialect
    if header.asked_model:
        parsed.request = msgspec.structs.replace(parsed.request, model=header.asked_model)
    if options is None and header.options is not None and model is None:
        options = KimiOptions.from_json(header.options)
    overrides = None if header.grammar is None else {"grammar": header.grammar}
    prepared = parsed.prepare(
        upstream=header.dialect,
        host=header.host,
        model=model or header.model,
        options=options,
        overrides=overrides,
        reply_id=header.reply_id,
        created=header.created,
    )
    plan = prepared.plan
    # The logged request has the effort and the limit that the host got.
    plan.hides_reasoning, plan.visible_limit = header.hides_reasoning, header.visible_limit
    return plan


def _encode_bounded(request: Json | None) -> tuple[bytes, bool]:
    """The request as JSON, and whether it is complete."""
    if request is None:
        return b"null", True
    whole = encode(request)
    if len(whole) <= REQUEST_LIMIT:
        return whole, True
    tools = encode({name: request[name] for name in ("model", "tools", "tool_choice") if name in request})
    return (tools if len(tools) <= REQUEST_LIMIT else b"null"), False
