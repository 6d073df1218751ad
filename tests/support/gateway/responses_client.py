"""A Responses body -> the request to the host and the response to the client, by the engine and a state."""

from __future__ import annotations

import itertools
from typing import Any, Final

from moonshim.engine.prepare import read_request
from moonshim.engine.response.body import mend_response
from moonshim.gateway.memory.responses import ResponsesState
from moonshim.gateway.observe.record import RequestRecord

__all__ = ["SECRET", "TOOL", "Client", "record"]

SECRET: Final = b"secret"
TOOL: Final = {"type": "function", "name": "read", "parameters": {"type": "object", "properties": {"path": {}}}}


def record() -> RequestRecord:
    return RequestRecord(request_id="r", path="/v1/responses", dialect="openai_responses")


class Client:
    """A client of one tenant. The host answers with what it is given, and `sent` is the last request that it got."""

    def __init__(self, state: ResponsesState, tenant: str = "local", name: str = "host") -> None:
        self.state = state
        self.sent: dict[str, Any] = {}
        self.record = record()
        self._tenant = tenant
        self._ids = (f"chatcmpl-{name}{number}" for number in itertools.count())

    async def ask(self, body: dict[str, Any], *, says: str = "", thinks: str = "", calls: str = "") -> dict[str, Any]:
        self.record = record()
        resolved = await self.state.resolve(self._tenant, {"model": "kimi-k2.5", **body}, self.record)
        asked = read_request(resolved, dialect="openai_responses", secret=SECRET)
        prepared = asked.prepare(host="moonshot", created=1)
        self.sent = prepared.body
        message: dict[str, Any] = {"role": "assistant", "content": says or None}
        if thinks:
            message["reasoning_content"] = thinks
        if calls:
            function = {"name": "read", "arguments": calls}
            message["tool_calls"] = [{"id": "read:0", "type": "function", "function": function}]
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
        answer = {
            "id": next(self._ids),
            "object": "chat.completion",
            "created": 1,
            "model": "kimi-k2.5",
            "choices": [choice],
            "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
        }
        response = mend_response(answer, plan=prepared.plan).body
        await self.state.keep(self._tenant, resolved, response, self.record)
        return response

    @property
    def messages(self) -> list[tuple[str, Any]]:
        """Roles and contents in the request to the host."""
        return [(message["role"], message.get("content")) for message in self.sent["messages"]]
