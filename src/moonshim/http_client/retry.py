"""How a host failed -> whether it is asked again, and after which pause. Decisions only: the dice are an argument.

| what a host says | what follows |
|---|---|
| no connection, 5xx, overloaded, 408 | the same again after a pause |
| 429 | the same, after as long as it says; too long: not again |
| silence up to the deadline | another host, if there is one: nobody waits as long twice |
| 401, 403, 404, quota, prompt or body too long, an answer that is too large | another host: it is about this one |
| any other 4xx | nobody: the request itself is wrong |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from moonshim.errors import Problem, ProblemKind, UpstreamStalled

__all__ = ["FIRST_PAUSE", "Verdict", "classify", "pause_before"]

Verdict: TypeAlias = Literal["again", "next", "stop"]

FIRST_PAUSE: Final = 0.25
"""Seconds. Doubles with every try; a random part of it is waited, so that many clients do not come back at once."""
_JITTER: Final = 0.1
"""How much later than a host says it is asked again, at most, as a part of its pause."""

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
    late, lasting = problem.code == UpstreamStalled.code, problem.permanent and problem.kind == "server"
    return "next" if late or lasting else _VERDICTS[problem.kind]


def pause_before(problem: Problem, *, tries: int, longest: float, random: Callable[[], float]) -> float | None:
    """Seconds until a host that was asked `tries` times is asked again; None: that would be too long.

    >>> problem = Problem(status=429, kind="rate_limit", message="too many", retry_after=3)
    >>> pause_before(problem, tries=1, longest=20, random=float)
    3.0
    """
    if problem.retry_after is None:
        return min(longest, random() * FIRST_PAUSE * 2.0 ** (tries - 1))
    if problem.retry_after > longest:
        return None
    return problem.retry_after * (1.0 + _JITTER * random())
