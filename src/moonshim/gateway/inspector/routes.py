"""`/inspector`: the page, its files, and the questions that it asks. Strict headers on every response."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from importlib.resources import files
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl

from starlette.routing import BaseRoute, Route

from moonshim.engine.wire.json_codec import decode_object, encode
from moonshim.errors import InvalidInput, MoonshimError, Problem, Refused, problem_of
from moonshim.gateway.inbound.origin import check_origin, check_own_page
from moonshim.gateway.inspector.access import COOKIE, SESSION_SECONDS, InspectorAccess
from moonshim.gateway.inspector.try_it import MOST_BYTES, mend_text
from moonshim.gateway.observe import logs
from moonshim.gateway.state import GatewayState
from moonshim.gateway.usage_report import usage_document

__all__ = ["inspector_routes"]

Scope: TypeAlias = Mapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_STATIC: Final = files("moonshim.gateway.inspector") / "static"
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS: Final = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]
_SPANS: Final = (15, 60, 360, 1440)
_SIGN_IN_BYTES: Final = 16 * 1024
_READ_SECONDS: Final = 60.0


def inspector_routes(state: GatewayState) -> list[BaseRoute]:
    """Empty if the inspector is off: its paths are then not found."""
    if state.inspector is None:
        return []
    app = _InspectorApp(state)
    return [Route("/inspector", app), Route("/inspector/{path:path}", app)]


class _InspectorApp:
    """One request of the page. Nothing of it is logged but errors: the page asks all the time."""

    def __init__(self, state: GatewayState) -> None:
        assert state.inspector is not None
        self._state, self._inspector = state, state.inspector
        self._files = {one.name: one.read_bytes() for one in _STATIC.iterdir() if one.is_file()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        started = False

        async def watched_send(message: MutableMapping[str, Any]) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._answer(scope, receive, watched_send)
        except MoonshimError as error:
            if not started:
                await _send_problem(send, problem_of(error))
        except asyncio.CancelledError:
            raise
        except Exception as error:  # a bug in a view must not look like one of the gateway
            logs.event(
                "inspector_failed", level="error", path=scope["path"], problem=f"{type(error).__name__}: {error}"
            )
            message = "The inspector failed on this exchange. The gateway's log has the reason."
            if not started:
                await _send_problem(send, Problem(status=500, kind="server", message=message))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        config = self._state.snapshot.config
        check_origin(config, headers, bound_to_loopback=self._state.bound_to_loopback)
        access = self._access()
        path = scope["path"].removeprefix("/inspector").strip("/")
        method = scope["method"]
        if method in ("GET", "HEAD") and (path == "" or path.startswith("static/")):
            # The page itself holds nothing: without a session it shows the sign-in.
            return await self._file(send, path.removeprefix("static/") or "index.html")
        if method == "POST" and path == "login":
            return await self._sign_in(access, headers, scope, receive, send)
        access.check(headers)
        if method == "POST" and path == "logout":
            return await _respond(send, 204, b"", [(b"set-cookie", _cookie("", 0, scope, headers))])
        if method == "POST" and path == "api/mend":
            body = await _read_json(receive, 2 * MOST_BYTES)
            return await _send_json(send, await self._inspector.run(mend_text, body.get("text")))
        if method == "GET" and path == "api/events":
            return await self._events(headers, receive, send)
        if method == "GET" and path.startswith("api/"):
            query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
            return await self._api(path.removeprefix("api/"), query, send)
        raise _not_found(scope["path"])

    def _access(self) -> InspectorAccess:
        state = self._state
        return InspectorAccess(state.snapshot.config, state.secret, bound_to_loopback=state.bound_to_loopback)

    async def _api(self, path: str, query: Mapping[str, str], send: Send) -> None:
        words = path.split("/")
        match words:
            case ["state"]:
                await _send_json(send, self._describe())
            case ["overview"]:
                minutes = query.get("minutes", "60")
                if minutes not in map(str, _SPANS):
                    raise InvalidInput(f"minutes must be one of {', '.join(map(str, _SPANS))}", field="minutes")
                await _send_json(send, await self._inspector.charts(int(minutes)))
            case ["usage"]:
                await _send_json(send, await usage_document(self._state, query, None, []))
            case ["exchanges", number]:
                detail = await self._inspector.detail(number, attempt=_attempt(query), have=query.get("have"))
                if detail is None:
                    raise _gone()
                await (_send_json(send, detail) if detail else _respond(send, 204, b"", []))
            case ["exchanges", number, "log"]:
                body = await self._inspector.log(number, attempt=_attempt(query))
                if body is None:
                    raise _gone()
                name = f'attachment; filename="moonshim-{number[:16]}.log"'
                await _respond(
                    send,
                    200,
                    body,
                    [(b"content-type", b"text/plain; charset=utf-8"), (b"content-disposition", name.encode())],
                )
            case _:
                raise _not_found(f"/inspector/api/{path}")

    def _describe(self) -> dict[str, Any]:
        config = self._state.snapshot.config
        model = next((name for provider in config.providers for name in provider.models), None)
        return {
            "needs_key": config.needs_keys,
            "privacy": self._inspector.tracer.private,
            "recording": self._inspector.tracer.to_json(),
            "example_model": model,
        }

    async def _events(self, headers: Mapping[str, str], receive: Receive, send: Send) -> None:
        batches = self._inspector.watch()
        fields = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        task = asyncio.current_task()
        assert task is not None
        leaving = asyncio.create_task(_until_gone(receive, task))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": [*fields, *_HEADERS]})
            await send({"type": "http.response.body", "body": b"retry: 2000\n\n", "more_body": True})
            async for batch in batches:
                self._access().check(headers)  # the key may be gone, or its right
                await send({"type": "http.response.body", "body": _event(batch), "more_body": True})
        except Refused:
            pass
        except asyncio.CancelledError:
            if not leaving.done():
                raise
            task.uncancel()
        finally:
            leaving.cancel()
            await batches.aclose()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _file(self, send: Send, name: str) -> None:
        body = self._files.get(name)
        if body is None:
            raise _not_found(f"/inspector/static/{name[:100]}")
        kind = _TYPES.get(name[name.rfind(".") :], "application/octet-stream")
        await _respond(send, 200, body, [(b"content-type", kind.encode())])

    async def _sign_in(
        self, access: InspectorAccess, headers: Mapping[str, str], scope: Scope, receive: Receive, send: Send
    ) -> None:
        check_own_page(headers)
        key = (await _read_json(receive, _SIGN_IN_BYTES)).get("key")
        if not isinstance(key, str) or not key.strip():
            raise InvalidInput("`key` must be a gateway key", field="key")
        cookie = _cookie(access.sign_in(headers, key.strip()), SESSION_SECONDS, scope, headers)
        await _respond(send, 204, b"", [(b"set-cookie", cookie)])


def _cookie(value: str, seconds: int, scope: Scope, headers: Mapping[str, str]) -> bytes:
    # Of several proxies, each adds what it got: the first value is the browser's.
    forwarded = headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower()
    secure = scope.get("scheme") == "https" or forwarded == "https"
    text = f"{COOKIE}={value}; Path=/inspector; Max-Age={seconds}; HttpOnly; SameSite=Strict"
    return (text + ("; Secure" if secure else "")).encode()


async def _until_gone(receive: Receive, task: asyncio.Task[Any]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    task.cancel()


async def _read_json(receive: Receive, most: int) -> dict[str, Any]:
    """The object in the body. Raises `Refused` and `InvalidInput`."""
    body = bytearray()
    try:
        async with asyncio.timeout(_READ_SECONDS):
            more = True
            while more:
                message = await receive()
                body += message.get("body", b"")
                if len(body) > most:
                    problem = f"The text is too large (at most {most // 1024:,} KiB)."
                    raise Refused(Problem(status=413, kind="too_large", message=problem))
                more = message.get("more_body", False)
    except TimeoutError:
        raise Refused(Problem(status=408, kind="timeout", message="The request took too long to arrive.")) from None
    value = decode_object(bytes(body))
    if value is None:
        raise InvalidInput("expected a JSON object")
    return value


def _event(batch: list[dict[str, Any]]) -> bytes:
    return b"event: exchanges\ndata: %b\n\n" % encode(batch) if batch else b": still here\n\n"


def _attempt(query: Mapping[str, str]) -> int | None:
    text = query.get("attempt", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else None


def _gone() -> Refused:
    message = "This exchange is no longer recorded. The inspector keeps the newest ones only."
    return Refused(Problem(status=404, kind="not_found", message=message))


async def _send_json(send: Send, value: Any) -> None:
    await _respond(send, 200, encode(value), [(b"content-type", b"application/json")])


async def _send_problem(send: Send, problem: Problem) -> None:
    error = {"error": {"message": problem.message, "code": problem.code}}
    await _respond(send, problem.status, encode(error), [(b"content-type", b"application/json")])


async def _respond(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    length = [] if status == 204 else [(b"content-length", str(len(body)).encode())]
    everything = [*headers, *length, (b"cache-control", b"no-store"), *_HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": everything})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _not_found(path: str) -> Refused:
    return Refused(Problem(status=404, kind="not_found", message=f"Path {path[:200]} not found."))
