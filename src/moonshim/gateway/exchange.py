"""One request of a client, from start to end: prepared for a host, sent, the response repaired, passed on, remembered.

`engine.exchange` decides; this does the waiting. Read `exchange` first, then `UpstreamAttempt`:

    read_request -> documents -> route -> recall -> [ prepare -> open -> read -> feed -> write ]* -> remember

A host that fails before anything of its response was passed on is asked again, or the next one is; one that a request
cannot be expressed for (several choices where its API returns one) is left out. After that there is
no second host: a failure ends the response with an error in the client's dialect. The one exception is a failure that
the model's answer is to blame for: the same host is asked once more, as long as only reasoning was passed on.
"""

from __future__ import annotations

import asyncio
import os
import time
from itertools import chain
from typing import Final

from msgspec.structs import replace

from moonshim.config import Target
from moonshim.engine.exchange import CONTENT_TYPES, Exchange
from moonshim.engine.prepare import ParsedRequest, read_request
from moonshim.errors import (
    CannotExpress,
    MoonshimError,
    Problem,
    ProblemKind,
    Refused,
    problem_of,
)
from moonshim.gateway.inbound.call import ClientCall
from moonshim.gateway.inbound.session import session_of
from moonshim.gateway.judging import Judging, judged_safeguards, open_judging, without_safeguards
from moonshim.gateway.memory.routes import ConversationRoute
from moonshim.gateway.observe.record import NO_ROUTE
from moonshim.gateway.outbound.attempts import Attempts, breaker_name
from moonshim.gateway.outbound.routes import choose_route
from moonshim.gateway.safeguards import answered_by_hosts, check_safeguards
from moonshim.gateway.state import ConfigSnapshot, GatewayState
from moonshim.gateway.upstream_attempt import (
    NO_DESCRIPTORS,
    STOPPING,
    HostFailed,
    UpstreamAttempt,
    problem_in,
    response_headers,
)

__all__ = ["NO_DESCRIPTORS", "STOPPING", "exchange", "problem_in"]


_ABOUT_A_KEY: Final[frozenset[ProblemKind]] = frozenset({"authentication", "permission", "quota"})


async def exchange(state: GatewayState, call: ClientCall) -> None:
    """Answer one client. Raises `MoonshimError` where the error can still have a status of its own."""
    snapshot, record = state.snapshot, call.record
    safeguards = judged_safeguards(snapshot.config, call)
    body = call.body if safeguards is None else without_safeguards(call.body)
    parsed = await call.run_work(read_request, body, dialect=call.dialect.name, secret=state.secret)
    record.requested_model, record.streamed = parsed.request.model, parsed.request.stream is True
    record.session = session_of(call.headers, parsed.request, state.session_key, call.tenant)
    if call.trace is not None:
        call.trace.conversation(parsed.request.messages)
    call.client_stream.watch()
    targets, conversation = await _route(state, snapshot, call, parsed)
    if safeguards is not None and answered_by_hosts(targets):
        safeguards = None  # they are not the judge's; the request goes out as the client sent it
        parsed = await call.run_work(read_request, call.body, dialect=call.dialect.name, secret=state.secret)
    check_safeguards(parsed, targets)
    # Before any heartbeat, which would begin the response: a refusal needs a status and headers of its own.
    targets = await state.spending.admit(call, parsed, targets, snapshot.price)
    if call.is_large:
        await call.in_thread(parsed.turns)  # needed later, and computed once
    current = Exchange(
        parsed,
        snapshot.learned,
        recalled=await state.reasoning_memory.recall(call.tenant, parsed, record),
        client_headers=call.headers,
        reply_id=os.urandom(16).hex(),
        created=int(record.started),
        clock=time.time,
        keeps_response=call.keeps_response,
        plays_rounds=True,
        search_access="none" if snapshot.config.web_search is None else "provider",
        judges_calls=safeguards is not None,
        unsupported_checks=() if safeguards is None else safeguards.unsupported,
        is_limited=call.key is not None and call.key.is_limited,
    )
    judging = None if safeguards is None else open_judging(state, snapshot, call, parsed, safeguards)
    try:
        await _try_targets(state, snapshot, call, current, targets, conversation, judging)
    finally:
        if judging is not None:
            judging.close()


