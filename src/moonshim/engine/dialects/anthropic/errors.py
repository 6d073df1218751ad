"""Problems and failed responses -> Messages error bodies, with the messages that clients act on."""

from __future__ import annotations

import re
from typing import Final

from moonshim.engine.dialects.anthropic.parts import Json
from moonshim.engine.values.events import Failed
from moonshim.errors import BUDGET_CODES, InvalidInput, Problem, ProblemKind

__all__ = ["NOT_RETRYABLE", "ThreadUnsupported", "render_failed", "render_problem"]


class ThreadUnsupported(InvalidInput):
    """The request continues a response that only its host stores. The official client then sends the full
    conversation."""

    code = "thread_unsupported_request"


_TYPE_OF_PROBLEM: Final[dict[ProblemKind, str]] = {
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
NOT_RETRYABLE: Final = frozenset(
    {
        "invalid_request_error",
        "authentication_error",
        "billing_error",
        "permission_error",
        "not_found_error",
        "request_too_large",
    }
)
_ERROR_TYPES: Final = NOT_RETRYABLE | {"rate_limit_error", "timeout_error", "api_error", "overloaded_error"}
_TYPE_PATTERNS: Final = (
    (re.compile(r"overload|unavailable|busy", re.IGNORECASE), "overloaded_error"),
    (re.compile(r"rate_limit|too_many", re.IGNORECASE), "rate_limit_error"),
    (re.compile(r"quota|insufficient|billing", re.IGNORECASE), "billing_error"),
    (re.compile(r"timeout|timed_out", re.IGNORECASE), "timeout_error"),
    # Retrying does not help, but the request is not at fault either.
    (re.compile(r"transformer_failed|server_error|internal", re.IGNORECASE), "api_error"),
)
_TOO_LONG: Final = "prompt is too long"
_NUMBER: Final = re.compile(r"(?<![\w.])\d{4,9}(?![\w.]*\w)")


def render_problem(problem: Problem) -> Json:
    """The body of an error.

    >>> overflow = Problem(status=400, kind="context_overflow", message="too long", tokens=9001, limit=9000)
    >>> render_problem(overflow)["error"]["message"]
    'prompt is too long: 9001 tokens > 9000 maximum'
    """
    message = _overflow_message(problem) if problem.kind == "context_overflow" else problem.located_message
    body: Json = {"type": "error", "error": {"type": _TYPE_OF_PROBLEM[problem.kind], "message": message}}
    if problem.code == ThreadUnsupported.code:
        body["error"]["details"] = {"error_code": problem.code, "unsupported": ["thread"]}
    elif problem.code in BUDGET_CODES:  # for programs: the type says too little
        body["error"]["details"] = {"error_code": problem.code}
    return body if problem.request_id is None else body | {"request_id": problem.request_id}


def render_failed(failed: Failed) -> Json:
    """The error that ends a failed response."""
    kind = _error_type(failed.code, retryable=failed.retryable)
    return {"type": "error", "error": {"type": kind, "message": failed.message}}


def _overflow_message(problem: Problem) -> str:
    """Claude Code looks for this sentence, and compacts the conversation according to the two numbers."""
    if problem.message.startswith(_TOO_LONG):
        return problem.message
    tokens, limit = problem.tokens, problem.limit
    if tokens is None or limit is None:
        numbers = sorted({int(number) for number in _NUMBER.findall(problem.message)})
        limit = limit if limit is not None else numbers[0] if numbers else None
        # If the length is unknown, report one above the limit.
        tokens = tokens if tokens is not None else numbers[-1] if len(numbers) > 1 else (limit or 0) + 1
    if limit is None:
        return f"{_TOO_LONG}: {problem.message}"
    return f"{_TOO_LONG}: {tokens} tokens > {limit} maximum"


def _error_type(code: str, *, retryable: bool) -> str:
    """The Messages error type for a host's error code.

    >>> _error_type("engine_overloaded", retryable=True), _error_type("stream_ended", retryable=True)
    ('overloaded_error', 'api_error')
    >>> _error_type("transformer_failed", retryable=False), _error_type("bad_image", retryable=False)
    ('api_error', 'invalid_request_error')
    """
    if code in _ERROR_TYPES:
        return code
    matched = next((kind for pattern, kind in _TYPE_PATTERNS if pattern.search(code)), None)
    return matched or ("api_error" if retryable else "invalid_request_error")
