"""A call to shorten a conversation (`POST /v1/responses/compact`) -> one exchange with the model, and its answer."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from moonshim.engine.signing import Signer
from moonshim.engine.wire.json_codec import decode_object
from moonshim.gateway.client_stream import ClientStream
from moonshim.gateway.exchange import exchange
from moonshim.gateway.inbound.call import ClientCall
from moonshim.gateway.memory.summary import compacted, summary_request
from moonshim.gateway.state import GatewayState

__all__ = ["compact"]


async def compact(gate: GatewayState, call: ClientCall) -> dict[str, Any]:
    """Answer a call whose body is resolved: one request to the model, and what it says, sealed."""
    body = call.body
    call.body, client = summary_request(body), call.client_stream
    call.client_stream = answer = _Kept(client)
    try:
        await exchange(gate, call)
    finally:
        call.body, call.client_stream = body, client
        client.gone = client.gone or answer.gone
        answer.close()
    return compacted(body, decode_object(b"".join(answer.said)) or {}, Signer(gate.secret))


class _Kept(ClientStream):
    """Takes an answer instead of its client, who can still go away meanwhile."""

    def __init__(self, client: ClientStream) -> None:
        super().__init__(client._receive, self._take)
        self.said: list[bytes] = []

    async def _take(self, message: MutableMapping[str, Any]) -> None:
        self.said.append(message.get("body", b""))
