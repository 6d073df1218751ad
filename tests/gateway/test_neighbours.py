"""What one client does is no business of the next: large requests, keys that are passed on, tokens that are counted."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import aiohttp

from moonshim.config import Config, GatewayKey
from moonshim.gateway.auth import new_key
from tests.gateway.hosts import Asked, Host, Peer, run, whole
from tests.gateway.running import MODEL, config_for, running
from tests.playing import Call, Thought, chat_answer

CALLING = chat_answer(Thought({"reasoning_content": "ALICE"}), "", [Call("functions.ls:0", "ls", "{}")]).whole
TOOLS = [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object", "properties": {}}}}]
ASKED: list[dict[str, Any]] = [{"role": "user", "content": "What is here?"}]


async def calls(peer: Peer, asked: Asked) -> None:
    await peer.send(whole(json.dumps(CALLING).encode()))


def test_others_are_answered_while_a_large_request_is_read() -> None:
    async def test() -> None:
        body = {"model": MODEL, "messages": [{"role": "user", "content": "x"}] * 100_000}
        async with (
            Host(calls) as host,
            running(config_for(host.url)) as gateway,
            aiohttp.ClientSession(gateway.url) as client,
        ):
            large = asyncio.ensure_future(
                client.post("/v1/chat/completions", data=io.BytesIO(json.dumps(body).encode()))
            )
            while not host.asked and not large.done():
                async with client.get("/health") as answer:
                    assert answer.status == 200
                health_came_first = not host.asked
                if health_came_first:
                    break
            # The large one is still being read, or the answer to this would have had to wait for it.
            assert health_came_first
            async with await large as answer:
                assert answer.status == 200

    run(test())


def test_people_with_keys_of_their_own_share_no_memory() -> None:
    """Alice's thought must not reach a host under Bob's key, though both say the same."""

    async def test() -> None:
        async with (
            Host(calls) as host,
            running(config_for(host.url, passes_client_key=True)) as gateway,
            aiohttp.ClientSession(gateway.url) as client,
        ):

            async def asks(key: str, messages: list[dict[str, Any]]) -> None:
                headers = {"authorization": f"Bearer {key}"}
                body = {"model": MODEL, "messages": messages, "tools": TOOLS}
                async with client.post("/v1/chat/completions", json=body, headers=headers) as answer:
                    assert answer.status == 200

            said = {key: CALLING["choices"][0]["message"][key] for key in ("role", "content", "tool_calls")}
            result = {"role": "tool", "tool_call_id": "functions.ls:0", "content": "a.txt"}
            await asks("alice-key", ASKED)
            await asks("bob-key", [*ASKED, said, result])
            await asks("alice-key", [*ASKED, said, result])
            bobs, alices = (json.loads(asked.body)["messages"][1] for asked in host.asked[1:])
            assert "ALICE" not in str(bobs)
            assert alices["reasoning"] == "ALICE"
            assert [asked.headers["authorization"] for asked in host.asked[:2]] == [
                "Bearer alice-key",
                "Bearer bob-key",
            ]

    run(test())


def test_counting_tokens_counts_as_a_request() -> None:
    async def test() -> None:
        text, digest = new_key()
        key = GatewayKey(name="one", digest=digest, requests_per_minute=2)
        async with (
            running(Config(keys=(key,))) as gateway,
            aiohttp.ClientSession(gateway.url, headers={"x-api-key": text}) as client,
        ):
            body = {"model": MODEL, "messages": ASKED}
            statuses = []
            for _ in range(3):
                async with client.post("/v1/messages/count_tokens", json=body) as answer:
                    statuses.append(answer.status)
            assert statuses == [200, 200, 429]

    run(test())
