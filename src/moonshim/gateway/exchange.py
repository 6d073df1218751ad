"""One request of a client, from start to end: prepared for a host, sent, the response repaired, passed on, remembered.

`engine.exchange` decides; this does the waiting. Read `exchange` first, then `_UpstreamAttempt`:

    read_request -> targets -> recall -> [ prepare -> open -> read -> feed -> write ]* -> remember

A host that fails before anything of its response was passed on is asked again, or the next one is. After that there is
no second host: a failure ends the response with an error in the client's dialect. The one exception is a response of
nothing but reasoning, where the provider's `retry_empty_answer` is on.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from functools import partial
from typing import Final

from msgspec.structs import replace

from moonshim.config import Target, endpoint_of
from moonshim.engine.exchange import CONTENT_TYPES, Exchange, describe_counts
from moonshim.engine.hosts.errors.classify import ERROR_BYTES
from moonshim.engine.prepare import ParsedRequest, read_request
from moonshim.engine.stages import TransformerFailed
from moonshim.engine.values.events import Failed, Finished
from moonshim.errors import MoonshimError, Problem, ProblemKind, Refused, TooManyOpenFiles, UpstreamError, problem_of
from moonshim.gateway.client_stream import Header
from moonshim.gateway.inbound.call import ClientCall
from moonshim.gateway.inbound.limits import tokens_of
from moonshim.gateway.observe import logs
from moonshim.gateway.observe.record import Outcome, RequestRecord
from moonshim.gateway.outbound.attempts import Attempts
from moonshim.gateway.outbound.request_headers import headers_for_host
from moonshim.gateway.outbound.response_headers import to_client
from moonshim.gateway.state import GatewayState
from moonshim.http_client import GOODBYE_SECONDS, LAST_WORDS_SECONDS, UpstreamRequest, UpstreamResponse

__all__ = ["NO_DESCRIPTORS", "STOPPING", "exchange", "problem_in"]

STOPPING: Final = Problem(
    status=503,
    kind="overloaded",
    message="this gateway is about to stop, and takes nothing new: send the request again",
    code="gateway_stopping",
    retry_after=1.0,
)

NO_DESCRIPTORS: Final = Problem(
    status=503,
    kind="overloaded",
    message="The gateway has as many open connections as it may. Retry in a moment.",
    code="too_many_connections",
    retry_after=2.0,
)

BYTES_PER_TOKEN: Final = 4
FREE_COMMENTS: Final = 100
COMMENT_SECONDS: Final = 1.0
"""Comments of a host are passed on as they come; after this many in one response, at most one per this many seconds."""
_ABOUT_A_KEY: Final[frozenset[ProblemKind]] = frozenset({"authentication", "permission", "quota"})


class HostFailed(Exception):
    """A host failed before anything of its response was passed on: another attempt is possible."""

    def __init__(self, problem: Problem, *, another_key: bool = False) -> None:
        super().__init__(problem.message)
        self.problem = problem
        self.another_key = another_key
        """Its provider has a key that was not refused."""


async def exchange(state: GatewayState, call: ClientCall) -> None:
    """Answer one client. Raises `MoonshimError` where the error can still have a status of its own."""
    snapshot, record = state.snapshot, call.record
    parsed = await call.run_work(read_request, call.body, dialect=call.dialect.name, secret=state.secret)
    record.requested_model, record.streamed = parsed.request.model, parsed.request.stream is True
    targets = snapshot.router.targets(parsed.request.model, allowed=call.key.models if call.key is not None else ())
    call.client_stream.watch()
    if call.is_large:
        await call.in_thread(parsed.turns)  # needed later, and computed once
    current = Exchange(
        parsed,
        snapshot.learned,
        recalled=await state.reasoning_memory.recall(call.tenant, parsed, record),
        reply_id=uuid.uuid4().hex,
        created=int(record.started),
        clock=time.time,
        keeps_response=call.keeps_response,
    )
    if record.streamed:
        headers = [(b"content-type", CONTENT_TYPES["sse"].encode()), *_response_headers(call)]
        call.client_stream.keep_alive(snapshot.config.heartbeat_seconds, call.dialect.heartbeat, headers)
    attempts = Attempts(targets, snapshot.config.retries, state.breakers, state.retry_budget, state.random, call.tenant)
    upstream_attempt: _UpstreamAttempt | None = None
    failures: list[tuple[Target, Problem]] = []
    while (attempt := attempts.next(state.clock())) is not None:
        try:
            if attempt.wait:
                await asyncio.sleep(attempt.wait)
            await call.run_work(current.prepare, snapshot.request_target(attempt.target))
            upstream_attempt = _UpstreamAttempt(state, call, current, attempt.target)
            await upstream_attempt.run()
        except HostFailed as failure:
            if await call.run_work(current.correct, failure.problem):
                attempts.corrected(attempt)
            else:
                failures.append((attempt.target, failure.problem))
                attempts.failed(attempt, failure.problem, state.clock(), another_key=failure.another_key)
            state.report_failed_attempt(record, attempt, failure.problem)
        except MoonshimError as error:
            return await _send_error(call, current, error)
        except asyncio.CancelledError:
            if upstream_attempt is not None and upstream_attempt.sent_only_heartbeats and not call.client_stream.gone:
                # The server stops, and the client has heartbeats only.
                await call.client_stream.finish(current.render_stream_error(STOPPING))
            raise
        else:
            if upstream_attempt.host_broke:
                state.breakers.failed(attempt.target.provider.name, call.tenant, state.clock(), record.error or "")
            else:
                attempts.succeeded(attempt)
            return None
        finally:
            state.report_breaker(attempt.target.provider.name)
    problem = attempts.problem
    if problem is None:
        raise Refused(attempts.unavailable(state.clock()))
    record.outcome, record.error = "upstream_error", problem.in_short
    failed_target = next(target for target, failure in failures if failure is problem)
    record.provider, record.model = failed_target.provider.name, failed_target.model
    return await _send_error(call, current, Refused(_of_provider(problem, failed_target.provider.name)))


async def _send_error(call: ClientCall, current: Exchange, error: MoonshimError) -> None:
    """Raise the error, for a status of its own; or send it in the stream, if a heartbeat has begun that with 200."""
    await call.client_stream.settle()
    if not current.is_prepared or not call.client_stream.started:
        raise error
    if call.record.outcome == "ok":
        call.record.outcome, call.record.error = "failed", problem_of(error).in_short
    await call.client_stream.finish(current.render_stream_error(problem_of(error)))


def _of_provider(problem: Problem, provider: str) -> Problem:
    """Say whose key was refused: a client with a key of the gateway would look at the wrong one."""
    if problem.kind not in _ABOUT_A_KEY:
        return problem
    return replace(problem, message=f"{problem.message} (said by the provider {provider!r} of its own key)")


class _UpstreamAttempt:
    """One attempt at one target: the prepared request is sent, its response read, repaired and passed on."""

    def __init__(self, state: GatewayState, call: ClientCall, exchange: Exchange, target: Target) -> None:
        self._state, self._call, self._exchange, self._target = state, call, exchange, target
        self._record, self._client_stream = call.record, call.client_stream
        provider = target.provider
        one_key = len(provider.keys) < 2
        self._key = state.provider_keys.key_for(
            provider, "" if one_key else _conversation_key(call.tenant, exchange.parsed)
        )
        self._sent = False
        """Something of the response was passed on: no other host can be asked."""
        self._comments = 0
        self.host_broke = False
        """The response began, and did not end well."""
        record = self._record
        record.attempts += 1
        record.provider, record.model = provider.name, target.model
        record.changes = exchange.change_counts

    async def run(self) -> None:
        """Raises `HostFailed` as long as nothing of the response was passed on."""
        answer, has_started = await self._open(), False
        try:
            self._start_response(answer)
            has_started = True
            completed = await self._relay(answer)
            if completed and self._exchange.wants_retry:
                answer = await self._retry(answer)
            await self._end(answer)
        finally:
            answer.close()
            if has_started:
                await self._charge()

    @property
    def sent_only_heartbeats(self) -> bool:
        """Whether the client's stream has begun, with nothing of a response in it."""
        return self._client_stream.started and not self._sent

    # -- the host --------------------------------------------------------------------

    async def _open(self) -> UpstreamResponse:
        provider, exchange = self._target.provider, self._exchange
        streams = exchange.prepared.body.get("stream") is True
        headers = headers_for_host(self._call, self._target, self._key, streams=streams)
        keys = (headers[name] for name in ("authorization", "x-api-key") if name in headers)
        exchange.secrets = (*provider.headers.values(), *keys)
        call = UpstreamRequest(
            url=endpoint_of(provider),
            headers=headers,
            body=await self._call.encode_json(exchange.prepared.body),
            timeouts=provider.timeouts,
            proxy=provider.proxy,
            ca_bundle=provider.ca_bundle,
        )
        try:
            answer = await self._state.upstream.open(call)
        except TooManyOpenFiles as error:
            raise Refused(NO_DESCRIPTORS) from error
        except UpstreamError as error:
            raise HostFailed(problem_of(error)) from error
        if 200 <= answer.status <= 299:
            return answer
        try:
            body = await answer.read_all(ERROR_BYTES, cut=True)
        except UpstreamError:
            body = b""
        finally:
            answer.close()
        problem = exchange.error_from(answer.status, answer.headers, body)
        raise HostFailed(problem, another_key=self._state.provider_keys.failed(provider, self._key, problem))

    def _start_response(self, answer: UpstreamResponse) -> None:
        call, key, plan = self._call, self._call.key, self._exchange.prepared.plan
        self._exchange.start_response(
            answer.headers.get("content-type"),
            # A stream that a heartbeat has begun is one of events already.
            accepts_ndjson="application/x-ndjson" in call.headers.get("accept", "") and not self._client_stream.started,
            limit=call.held.limits.max_answer_bytes,
            # The message is read for its tokens, and for markers that its chain leaves alone.
            collect=(key is not None and key.tokens_per_minute is not None)
            or self._state.looks_for_markers(self._target, plan),
        )

    # -- the response ----------------------------------------------------------------

    async def _relay(self, answer: UpstreamResponse) -> bool:
        """Pass on everything that the host sends. False: it broke off, and the client was told."""
        exchange, client_stream = self._exchange, self._client_stream
        log = self._state.stream_log(self._record, exchange)
        read = answer.read
        try:
            while data := await read():
                if log is not None:
                    log.write(data)
                out = exchange.feed(data)
                ending = exchange.ending
                if out and ending is None and self._is_redundant_comment(out):
                    continue
                if out:
                    if ending is not None:
                        await self._remember()
                        client_stream.sent_end |= exchange.sent_end
                    if not self._sent:
                        await self._begin(answer, out)
                    await client_stream.write(out)
                if exchange.is_useless:
                    break
                if ending is not None and read == answer.read:
                    read = partial(self._read_after_end, answer)
        except UpstreamError as error:
            await self._break_off(answer, problem_of(error), "broken")
            return False
        except asyncio.CancelledError:
            if self._sent and not client_stream.gone:
                # The server stops, and cannot wait any longer.
                self._record_failure(STOPPING, "broken")
                await client_stream.finish(exchange.fail(STOPPING))
            raise
        except Exception as error:
            if not self._sent:
                raise
            # A plug-in that raised, or a bug, in the middle of a response.
            await self._break_off(answer, problem_in(error, self._record), "failed")
            return False
        finally:
            if log is not None:
                log.close(self._record.outcome)
        return True

    def _is_redundant_comment(self, out: bytes) -> bool:
        """Whether these are comments that the client does not need: it got something a moment ago."""
        if not _is_comment(out):
            return False
        self._comments += 1
        return self._comments > FREE_COMMENTS and self._client_stream.silent_seconds < COMMENT_SECONDS

    async def _read_after_end(self, answer: UpstreamResponse) -> bytes:
        """What comes after the end of a response: usage, mostly. Some hosts then leave the connection open."""
        if not self._exchange.is_draining:
            return await answer.read()
        client_stream = self._client_stream
        waits = client_stream.sent_end and not client_stream.has_left
        try:
            async with asyncio.timeout(GOODBYE_SECONDS if waits else LAST_WORDS_SECONDS):
                return await answer.read()
        except TimeoutError:
            return await self._read_after_end(answer) if waits and client_stream.has_left else b""

    async def _begin(self, answer: UpstreamResponse, out: bytes) -> None:
        if isinstance(self._exchange.ending, Failed):
            # The response starts with an error: its status should not have been 200.
            self._fail_unless_sent(self._exchange.problem)
        await self._client_stream.start(self._headers(answer))
        # Comments are heartbeats, like ours: after them, another attempt is still possible.
        if not _is_comment(out):
            self._sent = True
            self._record.first_byte_seconds = time.time() - self._record.started

    async def _retry(self, first: UpstreamResponse) -> UpstreamResponse:
        """Send the request once more; its response follows in the same stream."""
        try:
            second = await self._open()
        except HostFailed:
            return first
        first.close()
        self._exchange.start_retry(second.headers.get("content-type"))
        self._record.attempts += 1
        try:
            await self._relay(second)
        except BaseException:
            second.close()
            raise
        return second

    async def _end(self, answer: UpstreamResponse) -> None:
        record, exchange = self._record, self._exchange
        last = exchange.end()
        if (problem := exchange.problem) is not None:
            self._fail_unless_sent(problem)
            self._record_failure(problem, "broken")
        await self._remember()
        self._state.note_unread_markers(self._target, exchange.prepared.plan, exchange.stream)
        record.repairs = exchange.repair_counts
        if usage := exchange.usage:
            record.input_tokens, record.output_tokens = usage.input_tokens, usage.output_tokens
            record.cached_tokens = usage.cached_tokens
        if not record.streamed:
            record.first_byte_seconds = time.time() - record.started
            await self._client_stream.respond(200, self._headers(answer), last)
            return
        if not self._sent:
            await self._begin(answer, last)
        await self._client_stream.finish(last)

    async def _charge(self) -> None:
        """Count the tokens of the response for its key, also if it was cut off."""
        call, key, exchange = self._call, self._call.key, self._exchange
        if key is not None and key.tokens_per_minute is not None and (self._sent or not self._record.streamed):
            whole = isinstance(exchange.ending, Finished)
            count = partial(tokens_of, exchange.usage, exchange.parsed.request, exchange.stream.message, whole=whole)
            try:
                call.tokens = await call.run_work(count)
            except Refused:  # no thread was free
                call.tokens = call.held.size // BYTES_PER_TOKEN

    def _fail_unless_sent(self, problem: Problem | None) -> None:
        if problem is not None and not self._sent:
            # Another host would not help a plug-in that raises.
            raise Refused(problem) if problem.code == TransformerFailed.code else HostFailed(problem)

    async def _break_off(self, answer: UpstreamResponse, problem: Problem, outcome: Outcome) -> None:
        """The host is gone, the client is not: close what is open, and send the error.

        A response that had said how it ends is complete, whatever happened to its connection.
        """
        problem = self._exchange.mask(problem)
        last = self._exchange.fail(problem)
        if self._exchange.is_useless:
            self._fail_unless_sent(problem)
            self._record_failure(problem, outcome)
        if last:
            await self._remember()
            if not self._sent:
                await self._begin(answer, last)
            await self._client_stream.write(last)

    def _record_failure(self, problem: Problem, outcome: Outcome) -> None:
        """How a response ended that had begun; the first failure counts."""
        record = self._record
        if record.outcome == "ok":
            record.outcome = "failed" if problem.code == TransformerFailed.code else outcome
            record.error = problem.in_short
        self.host_broke = record.outcome == "broken" and not problem.permanent

    async def _remember(self) -> None:
        """Store what the client may drop before it learns that the response is over: its next request comes at once."""
        call, exchange, record = self._call, self._exchange, self._record
        if (entry := exchange.take_entry()) is not None:
            await self._state.reasoning_memory.remember(call.tenant, entry, record)
        if (response := exchange.take_completed()) is not None:
            await self._state.responses.keep(call.tenant, call.body, response, record, call)

    def _headers(self, answer: UpstreamResponse) -> list[Header]:
        ours, exchange = {name for name, _ in self._client_stream.always}, self._exchange
        theirs = [header for header in to_client(answer.headers, exchange.secrets) if header[0] not in ours]
        content_type = CONTENT_TYPES[exchange.output_format].encode()
        return [(b"content-type", content_type), *_response_headers(self._call), *theirs]


