"""When a host is asked again, when the next one, and when nobody."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.config import ProviderConfig, Retries, Target
from moonshim.errors import (
    MoonshimError,
    Problem,
    ProblemKind,
    UpstreamBroke,
    UpstreamStalled,
    UpstreamUnreachable,
    problem_of,
)
from moonshim.gateway.outbound.attempts import Attempts, Breakers, RetryBudget, breaker_name
from moonshim.http_client.retry import FIRST_PAUSE

RETRIES: Final = Retries()
TARGETS: Final = [
    Target(ProviderConfig(name=name, api_base_url=f"https://{name}.test"), "kimi-k3")
    for name in ("first", "second", "third")
]


def problem(status: int, kind: ProblemKind, retry_after: float | None = None) -> Problem:
    return Problem(status=status, kind=kind, message="no", retry_after=retry_after)


SERVER: Final = problem(500, "server")
FIRST: Final = breaker_name(TARGETS[0])


def attempts(
    count: int = 2,
    *,
    retries: Retries = RETRIES,
    breakers: Breakers | None = None,
    budget: RetryBudget | None = None,
    random: float = 0.5,
) -> Attempts:
    return Attempts(
        TARGETS[:count],
        retries,
        breakers or Breakers(retries),
        budget or RetryBudget(retries.budget),
        lambda: random,
        "me",
    )


def tries_for(
    tries: Attempts, *problems: Problem, now: float = 0.0, another_key: bool = False
) -> list[tuple[str, float]]:
    """Whom it asks and after how long, when these are the answers; the last of them again and again."""
    out: list[tuple[str, float]] = []
    while (attempt := tries.next(now)) is not None:
        out.append((attempt.target.provider.name, attempt.wait))
        assert attempt.number == len(out)
        tries.failed(attempt, problems[min(len(out), len(problems)) - 1], now, another_key=another_key)
    return out


AGAIN: Final = [("first", 0.0), ("first", 0.125), ("first", 0.25), ("second", 0.0), ("second", 0.125), ("second", 0.25)]
ONWARD: Final = [("first", 0.0), ("second", 0.0)]
ONLY_ONE: Final = [("first", 0.0)]


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (problem(500, "server"), AGAIN),
        (problem(502, "server"), AGAIN),
        (problem(504, "timeout"), AGAIN),
        (problem(408, "timeout"), AGAIN),
        (problem(529, "overloaded"), AGAIN),
        (problem(429, "rate_limit"), AGAIN),
        (problem(401, "authentication"), ONWARD),
        (problem(402, "quota"), ONWARD),
        (problem(429, "quota", 5.0), ONWARD),
        (problem(403, "permission"), ONWARD),
        (problem(404, "not_found"), ONWARD),
        (problem(400, "context_overflow"), ONWARD),
        (problem(413, "too_large"), ONWARD),
        (problem(400, "invalid_request"), ONLY_ONE),
        (problem(422, "invalid_request"), ONLY_ONE),
    ],
    ids=lambda value: f"{value.status} {value.kind}" if isinstance(value, Problem) else "",
)
def test_what_a_host_says_decides_who_is_asked_next(told: Problem, expected: list[tuple[str, float]]) -> None:
    assert tries_for(attempts(), told) == expected


@pytest.mark.parametrize(
    ("error", "expected"), [(UpstreamUnreachable, AGAIN), (UpstreamBroke, AGAIN), (UpstreamStalled, ONWARD)]
)
def test_errors_of_the_connection_decide_too(error: type[MoonshimError], expected: list[tuple[str, float]]) -> None:
    assert tries_for(attempts(), problem_of(error("gone"))) == expected


class TestPauses:
    @given(st.floats(0, 1, exclude_max=True))
    def test_a_pause_is_a_random_part_of_one_that_doubles(self, random: float) -> None:
        waits = [wait for _, wait in tries_for(attempts(1, random=random, retries=Retries(attempts=5)), SERVER)]
        assert waits == pytest.approx([0.0, *(random * FIRST_PAUSE * 2**count for count in range(4))])

    def test_no_pause_is_longer_than_is_allowed(self) -> None:
        retries = Retries(attempts=12, longest_wait=3.0, breaker_failures=100)
        waits = [wait for _, wait in tries_for(attempts(1, random=0.999, retries=retries), SERVER)]
        assert max(waits) == 3.0
        assert len(waits) == 11  # the budget's reserve of ten, and the first

    def test_a_host_is_asked_again_after_what_it_says_and_a_little_more(self) -> None:
        waits = [wait for _, wait in tries_for(attempts(1), problem(429, "rate_limit", 7.0))]
        assert waits == pytest.approx([0.0, 7.35, 7.35])

    def test_a_host_that_wants_a_longer_pause_is_not_waited_for(self) -> None:
        assert tries_for(attempts(), problem(429, "rate_limit", 60.0), problem(500, "server", 60.0)) == ONWARD
        assert tries_for(attempts(1), problem(429, "rate_limit", 20.1)) == ONLY_ONE


def test_a_target_is_asked_as_often_as_is_configured() -> None:
    assert tries_for(attempts(1, retries=Retries(attempts=1)), SERVER) == ONLY_ONE


def test_every_target_begins_without_a_pause_and_with_all_its_tries() -> None:
    told = [SERVER, problem(404, "not_found"), SERVER, SERVER, SERVER, problem(400, "invalid_request")]
    assert [name for name, _ in tries_for(attempts(3), *told)] == [
        "first",
        "first",
        "second",
        "second",
        "second",
        "third",
    ]


def test_another_key_is_tried_at_once_at_the_same_target() -> None:
    names = tries_for(attempts(), problem(401, "authentication"), another_key=True)
    assert names == [("first", 0.0)] * 3 + [("second", 0.0)] * 3
    assert tries_for(attempts(), problem(400, "invalid_request"), another_key=True) == ONLY_ONE


class TestWhatTheClientIsTold:
    @pytest.mark.parametrize(
        ("told", "status"),
        [
            ([SERVER, SERVER, SERVER, problem(404, "not_found")], 500),
            ([problem(404, "not_found"), SERVER], 500),
            ([problem(400, "context_overflow"), SERVER], 400),
            ([problem(402, "quota"), problem(404, "not_found")], 402),
            ([SERVER, problem(529, "overloaded"), SERVER, problem(401, "authentication")], 500),
        ],
    )
    def test_a_fallbacks_account_does_not_hide_what_went_wrong(self, told: list[Problem], status: int) -> None:
        tries = attempts()
        tries_for(tries, *told)
        assert tries.problem is not None
        assert tries.problem.status == status

    def test_nothing_is_told_before_anybody_failed(self) -> None:
        assert attempts().problem is None


class TestTheBudget:
    def test_retries_are_a_part_of_the_requests(self) -> None:
        budget = RetryBudget(0.2, reserve=3.0, each_second=0.0)
        breakers = Breakers(Retries(breaker_failures=10_000))
        counts = [len(tries_for(attempts(1, budget=budget, breakers=breakers), SERVER)) - 1 for _ in range(203)]
        assert sum(counts) == 3 + 40

    def test_a_fallback_takes_nothing_from_it(self) -> None:
        budget = RetryBudget(0.2, reserve=0.0, each_second=0.0)
        assert tries_for(attempts(budget=budget), SERVER) == ONWARD

    def test_what_is_left_over_is_kept_only_up_to_the_reserve(self) -> None:
        budget = RetryBudget(0.5, reserve=2.0, each_second=0.0)
        for _ in range(100):
            budget.count_request(0.0)
        assert [budget.take(0.0) for _ in range(4)] == [True, True, False, False]

    def test_it_grows_with_time_for_those_who_ask_rarely(self) -> None:
        budget = RetryBudget(0.2, reserve=2.0, each_second=0.5)
        assert [budget.take(10.0) for _ in range(3)] == [True, True, False]
        assert [budget.take(11.0), budget.take(12.0), budget.take(12.0)] == [False, True, False]
        assert not budget.take(5.0)  # a clock that goes back gives nothing

    def test_a_budget_of_none_means_no_retries_at_all(self) -> None:
        budget = RetryBudget(0.0)
        budget.count_request(0.0)
        assert not budget.take(1e9)
        assert tries_for(attempts(budget=budget), SERVER) == ONWARD


class TestBreakers:
    SETTINGS: Final = Retries(breaker_failures=3, breaker_seconds=30.0)

    def broken(self, now: float = 100.0) -> Breakers:
        breakers = Breakers(self.SETTINGS)
        for _ in range(3):
            breakers.failed(FIRST, "me", now)
        return breakers

    def test_failures_in_a_row_close_it_and_only_for_that_provider(self) -> None:
        breakers = Breakers(self.SETTINGS)
        for _ in range(2):
            breakers.failed(FIRST, "me", 100.0)
        assert breakers.allows(FIRST, "me", 100.0)
        breakers.failed(FIRST, "me", 100.0)
        assert not breakers.allows(FIRST, "me", 129.9)
        assert breakers.allows("second", "me", 100.0)

    def test_as_many_answers_as_failures_keep_it_open(self) -> None:
        breakers = Breakers(self.SETTINGS)
        for _ in range(10):
            breakers.failed(FIRST, "me", 100.0)
            breakers.failed(FIRST, "me", 100.0)
            breakers.succeeded(FIRST, "me")
            breakers.succeeded(FIRST, "me")
        assert breakers.allows(FIRST, "me", 100.0)

    def test_more_failures_than_answers_close_it_in_the_end(self) -> None:
        breakers = Breakers(self.SETTINGS)
        breakers.failed(FIRST, "me", 100.0)
        breakers.failed(FIRST, "me", 100.0)
        breakers.succeeded(FIRST, "me")
        breakers.failed(FIRST, "me", 100.0)
        assert breakers.allows(FIRST, "me", 100.0)
        breakers.failed(FIRST, "me", 100.0)
        assert not breakers.allows(FIRST, "me", 100.0)

    def test_the_failures_of_one_tenant_stop_no_other(self) -> None:
        breakers = Breakers(self.SETTINGS)
        for _ in range(100):
            breakers.failed(FIRST, "attacker", 100.0, "what I said")
        assert not breakers.allows(FIRST, "attacker", 100.0)
        assert breakers.allows(FIRST, "me", 100.0)
        assert breakers.is_open("first", 100.0)
        # Also not with one failure of another in between, such as every host has.
        for other in ("me", "you", "they"):
            assert breakers.allows(FIRST, other, 110.0)
        breakers.failed(FIRST, "me", 110.0)
        breakers.failed(FIRST, "attacker", 111.0)
        assert breakers.allows(FIRST, "you", 112.0)
        assert breakers.why(FIRST, "you") == ""

    def test_failures_of_several_tenants_close_it_for_all(self) -> None:
        breakers = Breakers(self.SETTINGS)
        for tenant in ("a", "b", "c"):
            assert breakers.allows(FIRST, tenant, 100.0)
            breakers.failed(FIRST, tenant, 100.0)
        assert not any(breakers.allows(FIRST, tenant, 129.0) for tenant in ("a", "b", "c", "d"))
        assert breakers.opens_in(FIRST, "d", 110.0) == 20.0
        assert breakers.allows(FIRST, "d", 130.0)
        breakers.failed(FIRST, "d", 130.0)  # it is still ill
        assert not breakers.allows(FIRST, "a", 131.0)
        assert breakers.allows(FIRST, "a", 160.0)
        breakers.succeeded(FIRST, "a")
        assert all(breakers.allows(FIRST, tenant, 160.0) for tenant in ("a", "b", "c", "d"))

    def test_tenants_that_are_gone_are_forgotten(self) -> None:
        breakers = Breakers(self.SETTINGS)
        for number in range(10_000):
            assert breakers.allows(FIRST, f"{number}", float(number))
        assert len(breakers._breakers[FIRST].tenants) < 1000

    def test_behind_the_pause_one_is_let_through_to_see(self) -> None:
        breakers = self.broken()
        assert [breakers.allows(FIRST, "me", 130.0) for _ in range(3)] == [True, False, False]
        breakers.succeeded(FIRST, "me")
        assert all(breakers.allows(FIRST, "me", 130.0) for _ in range(3))

    def test_when_that_one_fails_the_pause_begins_anew(self) -> None:
        breakers = self.broken()
        assert breakers.allows(FIRST, "me", 130.0)
        breakers.failed(FIRST, "me", 140.0)
        assert not breakers.allows(FIRST, "me", 169.9)
        assert breakers.allows(FIRST, "me", 170.0)

    def test_when_that_one_never_tells_another_is_let_through_later(self) -> None:
        breakers = self.broken()
        assert breakers.allows(FIRST, "me", 130.0)
        assert not breakers.allows(FIRST, "me", 159.9)
        assert breakers.allows(FIRST, "me", 160.0)

    def test_a_reload_changes_what_it_takes(self) -> None:
        breakers = Breakers(self.SETTINGS)
        breakers.settings = Retries(breaker_failures=1, breaker_seconds=5.0)
        breakers.failed(FIRST, "me", 100.0)
        assert breakers.opens_in(FIRST, "me", 100.0) == 5.0
        assert breakers.opens_in("second", "me", 100.0) == 0.0

    @pytest.mark.parametrize(
        ("told", "broken"),
        [
            (problem(500, "server"), True),
            (problem(503, "overloaded"), True),
            (problem(429, "overloaded"), True),
            (problem_of(UpstreamUnreachable("gone")), True),
            (problem_of(UpstreamStalled("silent")), True),
            (problem(429, "rate_limit"), False),
            (problem(408, "timeout"), False),
            (problem(401, "authentication"), False),
            (problem(400, "invalid_request"), False),
            (problem(503, "quota"), False),
        ],
        ids=lambda value: f"{value.status} {value.kind}" if isinstance(value, Problem) else "",
    )
    def test_only_failures_of_the_host_count(self, told: Problem, broken: bool) -> None:
        breakers = Breakers(self.SETTINGS)
        for _ in range(5):
            tries_for(attempts(1, breakers=breakers), told)
        assert breakers.allows(FIRST, "me", 0.0) is not broken

    def test_a_refused_request_shows_that_the_host_is_well_again(self) -> None:
        breakers = self.broken()
        tries_for(attempts(1, breakers=breakers), problem(400, "invalid_request"), now=130.0)
        assert all(breakers.allows(FIRST, "me", 130.0) for _ in range(3))

    def test_a_provider_that_is_left_alone_is_passed_over(self) -> None:
        tries = attempts(breakers=self.broken())
        attempt = tries.next(100.0)
        assert attempt is not None
        assert attempt.target.provider.name == "second"
        tries.succeeded(attempt)

    def test_tries_end_when_the_breaker_closes_in_between(self) -> None:
        names = [name for name, _ in tries_for(attempts(retries=Retries(attempts=9, breaker_failures=2)), SERVER)]
        assert names == ["first", "first", "second", "second"]

    def test_when_nobody_may_be_asked_the_client_is_told_how_long_to_wait(self) -> None:
        breakers = self.broken()
        for _ in range(3):
            breakers.failed(breaker_name(TARGETS[1]), "me", 90.0)
        tries = attempts(breakers=breakers)
        assert tries.next(100.0) is None
        told = tries.unavailable(100.0)
        assert (told.status, told.kind, told.retry_after) == (503, "overloaded", 20.0)
        assert "first, second" in told.message
        assert tries.unavailable(1000.0).retry_after == 1.0

    def test_one_model_that_fails_leaves_the_others_of_its_provider_alone(self) -> None:
        breakers = self.broken()
        assert not breakers.allows(FIRST, "me", 100.0)
        assert breakers.allows("first/kimi-k2.6", "me", 100.0)
        assert breakers.is_open("first", 100.0)
        assert not breakers.is_open("second", 100.0)

    def test_models_that_are_asked_for_no_more_are_forgotten(self) -> None:
        breakers = self.broken()
        for number in range(10_000):
            assert breakers.allows(f"second/{number}", "me", float(number))
        assert len(breakers._breakers) < 1000
