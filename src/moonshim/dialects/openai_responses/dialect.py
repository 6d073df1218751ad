"""Responses, both ways."""

from __future__ import annotations

from typing import Final

from moonshim.dialect import Dialect
from moonshim.dialects.openai_responses.content import DIALECT
from moonshim.dialects.openai_responses.decode import ResponsesDecoder, decode_response
from moonshim.dialects.openai_responses.encode import ResponsesEncoder, encode_response
from moonshim.dialects.openai_responses.messages import parse_messages
from moonshim.dialects.openai_responses.problem import render_problem
from moonshim.dialects.openai_responses.references import left_behind
from moonshim.dialects.openai_responses.request import parse_request, render_request
from moonshim.dialects.openai_responses.writing import render_messages

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
