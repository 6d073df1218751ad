"""An explicit `Kimi` in a chain, on the wire: what its host gets, and what its client gets."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest

from moonshim.config import TransformerUse
from tests.support.gateway.hosts import Host, HostRequest, Peer, run, whole
from tests.support.gateway.running import config_for, running


def call(id: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": "read_file", "arguments": "{}"}}


def body(model: str, id: str) -> dict[str, Any]:
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "reasoning_content": "I look.", "tool_calls": [call(id)]},
        {"role": "tool", "tool_call_id": id, "content": "a.py"},
    ]
    tool = {"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}
    return {"model": model, "messages": messages, "tools": [tool]}


@pytest.mark.parametrize(
    ("model", "options", "id", "sent_id", "reply_id"),
    [
        ("kimi-k2.6", {}, "functions.read_file:4", "functions.read_file:4", "functions.read_file:5"),
        ("kimi-k2.6", {"idNormalization": False}, "call_1", "functions.read_file:0", "functions.read_file:1"),
        (
            "kimi-k2.6",
            {"idNormalization": True},
            "functions.read_file:4",
            "functions.read_file:0",
            "functions.read_file:1",
        ),
        ("moonshot-v1-8k", {}, "functions.read_file:4", "functions.read_file:4", "functions.read_file:5"),
        ("kimi-k2.6", None, "functions.read_file:4", "functions.read_file:0", "functions.read_file:1"),
    ],
)
def test_ids_and_tool_choice(model: str, options: dict[str, Any] | None, id: str, sent_id: str, reply_id: str) -> None:
    received: list[dict[str, Any]] = []

    async def script(peer: Peer, asked: HostRequest) -> None:
        received.append(json.loads(asked.body))
        answer = {"role": "assistant", "content": None, "tool_calls": [call("call_7f")]}
        choice = {"index": 0, "message": answer, "finish_reason": "tool_calls"}
        await peer.send(
            whole(
                json.dumps(
                    {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
                ).encode()
            )
        )

    chain = None if options is None else (TransformerUse("Kimi", options),)

    async def test() -> dict[str, Any]:
        async with (
            Host(script) as host,
            running(config_for(host.url, models=(model,), transformers=chain)) as gateway,
            aiohttp.ClientSession(gateway.url) as client,
            client.post("/v1/chat/completions", json=body(model, id)) as response,
        ):
            assert response.status == 200, await response.text()
            answer: dict[str, Any] = await response.json()
            return answer

    answer = run(test())
    (sent,) = received
    assert sent["tool_choice"] == "auto"
    assert [sent["messages"][1]["tool_calls"][0]["id"], sent["messages"][2]["tool_call_id"]] == [sent_id, sent_id]
    assert answer["choices"][0]["message"]["tool_calls"][0]["id"] == reply_id
