"""Chat Completions as a `Dialect`."""

from __future__ import annotations

from typing import Final

from moonshim.engine.dialects.openai_chat.decode import ChatDecoder, decode_response
from moonshim.engine.dialects.openai_chat.encode import ChatEncoder, encode_choices, encode_response
from moonshim.engine.dialects.openai_chat.errors import render_problem
from moonshim.engine.dialects.openai_chat.extras import (
    DIALECT,
    ChatMediaExtras,
    ChatMessageExtras,
    body_fields,
    holds_unknown,
)
from moonshim.engine.dialects.openai_chat.messages import check_and_parse, render_messages
from moonshim.engine.dialects.openai_chat.patch import ChatPatchWriter
from moonshim.engine.dialects.openai_chat.request import drop_unsupported, parse_request, render_request
from moonshim.engine.dialects.protocol import Dialect

__all__ = ["OPENAI_CHAT"]

OPENAI_CHAT: Final = Dialect(
    name=DIALECT,
    parse_request=parse_request,
    render_request=render_request,
    drop_unsupported=drop_unsupported,
    parse_messages=check_and_parse,
    render_messages=render_messages,
    message_extras=ChatMessageExtras,
    media_extras=ChatMediaExtras,
    body_fields=body_fields,
    holds_unknown=holds_unknown,
    tool_schema_field="function.parameters",
    response_schema_field="response_format.json_schema.schema",
    decoder=ChatDecoder,
    decode_response=decode_response,
    encoder=ChatEncoder,
    patch_writer=ChatPatchWriter,
    encode_response=encode_response,
    encode_choices=encode_choices,
    render_problem=render_problem,
    counts_input_first=False,
    has_event_names=False,
    done=b"[DONE]",
    terminal_markers=(b"data: [DONE]",),
    heartbeat=b": heartbeat\n\n",
)
