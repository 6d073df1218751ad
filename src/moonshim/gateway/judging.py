"""Calls of a response, as they become complete -> verdicts of the configured judge, while the rest of it streams.

`engine.judge` knows what a judge is asked and what its answer means. This sends the requests. They are the owner's:
they may use a model that the client's key may not, they count against the budget of that key, they are booked as
`judge`, and nothing about them opens a circuit breaker. Whatever goes wrong, a call without a clear permission is
flagged.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, Final

from msgspec import Struct

from moonshim.config import Config, Target, endpoint_of
from moonshim.engine.dialects.anthropic.safeguards import SAFEGUARDS, Safeguards, read_safeguards
from moonshim.engine.dialects.registry import dialect_named
from moonshim.engine.exchange import Exchange
from moonshim.engine.hosts.errors.classify import ERROR_BYTES
from moonshim.engine.judge import Case, build_request, decide_without_model, next_batch, read_case, read_verdicts
from moonshim.engine.prepare import ParsedRequest, read_request
from moonshim.engine.values.conversation import Text
from moonshim.engine.values.events import Finished
from moonshim.engine.values.verdicts import CallToJudge, Reason, Verdict
from moonshim.engine.wire.json_codec import encode
from moonshim.errors import CannotExpress, MoonshimError, Refused, UpstreamError, UpstreamUnreachable, problem_of
from moonshim.gateway.client_stream import ClientStream
from moonshim.gateway.inbound.budgets import BudgetRefusal
from moonshim.gateway.inbound.call import ClientCall
from moonshim.gateway.observe import logs
from moonshim.gateway.observe.booking import book_tokens, open_booking, settle_booking
from moonshim.gateway.observe.record import RequestRecord
from moonshim.gateway.outbound.attempts import Attempts, Breakers, RetryBudget
from moonshim.gateway.outbound.request_headers import headers_for_host
from moonshim.gateway.state import ConfigSnapshot, GatewayState
from moonshim.http_client import UpstreamRequest
from moonshim.usage.estimate import complete_usage, is_complete

__all__ = [
    "JUDGE",
    "JudgeAnswer",
    "Judging",
    "ask_judge",
    "judged_safeguards",
    "open_judging",
    "own_call",
    "without_safeguards",
]

JUDGE: Final = "judge"
"""The client's name in the books and in the inspector."""
_DIALECT: Final = "openai_chat"
_PATH: Final = "/v1/chat/completions"
_NONCE_BYTES: Final = 12
_AT_ONCE: Final = 8
"""Requests to the judge for one response that run at the same time."""
_NOT_IN_FORM: Final = "the answer is not one verdict for each call"
_AGENT_HEADER: Final = "x-claude-code-agent-id"
"""Claude Code sends it with the requests of its subagents."""
_MAX_ANSWER_BYTES: Final = 1024 * 1024
_REWRITTEN: Final = frozenset({"answer_corrected"})
"""Repairs after which the text is not what the judge wrote."""
_SAID: Final[dict[Reason, str]] = {
    "failed": "The judge of this gateway failed, so the call was not allowed",
    "slow": "The judge of this gateway did not answer in time, so the call was not allowed",
    "over_budget": "The budget of this key is used up, so the call could not be checked",
    "not_in_form": "The judge of this gateway gave no clear answer, so the call was not allowed",
}


def judged_safeguards(config: Config, call: ClientCall) -> Safeguards | None:
    """What this gateway judges itself for the request; None: nothing. Raises `InvalidInput`."""
    if config.claude_code.judge_model is None or call.dialect.name != "anthropic":
        return None
    return read_safeguards(call.body)


def open_judging(
    state: GatewayState, snapshot: ConfigSnapshot, call: ClientCall, parsed: ParsedRequest, safeguards: Safeguards
) -> Judging:
    case = read_case(parsed.request.messages, safeguards.context, is_subagent=_AGENT_HEADER in call.headers)
    return Judging(state, snapshot, call, case)


def without_format(body: Mapping[str, Any]) -> dict[str, Any]:
    """The request for a host without structured output."""
    return {key: value for key, value in body.items() if key != "response_format"}


def without_safeguards(body: Mapping[str, Any]) -> dict[str, Any]:
    """The request for a host, which is not asked to judge too."""
    return {key: value for key, value in body.items() if key != SAFEGUARDS}


