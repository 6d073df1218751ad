"""Paths -> their handlers: the sender is checked, the body is read, and errors are sent in the client's own dialect."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl

from starlette.routing import BaseRoute, Route

from moonshim.config import GatewayKey
from moonshim.engine.dialects.protocol import Dialect
from moonshim.engine.dialects.registry import dialect_named
from moonshim.engine.prepare import read_request
from moonshim.engine.stages import TransformerFailed
from moonshim.engine.wire.json_codec import encode
from moonshim.errors import InvalidInput, Problem, Refused
from moonshim.gateway.client_stream import ClientStream, Header, Receive, Send
from moonshim.gateway.exchange import NO_DESCRIPTORS, STOPPING, exchange, problem_in
from moonshim.gateway.inbound.body import BodyGone, read_json
from moonshim.gateway.inbound.call import ClientCall
from moonshim.gateway.inbound.origin import check_origin, cors_headers, preflight_headers
from moonshim.gateway.inbound.user_agent import client_name
from moonshim.gateway.inspector.routes import inspector_routes
from moonshim.gateway.inspector.trace import ExchangeTrace
from moonshim.gateway.memory.compaction import compact
from moonshim.gateway.models_list import model_entry, model_list
from moonshim.gateway.observe import logs
from moonshim.gateway.observe.booking import settle_booking
from moonshim.gateway.observe.record import RequestRecord
from moonshim.gateway.state import ConfigSnapshot, GatewayState
from moonshim.gateway.usage_report import usage_report
from moonshim.http_server.protocol import DIRECT, ROOM

__all__ = ["routes_of"]

Scope: TypeAlias = Mapping[str, Any]
Handler: TypeAlias = Callable[[GatewayState, ClientCall, Mapping[str, str]], Awaitable[Any]]
"""The return value, if any, goes to the client as JSON."""

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)
_MOST_MODELS: Final = 1000
_MOST_ITEMS: Final = 999_999_999
_ENDLESS: Final = {"left": lambda: True}
"""For servers other than ours, which do not report their file descriptors."""
CLIENT_GONE: Final = 499
"""nginx's status for a client that disconnected; it is only logged."""


