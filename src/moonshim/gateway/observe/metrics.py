"""Finished requests and gateway events -> numbers that Prometheus scrapes at /metrics."""

from __future__ import annotations

import math
import os
from typing import Any, Final

from moonshim.engine.formats import is_kimi_model, kimi_generation
from moonshim.gateway.observe import logs
from moonshim.gateway.observe.record import RequestRecord

__all__ = ["Metrics", "model_family"]

_DURATIONS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_FIRST_BYTES: Final = (0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 60, 120, 600)
_PROBES: Final = frozenset({"/", "/health", "/ready", "/metrics"})
"""Polled by machines every few seconds: not counted as requests."""
_NONE: Final = "none"
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
            "request_seconds", "From the request to the end of the response", _DURATIONS, "dialect", "provider"
        )
        self._first_byte = histogram(
            "first_byte_seconds",
            "From the request to the first byte of the response",
            _FIRST_BYTES,
            "dialect",
            "provider",
        )
        self._tokens = counter("tokens", "Tokens as counted by the hosts", "provider", "model", "direction")
        self._repairs = counter("repairs", "Repairs of responses", "rule")
        self._changes = counter("changes", "Changes of requests", "rule")
        self._retries = counter("retries", "Attempts that failed before the host answered", "provider")
        self._store_failures = counter("store_failures", "Store operations that failed", "operation")
        self._reloads = counter("reloads", "Reloads of the configuration", "result")
        self._open = gauge("requests_open", "Requests in progress", together="livesum")
        self._breakers = gauge(
            "breaker_open", "1 while the circuit breaker of a provider is open", "provider", together="livemax"
        )
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
            if tokens and 0 < tokens <= _MOST:
                self._child(self._tokens, provider, model, direction).inc(tokens)
        for rule, count in record.repairs.items():
            self._child(self._repairs, rule).inc(count)
        for rule, count in record.changes.items():
            self._child(self._changes, rule).inc(count)
        for operation in record.store_failures:
            self._child(self._store_failures, operation).inc()

    def count_retry(self, provider: str) -> None:
        """Count a host that failed before any of its response was sent."""
        self._child(self._retries, provider).inc()

    def set_breaker(self, provider: str, *, is_open: bool) -> None:
        self._child(self._breakers, provider).set(1 if is_open else 0)

    def count_reload(self, succeeded: bool) -> None:
        self._child(self._reloads, "loaded" if succeeded else "rejected").inc()

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
