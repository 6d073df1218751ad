"""Problems and failed responses -> Messages error bodies, with the messages that clients act on."""

from __future__ import annotations

import re
from typing import Final

from moonshim.engine.dialects.anthropic.parts import Json
from moonshim.engine.dialects.anthropic.words import error_type
from moonshim.engine.values.events import Failed
from moonshim.errors import InvalidInput, Problem, ProblemKind

__all__ = ["ThreadUnsupported", "render_failed", "render_problem"]


class ThreadUnsupported(InvalidInput):
    """The request continues a response that only its host stores. The official client then sends the full
    conversation."""

    code = "thread_unsupported_request"


_TYPES: Final[dict[ProblemKind, str]] = {
    "invalid_request": "invalid_request_error",
    "context_overflow": "invalid_request_error",
    "too_large": "request_too_large",
    "authentication": "authentication_error",
    "permission": "permission_error",
    "not_found": "not_found_error",
    "rate_limit": "rate_limit_error",
    "quota": "billing_error",
    "overloaded": "overloaded_error",
    "timeout": "timeout_error",
    "server": "api_error",
}
_TOO_LONG: Final = "prompt is too long"
_NUMBER: Final = re.compile(r"(?<![\w.])\d{4,9}(?![\w.]*\w)")


def render_problem(problem: Problem) -> Json:
    """The body of an error.

    >>> overflow = Problem(status=400, kind="context_overflow", message="too long", tokens=9001, limit=9000)
    >>> render_problem(overflow)["error"]["message"]
    'prompt is too long: 9001 tokens > 9000 maximum'
    """
    message = _overflow_message(problem) if problem.kind == "context_overflow" else _message_with_field(problem)
    body: Json = {"type": "error", "error": {"type": _TYPES[problem.kind], "message": message}}
    if problem.code == ThreadUnsupported.code:
        body["error"]["details"] = {"error_code": problem.code, "unsupported": ["thread"]}
    return body if problem.request_id is None else body | {"request_id": problem.request_id}


def render_failed(failed: Failed) -> Json:
    """The error that ends a failed response."""
    kind = error_type(failed.code, retryable=failed.retryable)
    return {"type": "error", "error": {"type": kind, "message": failed.message}}


def _message_with_field(problem: Problem) -> str:
    """The message including the field, for which Messages has no place of its own."""
    if problem.param is None or problem.message.startswith(problem.param):
        return problem.message
    return f"{problem.param}: {problem.message}"


def _overflow_message(problem: Problem) -> str:
    """Claude Code looks for this sentence, and compacts the conversation according to the two numbers."""
    if problem.message.startswith(_TOO_LONG):
        return problem.message
    tokens, limit = problem.tokens, problem.limit
    if tokens is None or limit is None:
        numbers = sorted({int(one) for one in _NUMBER.findall(problem.message)})
        limit = limit if limit is not None else numbers[0] if numbers else None
        # If the length is unknown, report one above the limit.
        tokens = tokens if tokens is not None else numbers[-1] if len(numbers) > 1 else (limit or 0) + 1
    if limit is None:
        return f"{_TOO_LONG}: {problem.message}"
    return f"{_TOO_LONG}: {tokens} tokens > {limit} maximum"