class RouteHandler:
    """One path and method. Whatever happens, the client gets a response in its own dialect, and one line is logged."""

    def __init__(self, state: GatewayState, dialect: str, handler: Handler, *, open_to_all: bool = False) -> None:
        self._state, self._handler, self._open = state, handler, open_to_all
        self._counts = not open_to_all and handler not in _FREE
        """Whether it counts against the limits of its key."""
        self._dialect: Dialect = dialect_named(dialect)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state, headers = self._state, _headers(scope)
        client_request_id = headers.get("x-request-id", "")
        record = RequestRecord(
            request_id=client_request_id if _REQUEST_ID.fullmatch(client_request_id) else os.urandom(16).hex(),
            path=scope["path"],
            dialect=self._dialect.name,
            client=client_name(headers.get("user-agent")),
            started=time.time(),
        )
        snapshot = state.snapshot
        direct = scope.get("extensions", {}).get(DIRECT)
        client_stream = ClientStream(
            receive,
            send,
            _always(record, cors_headers(snapshot.config, headers)),
            None if direct is None else direct["open"],
        )
        started_at = state.clock()
        state.metrics.count_started(record)
        logs.bind_request(record)
        trace = self._trace(record)
        if state.telemetry is not None and self._handler in _TRACED:
            state.telemetry.start(record, headers)
        try:
            await self._answer(scope, headers, record, client_stream, receive, trace)
        except asyncio.CancelledError:
            if not client_stream.gone:
                await self._send_error(client_stream, record, STOPPING)
                raise
            _record_disconnect(record)
        except BodyGone:
            _record_disconnect(record)
        finally:
            client_stream.close()
            record.status = client_stream.status or record.status
            record.seconds = state.clock() - started_at
            settle_booking(state.ledger, record)
            try:
                await state.spending.settle(record)
            finally:
                if trace is not None:
                    trace.finish()
                if not self._open:
                    logs.log_request(record)
                state.metrics.observe(record)
                if record.spans is not None:
                    record.spans.end()

    async def _answer(
        self,
        scope: Scope,
        headers: Mapping[str, str],
        record: RequestRecord,
        client_stream: ClientStream,
        receive: Receive,
        trace: ExchangeTrace | None,
    ) -> None:
        state, snapshot = self._state, self._state.snapshot
        call: ClientCall | None = None
        try:
            check_origin(snapshot.config, headers, bound_to_loopback=state.bound_to_loopback)
            key = self._identify(snapshot, headers, record)
            if self._counts and not scope.get("extensions", {}).get(ROOM, _ENDLESS)["left"]():
                raise Refused(NO_DESCRIPTORS)
            tenant = snapshot.tenant(key, headers)
            call = ClientCall(
                dialect=self._dialect,
                headers=headers,
                query=dict(parse_qsl(scope["query_string"].decode("latin-1"))) if scope["query_string"] else {},
                record=record,
                client_stream=client_stream,
                key=key,
                tenant=tenant,
                held=state.body_memory.reserve(tenant, snapshot.config.limits),
                threads=state.large_work,
                trace=trace,
            )
            # A client that is over a limit is refused before any of the body is read.
            async with state.admit_call(call) if self._counts else nullcontext():
                if scope["method"] == "POST" and self._counts:
                    call.body = await read_json(receive, call)
                result = await self._handler(state, call, scope.get("path_params") or {})
        except BodyGone:
            raise
        except Exception as error:
            await self._send_error(client_stream, record, problem_in(error, record))
        else:
            if isinstance(result, RawResponse):
                await client_stream.respond(result.status, result.headers, result.body)
            elif result is not None:
                await client_stream.respond(200, _json_headers(record), encode(result))
        finally:
            if call is not None:
                call.release()

    def _trace(self, record: RequestRecord) -> ExchangeTrace | None:
        """Where the inspector records this request; None if it does not."""
        inspector = self._state.inspector
        return None if inspector is None or self._handler not in _TRACED else inspector.tracer.start(record)

    def _identify(
        self, snapshot: ConfigSnapshot, headers: Mapping[str, str], record: RequestRecord
    ) -> GatewayKey | None:
        if self._open:
            return None
        if self._state.draining:
            raise Refused(STOPPING)
        key = snapshot.keyring.identify(headers)
        record.key = key.name if key is not None else None
        return key

    async def _send_error(self, client_stream: ClientStream, record: RequestRecord, problem: Problem) -> None:
        if record.outcome == "ok":
            record.outcome = "failed" if problem.code == TransformerFailed.code else "refused"
            record.error, record.blame = problem.in_short, problem.blame
        headers = _json_headers(record)
        headers += [(name.encode(), value.encode()) for name, value in problem.retry_headers.items()]
        if problem in (STOPPING, NO_DESCRIPTORS):
            headers.append((b"connection", b"close"))
        if problem.request_id is not None and _REQUEST_ID.fullmatch(problem.request_id):
            headers.append((b"x-upstream-request-id", problem.request_id.encode()))
        await client_stream.settle()
        if client_stream.started:
            # The status is already sent: all that is left is not to pretend that this was a proper end.
            await client_stream.abort()
            return
        await client_stream.respond(problem.status, headers, encode(self._dialect.render_problem(problem)))


class RawResponse:
    """A response that is not JSON in a dialect."""

    def __init__(self, body: bytes, content_type: bytes = b"application/json", status: int = 200) -> None:
        self.body, self.status = body, status
        self.headers: Sequence[Header] = [(b"content-type", content_type)]


