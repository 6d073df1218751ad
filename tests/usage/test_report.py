"""Reports: what was used and what it cost, in groups that add up to the total."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from moonshim.usage.record import COST_UNITS, UsageRecord
from moonshim.usage.report import GROUPINGS, UsageReport, as_document, parse_time, summarize
from tests.usage.books import DAY, NOON, books, record


def report(records: list[UsageRecord], **options: Any) -> UsageReport:
    database = books(None, records)
    try:
        return database.run(lambda connection: summarize(connection, **options))
    finally:
        database.close()


MIXED = [
    record(1, cache_read_tokens=600, cache_write_tokens=300, cache_write_1h_tokens=200, reasoning_tokens=40),
    record(2, key="bob", session="s2", model="kimi-k2.6", cost=COST_UNITS * 2, started=NOON - DAY),
    record(3, key="bob", session="s2", cost=COST_UNITS, currency="¥", provider="china", estimated=True),
    record(4, key=None, session=None, client="curl", cost=None, currency=None, model="kimi-for-coding"),
    record(5, state="in_flight", input_tokens=None, output_tokens=None, cost=None, currency=None),
]


def test_every_grouping_adds_up_to_the_same_total() -> None:
    totals = []
    for by in GROUPINGS:
        found = report(MIXED, by=by)
        assert sum(row.requests for row in found.rows) == len(MIXED), by
        totals.append(found.total)
    assert all(total == totals[0] for total in totals)
    total = totals[0]
    assert (total.input_tokens, total.output_tokens, total.reasoning_tokens) == (4000, 400, 40)
    assert (total.cache_read_tokens, total.cache_write_tokens, total.cache_write_1h_tokens) == (600, 300, 200)
    assert (total.in_flight, total.estimated, total.unpriced) == (1, 1, 2)
    assert (total.first, total.last) == (NOON - DAY, NOON + 5)


def test_currencies_are_not_added_up() -> None:
    (bob,) = [row for row in report(MIXED, by="key").rows if row.name == "bob"]
    assert bob.costs == {"$": 2 * COST_UNITS, "¥": COST_UNITS}


def test_unknown_costs_are_counted_and_not_zero() -> None:
    rows = {row.name: row for row in report(MIXED, by="key").rows}
    assert (rows[None].costs, rows[None].unpriced) == ({}, 1)
    assert (rows["alice"].costs, rows["alice"].unpriced) == ({"$": COST_UNITS // 2}, 1)


def test_models_without_a_price_are_named() -> None:
    other = record(6, provider="slow", cost=None, currency=None)
    assert report([*MIXED, other], by="day").unpriced == {"moonshot/kimi-for-coding": 1, "slow/kimi-k3": 1}


def test_lost_prefixes_are_counted_with_their_reasons() -> None:
    reasons = ["tools[12] changed", "TTL: 12 min since the previous request, longer than 5m", None]
    reasons += ["TTL: 7.0 min since the previous request, longer than 5m", "system changed; TTL: 12 min since"]
    found = report([record(n, prefix_lost=reason) for n, reason in enumerate(reasons)], by="model")
    document = as_document(found)
    assert document["data"][0]["cache_lost"] == document["total"]["cache_lost"] == 4
    assert document["cache_lost_reasons"] == [
        {"reason": "TTL: the pause was too long", "requests": 2},
        {"reason": "system changed", "requests": 1},
        {"reason": "tools[12] changed", "requests": 1},
    ]
    assert found.total.first == NOON


def test_currencies_are_always_in_the_same_order() -> None:
    for by in GROUPINGS:
        assert list(as_document(report(MIXED, by=by))["total"]["costs"]) == ["$", "¥"], by


def test_a_free_request_has_a_known_cost() -> None:
    (row,) = report([record(1, cost=0)]).rows
    assert (row.costs, row.unpriced) == ({"$": 0}, 0)


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("key", ["bob", "alice", None]),
        ("session", ["s2", "s1", None]),
        ("model", ["kimi-k3", "kimi-k2.6", "kimi-for-coding"]),  # all of ¥, most of $, nothing that is known
        ("provider", ["moonshot", "china"]),
        ("client", ["claude-code", "curl"]),
        ("day", ["2026-11-15", "2026-11-16"]),
    ],
)
def test_the_most_expensive_comes_first_and_days_in_their_order(by: Any, names: list[str | None]) -> None:
    assert [row.name for row in report(MIXED, by=by).rows] == names


def test_a_period_starts_at_since_and_ends_before_until() -> None:
    times = [record(n, started=NOON + n * 1000) for n in range(5)]
    assert report(times, since=NOON + 1000, until=NOON + 3000).total.requests == 2
    assert report(times, since=NOON + 9000).rows == []


def test_one_key_only() -> None:
    found = report(MIXED, by="model", key="bob")
    assert found.total.requests == 2
    assert report(MIXED, key="' OR 1=1 --").total.requests == 0


def test_sums_are_exact_beyond_what_a_database_adds_up() -> None:
    most = 2**63 - 1
    huge = [record(n, cost=most, input_tokens=most, started=NOON) for n in range(3)]
    (row,) = report(huge).rows
    assert row.costs == {"$": 3 * most}
    assert row.input_tokens == 3 * most


def test_a_document_has_every_digit_of_a_cost() -> None:
    found = report([record(1, cost=1), record(2, cost=COST_UNITS)], by="model", since=NOON, until=NOON + DAY)
    document = as_document(found)
    assert document["data"] == [{"name": "kimi-k3"} | document["total"]]
    assert document["total"]["costs"] == {"$": "1.000000000001"}
    assert (document["since"], document["until"]) == ("2026-11-16T12:00:00Z", "2026-11-17T12:00:00Z")
    assert document["total"]["first"] == "2026-11-16T12:00:00Z"


def test_a_document_can_be_cut_and_its_total_is_whole() -> None:
    found = report([record(n, session=f"s{n}") for n in range(5)], by="session")
    document = as_document(found, limit=2)
    assert (len(document["data"]), document["has_more"], document["total"]["requests"]) == (2, True, 5)
    assert as_document(found, limit=5)["has_more"] is False


NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("12h", NOW - timedelta(hours=12)),
        ("7d", NOW - timedelta(days=7)),
        ("2w", NOW - timedelta(days=14)),
        ("30min", NOW - timedelta(minutes=30)),
        ("1mo", NOW - timedelta(days=30)),
        ("2026-11-01", datetime(2026, 11, 1, tzinfo=UTC)),
        (" 2026-11-01T18:00 ", datetime(2026, 11, 1, 18, tzinfo=UTC)),
        ("2026-11-01T18:00:00+02:00", datetime(2026, 11, 1, 18, tzinfo=timezone(timedelta(hours=2)))),
    ],
)
def test_times(text: str, moment: datetime) -> None:
    assert parse_time(text, NOW) == moment.timestamp() * 1000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "30m",
        "d",
        "0d",
        "-7d",
        "99999y",
        "2026-13-01",
        "2026-11-31",
        "yesterday",
        "\uff17d",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
    ],
)
def test_what_is_not_a_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a period"):
        parse_time(text, NOW)
