"""A call to shorten a conversation (`POST /v1/responses/compact`) -> a request for a summary, and a short conversation.

As in OpenAI's API, the user's messages stay word for word, and one item replaces everything else. OpenAI encrypts that
item; ours holds a summary written by the model, signed, and is read back wherever it is sent in again
(`dialects/openai_responses/messages/compaction`).
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final, TypeAlias

from moonshim.engine.dialects.openai_responses.messages.compaction import (
    SUMMARY_WANTED,
    is_users_message,
    render_compaction,
)
from moonshim.engine.signing import Signer
from moonshim.engine.wire.json_codec import decode_object
from moonshim.errors import Problem, Refused
from moonshim.gateway.client_stream import ClientStream
from moonshim.gateway.exchange import exchange
from moonshim.gateway.inbound.call import ClientCall
from moonshim.gateway.state import GatewayState

__all__ = ["compact", "compaction_response", "summary_request"]

Json: TypeAlias = dict[str, Any]

_CARRIED: Final = (
    "model",
    "instructions",
    "tools",
    "parallel_tool_calls",
    "reasoning",
    "prompt_cache_key",
    "safety_identifier",
    "service_tier",
    "user",
)
"""Fields that the summary request copies: everything that the host's prompt cache depends on, and the caller's
identity."""


def summary_request(body: Json) -> Json:
    """The request for a summary of the conversation. It starts with the same messages, so that the prompt cache is hit.

    >>> request = summary_request({"model": "k3", "input": "hi", "text": {"format": {"type": "json_object"}}})
    >>> list(request), [item["role"] for item in request["input"]]
    (['model', 'input', 'tool_choice', 'store', 'stream'], ['user', 'user'])
    """
    question = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": SUMMARY_WANTED}]}
    request = {key: body[key] for key in _CARRIED if body.get(key) is not None}
    if request.get("tools") is None:
        request.pop("parallel_tool_calls", None)
    return request | {"input": [*_items(body), question], "tool_choice": "none", "store": False, "stream": False}


def compaction_response(body: Json, response: Json, signer: Signer) -> Json:
    """The client's response, made from the model's summary; a reply without one is an upstream error."""
    summary = _text(response)
    if not summary or response.get("status") != "completed":
        raise Refused(
            Problem(status=502, kind="server", message="The model returned no summary.", code="compaction_failed")
        )
    tail = str(response["id"]).removeprefix("resp_")
    output = [
        _with_new_id(item, f"msg_{tail}_{place}") for place, item in enumerate(_items(body)) if is_users_message(item)
    ]
    return {
        "id": response["id"],
        "object": "response.compaction",
        "created_at": response["created_at"],
        "output": [*output, render_compaction(summary, signer, f"cmp_{tail}")],
        "usage": response.get("usage"),
    }


def _items(body: Json) -> list[Any]:
    given = body.get("input")
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": given}]}]
    return given if isinstance(given, list) else []


def _with_new_id(item: Json, id: str) -> Json:
    content = item.get("content")
    if isinstance(content, str):
        content = [{"type": "input_text", "text": content}]
    return {"id": id, "type": "message", "status": "completed", **item, "content": content}


def _text(response: Json) -> str:
    """The text of the reply, without its reasoning."""
    contents = [item["content"] for item in response.get("output", ()) if item.get("type") == "message"]
    return "\n\n".join(part["text"] for parts in contents for part in parts if part.get("text")).strip()


async def compact(state: GatewayState, call: ClientCall) -> dict[str, Any]:
    """Answer a call whose body is resolved: one request to the model, and its summary, signed."""
    body = call.body
    call.body, client = summary_request(body), call.client_stream
    call.client_stream = answer = _CollectedResponse(client)
    try:
        await exchange(state, call)
    finally:
        call.body, call.client_stream = body, client
        client.gone = client.gone or answer.gone
        answer.close()
    return compaction_response(body, decode_object(b"".join(answer.pieces)) or {}, Signer(state.secret))


class _CollectedResponse(ClientStream):
    """Collects a response in place of the client, who may disconnect meanwhile."""

    def __init__(self, client: ClientStream) -> None:
        super().__init__(client._receive, self._take)
        self.pieces: list[bytes] = []

    async def _take(self, message: MutableMapping[str, Any]) -> None:
        self.pieces.append(message.get("body", b""))
