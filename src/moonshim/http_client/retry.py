"""How a host failed -> whether to retry, and after which delay. Decisions only: randomness is an argument.

| failure | action |
|---|---|
| no connection, 5xx, overloaded, 408 | retry the same host after a delay |
| 429 | the same, after the delay it asks for; too long: no retry |
| silence up to the deadline | another host, if there is one: no second wait of that length |
| 401, 403, 404, quota, prompt or body too long, response too large | another host: the problem is this one's |
| any other 4xx | no retry: the request itself is wrong |
| the model's answer | no retry here: the exchange asks again by itself, at once (`Exchange.wants_retry`) |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from moonshim.errors import Problem, ProblemKind, UpstreamStalled

__all__ = ["FIRST_PAUSE", "Verdict", "classify", "pause_before"]

Verdict: TypeAlias = Literal["again", "next", "stop"]

FIRST_PAUSE: Final = 0.25
"""Seconds. Doubles with every try; the actual delay is a random part of it, so that many clients do not return
at once."""
_JITTER: Final = 0.1
"""Maximum extra delay, as a fraction of what the host asks for."""

_VERDICTS: Final[dict[ProblemKind, Verdict]] = {
    "rate_limit": "again",
    "overloaded": "again",
    "timeout": "again",
    "server": "again",
    "authentication": "next",
    "permission": "next",
    "not_found": "next",
    "quota": "next",
    "context_overflow": "next",
    "too_large": "next",
    "invalid_request": "stop",
}


def classify(problem: Problem) -> Verdict:
    """
    >>> classify(Problem(status=500, kind="server", message="oops"))
    'again'
    """
    if problem.blame == "answer":
        return "stop"
    late, lasting = problem.code == UpstreamStalled.code, problem.permanent and problem.kind == "server"
    return "next" if late or lasting else _VERDICTS[problem.kind]


def pause_before(problem: Problem, *, tries: int, longest: float, random: Callable[[], float]) -> float | None:
    """Seconds until a host that was tried `tries` times is retried; None: that would be too long.

    >>> problem = Problem(status=429, kind="rate_limit", message="too many", retry_after=3)
    >>> pause_before(problem, tries=1, longest=20, random=float)
    3.0
    """
    if problem.retry_after is None:
        return min(longest, random() * FIRST_PAUSE * 2.0 ** (tries - 1))
    if problem.retry_after > longest:
        return None
    return problem.retry_after * (1.0 + _JITTER * random())
