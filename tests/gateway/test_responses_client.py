"""The official client keeps its state with the gateway: goes on, streams, lists, deletes, and shortens."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from openai import BadRequestError, NotFoundError

from tests.support.gateway.hosts import Host, HostRequest, Peer, run, whole
from tests.support.gateway.running import MODEL, config_for, running

ids: Iterator[int] = itertools.count()


async def answer(peer: Peer, asked: HostRequest) -> None:
    """A host that counts what it is told, and thinks about it."""
    body = json.loads(asked.body)
    said = f"You said {len(body['messages'])} things."
    chunk: dict[str, Any] = {"id": f"chatcmpl-{next(ids)}", "created": 1, "model": MODEL}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    if not body.get("stream"):
        message = {"role": "assistant", "content": said, "reasoning_content": "Let me count."}
        chunk |= {"object": "chat.completion", "usage": usage}
        chunk["choices"] = [{"index": 0, "message": message, "finish_reason": "stop"}]
        await peer.send(whole(json.dumps(chunk).encode()))
        return
    chunk["object"] = "chat.completion.chunk"
    deltas: list[tuple[dict[str, Any], str | None]] = [
        ({"role": "assistant", "reasoning_content": "Let me count."}, None),
        ({"content": said}, None),
        ({}, "stop"),
    ]
    choices = [[{"index": 0, "delta": delta, "finish_reason": reason}] for delta, reason in deltas]
    frames = [{**chunk, "choices": choice} for choice in choices]
    frames[-1]["usage"] = usage
    stream = b"".join(b"data: " + json.dumps(frame).encode() + b"\n\n" for frame in frames) + b"data: [DONE]\n\n"
    await peer.send(whole(stream, headers=["content-type: text/event-stream"]))


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_a_conversation_that_only_the_gateway_remembers(streamed: bool) -> None:
    async def test() -> None:
        async with Host(answer) as host, running(config_for(host.url)) as gateway, gateway.openai() as client:
            previous: str | None = None
            for number in range(3):
                given: dict[str, Any] = {"model": MODEL, "input": f"Thing {number}.", "previous_response_id": previous}
                if streamed:
                    async with client.responses.stream(**given) as stream:
                        response: Any = await stream.get_final_response()
                else:
                    response = await client.responses.create(**given)
                assert response.output_text == f"You said {2 * number + 1} things."
                assert response.previous_response_id == previous
                previous = response.id
            sent = json.loads(host.requests[-1].body)["messages"]
            assert [message["content"] for message in sent if message["role"] == "user"] == [
                "Thing 0.",
                "Thing 1.",
                "Thing 2.",
            ]
            kept = await client.responses.retrieve(response.id)
            assert (kept.id, kept.output_text, kept.usage) == (response.id, response.output_text, response.usage)
            items = [item async for item in client.responses.input_items.list(response.id, limit=2, order="asc")]
            assert len(items) == 7  # three of the user, and of the model two messages with a thought each
            await client.responses.delete(response.id)
            with pytest.raises(NotFoundError):
                await client.responses.retrieve(response.id)
            with pytest.raises(BadRequestError) as told:
                await client.responses.create(model=MODEL, input="x", previous_response_id=response.id)
            assert told.value.code == "previous_response_not_found"

    run(test())


def test_a_conversation_is_shortened_and_goes_on() -> None:
    async def test() -> None:
        async with Host(answer) as host, running(config_for(host.url)) as gateway, gateway.openai() as client:
            first = await client.responses.create(model=MODEL, input="Remember the number 7.")
            short = await client.responses.compact(
                model=MODEL, previous_response_id=first.id, input="And the word moon."
            )
            assert short.object == "response.compaction"
            assert [item.type for item in short.output] == ["message", "message", "compaction"]
            assert short.usage.total_tokens == 15
            asked = json.loads(host.requests[-1].body)
            assert not asked.get("stream")
            assert asked["messages"][0]["content"] == "Remember the number 7."
            items: Any = [
                *(item.to_dict(warnings=False) for item in short.output),
                {"role": "user", "content": "Which number?"},
            ]
            await client.responses.create(model=MODEL, input=items)
            sent = json.dumps(json.loads(host.requests[-1].body)["messages"])
            for said in ("Remember the number 7.", "And the word moon.", "You said ", "Which number?"):
                assert said in sent
            assert "encrypted_content" not in sent

    run(test())


HALF = "half \ud83d"
HALVES: dict[str, dict[str, Any]] = {
    "instructions": {"instructions": HALF},
    "metadata": {"metadata": {"a": HALF}},
    "prompt_cache_key": {"prompt_cache_key": HALF},
    "tools": {"tools": [{"type": "function", "name": "ls", "description": HALF, "parameters": {"type": "object"}}]},
}


@pytest.mark.parametrize("given", HALVES.values(), ids=HALVES.keys())
def test_half_a_character_is_no_fault_and_what_is_not_kept_for_it_is_told(given: dict[str, Any]) -> None:
    async def test() -> None:
        # The client would refuse to send it otherwise than as an escape, which is what others do.
        body = json.dumps({"model": MODEL, "input": "Thing.", **given}).encode()
        headers = {"content-type": "application/json"}
        async with Host(answer) as host, running(config_for(host.url)) as gateway, gateway.openai() as client:
            http = client._client
            short = await http.post(f"{gateway.url}/v1/responses/compact", content=body, headers=headers)
            assert short.status_code == 200
            assert [item["type"] for item in short.json()["output"]] == ["message", "compaction"]
            made = await http.post(f"{gateway.url}/v1/responses", content=body, headers=headers)
            assert made.status_code == 200
            got = await http.get(f"{gateway.url}/v1/responses/{made.json()['id']}")
            assert (got.status_code == 200) is ("responses" not in made.headers.get("x-moonshim-lost", ""))

    run(test())