class _Undecided(Exception):
    """There is no verdict, for this reason. The detail is for the operator only."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason: Reason = reason


class Judging:
    """The verdicts about the calls of one response: each call is asked about as soon as it is complete."""

    def __init__(self, state: GatewayState, snapshot: ConfigSnapshot, call: ClientCall, case: Case) -> None:
        self._state, self._snapshot, self._call, self._case = state, snapshot, call, case
        self._seconds = snapshot.config.claude_code.judge_seconds
        self._running: set[asyncio.Task[None]] = set()
        self._forget()

    def _forget(self) -> None:
        self._calls: dict[int, CallToJudge] = {}
        """By the index of their block, in the order of the response."""
        self._queue: list[CallToJudge] = []
        self._verdicts: dict[int, Verdict] = {}

    def restart(self) -> None:
        """The response starts again at another host."""
        self.close()
        self._forget()

    def offer(self, calls: Sequence[CallToJudge]) -> None:
        """These calls of the response are complete."""
        for call in calls:
            self._calls[call.index] = call
            if (verdict := decide_without_model(call)) is not None:
                self._verdicts[call.index] = verdict
            else:
                self._queue.append(call)
        self._ask_next()

    async def verdicts(self) -> dict[int, Verdict]:
        """The verdicts about all calls, as soon as they are there, and before the time is over."""
        try:
            async with asyncio.timeout(self._seconds):
                while self._running:
                    await asyncio.wait(self._running)
        except TimeoutError:
            self.close()
        for index in self._calls:
            if index not in self._verdicts:
                self._verdicts[index] = Verdict("flagged", "slow", _SAID["slow"])
        self._report()
        return self._verdicts

    def close(self) -> None:
        """The client is gone, or has its response."""
        running, self._running = self._running, set()
        for task in running:
            task.cancel()

    def _ask_next(self) -> None:
        while self._queue and len(self._running) < _AT_ONCE:
            size = next_batch(self._queue)
            batch, self._queue = self._queue[:size], self._queue[size:]
            before = [call for call in self._calls.values() if call.index < batch[0].index]
            task = asyncio.create_task(self._judge(self._case.followed_by(before), batch))
            self._running.add(task)
            task.add_done_callback(self._go_on)

    def _go_on(self, task: asyncio.Task[None]) -> None:
        if task in self._running:  # otherwise it was cancelled
            self._running.discard(task)
            self._ask_next()

    async def _judge(self, case: Case, batch: Sequence[CallToJudge]) -> None:
        verdicts = self._verdicts  # of this response, if it starts anew meanwhile
        answer = await ask_judge(self._state, self._snapshot, self._call, case, batch)
        verdicts |= answer.verdicts
        if answer.problem is not None:
            logs.event(
                "judge_failed",
                level="warning",
                request_id=self._call.request_id,
                model=self._snapshot.config.claude_code.judge_model,
                reason=next(iter(answer.verdicts.values())).reason,
                problem=answer.problem,
            )

    def _report(self) -> None:
        record, metrics = self._call.record, self._state.metrics
        for verdict in self._verdicts.values():
            metrics.count_judged(verdict)
        record.judged = dict(Counter(verdict.outcome for verdict in self._verdicts.values()))
        listed = [(self._calls[index], verdict) for index, verdict in sorted(self._verdicts.items())]
        if self._call.trace is not None:
            self._call.trace.judged(listed)
        if flagged := [(call, verdict) for call, verdict in listed if verdict.outcome == "flagged"]:
            logs.event(
                "calls_flagged",
                request_id=self._call.request_id,
                model=self._snapshot.config.claude_code.judge_model,
                tools=[call.name[:64] for call, _ in flagged],
                reasons=[verdict.reason for _, verdict in flagged],
            )


class JudgeAnswer(Struct, frozen=True):
    """What came of one request to the judge: a verdict for each call, whatever happened."""

    verdicts: dict[int, Verdict]
    """By the index of the call's block."""
    problem: str | None = None
    """Why the judge decided nothing, for the operator."""


