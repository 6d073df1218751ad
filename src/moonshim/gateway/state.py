"""A configuration -> everything that requests share: routes to hosts, the store, keys, limits, metrics."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moonshim.config import Config, GatewayKey, Price, Target, UsageBooks
from moonshim.engine.exchange import Exchange, RequestTarget, ResponseStream
from moonshim.engine.formats import is_kimi_model
from moonshim.engine.hosts.detect import describe_guess
from moonshim.engine.hosts.learned import LearnedFields
from moonshim.engine.plan import Plan
from moonshim.engine.values.conversation import Reasoning, Text
from moonshim.engine.web_search import SearchRunner
from moonshim.errors import Problem, Refused
from moonshim.gateway.documents import DocumentExtraction
from moonshim.gateway.inbound.admission import BodyMemory, LargeWork, RefusalPace
from moonshim.gateway.inbound.auth import KeyRing, client_key
from moonshim.gateway.inbound.call import ClientCall
from moonshim.gateway.inbound.limits import Limiter
from moonshim.gateway.inbound.session import session_key
from moonshim.gateway.inspector.inspector import Inspector
from moonshim.gateway.inspector.trace import Tracer
from moonshim.gateway.memory.prefixes import PrefixMemory
from moonshim.gateway.memory.reasoning import ReasoningMemory
from moonshim.gateway.memory.responses import ResponsesState
from moonshim.gateway.memory.routes import RouteMemory
from moonshim.gateway.memory.secret import signing_secret
from moonshim.gateway.observe import logs
from moonshim.gateway.observe.metrics import Metrics
from moonshim.gateway.observe.otel import open_telemetry
from moonshim.gateway.observe.record import RequestRecord
from moonshim.gateway.observe.stream_log import StreamLog, StreamLogs
from moonshim.gateway.outbound.attempts import AskAgainLimit, Attempt, Breakers, RetryBudget
from moonshim.gateway.outbound.host_models import HostModels
from moonshim.gateway.outbound.provider_keys import ProviderKeys
from moonshim.gateway.outbound.routing import Router, request_target
from moonshim.gateway.spending import Spending
from moonshim.http_client import UpstreamClient
from moonshim.store import Store, eviction_problem, open_store, store_kind
from moonshim.transformers import Chain, load_chain
from moonshim.usage.ledger import UsageLedger, books_path
from moonshim.usage.prices import PriceList, SearchFee
from moonshim.usage.shared import SharedUsage

if TYPE_CHECKING:
    from moonshim.gateway.observe.otel_spans import Telemetry

__all__ = ["ConfigSnapshot", "GatewayState"]

_MAX_GUESSES: Final = 1024
"""Maximum number of models whose guessed generation is logged: clients choose the names."""
_RENEW_SECONDS: Final = 20.0
"""A stream's lease lasts a minute: it is renewed well before that."""


class ConfigSnapshot:
    """Everything derived from one configuration. A request uses the one it started with, whatever is loaded
    meanwhile."""

    def __init__(self, config: Config, learned: LearnedFields | None = None) -> None:
        self.config = config
        self.router = Router(config)
        self.keyring = KeyRing(config.keys, required=config.require_keys)
        self.learned = LearnedFields() if learned is None else learned
        """What hosts have revealed about themselves, by provider, address and model. It stays over a reload: forgetting
        it would change the prefix of every conversation."""
        self._prices = PriceList(config.prices)
        self._passes_keys = any(provider.passes_client_key for provider in config.providers)
        self._chains: dict[tuple[str, str], Chain] = {}
        # A plug-in that cannot be loaded is an error of the configuration, not of a request.
        for provider in config.providers:
            for model in ("", *provider.models):
                self.chain(Target(provider, model))

    def tenant(self, key: GatewayKey | None, headers: Mapping[str, str]) -> str:
        """The tenant of a request. Where clients bring their own keys, those tell them apart."""
        if key is not None:
            return f"key:{key.name}"
        own = client_key(headers) if self._passes_keys else None
        return "local" if own is None else f"own:{blake2b(own.encode('utf-8', 'replace'), digest_size=16).hexdigest()}"

    def chain(self, target: Target) -> Chain:
        """The transformers of one model at one provider."""
        provider = target.provider
        place = (provider.name, target.model if target.model in provider.model_transformers else "")
        chain = self._chains.get(place)
        if chain is None:
            chain = self._chains[place] = load_chain(provider.uses_for(target.model), log=_log_event)
        return chain

    def price(self, target: Target) -> Price | None:
        """The price of one model at one provider; None if it is unknown."""
        provider = target.provider
        return self._prices.find(target.model, provider=provider.name, base_url=provider.api_base_url)

    def search_fee(self, target: Target, runner: SearchRunner) -> SearchFee | None:
        """The price of a web search by the host, or by the provider of `[web_search]`; None if it is unknown."""
        own, provider = self.config.web_search, target.provider
        if runner == "host":
            return self._prices.search_fee(target.model, provider=provider.name, base_url=provider.api_base_url)
        return None if own is None or own.price is None else SearchFee(own.price, own.currency)

    def request_target(self, target: Target) -> RequestTarget:
        """How requests are prepared for one model at one provider."""
        return request_target(target, self.chain(target))


