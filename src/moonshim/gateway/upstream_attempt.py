"""One attempt at one host: the prepared request is sent, its response read, repaired and passed on.

A response that ends with calls that the gateway answers itself is followed by another round with the same host.
"""

from __future__ import annotations

import asyncio
import sys
import time
from functools import partial
from typing import Final

from msgspec.structs import replace

from moonshim.config import Target, WebSearch, endpoint_of
from moonshim.config.kimi_login import LoginKey
from moonshim.engine.exchange import (
    CONTENT_TYPES,
    Exchange,
    JudgeOutcome,
    Outcome,
    SearchWanted,
    Wanted,
    describe_counts,
)
from moonshim.engine.hosts.errors.classify import ERROR_BYTES
from moonshim.engine.prepare import ParsedRequest
from moonshim.engine.stages import TransformerFailed
from moonshim.engine.values.conversation import Usage, add_usage
from moonshim.engine.values.events import Failed, Finished
from moonshim.errors import (
    MoonshimError,
    Problem,
    Refused,
    TooManyOpenFiles,
    UpstreamError,
    UpstreamUnreachable,
    problem_of,
)
from moonshim.gateway.client_stream import Header
from moonshim.gateway.inbound.budgets import BudgetRefusal
from moonshim.gateway.inbound.call import ClientCall
from moonshim.gateway.judging import Judging
from moonshim.gateway.memory.routes import ConversationRoute
from moonshim.gateway.observe import logs
from moonshim.gateway.observe.booking import book_tokens, open_booking
from moonshim.gateway.observe.record import Outcome as RequestOutcome
from moonshim.gateway.observe.record import RequestRecord
from moonshim.gateway.observe.stream_header import NOTHING_SENT
from moonshim.gateway.outbound.request_headers import headers_for_host
from moonshim.gateway.outbound.response_headers import to_client
from moonshim.gateway.relay import Relay, is_comment
from moonshim.gateway.searches import search_all
from moonshim.gateway.state import GatewayState
from moonshim.http_client import GOODBYE_SECONDS, LAST_WORDS_SECONDS, Take, UpstreamRequest, UpstreamResponse
from moonshim.usage.estimate import complete_usage, is_complete

__all__ = ["NO_DESCRIPTORS", "STOPPING", "HostFailed", "UpstreamAttempt", "problem_in", "response_headers"]

STOPPING: Final = Problem(
    status=503,
    kind="overloaded",
    message="The gateway is shutting down. Retry the request.",
    code="gateway_stopping",
    retry_after=1.0,
)

NO_DESCRIPTORS: Final = Problem(
    status=503,
    kind="overloaded",
    message="The gateway has reached its maximum number of open connections. Retry in a moment.",
    code="too_many_connections",
    retry_after=2.0,
)

BYTES_PER_TOKEN: Final = 4
USAGE_SECONDS: Final = 1.0
"""How long the end of a response waits for the usage that its host sends after it."""


class HostFailed(Exception):
    """A host failed before anything of its response was passed on: another attempt is possible."""

    def __init__(self, problem: Problem, *, another_key: bool = False) -> None:
        super().__init__(problem.message)
        self.problem = problem
        self.another_key = another_key
        """Its provider has a key that was not refused."""


