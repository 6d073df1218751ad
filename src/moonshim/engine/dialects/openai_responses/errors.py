"""Problems and failed responses -> errors of OpenAI's API, with the codes and phrases that clients act on."""

from __future__ import annotations

from typing import Final

from moonshim.engine.dialects.openai_responses.extras import Json
from moonshim.engine.values.events import Failed
from moonshim.errors import BUDGET_EXCEEDED, Problem, ProblemKind

__all__ = ["render_failed", "render_problem"]

_WORDS: Final[dict[ProblemKind, tuple[str, str | None]]] = {
    "invalid_request": ("invalid_request_error", None),
    "context_overflow": ("invalid_request_error", "context_length_exceeded"),
    "too_large": ("invalid_request_error", "request_too_large"),
    "authentication": ("authentication_error", "invalid_api_key"),
    "permission": ("permission_error", "permission_denied"),
    "not_found": ("invalid_request_error", "model_not_found"),
    "rate_limit": ("rate_limit_exceeded", "rate_limit_exceeded"),
    "quota": ("insufficient_quota", "insufficient_quota"),
    "overloaded": ("server_error", "overloaded"),
    "timeout": ("server_error", "timeout"),
    "server": ("server_error", "server_error"),
}
"""Type and code. An overload is not `server_is_overloaded`: with that code Codex gives up instead of retrying."""
_FIXED: Final = frozenset({"context_overflow", "rate_limit", "quota"})
"""Clients act on these codes, so they replace the host's own."""
_OVERFLOW: Final = "Your input exceeds the context window of this model. Please adjust your input and try again."


def render_problem(problem: Problem) -> Json:
    """The error body for a Responses client.

    >>> render_problem(Problem(status=400, kind="context_overflow", message="too long"))["error"]["code"]
    'context_length_exceeded'
    """
    type, code = _WORDS[problem.kind]
    if problem.code is not None and (problem.kind not in _FIXED or problem.code == BUDGET_EXCEEDED):
        code = problem.code
    error: Json = {"message": _message(problem), "type": type, "param": problem.param, "code": code}
    return {"error": error | ({"request_id": problem.request_id} if problem.request_id else {})}


def _message(problem: Problem) -> str:
    if problem.kind == "context_overflow" and "exceeds the context window" not in problem.message:
        return f"{_OVERFLOW} ({problem.message})" if problem.message else _OVERFLOW
    if problem.kind == "rate_limit" and problem.retry_after is not None and "try again in" not in problem.message:
        # Codex reads the retry delay from this sentence.
        return f"{problem.message} Please try again in {problem.retry_after:g}s."
    return problem.message


_CODES: Final = {
    "context_overflow": "context_length_exceeded",
    "context_length_exceeded": "context_length_exceeded",
    "rate_limit": "rate_limit_exceeded",
    "rate_limit_error": "rate_limit_exceeded",
    "rate_limit_exceeded": "rate_limit_exceeded",
    "quota": "insufficient_quota",
    "insufficient_quota": "insufficient_quota",
    "content_policy_violation": "invalid_prompt",
    "transformer_failed": "server_error",
}
"""Codes that clients act on; Codex retries all others."""


def render_failed(failed: Failed) -> Json:
    """The error of a failed response: a code that clients act on, and the host's own code as its type.

    >>> render_failed(Failed("engine_overloaded", "Busy."))
    {'code': 'server_error', 'message': 'Busy.', 'type': 'engine_overloaded', 'param': None}
    """
    code = _CODES.get(failed.code, "server_error" if failed.retryable else "invalid_prompt")
    return {"code": code, "message": failed.message, "type": failed.code, "param": None}