async def _try_targets(
    state: GatewayState,
    snapshot: ConfigSnapshot,
    call: ClientCall,
    current: Exchange,
    targets: list[Target],
    conversation: ConversationRoute | None,
    judging: Judging | None,
) -> None:
    """Send the request to one target after the other, until one has answered."""
    record = call.record
    if record.streamed:
        headers = [(b"content-type", CONTENT_TYPES["sse"].encode()), *response_headers(call)]
        call.client_stream.keep_alive(snapshot.config.heartbeat_seconds, call.dialect.heartbeat, headers)
    attempts = Attempts(targets, snapshot.config.retries, state.breakers, state.retry_budget, state.random, call.tenant)
    state.ask_again_limit.count_request(call.tenant, state.clock())
    upstream_attempt: UpstreamAttempt | None = None
    failures: list[tuple[Target, Problem]] = []
    unfit: CannotExpress | None = None
    while (attempt := attempts.next(state.clock())) is not None:
        try:
            if attempt.wait:
                await asyncio.sleep(attempt.wait)
            try:
                await call.run_work(current.prepare, snapshot.request_target(attempt.target))
            except CannotExpress as error:
                unfit = unfit or error
                attempts.unfit()
                continue
            state.note_guess(attempt.target)
            record.price = snapshot.price(attempt.target)
            search = current.prepared.search
            record.search_fee = None if search is None else snapshot.search_fee(attempt.target, search.runner)
            upstream_attempt = UpstreamAttempt(
                state, call, current, attempt.target, conversation, snapshot.config.web_search, judging
            )
            await upstream_attempt.run()
        except HostFailed as failure:
            if call.trace is not None:
                call.trace.failed(failure.problem.in_short)
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
                state.breakers.failed(breaker_name(attempt.target), call.tenant, state.clock(), record.error or "")
            else:
                attempts.succeeded(attempt)
            return None
        finally:
            state.report_breaker(attempt.target.provider.name)
    problem = attempts.problem
    if problem is None and unfit is not None:
        return await _send_error(call, current, unfit)
    if problem is None:
        raise Refused(attempts.unavailable(state.clock()))
    record.outcome, record.error, record.blame = "upstream_error", problem.in_short, problem.blame
    failed_target = next(target for target, failure in failures if failure is problem)
    record.provider, record.model = failed_target.provider.name, failed_target.model
    return await _send_error(call, current, Refused(_of_provider(problem, failed_target.provider.name)))


async def _route(
    state: GatewayState, snapshot: ConfigSnapshot, call: ClientCall, parsed: ParsedRequest
) -> tuple[list[Target], ConversationRoute | None]:
    """The targets to try, and the record of the conversation if the request could be routed."""
    record = call.record
    allowed = call.key.models if call.key is not None else ()
    targets, routes = snapshot.router.resolve(parsed.request.model, allowed=allowed)
    await state.documents.read(call, parsed, chain(targets, *(routes or {}).values()))
    if routes is None:
        return targets, None
    conversation = await state.route_memory.recall(call.tenant, parsed, record)
    needs_count = "long_context" in routes and not conversation.was_long
    tokens = await call.run_work(parsed.estimate_tokens) if needs_count else 0
    route = choose_route(parsed, tokens, snapshot.config.routes, routes, was_long=conversation.was_long)
    record.route = route or NO_ROUTE
    call.client_stream.always.append((b"x-moonshim-route", record.route.encode()))
    return conversation.order(targets if route is None else routes[route], time.time()), conversation


async def _send_error(call: ClientCall, current: Exchange, error: MoonshimError) -> None:
    """Raise the error, for a status of its own; or send it in the stream, if a heartbeat has begun that with 200."""
    await call.client_stream.settle()
    if not current.is_prepared or not call.client_stream.started:
        raise error
    problem = problem_of(error)
    if call.record.outcome == "ok":
        call.record.outcome, call.record.error, call.record.blame = "failed", problem.in_short, problem.blame
    await call.client_stream.finish(current.render_stream_error(problem))


def _of_provider(problem: Problem, provider: str) -> Problem:
    """Add whose key was rejected: otherwise a client with a gateway key would check the wrong one."""
    if problem.kind not in _ABOUT_A_KEY:
        return problem
    about = "account" if problem.kind == "quota" else "API key"
    return replace(
        problem,
        message=f"{problem.message} (error from provider {provider!r} about its {about}, not about your gateway key)",
    )