async def ask_judge(
    state: GatewayState, snapshot: ConfigSnapshot, call: ClientCall, case: Case, batch: Sequence[CallToJudge]
) -> JudgeAnswer:
    """Ask the judge about these calls of the client's request `call`, for as long as it may take."""
    seconds = snapshot.config.claude_code.judge_seconds
    try:
        async with asyncio.timeout(seconds):
            return JudgeAnswer(await _JudgeRequest(state, snapshot, call).run(case, batch))
    except TimeoutError:
        return _without_verdict(batch, "slow", f"no answer within {seconds:g} s")
    except _Undecided as error:
        return _without_verdict(batch, error.reason, str(error))
    except BudgetRefusal as error:
        return _without_verdict(batch, "over_budget", str(error))
    except MoonshimError as error:
        return _without_verdict(batch, "failed", problem_of(error).in_short)
    except Exception as error:  # a plug-in that raises, or a bug: nothing may pass because of it
        logs.log_error(call.record, error)
        return _without_verdict(batch, "failed", type(error).__name__)


def _without_verdict(batch: Sequence[CallToJudge], reason: Reason, problem: str) -> JudgeAnswer:
    verdict = Verdict("flagged", reason, _SAID[reason])
    return JudgeAnswer({call.index: verdict for call in batch}, problem)


def own_call(state: GatewayState, snapshot: ConfigSnapshot, headers: Mapping[str, str]) -> ClientCall:
    """A call of no client, to ask the judge by itself."""
    return ClientCall(
        dialect=dialect_named(_DIALECT),
        headers=headers,
        query={},
        record=RequestRecord(request_id=os.urandom(16).hex(), path=_PATH, dialect=_DIALECT, client=JUDGE),
        client_stream=ClientStream(_nothing, _discard),
        key=None,
        tenant="local",
        held=state.body_memory.reserve("local", snapshot.config.limits),
        threads=state.large_work,
    )


