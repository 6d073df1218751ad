"""Anthropic Messages as a `Dialect`."""

from __future__ import annotations

from typing import Final

from moonshim.engine.dialects.anthropic.decode import MessagesDecoder, decode_response
from moonshim.engine.dialects.anthropic.encode import MessagesEncoder, encode_response
from moonshim.engine.dialects.anthropic.errors import render_problem
from moonshim.engine.dialects.anthropic.extras import (
    DIALECT,
    MessagesMediaExtras,
    MessagesMessageExtras,
    body_fields,
    holds_unknown,
)
from moonshim.engine.dialects.anthropic.messages import parse_messages, render_messages
from moonshim.engine.dialects.anthropic.patch import MessagesPatchWriter
from moonshim.engine.dialects.anthropic.request import drop_unsupported, parse_request, render_request
from moonshim.engine.dialects.protocol import Dialect

__all__ = ["ANTHROPIC"]

ANTHROPIC: Final = Dialect(
    name=DIALECT,
    parse_request=parse_request,
    render_request=render_request,
    drop_unsupported=drop_unsupported,
    parse_messages=parse_messages,
    render_messages=render_messages,
    message_extras=MessagesMessageExtras,
    media_extras=MessagesMediaExtras,
    body_fields=body_fields,
    holds_unknown=holds_unknown,
    tool_schema_field="input_schema",
    response_schema_field="output_config.format.schema",
    decoder=MessagesDecoder,
    decode_response=decode_response,
    encoder=MessagesEncoder,
    patch_writer=MessagesPatchWriter,
    encode_response=encode_response,
    encode_choices=None,
    render_problem=render_problem,
    counts_input_first=True,
    has_event_names=True,
    done=None,
    terminal_markers=(b"event: message_stop",),
    heartbeat=b'event: ping\ndata: {"type": "ping"}\n\n',
)
