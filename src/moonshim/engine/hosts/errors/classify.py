"""A host's error in any shape -> a `Problem` that every dialect can render."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

import msgspec

from moonshim.compat import renamed_arguments
from moonshim.engine.hosts.errors.body import ErrorDetails, clean_details, mask_secrets, read_body
from moonshim.engine.hosts.errors.context_overflow import Overflow, read_overflow
from moonshim.engine.hosts.profile import HostProfile
from moonshim.engine.values.events import Failed
from moonshim.errors import OWN_ERRORS, Problem, ProblemKind

__all__ = [
    "DEFAULT_RETRY_SECONDS",
    "ERROR_BYTES",
    "mask_problem",
    "problem_in_body",
    "problem_of_failure",
    "read_problem",
]

ERROR_BYTES: Final = 1024 * 1024
"""Maximum number of error bytes to read: some hosts send whole pages."""

DEFAULT_RETRY_SECONDS: Final = 5.0
"""Codex gives up at once when a 429 has no retry delay (CLIENTS)."""
_LONGEST_WORD: Final = 200
LONGEST_RETRY_SECONDS: Final = 86_400.0

_STATUSES: Final[dict[int, ProblemKind]] = {
    401: "authentication",
    402: "quota",
    403: "permission",
    404: "not_found",
    408: "timeout",
    413: "too_large",
    429: "rate_limit",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}
_STATUS_OF: Final[dict[ProblemKind, int]] = {
    "invalid_request": 400,
    "authentication": 401,
    "quota": 429,
    "permission": 403,
    "not_found": 404,
    "too_large": 413,
    "rate_limit": 429,
    "overloaded": 503,
    "timeout": 504,
}
"""The status of an error that came with status 200."""
_STATUS: Final = re.compile(r"[45][0-9]{2}")
_WAITING: Final = frozenset({429, 503, 529})
# The hosts' values of `code` or `type`, without a trailing `_error`.
_WORDS: Final[dict[str, ProblemKind]] = {
    "engine_overloaded": "overloaded",
    "overloaded": "overloaded",
    "rate_limit_reached": "rate_limit",
    "rate_limit_exceeded": "rate_limit",
    "rate_limit": "rate_limit",
    "exceeded_current_quota": "quota",
    "insufficient_quota": "quota",
    "insufficient_balance": "quota",
    "billing": "quota",
    "access_terminated": "permission",
    "permission_denied": "permission",
    "permission": "permission",
    "invalid_authentication": "authentication",
    "incorrect_api_key": "authentication",
    "invalid_api_key": "authentication",
    "authentication": "authentication",
    "resource_not_found": "not_found",
    "model_not_found": "not_found",
    "not_found": "not_found",
    "request_too_large": "too_large",
    "context_length_exceeded": "context_overflow",
    "exceed_context_size": "context_overflow",
    "timeout": "timeout",
}
# Where code and type say no more than the status, the message decides; only for ambiguous statuses.
_OPEN: Final = frozenset({402, 403, 429, 500, 502, 503})
_TELLING: Final[tuple[tuple[re.Pattern[str], ProblemKind], ...]] = (
    (
        re.compile(
            r"(?is)insufficient (?:balance|credits|funds)|current (?:token )?quota|check your (?:account balance|plan)"
            # Kimi Code: "… for this billing cycle", "your weekly (7-day) usage limit. Your quota will reset when …"
            r"|usage limit\b.{0,100}(?:billing cycle|\bquota will)"
        ),
        "quota",
    ),
    (re.compile(r"(?i)overloaded|too busy|at capacity|no available (?:worker|server)"), "overloaded"),
)
_NO_OVERFLOW: Final = frozenset({401, 402, 403, 429})
_REQUEST_IDS: Final = ("x-request-id", "x-trace-id", "request-id", "x-siliconcloud-trace-id", "cf-ray")
_SECONDS: Final = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*")
_AGAIN: Final = re.compile(
    r"(?i)(?:try again|retry) (?:in|after) (?:([0-9]{1,4})m)?([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(ms|s\b|sec|minute)"
)
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")
_PRINTABLE: Final = re.compile(r"[ -~]+")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "sec": 1.0, "minute": 60.0}


@renamed_arguments(needs="profile")
def read_problem(
    status: int,
    body: bytes,
    headers: Mapping[str, str],
    profile: HostProfile | None = None,
    *,
    secrets: Collection[str] = (),
) -> Problem:
    """Convert the error response of a host, in any dialect, to a `Problem`. Never raises.

    `secrets` are strings that were sent to the host and may be echoed. They are masked in the message, like anything
    that looks like an API key. `profile` supplies the context window if the host does not report it.

    A status below 400 is replaced with the status in the body, or with 502. A prompt that is too long is a 400,
    whatever status the host sent, and a spent quota is a 429. 429, 503 and 529 always have a retry delay.

    >>> body = b'{"error":{"message":"The engine is currently overloaded","type":"engine_overloaded_error"}}'
    >>> problem = read_problem(429, body, {"Retry-After": "3"})
    >>> problem.kind, problem.code, problem.retry_after
    ('overloaded', 'engine_overloaded_error', 3.0)
    """
    return _read_details(status, read_body(body, status, secrets), headers, profile, secrets)


def problem_of_failure(failed: Failed) -> Problem:
    """What ended a response that came with status 200, as an error with the status that it should have come with.

    >>> problem_of_failure(Failed("engine_overloaded", "Busy.")).status
    503
    """
    number = int(failed.code) if _STATUS.fullmatch(failed.code) else None
    code = failed.code if number is None else None
    details = clean_details(ErrorDetails(failed.message, code=code, status=number), 200)
    own = OWN_ERRORS.get(failed.code)
    if own is None:
        return _with_own_status(details)
    return Problem(
        status=own.status,
        kind=_STATUSES.get(own.status, "server"),
        message=details.message,
        code=failed.code,
        permanent=own.permanent or not failed.retryable,
    )


def problem_in_body(body: bytes) -> Problem:
    """The same for a body that came with status 200, and is an error or something unknown."""
    return _with_own_status(read_body(body, 200))


def _with_own_status(details: ErrorDetails) -> Problem:
    """An error without a status of its own gets that of its category."""
    problem = _read_details(200, details, {})
    status = _STATUS_OF.get(problem.kind, 502)
    return problem if problem.status != 502 or status == 502 else _read_details(status, details, {})


def _read_details(
    status: int,
    details: ErrorDetails,
    headers: Mapping[str, str],
    profile: HostProfile | None = None,
    secrets: Collection[str] = (),
) -> Problem:
    if not 400 <= status <= 599:
        status = details.status or 502
    names = {str(name).lower(): str(value) for name, value in headers.items()}
    kind, overflow = _classify(status, details), Overflow()
    if kind == "context_overflow" or (status not in _NO_OVERFLOW and kind not in ("rate_limit", "quota")):
        found = read_overflow(details.message)
        if found is not None or kind == "context_overflow":
            kind, status, overflow = "context_overflow", 400, found or overflow
    if kind == "quota":
        # Kimi Code sends 403, for which Claude Code shows "Failed to authenticate"; others send 402.
        status = _STATUS_OF["quota"]
    limit = overflow.limit
    if kind == "context_overflow" and limit is None and profile is not None:
        limit = profile.context_window
    return Problem(
        status=status,
        kind=kind,
        message=details.message,
        code=_short(details.code or details.type, secrets),
        param=_short(details.param, secrets),
        request_id=next(_request_ids(names, details, secrets), None),
        retry_after=_retry_after(names, details.message, status),
        tokens=overflow.tokens,
        limit=limit,
    )


def mask_problem(problem: Problem, secrets: Collection[str]) -> Problem:
    """The same problem with these secrets masked.

    >>> problem = Problem(status=401, kind="authentication", message="who is hunter2?")
    >>> mask_problem(problem, ["hunter2"]).message
    'who is …?'
    """
    if not secrets:
        return problem
    words = {name: getattr(problem, name) for name in ("message", "code", "param", "request_id")}
    details = {name: mask_secrets(word, secrets) for name, word in words.items() if word is not None}
    if "request_id" in details and details["request_id"] != problem.request_id:
        del details["request_id"]  # it becomes a header, and a masked id identifies nothing
        problem = msgspec.structs.replace(problem, request_id=None)
    return msgspec.structs.replace(problem, **details)


def _short(word: str | None, secrets: Collection[str]) -> str | None:
    """A short value of the host, without keys, on one line."""
    return None if word is None else _CONTROLS.sub(" ", mask_secrets(word, secrets))[:_LONGEST_WORD]


def _request_ids(names: Mapping[str, str], details: ErrorDetails, secrets: Collection[str]) -> Iterator[str]:
    """Ids that can be sent in a header unchanged; one that contains a key is skipped."""
    for word in (*(names.get(name) for name in _REQUEST_IDS), details.request_id):
        if word and _PRINTABLE.fullmatch(word) and mask_secrets(word, secrets) == word:
            yield word[:_LONGEST_WORD]


def _classify(status: int, details: ErrorDetails) -> ProblemKind:
    default = _STATUSES.get(status, "server" if status >= 500 else "invalid_request")
    words = (word.lower().removesuffix("_error") for word in (details.code, details.type) if word is not None)
    known = next((_WORDS[word] for word in words if word in _WORDS), default)
    if known == default and status in _OPEN:
        # A code that only repeats the status is ambiguous too: Moonshot's Messages endpoint sends `rate_limit_error`
        # for an overloaded engine.
        return next((kind for telling, kind in _TELLING if telling.search(details.message)), known)
    return known


def _retry_after(names: Mapping[str, str], message: str, status: int) -> float | None:
    """In seconds; a date cannot be used without a clock."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        if found := _SECONDS.fullmatch(names.get(name, "")):
            return min(float(found[1]) * unit, LONGEST_RETRY_SECONDS)
    if status not in _WAITING:
        return None
    if found := _AGAIN.search(message):
        seconds = float(found[2]) * _UNITS[found[3].lower()] + 60 * int(found[1] or 0)
        return min(seconds, LONGEST_RETRY_SECONDS)
    return DEFAULT_RETRY_SECONDS
