"""Finished requests -> four charts: requests, time to first token, repairs by rule, errors by provider.

Counted per minute for a day, in bounded memory: times of a minute are a sample.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct, field

from moonshim.gateway.observe.record import RequestRecord

__all__ = ["MinuteCounts", "MinuteStatistics", "charts"]

MINUTES: Final = 24 * 60
_SAMPLES: Final = 60
_NAMES: Final = 40
"""Rules or providers that one minute counts; the table of rules is larger, but no minute has all."""
_SERIES: Final = 7
_BARS: Final = 48


class MinuteCounts(Struct):
    """What happened in one minute."""

    ok: int = 0
    failed: int = 0
    first_token_ms: list[float] = field(default_factory=list)
    repairs: dict[str, int] = field(default_factory=dict)
    providers: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Requests and failed requests."""


class MinuteStatistics:
    """The last day, by minute since 1970."""

    def __init__(self) -> None:
        self.minutes: OrderedDict[int, MinuteCounts] = OrderedDict()

    def add(self, record: RequestRecord) -> None:
        minute = int(record.started // 60)
        counts = self.minutes.get(minute)
        if counts is None:
            counts = self.minutes[minute] = MinuteCounts()
            while len(self.minutes) > MINUTES:
                self.minutes.popitem(last=False)
        failed = record.outcome not in ("ok", "client_gone")
        if failed:
            counts.failed += 1
        else:
            counts.ok += 1
        if record.first_byte_seconds is not None and len(counts.first_token_ms) < _SAMPLES:
            counts.first_token_ms.append(record.first_byte_seconds * 1000)
        for rule, count in record.repairs.items():
            if rule in counts.repairs or len(counts.repairs) < _NAMES:
                counts.repairs[rule] = counts.repairs.get(rule, 0) + count
        if record.provider is not None and (record.provider in counts.providers or len(counts.providers) < _NAMES):
            requests, failures = counts.providers.get(record.provider, (0, 0))
            counts.providers[record.provider] = requests + 1, failures + failed


def charts(workers: Sequence[dict[int, MinuteCounts]], *, minutes: int, now: float) -> dict[str, Any]:
    """The charts of the last `minutes`, of all workers together."""
    size = max(1, minutes // _BARS)
    last = int(now // 60) // size
    first = last - minutes // size + 1
    bars: list[list[MinuteCounts]] = [[] for _ in range(first, last + 1)]
    for worker in workers:
        for minute, counts in worker.items():
            if first <= minute // size <= last:
                bars[minute // size - first].append(counts)
    repairs = Counter[str]()
    names = dict.fromkeys(name for bar in bars for counts in bar for name in counts.providers)
    for bar in bars:
        for counts in bar:
            repairs.update(counts.repairs)
    top = [rule for rule, _ in repairs.most_common(_SERIES)]

    def series(name: str, values: list[Any]) -> dict[str, Any]:
        return {"name": name, "values": values}

    rules = [series(rule, [sum(one.repairs.get(rule, 0) for one in bar) for bar in bars]) for rule in top]
    if len(repairs) > len(top):
        others = [sum(count for one in bar for rule, count in one.repairs.items() if rule not in top) for bar in bars]
        rules.append(series("others", others))
    return {
        "buckets": [(first + index) * size * 60_000 for index in range(len(bars))],
        "requests": [
            series("ok", [sum(one.ok for one in bar) for bar in bars]),
            series("failed", [sum(one.failed for one in bar) for bar in bars]),
        ],
        "latency": [
            series(name, [_percentile([ms for one in bar for ms in one.first_token_ms], part) for bar in bars])
            for name, part in (("median", 0.5), ("95 %", 0.95), ("99 %", 0.99))
        ],
        "repairs": rules,
        "errors": [series(name, [_error_rate(bar, name) for bar in bars]) for name in list(names)[: _SERIES + 1]],
    }


def _percentile(values: list[float], part: float) -> float | None:
    """
    >>> _percentile([30.0, 10.0, 20.0], 0.5), _percentile([], 0.5)
    (20.0, None)
    """
    if not values:
        return None
    return round(sorted(values)[min(len(values) - 1, int(len(values) * part))], 1)


def _error_rate(bar: list[MinuteCounts], provider: str) -> float | None:
    found = [one.providers[provider] for one in bar if provider in one.providers]
    requests = sum(one[0] for one in found)
    return round(sum(one[1] for one in found) / requests, 4) if requests else None