class _JudgeRequest:
    """One request, with a record of its own in the books, the metrics and the inspector."""

    def __init__(self, state: GatewayState, snapshot: ConfigSnapshot, client: ClientCall) -> None:
        self._state, self._snapshot = state, snapshot
        self._model = snapshot.config.claude_code.judge_model or ""
        asked = client.record
        self._record = record = RequestRecord(
            request_id=asked.request_id,
            path=_PATH,
            dialect=_DIALECT,
            client=JUDGE,
            key=asked.key,
            session=asked.session,
            requested_model=self._model,
            started=time.time(),
        )
        inspector = state.inspector
        self._call = ClientCall(
            dialect=dialect_named(_DIALECT),
            headers=client.headers,  # of a client whose key is passed on
            query={},
            record=record,
            client_stream=ClientStream(_nothing, _discard),
            key=client.key,
            tenant=client.tenant,
            held=client.held,
            threads=client.threads,
            trace=None if inspector is None else inspector.tracer.start(record),
        )
        # Kimi Code accepts only agents that it knows.
        agent = client.headers.get("user-agent")
        self._headers = {} if agent is None else {"user-agent": agent}

    async def run(self, case: Case, batch: Sequence[CallToJudge]) -> dict[int, Verdict]:
        """The verdicts. Raises `MoonshimError` or `_Undecided`."""
        state, record, began = self._state, self._record, self._state.clock()
        request = build_request(self._model, case, batch, os.urandom(_NONCE_BYTES).hex())
        try:
            if self._call.trace is not None:
                self._call.trace.request([encode(request.body)])
            answer = await self._answer(request.body)
            verdicts = read_verdicts(answer, request.calls)
            if verdicts is None:
                raise _Undecided("not_in_form", _NOT_IN_FORM)
            record.status = 200
            return verdicts
        except BaseException as error:
            record.outcome = "client_gone" if isinstance(error, asyncio.CancelledError) else "upstream_error"
            record.error = None if isinstance(error, asyncio.CancelledError) else str(error)
            raise
        finally:
            record.seconds = state.clock() - began
            settle_booking(state.ledger, record)
            try:
                await state.spending.settle(record)
            finally:
                if self._call.trace is not None:
                    self._call.trace.finish()
                state.metrics.observe_judge(record)

    async def _answer(self, body: dict[str, Any]) -> str:
        """The text that a host answers. Hosts are tried as for a client, with circuit breakers of its own."""
        state, snapshot, retries = self._state, self._snapshot, self._snapshot.config.retries
        parsed = read_request(body, dialect=_DIALECT)
        targets = await state.spending.admit(self._call, parsed, snapshot.router.targets(self._model), snapshot.price)
        guided, plain = self._exchange(parsed), self._exchange(read_request(without_format(body), dialect=_DIALECT))
        breakers, budget = Breakers(retries), RetryBudget(retries.budget)
        attempts = Attempts(targets, retries, breakers, budget, state.random, self._call.tenant)
        while (attempt := attempts.next(state.clock())) is not None:
            await asyncio.sleep(attempt.wait)
            exchange, target = guided, snapshot.request_target(attempt.target)
            try:
                if any(change.rule == "response_format" for change in exchange.prepare(target).changes):
                    # The host has no structured output. The prompt has the form, and an answer is never repaired here:
                    # one with words around it counts for nothing.
                    exchange = plain
                    exchange.prepare(target)
                return await self._ask_host(exchange, attempt.target)
            except CannotExpress:
                attempts.unfit()
            except (Refused, UpstreamError) as error:
                problem = problem_of(error)
                if exchange.correct(problem):
                    attempts.corrected(attempt)
                else:
                    attempts.failed(attempt, problem, state.clock())
        raise Refused(attempts.problem or attempts.unavailable(state.clock()))

    def _exchange(self, parsed: ParsedRequest) -> Exchange:
        return Exchange(parsed, self._snapshot.learned, client_headers=self._headers, clock=time.time)

    async def _ask_host(self, exchange: Exchange, target: Target) -> str:
        """Raises `Refused` for an error of the host, and `UpstreamError`."""
        state, record, provider, trace = self._state, self._record, target.provider, self._call.trace
        record.attempts += 1
        record.provider, record.model, record.price = provider.name, target.model, self._snapshot.price(target)
        key = state.provider_keys.key_for(provider, self._call.tenant)
        if key is not None and key.problem is not None:
            raise _Undecided("failed", key.problem)
        streams = exchange.prepared.body.get("stream") is True
        headers = headers_for_host(self._call, target, key, exchange, streams=streams)
        sent_keys = (headers[name] for name in ("authorization", "x-api-key") if name in headers)
        exchange.secrets = (*provider.headers.values(), *sent_keys)
        body = encode(exchange.prepared.body)
        if trace is not None:
            trace.attempt(exchange, provider.name, target.model)
            trace.sent(exchange, body)
        request = UpstreamRequest(
            url=endpoint_of(provider),
            headers=headers,
            body=body,
            timeouts=provider.timeouts,
            proxy=provider.proxy,
            ca_bundle=provider.ca_bundle,
        )
        open_booking(state.ledger, record, target, exchange)
        is_billed = True
        try:
            try:
                answer = await state.upstream.open(request)
            except UpstreamError as error:
                is_billed = not isinstance(error, UpstreamUnreachable)
                raise
            try:
                if not 200 <= answer.status <= 299:
                    is_billed = False
                    refusal = await answer.read_all(ERROR_BYTES, cut=True)
                    if trace is not None:
                        trace.refused(answer.status, refusal)
                    problem = exchange.error_from(answer.status, answer.headers, refusal)
                    state.provider_keys.failed(provider, key, problem)
                    raise Refused(problem)
                exchange.start_response(
                    answer.headers.get("content-type"), output_format="json", limit=_MAX_ANSWER_BYTES
                )
                if trace is not None:
                    trace.opened(exchange, answer.connect_seconds)
                while data := await answer.read():
                    exchange.feed(data)
                    if trace is not None:
                        trace.chunk(data, b"")
                out = exchange.end()
                if trace is not None:
                    trace.chunk(b"", out)
            finally:
                answer.close()
        finally:
            if is_billed:
                self._book(exchange, target)
        if exchange.problem is not None:
            raise Refused(exchange.problem)
        if not isinstance(exchange.ending, Finished) or exchange.ending.reason != "stop":
            raise _Undecided("not_in_form", "the answer was cut off")
        if exchange.repair_counts.keys() & _REWRITTEN:
            raise _Undecided("not_in_form", _NOT_IN_FORM)
        return "".join(part.text for part in exchange.message.parts if isinstance(part, Text))

    def _book(self, exchange: Exchange, target: Target) -> None:
        """Also what was cut off counts: its host charges for it."""
        whole = isinstance(exchange.ending, Finished)
        usage, counted = exchange.usage, is_complete(exchange.usage, whole=whole)
        if not counted:
            usage = complete_usage(usage, exchange.parsed.request, exchange.message, whole=whole)
        assert usage is not None
        book_tokens(self._record, usage, target, estimated=not counted)
        if self._call.trace is not None:
            self._call.trace.counted(self._record, exchange.message)


async def _nothing() -> MutableMapping[str, Any]:
    return {"type": "http.disconnect"}


async def _discard(message: MutableMapping[str, Any]) -> None:
    """There is no client."""
