"""An exchange -> the ASGI application that clients talk to: paths, bodies, and answers at their pace."""

from __future__ import annotations

import asyncio
from typing import Final

from moonshim.engine.wire.json_codec import encode
from moonshim.simulator.faults import FAULTS
from moonshim.simulator.host import refusals
from moonshim.simulator.http import pages
from moonshim.simulator.http.exchange import RequestRejected, SimExchange
from moonshim.simulator.http.latency import Latency
from moonshim.simulator.http.paths import PathInfo, meant_by, where
from moonshim.simulator.http.seen import ReceivedRequest
from moonshim.simulator.http.transport import BodyTooLarge, ClientConnection, ClientDisconnected, Message, Receive, Send
from moonshim.simulator.request import Json
from moonshim.simulator.rules import Objection
from moonshim.simulator.wire.playback import SimResponse

__all__ = ["SimulatorApp"]

_JSON: Final = {"content-type": "application/json; charset=utf-8"}


class SimulatorApp:
    """Every path that is served. After `close` nobody waits for an answer, and none is begun, until `open`."""

    def __init__(self, exchange: SimExchange) -> None:
        settings = exchange.settings
        self._exchange, self._pace = exchange, Latency(settings.tokens_per_second, settings.first_token_ms)
        self._closing, self._lines = asyncio.Event(), 0

    def open(self) -> None:
        self._closing = asyncio.Event()

    def close(self) -> None:
        self._closing.set()

    async def closed(self) -> None:
        """Close, and return when every client has been left alone."""
        self.close()
        while self._lines:
            await asyncio.sleep(0)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["type"] != "http":
            return
        line = ClientConnection(scope, receive, send, self._closing)
        place = where(scope["path"])
        if "anthropic-version" in line.headers and place.what in ("models", "model", ""):
            place = PathInfo(place.what, place.method, "anthropic", place.model)
        self._lines += 1
        try:
            await self._serve(place, scope, line)
        except ClientDisconnected:
            line.abort()
        finally:
            self._lines -= 1

    async def _serve(self, place: PathInfo, scope: Message, line: ClientConnection) -> None:
        method, path = scope["method"], scope["path"]
        try:
            if not place.what or (place.what == "count" and "counts-tokens" not in self._exchange.settings.assume):
                raise RequestRejected(refusals.no_path(path))
            if method != place.method and not (method == "HEAD" and place.method == "GET"):
                raise RequestRejected(Objection(f"method {method} is not allowed at {path}", status=405))
            if place.what in ("chat", "messages"):
                asked = ReceivedRequest(place.wire, line.headers, await self._body(line))
                await line.send(self._exchange.answer(asked), self._pace)
            else:
                await line.send(_page(await self._page(place, line)))
        except RequestRejected as refused:
            hint = meant_by(path, self._exchange.settings.assume) if not place.what else ""
            played = self._exchange.misused(place.wire, f"{method} {path}", refused.objection, hint=hint)
            if refused.objection.status == 405:
                played.headers["allow"] = place.method
            await line.send(played)

    async def _body(self, line: ClientConnection) -> bytes:
        try:
            return await line.read(self._exchange.settings.body_bytes)
        except BodyTooLarge:
            raise RequestRejected(refusals.TOO_LARGE) from None

    async def _page(self, place: PathInfo, line: ClientConnection) -> Json:
        exchange, settings = self._exchange, self._exchange.settings
        match place.what:
            case "count":
                return {
                    "input_tokens": exchange.count(ReceivedRequest(place.wire, line.headers, await self._body(line)))
                }
            case "models":
                exchange.admit(line.headers)
                return pages.models_page(settings, place.wire)
            case "model":
                exchange.admit(line.headers)
                if (page := pages.model_page(place.model, settings, place.wire)) is None:
                    raise RequestRejected(refusals.no_model(place.model))
                return page
            case "requests":
                return pages.request_page(exchange.requests)
            case "faults":
                return pages.fault_page(FAULTS.values())
            case "health":
                return {"status": "ok"}
            case _:
                return pages.about(settings, exchange.nature)


def _page(page: Json) -> SimResponse:
    return SimResponse(headers=dict(_JSON), pieces=[encode(page)])


async def _live(receive: Receive, send: Send) -> None:
    """Somebody else's server may ask whether this has begun, and has ended."""
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
