"""Chat Completions as a `Dialect`."""

from __future__ import annotations

from typing import Any, Final

from moonshim.engine.dialects.openai_chat.decode import ChatDecoder, decode_response
from moonshim.engine.dialects.openai_chat.encode import ChatEncoder, encode_response
from moonshim.engine.dialects.openai_chat.extras import (
    DIALECT,
    ChatMediaExtras,
    ChatMessageExtras,
    body_fields,
    holds_unknown,
)
from moonshim.engine.dialects.openai_chat.message_checks import parse_checked
from moonshim.engine.dialects.openai_chat.messages import render_messages
from moonshim.engine.dialects.openai_chat.request import drop_unsupported, parse_request, render_request
from moonshim.engine.dialects.protocol import Dialect
from moonshim.errors import Problem, ProblemKind

__all__ = ["OPENAI_CHAT", "render_problem"]

_TYPES: Final[dict[ProblemKind, str]] = {
    "invalid_request": "invalid_request_error",
    "context_overflow": "invalid_request_error",
    "too_large": "invalid_request_error",
    "authentication": "authentication_error",
    "permission": "permission_error",
    "not_found": "invalid_request_error",
    "rate_limit": "rate_limit_error",
    "quota": "insufficient_quota",
    "overloaded": "overloaded_error",
    "timeout": "timeout_error",
    "server": "server_error",
}


def render_problem(problem: Problem) -> dict[str, Any]:
    """An error body as OpenAI's clients expect it.

    >>> from moonshim.errors import Problem
    >>> render_problem(Problem(status=400, kind="invalid_request", message="no", param="model"))["error"]["param"]
    'model'
    """
    code = "context_length_exceeded" if problem.kind == "context_overflow" else problem.code
    message = problem.message
    if problem.kind == "context_overflow" and problem.limit is not None and "maximum context length" not in message:
        asked = f" However, you requested {problem.tokens} tokens." if problem.tokens is not None else ""
        message = f"This model's maximum context length is {problem.limit} tokens.{asked} ({message})"
    error: dict[str, Any] = {"message": message, "type": _TYPES[problem.kind], "param": problem.param, "code": code}
    return {"error": error | ({"request_id": problem.request_id} if problem.request_id else {})}


OPENAI_CHAT: Final = Dialect(
    name=DIALECT,
    parse_request=parse_request,
    render_request=render_request,
    drop_unsupported=drop_unsupported,
    parse_messages=parse_checked,
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
    encode_response=encode_response,
    render_problem=render_problem,
    has_event_names=False,
    done=b"[DONE]",
    terminal_markers=(b"data: [DONE]",),
    heartbeat=b": heartbeat\n\n",
)
