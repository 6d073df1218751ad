"""Past failures of hosts -> which target to try next, and after which delay. Decisions only: the clock is an argument.

What a failure means is decided in `http_client.retry`. A target that must not be retried, or was tried often enough, is
followed by the next one; a request that is invalid in itself is not tried elsewhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct, field

from moonshim.config import Retries, Target
from moonshim.errors import Problem, ProblemKind
from moonshim.http_client.retry import classify, pause_before

__all__ = ["AskAgainLimit", "Attempt", "Attempts", "Breakers", "RetryBudget", "breaker_name"]

_SHOWN: Final = 200
_ACTIVE_SECONDS: Final = 60.0
_HOUR: Final = 60
"""In minutes."""
ASK_AGAIN_SHARE: Final = 0.02
MIN_ASK_AGAIN: Final = 3
_FEW_TENANTS: Final = 256
_FEW_BREAKERS: Final = 256
_ABOUT_THE_ACCOUNT: Final[frozenset[ProblemKind]] = frozenset({"authentication", "permission", "not_found", "quota"})


class Attempt(Struct, frozen=True):
    """One try."""

    target: Target
    wait: float
    """Seconds to wait before it."""
    number: int
    """Number of this try for the request, from 1."""


class RetryBudget:
    """A retry budget for all requests together: a fraction of them, plus a few to begin with.

    While a host is down, every request would be retried several times, which keeps it down. Each request adds `ratio`
    of a retry, each second adds a little, and what is not used accumulates up to `reserve`.
    """

    def __init__(self, ratio: float, *, reserve: float = 10.0, each_second: float = 0.5) -> None:
        self._ratio, self._reserve, self._each_second = ratio, reserve, each_second
        self._left = reserve
        self._seen: float | None = None

    def count_request(self, now: float) -> None:
        """Count a request."""
        self._grow(now, self._ratio)

    def take(self, now: float) -> bool:
        """Take one retry, if there is one left."""
        self._grow(now, 0.0)
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True

    def _grow(self, now: float, more: float) -> None:
        passed = 0.0 if self._seen is None else max(0.0, now - self._seen)
        # A ratio of zero means no retries, not slowly growing ones.
        slowly = passed * self._each_second if self._ratio > 0 else 0.0
        self._seen = now
        self._left = min(self._reserve if self._ratio > 0 else 0.0, self._left + more + slowly)


class _Minute(Struct):
    number: int
    requests: int = 0
    asked_again: int = 0


class AskAgainLimit:
    """Bounds what answers that are asked for again cost: by a share of a tenant's requests of the last hour.

    A model that fails at a prompt fails at it every time; without a limit, each of these requests would cost twice as
    much. All reasons count together, in minutes, for each tenant; a few an hour are always allowed.
    """

    def __init__(self, share: float = ASK_AGAIN_SHARE, least: int = MIN_ASK_AGAIN) -> None:
        self._share, self._least = share, least
        self._tenants: dict[str, deque[_Minute]] = {}
        self._room = _FEW_TENANTS

    def count_request(self, tenant: str, now: float) -> None:
        self._current(tenant, now).requests += 1

    def take(self, tenant: str, now: float) -> bool:
        """Ask again once, if that is still allowed."""
        current, minutes = self._current(tenant, now), self._tenants[tenant]
        requests = sum(minute.requests for minute in minutes)
        if sum(minute.asked_again for minute in minutes) >= max(self._least, int(requests * self._share)):
            return False
        current.asked_again += 1
        return True

    def _current(self, tenant: str, now: float) -> _Minute:
        number = int(now // 60)
        minutes = self._tenants.get(tenant)
        if minutes is None:
            if len(self._tenants) >= self._room:
                self._tenants = {name: one for name, one in self._tenants.items() if one[-1].number > number - _HOUR}
                self._room = max(_FEW_TENANTS, 2 * len(self._tenants))
            minutes = self._tenants[tenant] = deque()
        while minutes and minutes[0].number <= number - _HOUR:
            minutes.popleft()
        if not minutes or minutes[-1].number != number:
            minutes.append(_Minute(number))
        return minutes[-1]


class _Tenant(Struct):
    """What one tenant has seen of a provider."""

    score: int = 0
    """Failures minus successes, from 0 to `breaker_failures`."""
    closed_to: float = 0.0
    """Time until which this tenant's requests are held off; 0: they are allowed."""
    seen: float = 0.0
    """Time of its last request or failure."""
    why: str = ""
    """The provider's last error for this tenant."""


class _Breaker(Struct):
    tenants: dict[str, _Tenant] = field(default_factory=dict)
    closed_to: float = 0.0
    """Time until which all requests are held off; 0: they are allowed."""
    latest: float = 0.0
    """No pause, for all tenants or for one, ends later than this."""
    room: int = _FEW_TENANTS
    """Number of tenants to list before inactive ones are dropped."""


def breaker_name(target: Target) -> str:
    """What a breaker is about: one model at one provider, since one model can fail while others serve."""
    return f"{target.provider.name}/{target.model}"


