"""What one client does is no business of the next: large requests, keys that are passed on, tokens that are counted."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from moonshim.config import Config, GatewayKey, Secret
from moonshim.gateway.inbound.auth import new_key
from tests.support.gateway.hosts import Host, HostRequest, Peer, chunked_head, chunks, run, whole
from tests.support.gateway.running import MODEL, config_for, running
from tests.support.playing import Call, Thought, chat_answer

CALLING = chat_answer(Thought({"reasoning_content": "ALICE"}), "", [Call("functions.ls:0", "ls", "{}")]).whole
TOOLS = [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object", "properties": {}}}}]
ASKED: list[dict[str, Any]] = [{"role": "user", "content": "What is here?"}]


async def calls(peer: Peer, asked: HostRequest) -> None:
    await peer.send(whole(json.dumps(CALLING).encode()))


def test_others_are_answered_while_a_large_request_is_read() -> None:
    async def test() -> None:
        body = {"model": MODEL, "messages": [{"role": "user", "content": "x"}] * 60_000}
        async with (
            Host(calls) as host,
            running(config_for(host.url)) as gateway,
            aiohttp.ClientSession(gateway.url) as client,
        ):
            large = asyncio.ensure_future(
                client.post("/v1/chat/completions", data=io.BytesIO(json.dumps(body).encode()))
            )
            while not host.requests and not large.done():
                async with client.get("/health") as answer:
                    assert answer.status == 200
                health_came_first = not host.requests
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
            bobs, alices = (json.loads(asked.body)["messages"][1] for asked in host.requests[1:])
            assert "ALICE" not in str(bobs)
            assert alices["reasoning_content"] == "ALICE"
            assert [asked.headers["authorization"] for asked in host.requests[:2]] == [
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


def test_a_host_that_repeats_its_key_tells_nobody(capfd: pytest.CaptureFixture[str]) -> None:
    """In an error, before the answer and in the middle of it, to every client and to the log."""
    secrets = ("plainsecret12345", "teamsecretvalue99")
    error = {"error": {"message": f"bad key {secrets[0]} of {secrets[1]}", "code": secrets[0], "type": "server_error"}}

    async def refuses(peer: Peer, asked: HostRequest) -> None:
        if json.loads(asked.body).get("stream"):
            said = b'data: {"choices": [{"index": 0, "delta": {"content": "Hi. "}}]}\n\n'
            await peer.send(chunked_head(), chunks(said, b"data: " + json.dumps(error).encode() + b"\n\n"))
        else:
            await peer.send(whole(json.dumps(error | {"request_id": secrets[0]}).encode(), status="401 No"))

    async def test() -> None:
        async with Host(refuses) as host:
            config = config_for(host.url)
            provider = replace(config.providers[0], keys=(Secret(secrets[0]),), headers={"x-team": secrets[1]})
            async with (
                running(replace(config, providers=(provider,))) as gateway,
                aiohttp.ClientSession(gateway.url) as client,
            ):
                for path, body in (
                    ("chat/completions", {"messages": ASKED}),
                    ("messages", {"messages": ASKED, "max_tokens": 9}),
                    ("responses", {"input": "hi"}),
                ):
                    for stream in (False, True):
                        async with client.post(
                            f"/v1/{path}", json={"model": MODEL, "stream": stream, **body}
                        ) as answer:
                            told = await answer.text() + str(answer.headers)
                            assert "bad key" in told
                            assert not [secret for secret in secrets if secret in told]

    run(test())
    logged = "".join(capfd.readouterr())
    assert not [secret for secret in secrets if secret in logged]