def problem_in(error: Exception, record: RequestRecord) -> Problem:
    """What a client is told about an error. A bug is logged, and the client never sees a traceback."""
    if isinstance(error, MoonshimError):
        return problem_of(error)
    logs.log_error(record, error)
    record.outcome, record.error = "failed", type(error).__name__
    return Problem(status=500, kind="server", message="this is a fault of Moonshim; its log says more")


def _is_comment(out: bytes) -> bool:
    return out.startswith((b":", b"\n")) and all(not line or line.startswith(b":") for line in out.splitlines())


def _response_headers(call: ClientCall) -> list[Header]:
    """Our headers of every response; of a stream, with as much as is known when it begins."""
    record = call.record
    headers = [(b"x-moonshim-repairs", describe_counts(record.changes, record.repairs).encode())]
    if record.streamed:
        headers += [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
    if record.store_failures:
        headers.append((b"x-moonshim-lost", ", ".join(dict.fromkeys(record.store_failures)).encode()))
    return headers


def _conversation_key(tenant: str, parsed: ParsedRequest) -> str:
    """The same for all requests of one conversation: how it begins."""
    request = parsed.request
    if request.cache_key:
        return f"{tenant}\n{request.cache_key}"
    first = next((message for message in request.messages if message.role == "user"), None)
    return f"{tenant}\n{first.parts if first is not None else ''}"
