"""An exchange -> the ASGI application that clients talk to: paths, bodies, and responses with their latency."""

from __future__ import annotations

import asyncio
from typing import Final

from moonshim.engine.wire.json_codec import encode
from moonshim.simulator.faults import FAULTS
from moonshim.simulator.host import refusals
from moonshim.simulator.http import pages
from moonshim.simulator.http.exchange import RequestRejected, SimExchange
from moonshim.simulator.http.latency import Latency
from moonshim.simulator.http.paths import PathInfo, find_path, suggest_path
from moonshim.simulator.http.recorded import ReceivedRequest
from moonshim.simulator.http.transport import BodyTooLarge, ClientConnection, ClientDisconnected, Message, Receive, Send
from moonshim.simulator.request import Json
from moonshim.simulator.rules import Objection
from moonshim.simulator.wire.playback import SimResponse

__all__ = ["SimulatorApp"]

_JSON: Final = {"content-type": "application/json; charset=utf-8"}


class SimulatorApp:
    """Every path that is served. After `close`, pending responses are abandoned and no new one starts, until `open`."""

    def __init__(self, exchange: SimExchange) -> None:
        settings = exchange.settings
        self._exchange, self._latency = exchange, Latency(settings.tokens_per_second, settings.first_token_ms)
        self._closing, self._connections = asyncio.Event(), 0

    def open(self) -> None:
        self._closing = asyncio.Event()

    def close(self) -> None:
        self._closing.set()

    async def close_and_wait(self) -> None:
        """Close, and return when every connection has ended."""
        self.close()
        while self._connections:
            await asyncio.sleep(0)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _serve_lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        connection = ClientConnection(scope, receive, send, self._closing)
        place = find_path(scope["path"])
        if "anthropic-version" in connection.headers and place.what in ("models", "model", ""):
            place = PathInfo(place.what, place.method, "anthropic", place.model)
        self._connections += 1
        try:
            await self._serve(place, scope, connection)
        except ClientDisconnected:
            connection.abort()
        finally:
            self._connections -= 1

    async def _serve(self, place: PathInfo, scope: Message, connection: ClientConnection) -> None:
        method, path = scope["method"], scope["path"]
        try:
            if not place.what or place.what in self._exchange.missing_paths:
                raise RequestRejected(refusals.no_path(path))
            if method != place.method and not (method == "HEAD" and place.method == "GET"):
                raise RequestRejected(Objection(f"method {method} is not allowed at {path}", status=405))
            if place.what in ("chat", "messages"):
                received = ReceivedRequest(place.wire, connection.headers, await self._body(connection))
                await connection.send(self._exchange.answer(received), self._latency)
            else:
                await connection.send(_json_response(await self._page(place, connection)))
        except RequestRejected as refused:
            hint = suggest_path(path, self._exchange.missing_paths) if not place.what else ""
            response = self._exchange.reject(place.wire, f"{method} {path}", refused.objection, hint=hint)
            if refused.objection.status == 405:
                response.headers["allow"] = place.method
            await connection.send(response)

    async def _body(self, connection: ClientConnection) -> bytes:
        try:
            return await connection.read(self._exchange.settings.body_bytes)
        except BodyTooLarge:
            raise RequestRejected(refusals.TOO_LARGE) from None

    async def _page(self, place: PathInfo, connection: ClientConnection) -> Json:
        exchange, settings = self._exchange, self._exchange.settings
        match place.what:
            case "count":
                return {
                    "input_tokens": exchange.count(
                        ReceivedRequest(place.wire, connection.headers, await self._body(connection))
                    )
                }
            case "models":
                exchange.authorize(connection.headers)
                return pages.models_page(settings, place.wire)
            case "model":
                exchange.authorize(connection.headers)
                if (page := pages.model_page(place.model, settings, place.wire)) is None:
                    raise RequestRejected(refusals.no_model(place.model))
                return page
            case "usages":
                return exchange.quota(connection.headers)
            case "requests":
                return pages.request_page(exchange.requests)
            case "faults":
                return pages.fault_page(FAULTS.values())
            case "health":
                return {"status": "ok"}
            case _:
                return pages.about(settings, exchange.behaviour, exchange.missing_paths)


def _json_response(page: Json) -> SimResponse:
    return SimResponse(headers=dict(_JSON), pieces=[encode(page)])


async def _serve_lifespan(receive: Receive, send: Send) -> None:
    """Answer the ASGI lifespan messages of another server."""
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
