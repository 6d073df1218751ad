"""The table `exchanges` -> what was used and what it cost, by key, session, model, provider, client or day."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock
from typing import Any, Final, Literal, TypeAlias, get_args

from msgspec import Struct, field

from moonshim.usage.budgets import BudgetState
from moonshim.usage.cost import decimal_text

__all__ = [
    "GROUPINGS",
    "Grouping",
    "UsageReport",
    "UsageRow",
    "as_document",
    "build_report",
    "cost_share",
    "parse_time",
    "read_groups",
    "summarize",
]

Grouping: TypeAlias = Literal["key", "session", "model", "provider", "client", "day"]
GROUPINGS: Final[tuple[Grouping, ...]] = get_args(Grouping)

_COUNTED: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "reasoning_tokens",
    "searches",
    "unpriced_searches",
)
_DAY: Final = "strftime('%Y-%m-%d', started / 1000, 'unixepoch')"
_PERIOD: Final = re.compile(r"([1-9][0-9]{0,4})(min|h|d|w|mo|y)", re.ASCII)
_UNITS: Final = {
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
    "mo": timedelta(days=30),
    "y": timedelta(days=365),
}
"""Not `m`: it could be either."""
_MOST_REASONS: Final = 100
_SHOWN_REASONS: Final = 5
_PAUSE: Final = "TTL: "
_PAUSED: Final = "TTL: the pause was too long"
_HALF: Final = 32
"""Sums are built from halves of this many bits: SQLite's own would fail above 2^63."""


class UsageRow(Struct, kw_only=True):
    """The exchanges of one group, or of all."""

    name: str | None = None
    """None: they have no key, session or model; or it is the total."""
    requests: int = 0
    in_flight: int = 0
    """Requests whose process was killed before they ended: their tokens are unknown."""
    estimated: int = 0
    """Requests some of whose counts are estimates."""
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    reasoning_tokens: int = 0
    searches: int = 0
    """Web searches that the gateway or a host ran."""
    unpriced_searches: int = 0
    """Those that no cost contains, since their price is unknown."""
    costs: dict[str, int] = field(default_factory=dict)
    """By currency, in units of `COST_UNITS`."""
    unpriced: int = 0
    """Requests whose cost is unknown."""
    cache_lost: int = 0
    """Requests for which the host could not use its prompt cache, though it could before."""
    losses: dict[str, int] = field(default_factory=dict)
    """How many of them by reason; of very many reasons, the most frequent."""
    first: int = 0
    last: int = 0
    """When the first and the last of them started, in milliseconds since 1970."""

    def add(self, other: UsageRow) -> None:
        for name in ("requests", "in_flight", "estimated", "unpriced", "cache_lost", *_COUNTED):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for currency, cost in other.costs.items():
            self.costs[currency] = self.costs.get(currency, 0) + cost
        for reason, count in other.losses.items():
            self.losses[reason] = self.losses.get(reason, 0) + count
        if len(self.losses) > 2 * _MOST_REASONS:
            self.losses = dict(_most_frequent(self.losses)[:_MOST_REASONS])
        self.first = min(filter(None, (self.first, other.first)), default=0)
        self.last = max(self.last, other.last)


class UsageReport(Struct, frozen=True, kw_only=True):
    """The groups, the most expensive first, days in their order; and their total."""

    by: Grouping
    since: int | None
    until: int | None
    rows: list[UsageRow]
    total: UsageRow
    unpriced: dict[str, int] = {}
    """Requests that have ended and whose cost is unknown, by `provider/model`; the most frequent first."""


def summarize(
    connection: sqlite3.Connection,
    *,
    by: Grouping = "day",
    since: int | None = None,
    until: int | None = None,
    key: str | None = None,
) -> UsageReport:
    """What was used from `since` until before `until` (milliseconds since 1970), by one key or by all."""
    group = _DAY if by == "day" else f"nullif(\"{by}\", '')"
    found = read_groups(connection, (group, "provider", "model"), since=since, until=until, key=key)
    groups = ((name, f"{provider}/{model}", row) for (name, provider, model), row in found)
    return build_report(groups, by=by, since=since, until=until)


def read_groups(
    connection: sqlite3.Connection,
    groups: Sequence[str],
    *,
    since: int | None = None,
    until: int | None = None,
    key: str | None = None,
) -> Iterator[tuple[tuple[str | None, ...], UsageRow]]:
    """The sums of exchanges that agree in these SQL expressions. Several rows can belong to one group."""
    sums = [f"sum({column} >> {_HALF}), sum({column} & {2**_HALF - 1})" for column in (*_COUNTED, "cost")]
    conditions = {"started >= ?": since, "started < ?": until, '"key" = ?': key}
    given = {condition: value for condition, value in conditions.items() if value is not None}
    places = ", ".join(str(place) for place in range(1, len(groups) + 3))
    query = (
        f"SELECT {', '.join(groups)}, currency, cost IS NULL, count(*), sum(state <> 'settled'), sum(estimated),"
        f" sum(prefix_lost IS NOT NULL), min(started), max(started), {', '.join(sums)} FROM exchanges"
        f" WHERE {' AND '.join(given) or '1'}"
        f" GROUP BY {places}"
    )
    for found in connection.execute(query, list(given.values())):
        yield found[: len(groups)], _part(found[len(groups) :])
    query = (
        f"SELECT {', '.join(groups)}, prefix_lost, count(*) FROM exchanges"
        f" WHERE {' AND '.join(['prefix_lost IS NOT NULL', *given])} GROUP BY {places.rpartition(', ')[0]}"
    )
    for *names, reason, count in connection.execute(query, list(given.values())):
        yield tuple(names), UsageRow(losses={_in_general(reason): count})


