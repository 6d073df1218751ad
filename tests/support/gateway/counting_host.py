"""A text -> a Chat host whose model says it, streamed or not, under an own name and with counted tokens."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.support.gateway.hosts import HostRequest, Peer, Script, chunked_head, chunks, whole
from tests.support.streams import sse

__all__ = ["LEAKED", "streaming"]

LEAKED: Final = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.ls:0<|tool_call_argument_begin|>"
    '{"n": 0}<|tool_call_end|><|tool_calls_section_end|>'
)


def streaming(text: str) -> Script:
    """A host whose model says this, and counts tokens."""
    head: dict[str, Any] = {"id": "chatcmpl-7", "object": "chat.completion.chunk", "model": "kimi-k2.5-0905"}
    details = {"prompt_tokens_details": {"cached_tokens": 80}}
    said = [
        head | {"choices": [{"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}]},
        head | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        head | {"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107} | details},
    ]

    async def script(peer: Peer, asked: HostRequest) -> None:
        if json.loads(asked.body).get("stream"):
            await peer.send(chunked_head() + chunks(sse(said)))
            return
        message = {"role": "assistant", "content": text}
        body = head | {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
        await peer.send(whole(json.dumps(body | {"usage": said[-1]["usage"]}).encode()))

    return script
