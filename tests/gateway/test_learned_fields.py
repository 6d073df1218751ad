"""What a host has shown about its reasoning field: it stays over a reload, and one response does not change it."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any, Final

import aiohttp
import pytest
from msgspec.structs import replace

from tests.support.gateway.hosts import Host, HostRequest, Peer, Script, run, whole
from tests.support.gateway.running import MODEL, config_for, running

CALL: Final = {"id": "functions.ls:0", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
BODY: Final[dict[str, Any]] = {
    "model": MODEL,
    "messages": [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "reasoning_content": "I look.", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": CALL["id"], "content": "a.py"},
    ],
}


def host_with(fields: list[str], seen: list[str]) -> Script:
    """A host that sends its reasoning in these fields, one after the other; `seen`: where it got the client's."""

    async def script(peer: Peer, asked: HostRequest) -> None:
        message = json.loads(asked.body)["messages"][1]
        seen.append(next(field for field in ("reasoning_content", "reasoning") if field in message))
        answer = {"role": "assistant", "content": "Done.", fields[(len(seen) - 1) % len(fields)]: "I saw it."}
        choice = {"index": 0, "message": answer, "finish_reason": "stop"}
        body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        await peer.send(whole(json.dumps(body).encode()))

    return script


async def ask(client: aiohttp.ClientSession) -> None:
    async with client.post("/v1/chat/completions", json=BODY) as answer:
        assert answer.status == 200, await answer.text()
        await answer.read()


def test_the_field_that_a_host_uses_stays_known_over_a_reload() -> None:
    seen: list[str] = []

    async def test() -> None:
        async with (
            Host(host_with(["reasoning_content"], seen)) as host,
            running(config_for(host.url)) as gateway,
            aiohttp.ClientSession(gateway.url) as client,
        ):
            for _ in range(3):
                await ask(client)
                gateway.state.reload(replace(config_for(host.url), heartbeat_seconds=9.0))

    run(test())
    assert seen == ["reasoning", "reasoning_content", "reasoning_content"]


def test_what_was_learned_belongs_to_the_address_and_not_to_the_name_of_the_provider() -> None:
    before: list[str] = []
    after: list[str] = []

    async def test() -> None:
        async with (
            Host(host_with(["reasoning_content"], before)) as first,
            Host(host_with(["reasoning"], after)) as second,
            running(config_for(first.url)) as gateway,
            aiohttp.ClientSession(gateway.url) as client,
        ):
            await ask(client)
            await ask(client)
            gateway.state.reload(config_for(second.url))
            await ask(client)

    run(test())
    assert before == ["reasoning", "reasoning_content"]
    assert after == ["reasoning"]


@pytest.mark.parametrize("fields", [["reasoning_content", "reasoning"], ["reasoning", "reasoning_content"]], ids=str)
def test_a_host_that_alternates_gets_one_field(fields: list[str]) -> None:
    seen: list[str] = []

    async def test() -> None:
        async with (
            Host(host_with(fields, seen)) as host,
            running(config_for(host.url)) as gateway,
            aiohttp.ClientSession(gateway.url) as client,
        ):
            for _ in range(12):
                await ask(client)

    run(test())
    assert set(seen[1:]) == {fields[0]}


def test_a_host_that_changed_for_good_is_followed() -> None:
    seen: list[str] = []

    async def test() -> None:
        async with (
            Host(host_with(["reasoning"] * 2 + ["reasoning_content"] * 20, seen)) as host,
            running(config_for(host.url)) as gateway,
            aiohttp.ClientSession(gateway.url) as client,
        ):
            for _ in range(14):
                await ask(client)

    run(test())
    assert seen[0] == "reasoning"
    assert seen[-1] == "reasoning_content"
    changes = [place for place, (one, other) in enumerate(pairwise(seen)) if one != other]
    assert len(changes) == 1
