"""Responses as a `Dialect`."""

from __future__ import annotations

from typing import Final

from moonshim.engine.dialects.openai_responses.decode import ResponsesDecoder, decode_response
from moonshim.engine.dialects.openai_responses.encode import ResponsesEncoder, encode_response
from moonshim.engine.dialects.openai_responses.errors import render_problem
from moonshim.engine.dialects.openai_responses.extras import (
    DIALECT,
    ResponsesMediaExtras,
    ResponsesMessageExtras,
    body_fields,
    holds_unknown,
)
from moonshim.engine.dialects.openai_responses.messages import parse_messages, render_messages
from moonshim.engine.dialects.openai_responses.references import drop_unsupported
from moonshim.engine.dialects.openai_responses.request import parse_request, render_request
from moonshim.engine.dialects.protocol import Dialect

__all__ = ["OPENAI_RESPONSES"]

OPENAI_RESPONSES: Final = Dialect(
    name=DIALECT,
    parse_request=parse_request,
    render_request=render_request,
    drop_unsupported=drop_unsupported,
    parse_messages=parse_messages,
    render_messages=render_messages,
    message_extras=ResponsesMessageExtras,
    media_extras=ResponsesMediaExtras,
    body_fields=body_fields,
    holds_unknown=holds_unknown,
    messages_field="input",
    tool_schema_field="parameters",
    response_schema_field="text.format.schema",
    decoder=ResponsesDecoder,
    decode_response=decode_response,
    encoder=ResponsesEncoder,
    patch_writer=None,
    encode_response=encode_response,
    encode_choices=None,
    render_problem=render_problem,
    counts_input_first=False,
    has_event_names=True,
    done=None,
    terminal_markers=(b"event: response.completed", b"event: response.incomplete", b"event: response.failed"),
    heartbeat=b": heartbeat\n\n",
)