class Breakers:
    """Circuit breakers: stop calling a model at a provider that fails more often than it succeeds.

    Failures are counted per tenant, since a request can be what makes a host fail. For a tenant with `breaker_failures`
    more failures than successes, the breaker opens for `breaker_seconds`, then lets one request through as a probe. It
    opens for all tenants when that many failures come from more than one of them, no more than half from any one, and
    most tenants that were active within the last minute see failures.

    The probe reports its result (`succeeded`, `failed`). If it does not, the next one is let through after the same
    time.
    """

    def __init__(self, settings: Retries) -> None:
        self.settings = settings
        self._breakers: dict[str, _Breaker] = {}
        """By `breaker_name`."""
        self._room = _FEW_BREAKERS

    def allows(self, name: str, tenant: str, now: float) -> bool:
        """Whether this tenant may call this model now. After a pause, only the first request is allowed."""
        breaker = self._breaker(name, now)
        if now < breaker.closed_to:
            return False
        own = _tenant_record(breaker, tenant, now)
        if now < own.closed_to:
            return False
        if own.closed_to:
            own.closed_to = breaker.latest = now + self.settings.breaker_seconds
        return True

    def opens_in(self, name: str, tenant: str, now: float) -> float:
        """Seconds until this tenant may call it again."""
        breaker = self._breakers.get(name, _Breaker())
        return max(0.0, breaker.closed_to - now, breaker.tenants.get(tenant, _Tenant()).closed_to - now)

    def is_open(self, provider: str, now: float) -> bool:
        """Whether the breaker of a model of this provider is open, for all tenants or for one."""
        return any(
            breaker.latest > now
            and name.partition("/")[0] == provider
            and (breaker.closed_to > now or any(own.closed_to > now for own in breaker.tenants.values()))
            for name, breaker in self._breakers.items()
        )

    def _breaker(self, name: str, now: float) -> _Breaker:
        breaker = self._breakers.get(name)
        if breaker is None:
            if len(self._breakers) >= self._room:  # clients can choose model names
                self._breakers = {
                    known: one
                    for known, one in self._breakers.items()
                    if one.latest > now or any(now - own.seen <= _ACTIVE_SECONDS for own in one.tenants.values())
                }
                self._room = max(_FEW_BREAKERS, 2 * len(self._breakers))
            breaker = self._breakers[name] = _Breaker()
        return breaker

    def why(self, name: str, tenant: str) -> str:
        """The model's error when it last failed for this tenant."""
        breaker = self._breakers.get(name, _Breaker())
        return breaker.tenants.get(tenant, _Tenant()).why

    def succeeded(self, name: str, tenant: str) -> None:
        """The provider answered; a response that refuses the request counts too."""
        breaker = self._breakers.get(name)
        if breaker is None:
            return
        breaker.closed_to = 0.0
        if (own := breaker.tenants.get(tenant)) is not None:
            own.score = 0 if own.closed_to else max(0, own.score - 1)
            own.closed_to = 0.0

    def failed(self, name: str, tenant: str, now: float, why: str = "") -> None:
        enough, pause = self.settings.breaker_failures, self.settings.breaker_seconds
        breaker = self._breaker(name, now)
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
    """The record of a tenant that is active now."""
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
    """The sequence of targets for one request. `next` returns None when there are none left."""

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
        """How often the target at `_at` was tried."""
        self._number = 0
        self._wait = 0.0
        self._problems: list[Problem] = []
        """The last problem of every target that failed."""

    def next(self, now: float) -> Attempt | None:
        """The next target, and how long to wait first."""
        if self._number == 0:
            self._budget.count_request(now)
        while self._at < len(self._targets):
            target = self._targets[self._at]
            if self._tries < self._retries.attempts and self._breakers.allows(breaker_name(target), self._tenant, now):
                self._number += 1
                self._tries += 1
                return Attempt(target, self._wait, self._number)
            self._go_on()
        return None

    def succeeded(self, attempt: Attempt) -> None:
        """The target answered, and its response is being read."""
        self._breakers.succeeded(breaker_name(attempt.target), self._tenant)

    def unfit(self) -> None:
        """The request cannot be expressed for the target, which was not called: go on with the next one."""
        self._go_on()

    def corrected(self, attempt: Attempt) -> None:
        """The target refused a request that has been corrected: retry at once, beyond the usual attempts."""
        self._breakers.succeeded(breaker_name(attempt.target), self._tenant)
        self._tries, self._wait = self._tries - 1, 0.0

    def failed(self, attempt: Attempt, problem: Problem, now: float, *, another_key: bool = False) -> None:
        """The target failed. `another_key`: the provider has another key that was not refused, so retry with that."""
        name = breaker_name(attempt.target)
        if problem.counts_against_host:
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
        """The client's error when all targets failed: the first problem that is not merely about an account.

        A fallback without a key must not hide that the model itself was only busy.
        """
        telling = (problem for problem in self._problems if problem.kind not in _ABOUT_THE_ACCOUNT)
        return next(telling, self._problems[0] if self._problems else None)

    def unavailable(self, now: float) -> Problem:
        """The client's error when no target could be called at all."""
        names = dict.fromkeys(map(breaker_name, self._targets))
        shown = ", ".join(dict.fromkeys(target.provider.name for target in self._targets))
        seconds = min((self._breakers.opens_in(name, self._tenant, now) for name in names), default=0.0)
        last = next((f" Last error: {why}" for name in names if (why := self._breakers.why(name, self._tenant))), "")
        return Problem(
            status=503,
            kind="overloaded",
            message=f"{shown} failed too often recently. Retry in {max(1.0, seconds):.0f} s.{last}",
            code="provider_unavailable",
            retry_after=max(1.0, seconds),
        )

    def _go_on(self) -> None:
        self._at += 1
        self._tries, self._wait = 0, 0.0

    def _may_retry(self, now: float) -> bool:
        """Check this last, since it takes from the budget."""
        return self._tries < self._retries.attempts and self._budget.take(now)

    def _pause(self, problem: Problem) -> float | None:
        """Seconds until the same target is tried again; None: that would take too long."""
        longest = self._retries.longest_wait
        return pause_before(problem, tries=self._tries, longest=longest, random=self._random)
