"""An exchange -> the ASGI application that people's clients talk to."""

from __future__ import annotations

from moonshim.simulator.exchange import Asked, Exchange
from moonshim.simulator.pace import Pace
from moonshim.simulator.question import Wire
from moonshim.simulator.sending import Message, Receive, Send, Sender

__all__ = ["SimulatorApp"]


class SimulatorApp:
    """Every path that is served."""

    def __init__(self, exchange: Exchange) -> None:
        settings = exchange.settings
        self._exchange = exchange
        self._sender = Sender(Pace(settings.tokens_per_second, settings.first_token_ms))

    def close(self) -> None:
        self._sender.close()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        data = bytearray()
        while True:
            message = await receive()
            data += message.get("body", b"")
            if not message.get("more_body"):
                break
        wire: Wire = "anthropic" if scope["path"].endswith("messages") else "openai_chat"
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        await self._sender.send(self._exchange.answer(Asked(wire, headers, bytes(data))), scope, receive, send)
