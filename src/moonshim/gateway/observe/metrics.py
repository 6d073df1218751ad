"""Finished requests and gateway events -> numbers that Prometheus scrapes at /metrics."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any, Final

from moonshim.engine.formats import is_kimi_model, kimi_generation
from moonshim.engine.values.verdicts import Verdict
from moonshim.gateway.observe import logs
from moonshim.gateway.observe.record import RequestRecord
from moonshim.usage.budgets import BudgetState
from moonshim.usage.record import COST_UNITS, UsageRecord

__all__ = ["MOST_KEYS", "Metrics", "model_family"]

_DURATIONS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_FIRST_BYTES: Final = (0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 60, 120, 600)
_PROBES: Final = frozenset({"/", "/health", "/ready", "/metrics"})
"""Polled by machines every few seconds: not counted as requests."""
_NONE: Final = "none"
MOST_KEYS: Final = 500
_MOST: Final = 2**53
"""Larger values are implausible, and would make a float counter lose precision."""


class Metrics:
    """Counts what the gateway does. `render` covers all workers, whichever of them serves the scrape.

    With several workers, each writes to its own file in PROMETHEUS_MULTIPROC_DIR, which the supervisor sets, and
    `render` sums them up: a dead worker's counters still count, its gauges do not. Label values come from small fixed
    sets, never from client input.
    """

    content_type: Final = b"text/plain; version=0.0.4; charset=utf-8"

    def __init__(self) -> None:
        # Imported here, not above: at import time the library chooses between memory and files by the environment.
        import prometheus_client as prometheus

        self._registry = registry = prometheus.CollectorRegistry()
        self._several = bool(os.environ.get("PROMETHEUS_MULTIPROC_DIR"))
        if not self._several:
            prometheus.ProcessCollector(registry=registry)

        def counter(name: str, text: str, *labels: str) -> Any:
            return prometheus.Counter(f"moonshim_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str, together: Any) -> Any:
            return prometheus.Gauge(f"moonshim_{name}", text, labels, registry=registry, multiprocess_mode=together)

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Any:
            return prometheus.Histogram(f"moonshim_{name}", text, labels, buckets=buckets, registry=registry)

        self._requests = counter("requests", "Finished requests", "dialect", "provider", "model", "status", "outcome")
        self._seconds = histogram(
            "request_seconds",
            "Time from the request to the end of the response, in seconds",
            _DURATIONS,
            "dialect",
            "provider",
        )
        self._first_byte = histogram(
            "first_byte_seconds",
            "Time from the request to the first byte of the response, in seconds",
            _FIRST_BYTES,
            "dialect",
            "provider",
        )
        self._tokens = counter("tokens", "Tokens, as reported by the providers", "provider", "model", "direction")
        self._used_tokens = counter("usage_tokens", "Tokens as booked, including estimates", "key", "model", "kind")
        self._cost = counter(
            "cost", "Cost of requests whose price is known, in units of its currency", "key", "model", "currency"
        )
        self._unpriced = counter("cost_unknown", "Requests that used tokens whose cost is unknown", "key", "model")
        self._routes = counter("routes", "Requests that could be routed, by the route used", "route")
        self._repairs = counter("repairs", "Repairs made to responses", "rule")
        self._changes = counter("changes", "Changes made to requests", "rule")
        self._retries = counter(
            "retries", "Attempts that failed before any of the response was sent to the client", "provider"
        )
        self._errors = counter("errors", "Requests that ended in an error", "provider", "blame")
        self._asked_again = counter(
            "asked_again", "Answers that failed because of what the model wrote", "provider", "reason", "outcome"
        )
        self._asked_again_tokens = counter(
            "asked_again_tokens", "Tokens of answers that were replaced by a second one", "provider", "direction"
        )
        self._searches = counter("searches", "Web searches that the gateway ran", "provider", "outcome")
        self._judged = counter("judged_calls", "Calls that Claude Code asked about", "outcome", "reason")
        self._store_failures = counter("store_failures", "Failed store operations", "operation")
        self._reloads = counter("reloads", "Configuration reloads", "result")
        self._restarts = counter("worker_restarts", "Workers that were replaced", "reason")
        self._open = gauge("requests_open", "Requests in progress", together="livesum")
        self._breakers = gauge(
            "breaker_open", "1 while a provider's circuit breaker is open, otherwise 0", "provider", together="livemax"
        )
        self._budgets = gauge(
            "budget_used_ratio",
            "Used part of a key's budgets, 1 when one is used up; the highest of several",
            "key",
            "period",
            together="livemostrecent",
        )
        self._budget_keys: set[str] = set()
        self._open.set(0)
        self._children: dict[tuple[Any, ...], Any] = {}
        self._failed = False

    def count_started(self, record: RequestRecord) -> None:
        """Count a request that has just arrived; `observe` ends it."""
        if record.path not in _PROBES:
            self._open.inc()

    def observe(self, record: RequestRecord) -> None:
        """Count a finished request. Never raises: values that cannot be counted are skipped."""
        if record.path in _PROBES:
            return
        self._open.dec()
        try:
            self._count(record)
        except Exception as error:  # the response is out, but its log line is still to come
            if not self._failed:
                self._failed = True
                logs.log_error(record, error)

    def _count(self, record: RequestRecord) -> None:
        provider, dialect = record.provider or _NONE, record.dialect
        model = model_family(record.model or record.requested_model)
        self._child(self._requests, dialect, provider, model, str(record.status), record.outcome).inc()
        for histogram, seconds in ((self._seconds, record.seconds), (self._first_byte, record.first_byte_seconds)):
            # A clock that was set back would give negative durations.
            if seconds is not None and math.isfinite(seconds):
                self._child(histogram, dialect, provider).observe(max(0.0, seconds))
        for direction, tokens in (
            ("input", record.input_tokens),
            ("output", record.output_tokens),
            ("cached", record.cached_tokens),
        ):
            if tokens and 0 < tokens <= _MOST and not record.estimated:
                self._child(self._tokens, provider, model, direction).inc(tokens)
        if record.blame is not None:
            self._child(self._errors, provider, record.blame).inc()
        if record.asked_again is not None:
            self._count_asked_again(record, provider)
        for used, is_listed in record.booked_earlier:
            self._count_usage(used, used.model if is_listed else model_family(used.model))
        if record.booked is not None:
            self._count_usage(record.booked, record.booked.model if record.is_listed else model)
        if record.route is not None:
            self._child(self._routes, record.route).inc()
        for rule, count in record.repairs.items():
            self._child(self._repairs, rule).inc(count)
        for rule, count in record.changes.items():
            self._child(self._changes, rule).inc(count)
        for operation in record.store_failures:
            self._child(self._store_failures, operation).inc()

    def _count_asked_again(self, record: RequestRecord, provider: str) -> None:
        outcome = "limited" if record.is_ask_again_limited else "failed" if record.blame is not None else "answered"
        self._child(self._asked_again, provider, record.asked_again or "", outcome).inc()
        tokens = record.asked_again_tokens
        for direction, count in (("input", tokens.input_tokens), ("output", tokens.output_tokens)):
            if count and 0 < count <= _MOST:
                self._child(self._asked_again_tokens, provider, direction).inc(count)

    def _count_usage(self, used: UsageRecord, model: str) -> None:
        """Keys and listed models come from the configuration, so that their number is bounded."""
        key = used.key or _NONE
        for kind, tokens in (
            ("input", used.input_tokens),
            ("output", used.output_tokens),
            ("cache_read", used.cache_read_tokens),
            ("cache_write", used.cache_write_tokens),
            ("reasoning", used.reasoning_tokens),
        ):
            if tokens and 0 < tokens <= _MOST:
                self._child(self._used_tokens, key, model, kind).inc(tokens)
        if used.cost is None:
            self._child(self._unpriced, key, model).inc()
        elif used.currency is not None:
            self._child(self._cost, key, model, used.currency).inc(used.cost / COST_UNITS)

    def count_retry(self, provider: str) -> None:
        """Count a host that failed before any of its response was sent."""
        self._child(self._retries, provider).inc()

    def count_search(self, provider: str, outcome: str) -> None:
        """Count a web search: `ok`, or why it failed."""
        self._child(self._searches, provider, outcome).inc()

    def count_judged(self, verdict: Verdict) -> None:
        """Count a verdict about a call."""
        self._child(self._judged, verdict.outcome, verdict.reason).inc()

    def observe_judge(self, record: RequestRecord) -> None:
        """Count what a request to the judge used. It is no request of a client."""
        model = model_family(record.model or record.requested_model)
        for used in (*(one for one, _ in record.booked_earlier), *([record.booked] if record.booked else ())):
            self._count_usage(used, used.model if record.is_listed else model)

    def set_breaker(self, provider: str, *, is_open: bool) -> None:
        self._child(self._breakers, provider).set(1 if is_open else 0)

    def count_unsaved_usage(self, records: int) -> None:
        """Count records that could not be written to the usage books when they were due."""
        self._child(self._store_failures, "usage").inc(records)

    def set_budgets(self, states: Sequence[BudgetState]) -> None:
        """Show budgets. Only those of the first keys are shown: there may be very many."""
        ratios: dict[tuple[str, str], float] = {}
        for state in states:
            place = state.counter.key, state.budget.period
            ratios[place] = max(ratios.get(place, 0.0), state.ratio)
        for (key, period), ratio in ratios.items():
            if key in self._budget_keys or len(self._budget_keys) < MOST_KEYS:
                self._budget_keys.add(key)
                self._child(self._budgets, key, period).set(ratio)

    def count_reload(self, succeeded: bool) -> None:
        self._child(self._reloads, "loaded" if succeeded else "rejected").inc()

    def count_worker_restart(self, reason: str) -> None:
        """Count the worker that this process replaces."""
        self._child(self._restarts, reason).inc()

    def render(self) -> bytes:
        """The text exposition format for Prometheus."""
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.multiprocess import MultiProcessCollector

        if not self._several:
            return generate_latest(self._registry)
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)

    def _child(self, metric: Any, *labels: str) -> Any:
        """The metric with these labels; looking it up in the library costs as much as counting does."""
        key = (metric, *labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = metric.labels(*labels)
        return child


def model_family(model: str) -> str:
    """A label value for the model, from a fixed set that clients cannot extend.

    >>> [model_family(name) for name in ("moonshotai/Kimi-K2.5", "k3", "kimi-latest", "gpt-9", "")]
    ['kimi-k2', 'kimi-k3', 'kimi', 'other', 'none']
    """
    if not model:
        return _NONE
    if generation := kimi_generation(model):
        return f"kimi-{generation}"
    return "kimi" if is_kimi_model(model) else "other"