class UpstreamAttempt:
    """One attempt at one target: the prepared request is sent, its response read, repaired and passed on."""

    def __init__(
        self,
        state: GatewayState,
        call: ClientCall,
        exchange: Exchange,
        target: Target,
        conversation: ConversationRoute | None,
        web_search: WebSearch | None = None,
        judging: Judging | None = None,
    ) -> None:
        self._state, self._call, self._exchange, self._target = state, call, exchange, target
        self._conversation, self._web_search, self._judging = conversation, web_search, judging
        if judging is not None:
            judging.restart()
        self._record, self._client_stream = call.record, call.client_stream
        provider = target.provider
        one_key = len(provider.keys) < 2
        self._key = state.provider_keys.key_for(
            provider, "" if one_key else _conversation_key(call.tenant, exchange.parsed)
        )
        self._sent = False
        """Something of the response was passed on: no other host can be asked."""
        self._is_billed = False
        """The request was sent and not refused: its tokens count, whatever becomes of the response."""
        self._is_cut_off = False
        """The connection broke after a status of 200."""
        self._earlier = Usage()
        """The tokens of responses that were followed by another one."""
        self._is_estimated = False
        """The tokens of an earlier round are an estimate."""
        self.host_broke = False
        """The response began, and did not end well."""
        record = self._record
        record.attempts += 1
        record.provider, record.model = provider.name, target.model
        record.changes = exchange.change_counts
        self._trace = call.trace
        self._relay = Relay(exchange, call.client_stream, call.trace, judging)
        self._usage_deadline: float | None = None
        """When the ending no longer waits for usage."""
        if self._trace is not None:
            self._trace.attempt(exchange, provider.name, target.model)

    async def run(self) -> None:
        """Raises `HostFailed` as long as nothing of the response was passed on."""
        if self._record.attempts > 1:
            self._note_spent(self._earlier)
        try:
            answer = await self._open()
            try:
                self._start_response(answer)
                answer = await self._read(answer)
                last = self._exchange.end()
                while (pending := self._exchange.pending) is not None:
                    answer, last = await self._continue(answer, last, pending)
                await self._end(answer, last)
            except HostFailed:
                # With status 200, an error in place of a response; hosts charge for what comes before it, if at all.
                # One that is cut off was generated, and is charged.
                has_rounds = self._earlier.input_tokens is not None
                self._is_billed = self._is_cut_off or has_rounds or bool(self._exchange.message.parts)
                raise
            finally:
                answer.close()
        finally:
            if self._is_billed:
                await self._count_tokens()
            if (spans := self._record.spans) is not None:
                spans.end_attempt(self._exchange, sys.exception())
        if isinstance(self._exchange.ending, Finished) and self._earlier.input_tokens is None:
            await self._check_prefix()

    @property
    def sent_only_heartbeats(self) -> bool:
        """Whether the client's stream has begun, with nothing of a response in it."""
        return self._record.streamed and self._client_stream.started and not self._sent

    # -- the host --------------------------------------------------------------------

    async def _open(self) -> UpstreamResponse:
        provider, exchange = self._target.provider, self._exchange
        streams = exchange.prepared.body.get("stream") is True
        if self._key is not None and (wrong := self._key.problem) is not None:
            raise HostFailed(Problem(status=401, kind="authentication", message=wrong, code="login_expired"))
        headers = headers_for_host(self._call, self._target, self._key, exchange, streams=streams)
        keys = (headers[name] for name in ("authorization", "x-api-key") if name in headers)
        exchange.secrets = (*provider.headers.values(), *keys)
        body = await self._call.encode_json(exchange.prepared.body)
        await self._state.spending.reserve_call(self._record, self._target, len(body))
        if self._trace is not None:
            self._trace.sent(exchange, body)
        call = UpstreamRequest(
            url=endpoint_of(provider),
            headers=headers,
            body=body,
            timeouts=provider.timeouts,
            proxy=provider.proxy,
            ca_bundle=provider.ca_bundle,
        )
        open_booking(self._state.ledger, self._record, self._target, exchange)
        if (spans := self._record.spans) is not None:
            spans.start_attempt(self._target, exchange, headers)
        was_billed, self._is_billed = self._is_billed, True
        try:
            answer = await self._state.upstream.open(call)
        except TooManyOpenFiles as error:
            self._is_billed = was_billed
            raise Refused(NO_DESCRIPTORS) from error
        except UpstreamError as error:
            if isinstance(error, UpstreamUnreachable):
                self._is_billed = was_billed
            raise HostFailed(problem_of(error)) from error
        if spans is not None:
            spans.set_status(answer.status)
        if 200 <= answer.status <= 299:
            return answer
        self._is_billed = was_billed
        try:
            body = await answer.read_all(ERROR_BYTES, cut=True)
        except UpstreamError:
            body = b""
        finally:
            answer.close()
        if self._trace is not None:
            self._trace.refused(answer.status, body)
        problem = exchange.error_from(answer.status, answer.headers, body)
        raise HostFailed(problem, another_key=self._state.provider_keys.failed(provider, self._key, problem))

    def _start_response(self, answer: UpstreamResponse) -> None:
        call, key = self._call, self._call.key
        self._exchange.start_response(
            answer.headers.get("content-type"),
            # A stream that a heartbeat has begun is one of events already.
            accepts_ndjson="application/x-ndjson" in call.headers.get("accept", "") and not self._client_stream.started,
            limit=call.held.limits.max_answer_bytes,
            # The message is read for its tokens, and for markers that its chain leaves alone.
            collect=(key is not None and (key.tokens_per_minute is not None or bool(key.budgets)))
            or self._state.looks_for_markers(self._target, self._exchange.prepared.plan),
        )
        if self._trace is not None:
            self._trace.opened(self._exchange, answer.connect_seconds)

    # -- the response ----------------------------------------------------------------

    async def _pass_on(self, answer: UpstreamResponse) -> bool:
        """Pass on everything that the host sends. False: it broke off, and the client got an error."""
        exchange, client_stream, relay = self._exchange, self._client_stream, self._relay
        self._usage_deadline = None
        log = relay.log = self._state.stream_log(self._record, exchange, self._call.held.limits.max_answer_bytes)
        spans = self._record.spans
        read = answer.read if spans is None else spans.watch(answer.read)
        take: Take | None = None
        try:
            while data := await read(take):
                out = relay.feed(data)
                if out and exchange.ending is None and relay.is_redundant_comment(out):
                    continue
                if out:
                    await self._send(answer, out)
                del data, out  # while the relay passes on what follows, nothing else would release them
                if exchange.is_useless:
                    break
                if exchange.has_ended:
                    read, take = partial(self._read_after_end, answer), None
                elif take is None and self._sent and client_stream.open_direct():
                    take = relay.take
        except UpstreamError as error:
            if exchange.has_ended and (exchange.wants_retry or exchange.awaits_verdicts):
                return True  # all of the answer came
            self._is_cut_off = True
            await self._break_off(answer, problem_of(error), "broken")
            return False
        except asyncio.CancelledError:
            if self._sent and not client_stream.gone:
                # The server stops, and cannot wait any longer.
                self._record_failure(STOPPING, "broken")
                await client_stream.finish(relay.rest() + exchange.fail(STOPPING))
            raise
        except Exception as error:
            if not self._sent:
                raise
            # A plug-in that raised, or a bug, in the middle of a response.
            await self._break_off(answer, problem_in(error, self._record), "failed")
            return False
        finally:
            if log is not None:
                is_useless = not self._sent and exchange.problem is not None
                log.close(NOTHING_SENT if is_useless else self._record.outcome)
        return True

    async def _send(self, answer: UpstreamResponse, out: bytes) -> None:
        """Pass on bytes of the response, after what has to be stored before them."""
        if self._exchange.ending is not None:
            await self._remember()
            self._client_stream.sent_end |= self._exchange.sent_end
        if not self._sent:
            await self._begin(answer, out)
        await self._client_stream.write(out)

    async def _read_after_end(self, answer: UpstreamResponse, take: Take | None = None) -> bytes:
        """What comes after the end of a response: usage, mostly. Some hosts then leave the connection open."""
        if self._exchange.awaits_usage:
            loop_time = asyncio.get_running_loop().time()
            self._usage_deadline = self._usage_deadline or loop_time + USAGE_SECONDS
            try:
                async with asyncio.timeout_at(self._usage_deadline):
                    return await answer.read()
            except TimeoutError:
                await self._release_ending(answer)
        if not self._exchange.is_draining:
            return await answer.read()
        client_stream = self._client_stream
        waits = client_stream.sent_end and not client_stream.has_left
        try:
            async with asyncio.timeout(GOODBYE_SECONDS if waits else LAST_WORDS_SECONDS):
                return await answer.read()
        except TimeoutError:
            return await self._read_after_end(answer) if waits and client_stream.has_left else b""

    async def _release_ending(self, answer: UpstreamResponse) -> None:
        """The host sends no usage, or late: the client waits no longer."""
        out = self._exchange.release_ending()
        if self._trace is not None:
            self._trace.chunk(b"", out)
        if out:
            await self._send(answer, out)

    async def _begin(self, answer: UpstreamResponse, out: bytes) -> None:
        if isinstance(self._exchange.ending, Failed) and not self._exchange.wants_retry:
            # The response starts with an error: its status should not have been 200.
            self._fail_unless_sent(self._exchange.problem)
        await self._client_stream.start(self._headers(answer))
        # Comments are heartbeats, like ours: after them, another attempt is still possible.
        if not is_comment(out):
            self._sent = True
            self._record.first_byte_seconds = time.time() - self._record.started

    async def _ask_again(self, first: UpstreamResponse) -> UpstreamResponse:
        """Send the request once more, at once; its response follows in the same stream. Returns the last response.

        The host did what it was asked, and the model's next answer is probably right: so there is no pause, and neither
        breakers nor the retry budget count it, but a limit of its own.
        """
        exchange, record = self._exchange, self._record
        reason = exchange.retry_reason or ""
        if not self._state.may_ask_again(record, self._call.tenant, reason):
            return first
        if self._trace is not None:
            self._trace.asked_again(reason)
        cost = await self._round_usage()
        self._note_spent(add_usage(self._earlier, cost) or cost)
        try:
            second = await self._open()
        except (HostFailed, BudgetRefusal):
            return first
        first.close()
        self._earlier = add_usage(self._earlier, cost) or self._earlier
        record.asked_again_tokens = cost
        exchange.start_retry(second.headers.get("content-type"))
        record.attempts += 1
        try:
            await self._pass_on(second)
        except BaseException:
            second.close()
            raise
        return second

    async def _read(self, answer: UpstreamResponse) -> UpstreamResponse:
        """Pass on a response, or the one that replaces it if the model's answer is to blame. Returns the last one."""
        completed = await self._pass_on(answer)
        return await self._ask_again(answer) if completed and self._exchange.wants_retry else answer

    async def _continue(
        self, answer: UpstreamResponse, last: bytes, pending: tuple[Wanted, ...]
    ) -> tuple[UpstreamResponse, bytes]:
        """Do what the exchange waits for, then send the request of the next round, if there is one.

        Returns the response to that, and what it leaves for the client when it has ended.
        """
        exchange, client_stream, earlier = self._exchange, self._client_stream, self._earlier
        try:
            await self._write(answer, last)
            cost = None if exchange.awaits_verdicts else await self._round_usage()
            if cost is not None:
                self._note_spent(add_usage(earlier, cost) or earlier)
            outcomes = await self._outcomes(pending)
            out = await self._call.run_work(exchange.continue_with, outcomes)
            if exchange.ending is not None:
                return answer, out + exchange.end()
            self._earlier = add_usage(earlier, cost) or earlier
            await self._write(answer, out)
            if self._trace is not None:
                self._trace.attempt(exchange, self._target.provider.name, self._target.model, continues=True)
            following = await self._open()
        except (HostFailed, BudgetRefusal) as failure:
            if isinstance(failure, BudgetRefusal):
                self._earlier = earlier  # no call followed, so the last response is still this one
            if not self._sent and not exchange.has_fallback:
                raise
            await self._break_off(answer, failure.problem, "broken")
            return answer, exchange.end()
        except asyncio.CancelledError:
            if self._sent and not client_stream.gone:
                self._record_failure(STOPPING, "broken")
                await client_stream.finish(exchange.fail(STOPPING))
            raise
        answer.close()
        self._record.attempts += 1
        self._start_response(following)
        try:
            following = await self._read(following)
        except BaseException:
            following.close()
            raise
        return following, exchange.end()

    async def _outcomes(self, pending: tuple[Wanted, ...]) -> list[Outcome]:
        """What became of all that the exchange waits for."""
        searches = [one for one in pending if isinstance(one, SearchWanted)]
        outcomes: list[Outcome] = []
        if searches:
            outcomes += await search_all(self._state, self._record, self._web_search, searches)
        if self._judging is not None and len(searches) < len(pending):
            self._judging.offer(self._exchange.take_calls())
            outcomes.append(JudgeOutcome(await self._judging.verdicts()))
        return outcomes

    def _note_spent(self, usage: Usage) -> None:
        self._state.spending.note_spent(self._record, usage, self._target, self._exchange.host_searches)

    async def _round_usage(self) -> Usage:
        """The tokens of a round that another one follows; its input by estimate, if the host did not report it."""
        usage = self._exchange.usage or Usage()
        if usage.input_tokens is not None:
            return usage
        self._is_estimated = True
        return replace(usage, input_tokens=await self._call.run_work(self._exchange.parsed.estimate_tokens))

    async def _write(self, answer: UpstreamResponse, out: bytes) -> None:
        """Pass on bytes in the middle of a response."""
        if not out:
            return
        if self._trace is not None:
            self._trace.chunk(b"", out)
        if not self._sent:
            await self._begin(answer, out)
        await self._client_stream.write(out)

    async def _end(self, answer: UpstreamResponse, last: bytes) -> None:
        record, exchange = self._record, self._exchange
        if self._trace is not None:
            self._trace.chunk(b"", last)
        if (problem := exchange.problem) is not None:
            self._fail_unless_sent(problem)
            self._record_failure(problem, "broken")
        await self._remember()
        self._state.note_unread_markers(self._target, exchange.prepared.plan, exchange.stream)
        record.repairs = exchange.repair_counts
        if not record.streamed:
            record.first_byte_seconds = time.time() - record.started
            await self._client_stream.respond(200, self._headers(answer), last)
            return
        if not self._sent:
            await self._begin(answer, last)
        await self._client_stream.finish(last)

    async def _count_tokens(self) -> None:
        """Count the tokens of the response, by estimate if it was cut off or its host did not."""
        call, exchange = self._call, self._exchange
        usage, whole = exchange.usage, isinstance(exchange.ending, Finished)
        counted = is_complete(usage, whole=whole)
        if not counted:
            try:
                usage = await call.run_work(self._estimate_usage, usage, whole)
            except Refused:  # no thread was free
                usage = Usage(call.held.size // BYTES_PER_TOKEN, 0)
        assert usage is not None
        if self._earlier.input_tokens is not None:
            # `usage` already has its output, but the input of one request.
            before = replace(self._earlier, output_tokens=None, reasoning_tokens=None)
            usage = replace(add_usage(before, usage) or usage, raw=usage.raw)
        self._record.searches += exchange.host_searches
        book_tokens(self._record, usage, self._target, estimated=not counted or self._is_estimated)
        if self._trace is not None:
            self._trace.counted(self._record, exchange.message)
        if self._sent or not self._record.streamed:
            call.tokens = (usage.input_tokens or 0) + (usage.output_tokens or 0)

    def _estimate_usage(self, usage: Usage | None, whole: bool) -> Usage:
        exchange = self._exchange
        booking = self._record.booking
        return complete_usage(
            usage,
            exchange.parsed.request,
            exchange.message,
            whole=whole,
            choices=booking.choices if booking is not None else 1,
            stream=(self._relay.frames, self._relay.received),
        )

    def _fail_unless_sent(self, problem: Problem | None) -> None:
        if problem is not None and not self._sent:
            # Another host would not help a plug-in that raises.
            raise Refused(problem) if problem.blame == "us" else HostFailed(problem)

    async def _break_off(self, answer: UpstreamResponse, problem: Problem, outcome: RequestOutcome) -> None:
        """The host is gone, the client is not: close what is open, and send the error.

        A response that had said how it ends is complete, whatever happened to its connection.
        """
        problem = self._exchange.mask(problem)
        last = self._relay.rest() + self._exchange.fail(problem)
        if self._trace is not None:
            self._trace.broke(problem, last)
        if self._exchange.is_useless:
            self._fail_unless_sent(problem)
            self._record_failure(problem, outcome)
        if last:
            await self._remember()
            if not self._sent:
                await self._begin(answer, last)
            await self._client_stream.write(last)

    def _record_failure(self, problem: Problem, outcome: RequestOutcome) -> None:
        """How a response ended that had begun; the first failure counts."""
        record = self._record
        if record.outcome == "ok":
            record.outcome = "failed" if problem.code == TransformerFailed.code else outcome
            record.error, record.blame = problem.in_short, problem.blame
        self.host_broke = record.outcome == "broken" and problem.counts_against_host

    async def _remember(self) -> None:
        """Store what the client may drop before it learns that the response is over: its next request comes at once."""
        call, exchange, record = self._call, self._exchange, self._record
        if (entry := exchange.take_entry()) is not None:
            await self._state.reasoning_memory.remember(call.tenant, entry, record)
        if self._conversation is not None and isinstance(exchange.ending, Finished):
            await self._state.route_memory.remember(
                self._conversation, self._target, record, is_long=record.route == "long_context", now=time.time()
            )
        if (response := exchange.take_completed()) is not None:
            await self._state.responses.keep(call.tenant, call.body, response, record, call)

    async def _check_prefix(self) -> None:
        """Find out why the host's prompt cache was lost, when the client has its whole response."""
        # The token of a login changes every hour, and its account does not.
        key = None if isinstance(self._key, LoginKey) else self._key
        await self._state.prefix_memory.check(
            self._call,
            self._exchange,
            provider=self._target.provider.name,
            key="" if key is None else key.reveal(),
        )

    def _headers(self, answer: UpstreamResponse) -> list[Header]:
        ours, exchange = {name for name, _ in self._client_stream.always}, self._exchange
        theirs = [header for header in to_client(answer.headers, exchange.secrets) if header[0] not in ours]
        content_type = CONTENT_TYPES[exchange.output_format].encode()
        return [(b"content-type", content_type), *response_headers(self._call), *theirs]


def problem_in(error: Exception, record: RequestRecord) -> Problem:
    """The error that a client receives. A bug is logged, and the client never sees a traceback."""
    if isinstance(error, MoonshimError):
        return problem_of(error)
    logs.log_error(record, error)
    record.outcome, record.error, record.blame = "failed", type(error).__name__, "us"
    return Problem(
        status=500, kind="server", message=f"Internal error. See the gateway log (request id {record.request_id})."
    )


def response_headers(call: ClientCall) -> list[Header]:
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
