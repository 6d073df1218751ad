"""Responses, both ways."""

from __future__ import annotations

from typing import Final

from moonshim.engine.dialects.openai_responses.content import DIALECT
from moonshim.engine.dialects.openai_responses.decode import ResponsesDecoder, decode_response
from moonshim.engine.dialects.openai_responses.encode import ResponsesEncoder, encode_response
from moonshim.engine.dialects.openai_responses.errors import render_problem
from moonshim.engine.dialects.openai_responses.messages import parse_messages
from moonshim.engine.dialects.openai_responses.references import left_behind
from moonshim.engine.dialects.openai_responses.render_items import render_messages
from moonshim.engine.dialects.openai_responses.request import parse_request, render_request
from moonshim.engine.dialects.protocol import Dialect

__all__ = ["OPENAI_RESPONSES"]

OPENAI_RESPONSES: Final = Dialect(
    name=DIALECT,
    parse_request=parse_request,
    render_request=render_request,
    left_behind=left_behind,
    parse_messages=parse_messages,
    render_messages=render_messages,
    decoder=ResponsesDecoder,
    decode_response=decode_response,
    encoder=ResponsesEncoder,
    encode_response=encode_response,
    render_problem=render_problem,
    names_events=True,
    done=None,
    goodbyes=(b"event: response.completed", b"event: response.incomplete", b"event: response.failed"),
    heartbeat=b": heartbeat\n\n",
)
