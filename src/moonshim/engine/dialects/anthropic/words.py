"""Stop reasons and error types of Messages, and their meaning."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["NOT_RETRYABLE", "REASONS", "STOP_REASONS", "error_type"]

REASONS: Final = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
"""Stop reason -> Chat's finish reason."""

STOP_REASONS: Final = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
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
_TYPES: Final = NOT_RETRYABLE | {"rate_limit_error", "timeout_error", "api_error", "overloaded_error"}
_BY_WORD: Final = (
    (re.compile(r"overload|unavailable|busy", re.IGNORECASE), "overloaded_error"),
    (re.compile(r"rate_limit|too_many", re.IGNORECASE), "rate_limit_error"),
    (re.compile(r"quota|insufficient|billing", re.IGNORECASE), "billing_error"),
    (re.compile(r"timeout|timed_out", re.IGNORECASE), "timeout_error"),
    # Retrying does not help, but the request is not at fault either.
    (re.compile(r"transformer_failed|server_error|internal", re.IGNORECASE), "api_error"),
)


def error_type(code: str, *, retryable: bool) -> str:
    """The Messages error type for a host's error code.

    >>> error_type("engine_overloaded", retryable=True), error_type("stream_ended", retryable=True)
    ('overloaded_error', 'api_error')
    >>> error_type("transformer_failed", retryable=False), error_type("bad_image", retryable=False)
    ('api_error', 'invalid_request_error')
    """
    if code in _TYPES:
        return code
    found = next((kind for word, kind in _BY_WORD if word.search(code)), None)
    return found or ("api_error" if retryable else "invalid_request_error")