def _headers(scope: Scope) -> dict[str, str]:
    """By lower-case names; several values of one name are joined by commas, as HTTP defines it."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1"), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def _always(record: RequestRecord, cors: Sequence[Header]) -> list[Header]:
    return [(b"x-request-id", record.request_id.encode()), *cors]


def _json_headers(record: RequestRecord) -> list[Header]:
    headers = [(b"content-type", b"application/json"), (b"x-moonshim-repairs", b"none")]
    if record.store_failures:
        headers.append((b"x-moonshim-lost", ", ".join(dict.fromkeys(record.store_failures)).encode()))
    return headers


def _record_disconnect(record: RequestRecord) -> None:
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        task.uncancel()
    record.outcome, record.status = "client_gone", CLIENT_GONE


# -- handlers ----------------------------------------------------------------------------------------------------


async def _exchange(state: GatewayState, call: ClientCall, _: Mapping[str, str]) -> None:
    await exchange(state, call)


async def _responses(state: GatewayState, call: ClientCall, _: Mapping[str, str]) -> None:
    call.body = await state.responses.resolve(call.tenant, call.body, call.record, call)
    if call.body.get("store") is not False:
        call.keeps_response = True
    await exchange(state, call)


async def _compact(state: GatewayState, call: ClientCall, _: Mapping[str, str]) -> dict[str, Any]:
    call.body = await state.responses.resolve(call.tenant, call.body, call.record, call)
    return await compact(state, call)


async def _response(state: GatewayState, call: ClientCall, path: Mapping[str, str]) -> dict[str, Any]:
    return await state.responses.get(call.tenant, path["id"], call)


async def _delete_response(state: GatewayState, call: ClientCall, path: Mapping[str, str]) -> dict[str, Any]:
    return await state.responses.delete(call.tenant, path["id"])


async def _input_items(state: GatewayState, call: ClientCall, path: Mapping[str, str]) -> dict[str, Any]:
    query = call.query
    limit, order = _page_size(query, _MOST_ITEMS), query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise InvalidInput("order must be asc or desc", field="order")
    return await state.responses.input_items(
        call.tenant,
        path["id"],
        limit=20 if limit is None else limit,
        order="asc" if order == "asc" else "desc",
        after=query.get("after"),
        work=call,
    )


def _page_size(query: Mapping[str, str], most: int) -> int | None:
    """The `limit` of a list, None if there is none. Raises `InvalidInput`."""
    limit = query.get("limit")
    if limit is None:
        return None
    if not (limit.isascii() and limit.isdecimal() and len(limit) < 10 and 1 <= int(limit) <= most):
        raise InvalidInput(f"limit must be an integer from 1 to {most:,}", field="limit")
    return int(limit)


async def _count_tokens(state: GatewayState, call: ClientCall, _: Mapping[str, str]) -> dict[str, int]:
    parsed = await call.run_work(read_request, call.body, dialect="anthropic", default_model="any")
    await state.documents.read(call, parsed)
    return {"input_tokens": await call.run_work(parsed.estimate_tokens)}


async def _models(state: GatewayState, call: ClientCall, _: Mapping[str, str]) -> dict[str, Any]:
    limit = _page_size(call.query, _MOST_MODELS)
    return model_list(
        state,
        call.key.models if call.key is not None else (),
        for_claude="anthropic-version" in call.headers,
        limit=limit,
        after=call.query.get("after_id"),
    )


async def _model(state: GatewayState, call: ClientCall, path: Mapping[str, str]) -> dict[str, Any]:
    return model_entry(state, path["id"], call.key.models if call.key is not None else ())


async def _usage(state: GatewayState, call: ClientCall, _: Mapping[str, str]) -> dict[str, Any]:
    return await usage_report(state, call)


async def _health(state: GatewayState, call: ClientCall, _: Mapping[str, str]) -> dict[str, str]:
    return {"status": "alive"}


async def _ready(state: GatewayState, call: ClientCall, _: Mapping[str, str]) -> RawResponse:
    if state.draining:
        return RawResponse(b'{"status":"draining"}', status=503)
    if not state.snapshot.config.providers:
        return RawResponse(b'{"status":"no providers"}', status=503)
    return RawResponse(encode({"status": "ready", "providers": [one.name for one in state.snapshot.config.providers]}))


async def _metrics(state: GatewayState, call: ClientCall, _: Mapping[str, str]) -> RawResponse:
    return RawResponse(state.metrics.render(), content_type=state.metrics.content_type)


async def _hello(state: GatewayState, call: ClientCall, _: Mapping[str, str]) -> dict[str, Any]:
    """Clients check whether the server is up (Claude Code does), and so do people with a browser."""
    hello = {"name": "moonshim", "models": "/v1/models", "health": "/health", "metrics": "/metrics"}
    judged = state.snapshot.config.claude_code.judge_model is not None
    return hello | {"auto_mode": "judged"} if judged else hello


async def _not_found(state: GatewayState, call: ClientCall, _: Mapping[str, str]) -> None:
    path = call.record.path
    hint = "The gateway serves /v1/chat/completions, /v1/messages, /v1/responses, /v1/models, /health and /metrics."
    if path.startswith("/v1/v1/"):
        hint = "This client adds /v1 itself: remove /v1 from its base URL."
    elif path.endswith("/"):
        hint = "Remove the slash at the end of the path."
    raise Refused(Problem(status=404, kind="not_found", message=f"Path {path[:200]} not found. {hint}"))


class _OtherMethods:
    """Answers other methods on a path: preflight requests of browsers, and a 405 for everything else."""

    def __init__(self, methods: Sequence[str]) -> None:
        self._methods = methods

    async def __call__(self, state: GatewayState, call: ClientCall, _: Mapping[str, str]) -> RawResponse:
        answer = RawResponse(b"", status=204)
        query = preflight_headers(state.snapshot.config, call.headers)
        if query is None:
            allowed = ", ".join(self._methods)
            message = f"Method not allowed for {call.record.path}. Use {allowed}."
            call.client_stream.always.append((b"allow", allowed.encode()))
            raise Refused(Problem(status=405, kind="invalid_request", message=message, code="method_not_allowed"))
        answer.headers = query
        return answer


_API: Final[tuple[tuple[str, str, str, Handler], ...]] = (
    ("POST", "/chat/completions", "openai_chat", _exchange),
    ("POST", "/messages", "anthropic", _exchange),
    ("POST", "/messages/count_tokens", "anthropic", _count_tokens),
    ("POST", "/responses", "openai_responses", _responses),
    ("POST", "/responses/compact", "openai_responses", _compact),
    ("GET", "/responses/{id}", "openai_responses", _response),
    ("DELETE", "/responses/{id}", "openai_responses", _delete_response),
    ("GET", "/responses/{id}/input_items", "openai_responses", _input_items),
    ("GET", "/models", "openai_chat", _models),
    ("GET", "/models/{id:path}", "openai_chat", _model),
    ("GET", "/usage", "openai_chat", _usage),
)
_FREE: Final = frozenset({_models, _model, _not_found})
"""These require a key but do not count: clients call them before the user has typed a word, and they cost nothing."""
_TRACED: Final = frozenset({_exchange, _responses, _compact})
"""These send a request to a host: the inspector shows them, and they have spans."""
_PREFIXES: Final = ("/v1", "")
_OWN: Final[tuple[tuple[str, Handler], ...]] = (
    ("/", _hello),
    ("/health", _health),
    ("/ready", _ready),
    ("/metrics", _metrics),
)


def routes_of(state: GatewayState) -> list[BaseRoute]:
    """All routes. The API is served with and without `/v1`, which people forget in a base URL."""
    routes: list[BaseRoute] = []
    methods: dict[str, list[str]] = {}
    dialects: dict[str, str] = {}
    for method, path, dialect, handler in _API:
        endpoint = RouteHandler(state, dialect, handler)
        methods.setdefault(path, []).append(method)
        dialects[path] = dialect
        routes += [Route(f"{prefix}{path}", endpoint, methods=[method]) for prefix in _PREFIXES]
    for path, taken in methods.items():
        # Browsers send preflight requests without a key.
        others = RouteHandler(state, dialects[path], _OtherMethods(taken), open_to_all=True)
        routes += [Route(f"{prefix}{path}", others) for prefix in _PREFIXES]
    routes += [Route(path, RouteHandler(state, "openai_chat", handler, open_to_all=True)) for path, handler in _OWN]
    return [*routes, *inspector_routes(state)]


def not_found_app(state: GatewayState) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """Answers all other paths, in the dialect that was probably meant."""
    endpoints = {
        name: RouteHandler(state, name, _not_found) for name in ("openai_chat", "anthropic", "openai_responses")
    }

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        words = scope["path"].split("/")
        dialect = "anthropic" if "messages" in words else "openai_responses" if "responses" in words else "openai_chat"
        await endpoints[dialect](scope, receive, send)

    return answer
