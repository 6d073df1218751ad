"""Requests as they run -> spans by the GenAI conventions of OpenTelemetry, exported by a thread of their own.

A request is a SERVER span, and each attempt at a host is a CLIENT span below it. Tokens are on the latter only, so that
sums over all spans are right. Nothing here waits for the collector or raises.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Concatenate, Final, ParamSpec, TypeAlias
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from moonshim.config import OtelExport, Target, endpoint_of
from moonshim.engine.exchange import Exchange
from moonshim.engine.values.conversation import Usage
from moonshim.engine.values.events import Finished
from moonshim.errors import MoonshimError, Problem, problem_of
from moonshim.gateway.observe import logs
from moonshim.gateway.observe.otel_messages import input_messages, output_messages, tool_definitions
from moonshim.gateway.observe.record import RequestRecord
from moonshim.http_client import Take
from moonshim.usage.record import COST_UNITS

__all__ = ["FLUSH_SECONDS", "RequestSpans", "Telemetry"]

Attributes: TypeAlias = dict[str, Any]
Read: TypeAlias = Callable[[Take | None], Awaitable[bytes]]
_P = ParamSpec("_P")

FLUSH_SECONDS: Final = 5.0
"""How long a gateway that stops waits for its last spans to be sent."""
TRACES_PATH: Final = "/v1/traces"
_MOST_EVENTS: Final = 50
"""Of one kind, in one span; the library drops those over 128."""
_LONGEST: Final = 256
_HEAD_BYTES: Final = 64 * 1024
_TEXT_QUEUE: Final = 256
_TEXT_BATCH: Final = 32
"""Spans with text are large: the library's 2048 and 512 could be hundreds of megabytes."""
_LIBRARY: Final = logging.getLogger("opentelemetry")

_PROVIDERS: Final = {"moonshot": "moonshot_ai", "moonshot-anthropic": "moonshot_ai", "kimi-coding": "moonshot_ai"}
"""Well-known values of `gen_ai.provider.name`, by the name of the host profile; others keep their name."""
_PARAMETERS: Final = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "seed": "seed",
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
}
"""Numbers in a request, and their names after `gen_ai.request.`."""
_USAGE: Final = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cached_tokens": "cache_read.input_tokens",
    "cache_write_tokens": "cache_creation.input_tokens",
    "reasoning_tokens": "reasoning.output_tokens",
}
"""Fields of `Usage`, and their names after `gen_ai.usage.`."""
_SUMMED: Final = frozenset({"output_tokens", "reasoning_tokens"})
"""Those that an exchange counts over all its responses."""
_CODE: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_ID: Final = re.compile(rb'"id"\s*:\s*"([\w.:/-]{1,128})"', re.ASCII)
_MODEL: Final = re.compile(rb'"model"\s*:\s*"([\w.:/@+-]{1,128})"', re.ASCII)


def _never_raises(
    method: Callable[Concatenate[RequestSpans, _P], None],
) -> Callable[Concatenate[RequestSpans, _P], None]:
    """A fault in a span is logged once, and the request goes on."""

    def guarded(self: RequestSpans, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            self.telemetry.report_fault(self.record, error)

    return guarded


class Telemetry:
    """Creates spans and exports them. One for each process, with its own library objects: none is global."""

    def __init__(self, settings: OtelExport) -> None:
        self.text = settings.text
        self.propagator = TraceContextTextMapPropagator()
        endpoint = None if settings.endpoint is None else _traces_url(settings.endpoint)
        self._exporter = _ReportingExporter(OTLPSpanExporter(endpoint=endpoint, headers=settings.headers or None))
        queue, batch = (_TEXT_QUEUE, _TEXT_BATCH) if settings.text else (None, None)
        self._provider = TracerProvider(resource=_resource(settings), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter, queue, max_export_batch_size=batch))
        self.tracer: Tracer = self._provider.get_tracer("moonshim", version("moonshim"))
        self._faulty = False

    def start(self, record: RequestRecord, headers: Mapping[str, str]) -> None:
        """A request has come: `record.spans` is its span until it is over."""
        try:
            record.spans = RequestSpans(self, record, headers)
        except Exception as error:
            self.report_fault(record, error)

    def report_fault(self, record: RequestRecord, error: Exception) -> None:
        if not self._faulty:
            self._faulty = True
            logs.log_error(record, error)

    async def close(self) -> None:
        """Send what is left, for a bounded time."""
        loop = asyncio.get_running_loop()
        flushed = asyncio.Event()

        def flush() -> None:
            try:
                self._provider.shutdown()
            finally:
                self._exporter.close()
                if not loop.is_closed():
                    loop.call_soon_threadsafe(flushed.set)

        # Not in a thread of the loop's pool, for which the process would wait at its end.
        threading.Thread(target=flush, name="otel-flush", daemon=True).start()
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                await flushed.wait()
        except TimeoutError:
            logs.event("otel_flush_failed", level="warning", problem=f"some spans were not sent in {FLUSH_SECONDS:g} s")
            self._exporter.abort()


