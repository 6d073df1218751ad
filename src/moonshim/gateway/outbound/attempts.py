"""How hosts failed so far -> whom to ask next, and after which pause. Decisions only: the clock is an argument.

What a failure means is in `upstream.again`. Whoever is not asked again, or has been asked often enough, is followed by
the next target; a request that is wrong by itself is tried nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct, field

from moonshim.config import Retries, Target
from moonshim.errors import Problem, ProblemKind
from moonshim.http_client.retry import classify, pause_before

__all__ = ["Attempt", "Attempts", "Breakers", "RetryBudget"]

_SHOWN: Final = 200
_ACTIVE_SECONDS: Final = 60.0
_FEW_TENANTS: Final = 256
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


class _Tenant(Struct):
    """What one tenant has seen of a provider."""

    score: int = 0
    """Failures minus answers, from 0 to `breaker_failures`."""
    closed_to: float = 0.0
    """Until when this tenant does not ask; 0: it may."""
    seen: float = 0.0
    """When it asked, or failed, last."""
    why: str = ""
    """What the provider said to it last."""


class _Breaker(Struct):
    tenants: dict[str, _Tenant] = field(default_factory=dict)
    closed_to: float = 0.0
    """Until when nobody asks; 0: it is open to all."""
    latest: float = 0.0
    """No pause, of all or of one tenant, ends later."""
    room: int = _FEW_TENANTS
    """So many tenants are listed before those that have not asked for a while are dropped."""


class Breakers:
    """Leaves a provider alone that fails more than it answers.

    Failures are counted by tenant, since a request can be what makes a host fail. A tenant that saw
    `breaker_failures` more failures than answers does not ask for `breaker_seconds`, and then once, to see.
    A provider is left alone for all tenants when that many failures come from more than one of them, no more than
    half from any, and most of those that asked within the last minute see failures.

    The one who is let through after a pause reports the result (`succeeded`, `failed`). If it does not, the next one
    is let through after the same time again.
    """

    def __init__(self, settings: Retries) -> None:
        self.settings = settings
        self._breakers: dict[str, _Breaker] = {}

    def allows(self, name: str, tenant: str, now: float) -> bool:
        """Whether this tenant may ask this provider now. After a pause, only the first request is told yes."""
        breaker = self._breakers.setdefault(name, _Breaker())
        if now < breaker.closed_to:
            return False
        own = _tenant_record(breaker, tenant, now)
        if now < own.closed_to:
            return False
        if own.closed_to:
            own.closed_to = breaker.latest = now + self.settings.breaker_seconds
        return True

    def opens_in(self, name: str, tenant: str, now: float) -> float:
        """Seconds until this tenant may ask it again."""
        breaker = self._breakers.get(name, _Breaker())
        return max(0.0, breaker.closed_to - now, breaker.tenants.get(tenant, _Tenant()).closed_to - now)

    def is_open(self, name: str, now: float) -> bool:
        """Whether it is left alone, by all tenants or by one."""
        breaker = self._breakers.get(name, _Breaker())
        return breaker.latest > now and (
            breaker.closed_to > now or any(own.closed_to > now for own in breaker.tenants.values())
        )

    def why(self, name: str, tenant: str) -> str:
        """What it said when it last failed for this tenant."""
        breaker = self._breakers.get(name, _Breaker())
        return breaker.tenants.get(tenant, _Tenant()).why

    def succeeded(self, name: str, tenant: str) -> None:
        """It answered; an answer that refuses the request is one too."""
        breaker = self._breakers.get(name)
        if breaker is None:
            return
        breaker.closed_to = 0.0
        if (own := breaker.tenants.get(tenant)) is not None:
            own.score = 0 if own.closed_to else max(0, own.score - 1)
            own.closed_to = 0.0

    def failed(self, name: str, tenant: str, now: float, why: str = "") -> None:
        enough, pause = self.settings.breaker_failures, self.settings.breaker_seconds
        breaker = self._breakers.setdefault(name, _Breaker())
        own = _tenant_record(breaker, tenant, now)
        own.score = min(enough, own.score + 1)
        own.why = why[:_SHOWN]
        if own.closed_to or own.score >= enough:
            own.closed_to = breaker.latest = now + pause
        active = [one for one in breaker.tenants.values() if now - one.seen <= _ACTIVE_SECONDS]
        failing = [min(one.score, (enough + 1) // 2) for one in active if one.score]
        if len(failing) > 1 and len(failing) * 2 > len(active) and sum(failing) >= enough:
            breaker.closed_to = breaker.latest = now + pause


def _tenant_record(breaker: _Breaker, tenant: str, now: float) -> _Tenant:
    """The record of a tenant that asks or fails now."""
    own = breaker.tenants.setdefault(tenant, _Tenant())
    own.seen = now
    if len(breaker.tenants) > breaker.room:
        recent = {
            name: one
            for name, one in breaker.tenants.items()
            if now - one.seen <= _ACTIVE_SECONDS or one.closed_to > now
        }
        breaker.tenants, breaker.room = recent, max(_FEW_TENANTS, 2 * len(recent))
    return own


class Attempts:
    """One request: whom it asks, one after the other. `next` gives None when there is nobody left."""

    def __init__(
        self,
        targets: Sequence[Target],
        retries: Retries,
        breakers: Breakers,
        budget: RetryBudget,
        random: Callable[[], float],
        tenant: str,
    ) -> None:
        self._targets, self._tenant = targets, tenant
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
            if self._tries < self._retries.attempts and self._breakers.allows(target.provider.name, self._tenant, now):
                self._number += 1
                self._tries += 1
                return Attempt(target, self._wait, self._number)
            self._go_on()
        return None

    def succeeded(self, attempt: Attempt) -> None:
        """It answered, and its answer is being read."""
        self._breakers.succeeded(attempt.target.provider.name, self._tenant)

    def corrected(self, attempt: Attempt) -> None:
        """It refused a request that has been put right: the same is asked again at once, beyond the usual attempts."""
        self._breakers.succeeded(attempt.target.provider.name, self._tenant)
        self._tries, self._wait = self._tries - 1, 0.0

    def failed(self, attempt: Attempt, problem: Problem, now: float, *, another_key: bool = False) -> None:
        """It did not. `another_key`: the provider has a key that was not refused, so it is asked again with that."""
        name = attempt.target.provider.name
        if _counts_as_failure(problem):
            self._breakers.failed(name, self._tenant, now, problem.message)
        else:
            self._breakers.succeeded(name, self._tenant)
        if self._tries > 1 and self._problems:
            self._problems.pop()
        self._problems.append(problem)
        verdict = classify(problem)
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
        seconds = min((self._breakers.opens_in(name, self._tenant, now) for name in names), default=0.0)
        last = next((f" It said: {why}" for name in names if (why := self._breakers.why(name, self._tenant))), "")
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


def _counts_as_failure(problem: Problem) -> bool:
    """Whether the host failed, rather than refused. Moonshot says 429 when its engine is overloaded."""
    return problem.kind in _ILL and not problem.permanent and (problem.status >= 500 or problem.kind == "overloaded")
