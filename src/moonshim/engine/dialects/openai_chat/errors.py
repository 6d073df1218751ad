"""Problems -> error bodies of Chat Completions."""

from __future__ import annotations

from typing import Any, Final

from moonshim.errors import Problem, ProblemKind

__all__ = ["render_problem"]

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