def _log_event(level: str, name: str, fields: dict[str, Any]) -> None:
    """Log an event from a `Log` transformer."""
    logs.event(name, level=level, **fields)


async def _open_books(books: UsageBooks, metrics: Metrics) -> UsageLedger:
    path = books_path(books, os.environ)
    if path is None and books.file is None:
        problem = "no state folder: set HOME or XDG_STATE_HOME, or `file` in `[usage]`"
        logs.event("usage_not_saved", level="warning", problem=problem)
    ledger = UsageLedger(
        path,
        days=books.days,
        max_bytes=books.max_bytes,
        report=logs.event,
        count_unsaved=metrics.count_unsaved_usage,
    )
    await ledger.start()
    return ledger


class GatewayState:
    """Everything that requests share, created once per process. `snapshot` is what a reload replaces."""

    def __init__(
        self,
        config: Config,
        store: Store,
        secret: bytes,
        *,
        bound_to_loopback: bool = True,
        stream_logs: StreamLogs | None = None,
        ledger: UsageLedger | None = None,
        metrics: Metrics | None = None,
        worker: int = 0,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.snapshot = ConfigSnapshot(config)
        self.store, self.secret, self.session_key = store, secret, session_key(secret)
        self.bound_to_loopback = bound_to_loopback
        self.stream_logs = stream_logs
        self.inspector: Inspector | None = None
        if config.inspector is not False:
            tracer = Tracer(private=config.inspector == "private", max_bytes=config.inspector_bytes)
            self.inspector = Inspector(tracer, worker=worker)
        self.draining = False
        """Shutting down: `/ready` reports it, so that load balancers send new requests elsewhere."""
        self.metrics = metrics or Metrics()
        self.telemetry = telemetry
        """Exports traces; None: not configured."""
        self.ledger = ledger or UsageLedger()
        """The usage books; in memory by default."""
        self.upstream = UpstreamClient()
        self.breakers = Breakers(config.retries)
        self.retry_budget = RetryBudget(config.retries.budget)
        self.ask_again_limit = AskAgainLimit()
        self.provider_keys = ProviderKeys()
        self.host_models = HostModels(self.upstream)
        self.limiter = Limiter(store)
        self.body_memory = BodyMemory()
        self.large_work = LargeWork()
        self.documents = DocumentExtraction()
        self._refusals = RefusalPace()
        self.spending = Spending(store, self.ledger, self.metrics, self._refusals)
        self.shared_usage: SharedUsage | None = None
        """Only if the gateways of several machines share the store."""
        self.reasoning_memory = ReasoningMemory(store, config.remember_seconds)
        self.route_memory = RouteMemory(store, config.remember_seconds)
        self.prefix_memory = PrefixMemory(store, config.remember_seconds, secret)
        self.responses = ResponsesState(store, config.remember_seconds)
        self.random: Callable[[], float] = random.random
        self._left_alone: set[str] = set()
        self._reported_markers: set[str] = set()
        self._reported_guesses: set[tuple[str, str]] = set()

    @classmethod
    async def open(
        cls, config: Config, *, bound_to_loopback: bool = True, log_dir: str | None = None, worker: int = 0
    ) -> GatewayState:
        """Connect to the store, and create the rest."""
        telemetry = open_telemetry(config.otel)
        store = await open_store(
            config.store,
            memory_bytes=config.memory_bytes,
            sqlite_bytes=config.sqlite_bytes,
            redis_key_bytes=config.redis_key_bytes,
        )
        if worker <= 1 and (problem := await eviction_problem(store)) is not None:
            logs.event("configuration_warning", level="warning", problem=problem)
        secret = await signing_secret(store, config)
        stream_logs = StreamLogs(Path(log_dir)) if log_dir is not None else None
        metrics = Metrics()
        state = cls(
            config,
            store,
            secret,
            bound_to_loopback=bound_to_loopback,
            stream_logs=stream_logs,
            ledger=await _open_books(config.usage, metrics),
            metrics=metrics,
            worker=worker,
            telemetry=telemetry,
        )
        if store_kind(config.store) == "redis":
            state.shared_usage = SharedUsage(store, state.ledger, days=config.usage.days)
            state.shared_usage.start()
        if state.inspector is not None:
            await state.inspector.start()
        state.spending.configure(config)
        return state

    def reload(self, config: Config) -> None:
        """New requests use this configuration; running ones keep theirs.

        The store and the address do not change until a restart.
        """
        self.snapshot = ConfigSnapshot(config, self.snapshot.learned)
        self.breakers.settings = config.retries
        self.spending.configure(config)

    async def close(self) -> None:
        if self.inspector is not None:
            await self.inspector.close()
        await self.host_models.close()
        await self.upstream.close()
        await self.spending.close()
        if self.shared_usage is not None:
            await self.shared_usage.close()
        await self.store.close()
        await self.ledger.close()
        self.large_work.close()
        self.documents.close()
        if self.stream_logs is not None:
            self.stream_logs.close()
        if self.telemetry is not None:
            await self.telemetry.close()

    def clock(self) -> float:
        """Monotonic time in seconds."""
        return asyncio.get_running_loop().time()

    def report_breaker(self, provider: str) -> None:
        """Update the metric if a provider's breaker has opened or closed."""
        is_open = self.breakers.is_open(provider, self.clock())
        if is_open != (provider in self._left_alone):
            self._left_alone ^= {provider}
            self.metrics.set_breaker(provider, is_open=is_open)

    def report_failed_attempt(self, record: RequestRecord, attempt: Attempt, problem: Problem) -> None:
        """Log a host that failed before any of its response was sent: it explains why the next one was called."""
        provider = attempt.target.provider.name
        self.metrics.count_retry(provider)
        logs.event(
            "attempt_failed",
            request_id=record.request_id,
            provider=provider,
            model=attempt.target.model,
            attempt=attempt.number,
            status=problem.status,
            problem=problem.in_short,
        )

    def note_guess(self, target: Target) -> None:
        """Log, once per provider and model, what is assumed about a Kimi whose name has no known generation."""
        provider, reported = target.provider, self._reported_guesses
        place = (provider.name, target.model)
        if place in reported or len(reported) >= _MAX_GUESSES or "generation" in provider.overrides_for(target.model):
            return
        if (guess := describe_guess(target.model)) is not None:
            reported.add(place)
            logs.event("generation_guessed", level="warning", provider=provider.name, model=target.model, problem=guess)

    def may_ask_again(self, record: RequestRecord, tenant: str, reason: str) -> bool:
        """Whether an answer that failed for this reason is asked for again; logged, whichever it is."""
        allowed = self.ask_again_limit.take(tenant, self.clock())
        record.asked_again, record.is_ask_again_limited = reason, not allowed
        logs.event(
            "asked_again" if allowed else "not_asked_again",
            level="info" if allowed else "warning",
            request_id=record.request_id,
            provider=record.provider,
            model=record.model,
            reason=reason,
        )
        return allowed

    def looks_for_markers(self, target: Target, plan: Plan) -> bool:
        """Whether its chain leaves calls as text, and that has not been logged yet."""
        options, noted = plan.options, target.provider.name in self._reported_markers
        return not options.manual_tool_parsing and not noted and is_kimi_model(target.model)

    def note_unread_markers(self, target: Target, plan: Plan, reading: ResponseStream) -> None:
        """Log, once per provider, that its chain leaves calls as text, which is rarely intended."""
        if not self.looks_for_markers(target, plan):
            return
        tokens = plan.options.tool_tokens
        texts = [part.text for part in reading.message.parts if isinstance(part, Text | Reasoning)]
        if any(tokens.call_begin in text or tokens.section_begin in text for text in texts):
            self._reported_markers.add(target.provider.name)
            logs.event(
                "markers_left_as_text",
                level="warning",
                provider=target.provider.name,
                problem="a tool call arrived as text markers, but manualToolParsing is off in its Kimi transformer",
            )

    def stream_log(self, record: RequestRecord, exchange: Exchange, max_answer_bytes: int) -> StreamLog | None:
        """Where to write the host's raw response; None if it is not logged."""
        if self.stream_logs is None:
            return None
        return self.stream_logs.open(
            record,
            exchange.prepared,
            input_format=exchange.input_format,
            output_format=exchange.output_format,
            max_answer_bytes=max_answer_bytes,
            secrets=exchange.secrets,
        )

    def admit_call(self, call: ClientCall) -> AbstractAsyncContextManager[None]:
        """Hold the request within the limits of its key for as long as it runs."""
        return nullcontext() if call.key is None else self._within_limits(call, call.key)

    @asynccontextmanager
    async def _within_limits(self, call: ClientCall, key: GatewayKey) -> AsyncIterator[None]:
        record = call.record
        # Every request takes a slot, streamed or not: either keeps a host busy.
        try:
            call.client_stream.always += await self.limiter.admit(key, call.request_id, record=record)
        except Refused:
            await self._refusals.wait(call.tenant)
            raise
        renewing = None
        if key.concurrent_streams is not None:
            renewing = asyncio.create_task(self._renew(call))
        try:
            yield
        finally:
            if renewing is not None:
                renewing.cancel()
            # Also when the client has disconnected and this task is being cancelled: slots must not stay taken.
            await self.limiter.release(key, call.request_id, record=record)
            await self.limiter.spend(key, call.tokens, record=record)

    async def _renew(self, call: ClientCall) -> None:
        assert call.key is not None
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            await self.limiter.renew(call.key, call.request_id, record=call.record)
