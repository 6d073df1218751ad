"""How hosts failed so far -> whom to ask next, and after which pause. Decisions only: the clock is an argument.

What a failure means is in `upstream.again`. Whoever is not asked again, or has been asked often enough, is followed by
the next target; a request that is wrong by itself is tried nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from moonshim.config import Retries, Target
from moonshim.errors import Problem, ProblemKind
from moonshim.upstream.again import pause_before, verdict_on

__all__ = ["Attempt", "Attempts", "Breakers", "RetryBudget"]

_SHOWN: Final = 200
_ILL: Final[frozenset[ProblemKind]] = frozenset({"overloaded", "timeout", "server"})
_ABOUT_THE_ACCOUNT: Final[frozenset[ProblemKind]] = frozenset({"authentication", "permission", "not_found", "quota"})


class Attempt(Struct, frozen=True):
    """One try."""

    target: Target
    wait: float
    """Seconds to wait before it."""
    number: int
    """Of all tries for this request, from 1."""


class RetryBudget:
    """Retries for all requests together: a part of them, and a few to begin with.

    When a host is down, every request would be asked several times, which keeps it down. Each request brings
    `ratio` of a retry, each second a little, and what is not used is kept, up to `reserve`.
    """

    def __init__(self, ratio: float, *, reserve: float = 10.0, each_second: float = 0.5) -> None:
        self._ratio, self._reserve, self._each_second = ratio, reserve, each_second
        self._left = reserve
        self._seen: float | None = None

    def asked(self, now: float) -> None:
        """A request came."""
        self._grow(now, self._ratio)

    def take(self, now: float) -> bool:
        """One retry, if there is one left."""
        self._grow(now, 0.0)
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True

    def _grow(self, now: float, more: float) -> None:
        passed = 0.0 if self._seen is None else max(0.0, now - self._seen)
        # A ratio of none means no retries, also not slowly.
        slowly = passed * self._each_second if self._ratio > 0 else 0.0
        self._seen = now
        self._left = min(self._reserve if self._ratio > 0 else 0.0, self._left + more + slowly)


class _Breaker(Struct):
    failures: int = 0
    """In a row."""
    closed_to: float = 0.0
    """Until when nobody is asked; 0: it is open to all."""
    why: str = ""
    """What it said last."""


class Breakers:
    """Leaves a provider alone that has failed often enough in a row, and then asks it once to see.

    The one who is let through tells how it went (`succeeded`, `failed`). If nobody tells, the next one is let through
    after the same time again.
    """

    def __init__(self, settings: Retries) -> None:
        self.settings = settings
        self._breakers: dict[str, _Breaker] = {}

    def allows(self, name: str, now: float) -> bool:
        """Whether this provider may be asked now. Behind a pause, only the first who asks is told yes."""
        breaker = self._breakers.get(name)
        if breaker is None or not breaker.closed_to:
            return True
        if now < breaker.closed_to:
            return False
        breaker.closed_to = now + self.settings.breaker_seconds
        return True

    def opens_in(self, name: str, now: float) -> float:
        """Seconds until it may be asked again."""
        breaker = self._breakers.get(name)
        return max(0.0, breaker.closed_to - now) if breaker is not None else 0.0

    def succeeded(self, name: str) -> None:
        """It answered; an answer that refuses the request is one too."""
        self._breakers.pop(name, None)

    def why(self, name: str) -> str:
        """What it said when it failed last."""
        breaker = self._breakers.get(name)
        return breaker.why if breaker is not None else ""

    def failed(self, name: str, now: float, why: str = "") -> None:
        breaker = self._breakers.setdefault(name, _Breaker())
        breaker.failures += 1
        breaker.why = why[:_SHOWN]
        if breaker.failures >= self.settings.breaker_failures:
            breaker.closed_to = now + self.settings.breaker_seconds


class Attempts:
    """One request: whom it asks, one after the other. `next` gives None when there is nobody left."""

    def __init__(
        self,
        targets: Sequence[Target],
        retries: Retries,
        breakers: Breakers,
        budget: RetryBudget,
        random: Callable[[], float],
    ) -> None:
        self._targets = targets
        self._retries, self._breakers, self._budget, self._random = retries, breakers, budget, random
        self._at = 0
        self._tries = 0
        """How often the target at `_at` was asked."""
        self._number = 0
        self._wait = 0.0
        self._problems: list[Problem] = []
        """The last of every target that failed."""

    def next(self, now: float) -> Attempt | None:
        """Whom to ask, and after how long."""
        if self._number == 0:
            self._budget.asked(now)
        while self._at < len(self._targets):
            target = self._targets[self._at]
            if self._tries < self._retries.attempts and self._breakers.allows(target.provider.name, now):
                self._number += 1
                self._tries += 1
                return Attempt(target, self._wait, self._number)
            self._go_on()
        return None

    def succeeded(self, attempt: Attempt) -> None:
        """It answered, and its answer is being read."""
        self._breakers.succeeded(attempt.target.provider.name)

    def corrected(self, attempt: Attempt) -> None:
        """It refused a request that has been put right: the same is asked again at once, beyond the usual attempts."""
        self._breakers.succeeded(attempt.target.provider.name)
        self._tries, self._wait = self._tries - 1, 0.0

    def failed(self, attempt: Attempt, problem: Problem, now: float, *, another_key: bool = False) -> None:
        """It did not. `another_key`: the provider has a key that was not refused, so it is asked again with that."""
        name = attempt.target.provider.name
        if _is_ill(problem):
            self._breakers.failed(name, now, problem.message)
        else:
            self._breakers.succeeded(name)
        if self._tries > 1 and self._problems:
            self._problems.pop()
        self._problems.append(problem)
        verdict = verdict_on(problem)
        if verdict == "stop":
            self._at = len(self._targets)
        elif another_key and verdict == "next" and self._tries < self._retries.attempts:
            self._wait = 0.0
        elif (pause := self._pause(problem) if verdict == "again" else None) is None or not self._may_retry(now):
            self._go_on()
        else:
            self._wait = pause

    @property
    def problem(self) -> Problem | None:
        """What the client is told when all have failed: the first thing that a target said of more than an account.

        A fallback that lacks a key must not hide that the model itself was only busy.
        """
        telling = (problem for problem in self._problems if problem.kind not in _ABOUT_THE_ACCOUNT)
        return next(telling, self._problems[0] if self._problems else None)

    def unavailable(self, now: float) -> Problem:
        """What the client is told when nobody could be asked at all."""
        names = dict.fromkeys(target.provider.name for target in self._targets)
        shown = ", ".join(names)
        seconds = min((self._breakers.opens_in(name, now) for name in names), default=0.0)
        last = next((f" It said: {why}" for name in names if (why := self._breakers.why(name))), "")
        return Problem(
            status=503,
            kind="overloaded",
            message=f"{shown} failed too often just now; try again in {max(1.0, seconds):.0f} seconds.{last}",
            code="provider_unavailable",
            retry_after=max(1.0, seconds),
        )

    def _go_on(self) -> None:
        self._at += 1
        self._tries, self._wait = 0, 0.0

    def _may_retry(self, now: float) -> bool:
        """Asked last, since it takes from the budget."""
        return self._tries < self._retries.attempts and self._budget.take(now)

    def _pause(self, problem: Problem) -> float | None:
        """Seconds until the same target is asked again; None: that would be too long."""
        longest = self._retries.longest_wait
        return pause_before(problem, tries=self._tries, longest=longest, random=self._random)


def _is_ill(problem: Problem) -> bool:
    """Whether the host failed, rather than refused. Moonshot says 429 when its engine is overloaded."""
    return problem.kind in _ILL and (problem.status >= 500 or problem.kind == "overloaded")