class RequestSpans:
    """The spans of one request: call `start_attempt` and `end_attempt` for each attempt, and `end` at the end."""

    def __init__(self, telemetry: Telemetry, record: RequestRecord, headers: Mapping[str, str]) -> None:
        self.telemetry, self.record = telemetry, record
        self._span = telemetry.tracer.start_span(
            f"POST {record.path}",
            telemetry.propagator.extract(headers),
            kind=SpanKind.SERVER,
            start_time=int(record.started * 1e9),
            attributes={"http.request.method": "POST", "http.route": record.path, "url.path": record.path},
        )
        self._context = set_span_in_context(self._span)
        self._attempt: Span | None = None
        self._attempt_started = 0.0
        self._before = Usage()
        self._repairs_before = 0
        """What an earlier attempt of the same exchange has reported."""

    # -- an attempt at a host --------------------------------------------------------

    @_never_raises
    def start_attempt(self, target: Target, exchange: Exchange, headers: dict[str, str]) -> None:
        """The request is about to be sent; the host gets this span as the parent of its own."""
        if self._attempt is not None:  # an empty response, which is followed by a second one in the same stream
            usage, repairs = exchange.usage or Usage(), len(exchange.stream.repairs)
            self.end_attempt(exchange, None)
            self._before, self._repairs_before = usage, repairs
        else:
            self._before, self._repairs_before = Usage(), 0
        provider, request = target.provider, exchange.parsed.request
        host = exchange.prepared.profile.host
        address = urlsplit(endpoint_of(provider))
        self._attempt_started = time.time()
        span = self._attempt = self.telemetry.tracer.start_span(
            f"chat {_clean(target.model)}",
            self._context,
            kind=SpanKind.CLIENT,
            attributes={
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": _PROVIDERS.get(host, provider.name if host == "generic" else host),
                "gen_ai.request.model": _clean(target.model),
                "server.address": address.hostname or "",
                "server.port": address.port or (443 if address.scheme == "https" else 80),
            },
        )
        for name in ("traceparent", "tracestate"):
            headers.pop(name, None)
        self.telemetry.propagator.inject(headers, set_span_in_context(span))
        if not span.is_recording():
            return
        _set(span, _request_attributes(exchange.prepared.body))
        _set(
            span,
            {
                "gen_ai.conversation.id": self.record.session,
                "gen_ai.output.type": _output_type(exchange),
                "http.request.method": "POST",
                "http.request.resend_count": self.record.attempts - 1 or None,
                "moonshim.provider": provider.name,
                "moonshim.changes": len(exchange.prepared.changes),
            },
        )
        if self.telemetry.text:
            _set(span, {"gen_ai.input.messages": input_messages(request.messages)}, longest=None)
            _set(span, {"gen_ai.tool.definitions": tool_definitions(request.tools) if request.tools else None}, None)
        for change in exchange.prepared.changes[:_MOST_EVENTS]:
            named = {"moonshim.rule": change.rule, "moonshim.place": change.place}
            self._add_event(span, "moonshim.change", named, change.detail)

    @_never_raises
    def set_status(self, status: int) -> None:
        """The host has answered."""
        if self._attempt is not None:
            self._attempt.set_attribute("http.response.status_code", status)

    def watch(self, read: Read) -> Read:
        """Find the id and the model in the beginning of a response, which a client gets under other names."""
        span, head = self._attempt, b""

        async def watched(take: Take | None = None) -> bytes:
            nonlocal span, head
            data = await read(take if span is None else None)
            if span is not None:
                head += data
                id, model = _ID.search(head), _MODEL.search(head)
                if (id and model) or len(head) > _HEAD_BYTES or not data:
                    for name, found in (("id", id), ("model", model)):
                        if found is not None:
                            span.set_attribute(f"gen_ai.response.{name}", found[1].decode())
                    span, head = None, b""
            return data

        return watched

    @_never_raises
    def end_attempt(self, exchange: Exchange, error: BaseException | None) -> None:
        """The attempt is over: with the host's response, as far as it came, and with the exception if there was one."""
        span, self._attempt = self._attempt, None
        if span is None:
            return
        try:
            if span.is_recording():
                self._describe(span, exchange, error)
        finally:
            span.end()

    def _describe(self, span: Span, exchange: Exchange, error: BaseException | None) -> None:
        ending, first = exchange.ending, self.record.first_byte_seconds
        _set(span, _usage_attributes(exchange.usage, self._before))
        if isinstance(ending, Finished):
            span.set_attribute("gen_ai.response.finish_reasons", [_clean(ending.reason)])
            if self.telemetry.text:
                messages = output_messages(exchange.message, ending.reason)
                span.set_attribute("gen_ai.output.messages", messages)
        if first is not None and self.record.streamed:
            waited = max(0.0, self.record.started + first - self._attempt_started)
            span.set_attribute("gen_ai.response.time_to_first_chunk", waited)
        started = exchange.has_response
        repairs = exchange.stream.repairs[self._repairs_before :] if started else []
        span.set_attribute("moonshim.repairs", sum(exchange.repair_counts.values()) - self._repairs_before)
        for repair in repairs[:_MOST_EVENTS]:
            self._add_event(span, "moonshim.repair", {"moonshim.rule": repair.rule}, repair.detail)
        problem = _problem_in(error) or (exchange.problem if started else None)
        if problem is not None:
            self._set_error(span, problem.code or problem.kind, problem.kind, problem.in_short)
        elif error is not None:
            self._set_error(span, type(error).__name__, "_OTHER", "")

    def _add_event(self, span: Span, name: str, fields: Mapping[str, str | None], detail: str) -> None:
        """`detail` may quote the conversation."""
        given = {**fields, "moonshim.detail": detail or None if self.telemetry.text else None}
        span.add_event(name, {key: _clean(value) for key, value in given.items() if value is not None})

    def _set_error(self, span: Span, code: str, fallback: str, message: str) -> None:
        """`code` is that of a host, who may send anything; `message` may quote the conversation."""
        span.set_attribute("error.type", code if _CODE.fullmatch(code) else fallback)
        span.set_status(StatusCode.ERROR, _clean(message) if self.telemetry.text and message else None)

    # -- the request -----------------------------------------------------------------

    @_never_raises
    def end(self) -> None:
        """The request is over, and its record complete."""
        record, span = self.record, self._span
        record.spans = None
        if self._attempt is not None:
            self._attempt.set_attribute("error.type", record.outcome)
            self._attempt.end()
        try:
            if span.is_recording():
                self._describe_request(span, record)
        finally:
            span.end()

    def _describe_request(self, span: Span, record: RequestRecord) -> None:
        total = record.total
        cost = None if total.currency is None else total.cost
        _set(
            span,
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": record.requested_model or None,
                "gen_ai.conversation.id": record.session,
                "http.response.status_code": record.status or None,
                "moonshim.request_id": record.request_id,
                "moonshim.client": record.client,
                "moonshim.dialect": record.dialect,
                "moonshim.key": record.key,
                "moonshim.provider": record.provider,
                "moonshim.model": record.model,
                "moonshim.route": record.route,
                "moonshim.outcome": record.outcome,
                "moonshim.attempts": record.attempts,
                "moonshim.repairs": sum(record.repairs.values()),
                "moonshim.changes": sum(record.changes.values()),
                "moonshim.cost": None if cost is None else cost / COST_UNITS,
                "moonshim.currency": total.currency,
                "moonshim.tokens_estimated": total.estimated or None,
            },
        )
        if record.outcome == "ok":
            return
        code, _, message = (record.error or record.outcome).partition(":")
        if record.outcome in ("broken", "failed") or record.status >= 500:
            self._set_error(span, code, record.outcome, message.strip())
        else:  # the client's own mistakes are not errors of a server
            span.set_attribute("error.type", code if _CODE.fullmatch(code) else record.outcome)


