"""One request of a client, from start to end: understood, sent to a host, its answer mended, sent on and remembered.

The engine does the work; this is the frame around it. Read `exchange` first, then `_UpstreamAttempt`:

    read_request -> targets -> recall -> [ prepare -> open -> read -> feed -> write ]* -> remember

A host that fails before anything of its answer was sent is asked again, or the next one is.
After that there is no second host: what was begun is ended with an error in the client's own
words, unless all that went out was reasoning and somebody wanted such answers asked again.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from moonshim.config import Target, endpoint_of
from moonshim.engine.dialects.openai_responses import completed_in
from moonshim.engine.hosts.errors.body import mask_bytes
from moonshim.engine.hosts.errors.classify import ERROR_BYTES, mask_problem, read_problem
from moonshim.engine.prepare import ParsedRequest, Prepared, read_request
from moonshim.engine.response.reply import Form, ResponseStream, form_of, read_reply
from moonshim.engine.stages import TransformerFailed
from moonshim.engine.values.conversation import Reasoning
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
from moonshim.gateway.state import ConfigSnapshot, GatewayState
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

_CONTENT_TYPES: Final[dict[Form, bytes]] = {
    "sse": b"text/event-stream; charset=utf-8",
    "ndjson": b"application/x-ndjson",
    "json": b"application/json",
}


BYTES_PER_TOKEN: Final = 4
FREE_COMMENTS: Final = 100
COMMENT_SECONDS: Final = 1.0
"""Comments of a host are passed on as they come, but after so many in one answer only so long after the last bytes."""
_ABOUT_A_KEY: Final[frozenset[ProblemKind]] = frozenset({"authentication", "permission", "quota"})


class HostFailed(Exception):
    """A host did not answer, and nothing of its answer was sent: another one may be asked."""

    def __init__(self, problem: Problem, *, another_key: bool = False) -> None:
        super().__init__(problem.message)
        self.problem = problem
        self.another_key = another_key
        """Its provider has a key that was not refused."""


async def exchange(state: GatewayState, call: ClientCall) -> None:
    """Answer one client. Raises `MoonshimError` for what can still be told with a status of its own."""
    snapshot, record = state.snapshot, call.record
    parsed = await call.run_work(read_request, call.body, dialect=call.dialect.name, secret=state.secret)
    record.requested_model, record.streamed = parsed.request.model, parsed.request.stream is True
    targets = snapshot.router.targets(parsed.request.model, allowed=call.key.models if call.key is not None else ())
    call.client_stream.watch()
    if call.is_large:
        await call.in_thread(parsed.turns)  # asked for later, and made once
    recalled = await state.reasoning_memory.recall(call.tenant, parsed, record)
    if record.streamed:
        headers = [(b"content-type", _CONTENT_TYPES["sse"]), *_response_headers(call)]
        call.client_stream.keep_alive(snapshot.config.heartbeat_seconds, call.dialect.heartbeat, headers)
    attempts = Attempts(targets, snapshot.config.retries, state.breakers, state.retry_budget, state.random, call.tenant)
    upstream_attempt: _UpstreamAttempt | None = None
    failures: list[tuple[Target, Problem]] = []
    corrected: set[tuple[str, str]] = set()
    """The targets that were asked again with the reasoning that they missed."""
    while (attempt := attempts.next(state.clock())) is not None:
        try:
            if attempt.wait:
                await asyncio.sleep(attempt.wait)
            prepared = await call.run_work(_prepare_for, snapshot, call, parsed, attempt.target, recalled)
            upstream_attempt = _UpstreamAttempt(state, snapshot, call, parsed, attempt.target, prepared)
            await upstream_attempt.run()
        except HostFailed as failure:
            target_key = _target_key(attempt.target)
            if target_key not in corrected and await call.run_work(
                _learn_from_refusal, snapshot, call, parsed, attempt.target, recalled, prepared, failure.problem
            ):
                corrected.add(target_key)
                attempts.corrected(attempt)
            else:
                failures.append((attempt.target, failure.problem))
                attempts.failed(attempt, failure.problem, state.clock(), another_key=failure.another_key)
            state.report_failed_attempt(record, attempt, failure.problem)
        except MoonshimError as error:
            return await _send_error(call, upstream_attempt, error)
        except asyncio.CancelledError:
            if upstream_attempt is not None and upstream_attempt.sent_only_heartbeats and not call.client_stream.gone:
                # The server ends, and all that the client has are signs of life.
                await call.client_stream.finish(upstream_attempt.render_stream_error(STOPPING))
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
    return await _send_error(call, upstream_attempt, Refused(_of_provider(problem, failed_target.provider.name)))


async def _send_error(call: ClientCall, upstream_attempt: _UpstreamAttempt | None, error: MoonshimError) -> None:
    """With a status of its own, if none is out; inside the stream, if a sign of life has begun one with 200."""
    await call.client_stream.settle()
    if upstream_attempt is None or not call.client_stream.started:
        raise error
    if call.record.outcome == "ok":
        call.record.outcome, call.record.error = "failed", problem_of(error).in_short
    await call.client_stream.finish(upstream_attempt.render_stream_error(problem_of(error)))


def _of_provider(problem: Problem, provider: str) -> Problem:
    """Whose key it is that a host refuses: a client with a key of the gateway would look at the wrong one."""
    if problem.kind not in _ABOUT_A_KEY:
        return problem
    return replace(problem, message=f"{problem.message} (said by the provider {provider!r} of its own key)")


def _target_key(target: Target) -> tuple[str, str]:
    """Who is asked: what is learned of a host holds for one provider and model."""
    return target.provider.name, target.model


def _learn_from_refusal(
    snapshot: ConfigSnapshot,
    call: ClientCall,
    parsed: ParsedRequest,
    target: Target,
    recalled: dict[int, Reasoning],
    sent: Prepared,
    problem: Problem,
) -> bool:
    """Whether the host refused something that the next request to it can put right."""
    return snapshot.learned.learn_from_error(
        _target_key(target),
        sent.profile,
        problem,
        lambda fields: _prepare_for(snapshot, call, parsed, target, recalled, fields).body != sent.body,
    )


def _prepare_for(
    snapshot: ConfigSnapshot,
    call: ClientCall,
    parsed: ParsedRequest,
    target: Target,
    recalled: dict[int, Reasoning],
    learned: dict[str, Any] | None = None,
) -> Prepared:
    """The request, made right for one target, with what is known of it."""
    provider, chain = target.provider, snapshot.chain(target)
    learned = snapshot.learned.of(_target_key(target)) if learned is None else learned
    return parsed.prepare(
        upstream=provider.dialect,
        host=provider.host,
        base_url=provider.api_base_url,
        model=target.model,
        options=chain.options,
        overrides=learned | provider.overrides_for(target.model) or None,
        recalled=recalled,
        transformers=chain.transformers,
        extra_body=provider.body_for(target.model),
        reply_id=uuid.uuid4().hex,
        created=int(call.record.started),
        clock=time.time,
    )


class _UpstreamAttempt:
    """One target, asked: the request made right for it, its answer read, mended and sent."""

    def __init__(
        self,
        state: GatewayState,
        snapshot: ConfigSnapshot,
        call: ClientCall,
        parsed: ParsedRequest,
        target: Target,
        prepared: Prepared,
    ) -> None:
        self._state, self._learned, self._call, self._parsed, self._target = (
            state,
            snapshot.learned,
            call,
            parsed,
            target,
        )
        self._record, self._client_stream = call.record, call.client_stream
        self.prepared = prepared
        provider = target.provider
        one_key = len(provider.keys) < 2
        self._key = state.provider_keys.key_for(provider, "" if one_key else _conversation_key(call.tenant, parsed))
        self._secrets: tuple[str, ...] = ()
        """What the host is sent, and may repeat in an error."""
        self._sent = False
        """Something of the answer went out: nobody else can be asked now."""
        self._remembered = False
        self._comments = 0
        self.host_broke = False
        """It began to answer, and did not end well."""
        record = self._record
        record.attempts += 1
        record.provider, record.model = provider.name, target.model
        rules = [change.rule for change in self.prepared.changes]
        record.changes = dict(Counter(rules)) if rules else {}

    async def run(self) -> None:
        """Raises `HostFailed` as long as nothing of the answer was sent."""
        answer = await self._open()
        response_stream: ResponseStream | None = None
        try:
            input_format = form_of(answer.headers.get("content-type"))
            self._form = self._output_format(input_format)
            again = self._target.provider.retry_empty_answer
            response_stream = read_reply(
                self.prepared.plan,
                input_format=input_format,
                output_format=self._form,
                hold_empty=again,
                limit=self._call.held.limits.max_answer_bytes,
                collect=self._needs_message(),
            )
            completed = await self._relay(answer, response_stream)
            if again and completed and response_stream.only_reasoning:
                answer = await self._ask_again(answer, response_stream)
            await self._end(answer, response_stream)
        finally:
            answer.close()
            if response_stream is not None:
                await self._charge(response_stream)

    def _needs_message(self) -> bool:
        """Whether anybody looks at what was said: to file its reasoning, to charge for it, or for leaked markers."""
        key, plan = self._call.key, self.prepared.plan
        return (
            self.prepared.profile.reasoning_in is not None
            or (key is not None and key.tokens_per_minute is not None)
            or self._state.looks_for_markers(self._target, plan)
        )

    @property
    def sent_only_heartbeats(self) -> bool:
        """Whether a stream has begun, and nothing of an answer is in it."""
        return self._client_stream.started and not self._sent

    def render_stream_error(self, problem: Problem) -> bytes:
        """The error as the client reads it in the middle of a stream."""
        return read_reply(self.prepared.plan, input_format="sse", output_format="sse").fail(problem)

    # -- the host --------------------------------------------------------------------

    async def _open(self) -> UpstreamResponse:
        provider = self._target.provider
        streams = self.prepared.body.get("stream") is True
        headers = headers_for_host(self._call, self._target, self._key, streams=streams)
        keys = (headers[name] for name in ("authorization", "x-api-key") if name in headers)
        self._secrets = (*provider.headers.values(), *keys)
        call = UpstreamRequest(
            url=endpoint_of(provider),
            headers=headers,
            body=await self._call.encode_json(self.prepared.body),
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
        problem = read_problem(answer.status, body, answer.headers, self.prepared.profile, secrets=self._secrets)
        raise HostFailed(problem, another_key=self._state.provider_keys.failed(provider, self._key, problem))

    def _output_format(self, input_format: Form) -> Form:
        if not self._record.streamed:
            return "json"
        # No SDK reads NDJSON: it goes on as it is only to clients that ask for it, unless they were told otherwise.
        takes_lines = "application/x-ndjson" in self._call.headers.get("accept", "") and not self._client_stream.started
        return "ndjson" if takes_lines and input_format == "ndjson" and not self.prepared.plan.translates else "sse"

    # -- the answer ------------------------------------------------------------------

    async def _relay(self, answer: UpstreamResponse, response_stream: ResponseStream) -> bool:
        """All that the host says, sent on as it becomes sure. False: it broke off, and the client knows."""
        input_format = form_of(answer.headers.get("content-type"))
        log = self._state.stream_log(self._record, self.prepared, input_format, self._form, self._secrets)
        read = answer.read
        try:
            while data := await read():
                if log is not None:
                    log.write(data)
                out = response_stream.feed(data)
                ending = response_stream.ending
                if out and ending is None and self._is_redundant_comment(out):
                    continue
                if out:
                    if isinstance(ending, Failed):
                        out = mask_bytes(out, self._secrets)
                    if ending is not None:
                        await self._remember(response_stream, out)
                        self._client_stream.sent_end |= any(word in out for word in self._call.dialect.terminal_markers)
                    if not self._sent:
                        await self._begin(answer, response_stream, out)
                    await self._client_stream.write(out)
                if (ending is not None or not out) and response_stream.problem is not None:
                    break  # what it still says is of no use
                if ending is not None and read == answer.read:
                    read = partial(self._read_after_end, answer)
        except UpstreamError as error:
            await self._break_off(answer, response_stream, problem_of(error), "broken")
            return False
        except asyncio.CancelledError:
            if self._sent and not self._client_stream.gone:
                # The server ends, and cannot wait any longer.
                self._record_failure(STOPPING, "broken")
                await self._client_stream.finish(response_stream.fail(STOPPING))
            raise
        except Exception as error:
            if not self._sent:
                raise
            # A plug-in that raised, or a fault of ours, in the middle of an answer.
            await self._break_off(answer, response_stream, problem_in(error, self._record), "failed")
            return False
        finally:
            if log is not None:
                log.close(self._record.outcome)
        return True

    def _is_redundant_comment(self, out: bytes) -> bool:
        """Whether these are comments that nobody needs: the client has heard from us a moment ago."""
        if not _is_comment(out):
            return False
        self._comments += 1
        return self._comments > FREE_COMMENTS and self._client_stream.silent_seconds < COMMENT_SECONDS

    async def _read_after_end(self, answer: UpstreamResponse) -> bytes:
        """What comes behind the end of an answer: usage, mostly. Some hosts then leave the connection open."""
        if self.prepared.body.get("n") not in (None, 1):
            return await answer.read()  # only the first of several answers has ended
        client_stream = self._client_stream
        waits = client_stream.sent_end and not client_stream.has_left
        try:
            async with asyncio.timeout(GOODBYE_SECONDS if waits else LAST_WORDS_SECONDS):
                return await answer.read()
        except TimeoutError:
            return await self._read_after_end(answer) if waits and client_stream.has_left else b""

    async def _begin(self, answer: UpstreamResponse, response_stream: ResponseStream, out: bytes) -> None:
        if isinstance(response_stream.ending, Failed) and response_stream.problem is not None:
            # The first thing that it says is an error: 200 was not meant.
            self._fail_unless_sent(response_stream.problem)
        await self._client_stream.start(self._headers(answer, self._form))
        # Comments are signs of life, as ours are: behind them, somebody can still be asked again.
        if not _is_comment(out):
            self._sent = True
            self._record.first_byte_seconds = time.time() - self._record.started

    async def _ask_again(self, first: UpstreamResponse, response_stream: ResponseStream) -> UpstreamResponse:
        """Once more, since all that came was reasoning: the second answer follows in the same stream."""
        try:
            second = await self._open()
        except HostFailed:
            return first  # then the empty answer has to do
        first.close()
        response_stream.start_retry()
        self._remembered = False  # what was filed of the first answer is not all
        self._record.attempts += 1
        try:
            await self._relay(second, response_stream)
        except BaseException:
            second.close()
            raise
        return second

    async def _end(self, answer: UpstreamResponse, response_stream: ResponseStream) -> None:
        last = response_stream.flush()
        if isinstance(response_stream.ending, Failed):
            last = mask_bytes(last, self._secrets)
        record = self._record
        if response_stream.problem is not None:
            self._fail_unless_sent(response_stream.problem)
            self._record_failure(response_stream.problem, "broken")
        await self._remember(response_stream, last)
        self._state.note_unread_markers(self._target, self.prepared.plan, response_stream)
        record.repairs = response_stream.repair_counts
        if usage := response_stream.usage:
            record.input_tokens, record.output_tokens = usage.input_tokens, usage.output_tokens
            record.cached_tokens = usage.cached_tokens
        if not record.streamed:
            record.first_byte_seconds = time.time() - record.started
            await self._client_stream.respond(200, self._headers(answer, "json"), last)
            return
        if not self._sent:
            await self._begin(answer, response_stream, last)
        await self._client_stream.finish(last)

    async def _charge(self, response_stream: ResponseStream) -> None:
        """What the answer counts for its key, also when it was cut off."""
        call, key = self._call, self._call.key
        if key is not None and key.tokens_per_minute is not None and (self._sent or not self._record.streamed):
            whole = isinstance(response_stream.ending, Finished)
            count = partial(
                tokens_of, response_stream.usage, self._parsed.request, response_stream.message, whole=whole
            )
            try:
                call.tokens = await call.run_work(count)
            except Refused:  # no thread was free
                call.tokens = call.held.size // BYTES_PER_TOKEN

    def _fail_unless_sent(self, problem: Problem) -> None:
        problem = mask_problem(problem, self._secrets)
        if not self._sent:
            # Another host would not help a plug-in that raises.
            raise Refused(problem) if problem.code == TransformerFailed.code else HostFailed(problem)

    async def _break_off(
        self, answer: UpstreamResponse, response_stream: ResponseStream, problem: Problem, outcome: Outcome
    ) -> None:
        """The host is gone, the client is not: what is open is closed, and the error told.

        An answer that had said how it ends is whole, whatever became of its connection.
        """
        problem = mask_problem(problem, self._secrets)
        last = response_stream.fail(problem)
        if response_stream.problem is not None:
            self._fail_unless_sent(problem)
            self._record_failure(problem, outcome)
        if last:
            await self._remember(response_stream, last)
            if not self._sent:
                await self._begin(answer, response_stream, last)
            await self._client_stream.write(last)

    def _record_failure(self, problem: Problem, outcome: Outcome) -> None:
        """How an answer ended that had begun; what was noted first stays."""
        problem = mask_problem(problem, self._secrets)
        record = self._record
        if record.outcome == "ok":
            record.outcome = "failed" if problem.code == TransformerFailed.code else outcome
            record.error = problem.in_short
        self.host_broke = record.outcome == "broken" and not problem.permanent

    async def _remember(self, response_stream: ResponseStream, out: bytes) -> None:
        """Remember what the client may drop before it knows that the answer is over: its next request comes at once."""
        call = self._call
        if isinstance(response_stream.ending, Failed):
            return
        if not self._remembered:
            self._remembered = True
            entry = self._parsed.cache_entry(response_stream.message)
            self._learned.learn_reasoning_field(
                _target_key(self._target), self.prepared.profile, response_stream.reasoning_field
            )
            if entry is not None:
                await self._state.reasoning_memory.remember(call.tenant, entry, self._record)
        if call.keeps_response and (response := completed_in(out)) is not None:
            await self._state.responses.keep(call.tenant, call.body, response, self._record, call)

    def _headers(self, answer: UpstreamResponse, form: Form) -> list[Header]:
        ours = {name for name, _ in self._client_stream.always}
        theirs = [header for header in to_client(answer.headers, self._secrets) if header[0] not in ours]
        return [(b"content-type", _CONTENT_TYPES[form]), *_response_headers(self._call), *theirs]


def problem_in(error: Exception, record: RequestRecord) -> Problem:
    """What a client is told of an error. A fault of ours is told as such, and logged: never with a traceback."""
    if isinstance(error, MoonshimError):
        return problem_of(error)
    logs.log_error(record, error)
    record.outcome, record.error = "failed", type(error).__name__
    return Problem(status=500, kind="server", message="this is a fault of Moonshim; its log says more")


def _is_comment(out: bytes) -> bool:
    return out.startswith((b":", b"\n")) and all(not line or line.startswith(b":") for line in out.splitlines())


def _response_headers(call: ClientCall) -> list[Header]:
    """What is told beside every answer; of a stream, as much as is known when it begins."""
    record = call.record
    counts = Counter(record.changes) + Counter(record.repairs) if record.changes or record.repairs else {}
    failed_target = ", ".join(f"{rule}={count}" for rule, count in sorted(counts.items())) or "none"
    headers = [(b"x-moonshim-repairs", failed_target.encode())]
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