def _in_general(reason: str) -> str:
    """A reason without what differs each time: the length of a pause.

    >>> _in_general("tools[1] changed; TTL: 12 min since the previous request, longer than 5m")
    'tools[1] changed'
    """
    return _PAUSED if reason.startswith(_PAUSE) else reason.partition(f"; {_PAUSE}")[0]


def _most_frequent(counts: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def build_report(
    groups: Iterable[tuple[str | None, str, UsageRow]], *, by: Grouping, since: int | None, until: int | None
) -> UsageReport:
    """Add up the rows of each group: its name, the `provider/model` of the row, and the row."""
    rows: dict[str | None, UsageRow] = {}
    total, unpriced = UsageRow(), dict[str, int]()
    for name, model, row in groups:
        if (count := row.unpriced - row.in_flight) > 0:
            unpriced[model] = unpriced.get(model, 0) + count
        rows.setdefault(name, UsageRow(name=name)).add(row)
        total.add(row)
    return UsageReport(
        by=by,
        since=since,
        until=until,
        rows=_in_order(rows.values(), by, total),
        total=total,
        unpriced=dict(_most_frequent(unpriced)),
    )


def _part(found: tuple[Any, ...]) -> UsageRow:
    currency, unpriced, requests, in_flight, estimated, cache_lost, first, last, *halves = found
    sums = [((high or 0) << _HALF) + (low or 0) for high, low in zip(halves[::2], halves[1::2], strict=True)]
    counted: dict[str, Any] = dict(zip(_COUNTED, sums, strict=False))
    return UsageRow(
        name=None,
        requests=requests,
        in_flight=in_flight,
        estimated=estimated or 0,
        costs={} if unpriced or currency is None else {currency: sums[-1]},  # without a currency: no tokens, no cost
        unpriced=requests if unpriced else 0,
        cache_lost=cache_lost,
        first=first,
        last=last,
        **counted,
    )


def _in_order(rows: Iterable[UsageRow], by: Grouping, total: UsageRow) -> list[UsageRow]:
    if by == "day":
        return sorted(rows, key=lambda row: row.name or "")
    return sorted(
        rows, key=lambda row: (-cost_share(row, total), -row.input_tokens - row.output_tokens, row.name or "")
    )


def cost_share(row: UsageRow, total: UsageRow) -> int:
    """The part of the total cost, in units of 2^-64; of several currencies, the largest part: they have no sum."""
    return max(((cost << 64) // total.costs[one] for one, cost in row.costs.items() if total.costs[one]), default=0)


def as_document(
    report: UsageReport, budgets: Iterable[BudgetState] = (), *, limit: int | None = None
) -> dict[str, Any]:
    """The report as JSON. Costs are strings with every digit: a float would round them."""
    rows = report.rows if limit is None else report.rows[:limit]
    return {
        "object": "usage",
        "by": report.by,
        "since": _moment(report.since),
        "until": _moment(report.until),
        "data": [{"name": row.name} | _fields(row) for row in rows],
        "has_more": len(rows) < len(report.rows),
        "total": _fields(report.total),
        "cost_unknown_models": list(report.unpriced),
        "cache_lost_reasons": [
            {"reason": reason, "requests": count}
            for reason, count in _most_frequent(report.total.losses)[:_SHOWN_REASONS]
        ],
        "budgets": [state.to_json() for state in budgets],
    }


def _fields(row: UsageRow) -> dict[str, Any]:
    return {
        "requests": row.requests,
        "in_flight": row.in_flight,
        "estimated": row.estimated,
        **{name: getattr(row, name) for name in _COUNTED},
        "costs": {currency: decimal_text(cost) for currency, cost in sorted(row.costs.items())},
        "cost_unknown": row.unpriced,
        "cache_lost": row.cache_lost,
        "first": _moment(row.first or None),
        "last": _moment(row.last or None),
    }


def _moment(milliseconds: int | None) -> str | None:
    if milliseconds is None:
        return None
    return datetime.fromtimestamp(milliseconds // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str, now: datetime, *, is_end: bool = False) -> int:
    """A period before now, a date or a time -> milliseconds since 1970. Without a time zone it is UTC. A date is the
    start of the day; with `is_end`, its end. Raises `ValueError`.

    >>> now = datetime(2026, 11, 16, 12, tzinfo=UTC)
    >>> parse_time("7d", now) == parse_time("2026-11-09T12:00Z", now) == parse_time("2026-11-09T13:00+01:00", now)
    True
    >>> parse_time("2026-11-09", now, is_end=True) == parse_time("2026-11-10", now)
    True
    """
    text = text.strip()
    try:
        if period := _PERIOD.fullmatch(text):
            moment = now - int(period[1]) * _UNITS[period[2]]
        elif len(text) == len("2026-12-31"):
            moment = datetime.combine(date.fromisoformat(text), clock.min, UTC) + timedelta(days=is_end)
        else:
            moment = datetime.fromisoformat(text)
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        # With its offset, it may be outside the years 1 to 9999, which cannot be shown.
        return int(moment.astimezone(UTC).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ValueError(
            "expected a period (30min, 12h, 7d, 2w, 3mo, 1y), a date (2026-12-31) or a time (2026-12-31T18:00Z)"
        ) from None