class _ReportingExporter(SpanExporter):
    """Exports with another one. The first failure is logged, and when it works again; not each batch in between."""

    def __init__(self, inner: OTLPSpanExporter) -> None:
        self._inner = inner
        self._failing = False
        self._aborted = False
        self._lost = 0
        self._reasons = _LibraryMessages()
        _LIBRARY.addHandler(self._reasons)
        _LIBRARY.propagate = False  # it would log every batch

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self._reasons.thread, self._reasons.latest = threading.get_ident(), ""
        if self._aborted:
            return SpanExportResult.FAILURE
        try:
            result = self._inner.export(spans)
        except Exception as error:  # older releases (1.39) raise if they cannot connect
            result, self._reasons.latest = SpanExportResult.FAILURE, str(error)[:_LONGEST]
        if result is not SpanExportResult.SUCCESS:
            self._lost += len(spans)
            if not self._failing and not self._aborted:
                logs.event("otel_export_failed", level="warning", problem=self._reasons.latest)
        elif self._failing:
            logs.event("otel_export_resumed", lost_spans=self._lost)
            self._lost = 0
        self._failing = result is not SpanExportResult.SUCCESS
        return result

    def shutdown(self) -> None:
        if not self._aborted:
            self._aborted = True
            self._inner.shutdown()  # type: ignore[no-untyped-call]

    abort = shutdown
    """Also ends the pause before a retry."""

    def close(self) -> None:
        _LIBRARY.removeHandler(self._reasons)
        if not _LIBRARY.handlers:
            _LIBRARY.propagate = True

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True


