"""Messages -> a Chat host whose model gives them, one after the other, streamed or whole as it is asked."""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import replace

from moonshim.config import Config
from tests.support.gateway.hosts import HostRequest, Peer, whole
from tests.support.gateway.running import MODEL, config_for

__all__ = ["ChatModel", "config_at"]


def config_at(url: str, profile: str) -> Config:
    """A provider at this address with the profile of this host."""
    config = config_for(url)
    return replace(config, providers=(replace(config.providers[0], host=profile),))


class ChatModel:
    """A host whose model gives these messages, and the last one from then on."""

    def __init__(self, *messages: dict[str, Any], reason: str = "stop") -> None:
        self._messages, self._reason = list(messages), reason
        self.bodies: list[dict[str, Any]] = []

    async def __call__(self, peer: Peer, asked: HostRequest) -> None:
        body = json.loads(asked.body)
        self.bodies.append(body)
        message = self._messages.pop(0) if len(self._messages) > 1 else self._messages[0]
        reason = "tool_calls" if "tool_calls" in message else self._reason
        form = "chat.completion.chunk" if body.get("stream") else "chat.completion"
        said: dict[str, Any] = {"id": "chatcmpl-1", "object": form, "created": 1, "model": MODEL}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        if not body.get("stream"):
            choice = {"index": 0, "message": {"role": "assistant", "content": None, **message}, "finish_reason": reason}
            await peer.send(whole(json.dumps({**said, "choices": [choice], "usage": usage}).encode()))
            return
        calls = [{"index": place, **call} for place, call in enumerate(message.get("tool_calls", ()))]
        deltas = [{name: value} for name, value in message.items() if name != "tool_calls"]
        deltas += [{"tool_calls": calls}] if calls else []
        frames: list[dict[str, Any]] = [
            {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
        ]
        frames += [{"choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage}]
        data = b"".join(b"data: " + json.dumps({**said, **frame}).encode() + b"\n\n" for frame in frames)
        await peer.send(whole(data + b"data: [DONE]\n\n", headers=["content-type: text/event-stream"]))