class _LibraryMessages(logging.Handler):
    """Keeps why the library could not export: it logs the reason, and does not return it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.latest = ""
        self.thread = 0
        self._is_full = False

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if record.thread == self.thread:
            # The last message after several attempts says only that there will be no further one.
            if not (self.latest and "due to timeout, max retries" in message):
                self.latest = message[:_LONGEST]
        elif "Queue full" in message and not self._is_full:
            self._is_full = True
            logs.event("otel_spans_dropped", level="warning", problem="the collector is slower than the gateway")


# -- values ------------------------------------------------------------------------------------------------------


def _traces_url(base: str) -> str:
    """The address for traces, from that of the collector: as OTEL_EXPORTER_OTLP_ENDPOINT is read.

    >>> _traces_url("http://collector:4318"), _traces_url("https://c/otlp/v1/traces")
    ('http://collector:4318/v1/traces', 'https://c/otlp/v1/traces')
    """
    base = base.rstrip("/")
    return base if base.endswith(TRACES_PATH) else base + TRACES_PATH


def _resource(settings: OtelExport) -> Resource:
    found = Resource.create(
        {SERVICE_VERSION: version("moonshim"), SERVICE_INSTANCE_ID: f"{os.getpid()}-{os.urandom(4).hex()}"}
    )
    name = settings.service_name
    if name is None and str(found.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        name = "moonshim"
    return found if name is None else found.merge(Resource({SERVICE_NAME: name}))


def _clean(text: str) -> str:
    """Short, and without lone surrogates: one of these would cost its whole batch."""
    return text[:_LONGEST].encode("utf-8", "replace").decode()


def _set(span: Span, attributes: Mapping[str, Any], longest: int | None = _LONGEST) -> None:
    for name, value in attributes.items():
        if value is not None:
            span.set_attribute(name, _clean(value) if isinstance(value, str) and longest is not None else value)


def _request_attributes(body: Mapping[str, Any]) -> Attributes:
    found: Attributes = {}
    for field, name in _PARAMETERS.items():
        value = body.get(field)
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**53:
            found[f"gen_ai.request.{name}"] = value
    if body.get("stream") is True:
        found["gen_ai.request.stream"] = True
    if isinstance(choices := body.get("n"), int) and 1 < choices < 1000:
        found["gen_ai.request.choice.count"] = choices
    return found


def _output_type(exchange: Exchange) -> str | None:
    wanted = exchange.parsed.request.response_format
    return None if wanted is None else "text" if wanted.kind == "text" else "json"


def _usage_attributes(usage: Usage | None, before: Usage) -> Attributes:
    """The host's own counts, without the output of the responses before. The input is that of the last request."""
    if usage is None or all(getattr(usage, field) == getattr(before, field) for field in _USAGE):
        return {}
    found: Attributes = {}
    for field, name in _USAGE.items():
        if (count := getattr(usage, field)) is not None:
            earlier = getattr(before, field) or 0 if field in _SUMMED else 0
            found[f"gen_ai.usage.{name}"] = max(0, count - earlier)
    return found


def _problem_in(error: BaseException | None) -> Problem | None:
    if isinstance(error, MoonshimError):
        return problem_of(error)
    problem = getattr(error, "problem", None)
    return problem if isinstance(problem, Problem) else None
