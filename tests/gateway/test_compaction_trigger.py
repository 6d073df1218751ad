"""Codex's Remote Compaction V2: a request that ends in a trigger gets one item, which the gateway can read back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from openai import APIStatusError

from tests.support.gateway.chat_model import ChatModel, config_at
from tests.support.gateway.hosts import Host, run
from tests.support.gateway.running import MODEL, Running, config_for, running

SUMMARY: Final = "The bug is in line 7; the tests are not run yet."
TOOLS: Final = [{"type": "function", "name": "read", "parameters": {"type": "object", "properties": {"path": {}}}}]
HISTORY: Final[list[dict[str, Any]]] = [
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be careful."}]},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Fix the bug."}]},
    {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "a long file"},
]
BODY: Final[dict[str, Any]] = {"model": MODEL, "tools": TOOLS, "store": False, "instructions": "You mend code."}
TRIGGERED: Final = {**BODY, "input": [*HISTORY, {"type": "compaction_trigger"}]}
CALL: Final = {"id": "read:0", "type": "function", "function": {"name": "read", "arguments": "{}"}}


GOOD: Final = {"reasoning_content": "What matters?", "content": SUMMARY}


async def ask(gateway: Running, body: dict[str, Any], *, streamed: bool) -> tuple[Any, list[Any]]:
    """The final response as the openai package reads it, and the items that Codex takes from a stream."""
    async with gateway.openai() as client:
        if not streamed:
            response = await client.responses.create(**body)
            return response, list(response.output)
        events = [event async for event in await client.responses.create(**body, stream=True)]
        assert [event.type for event in events][:2] == ["response.created", "response.in_progress"]
        assert [event.sequence_number for event in events] == list(range(len(events)))
        done = [event.item for event in events if event.type == "response.output_item.done"]
        return events[-1].response, done


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("host_name", ["vllm", "moonshot", "generic"])
def test_a_trigger_gives_one_item_and_nothing_else(host_name: str, streamed: bool) -> None:
    model = ChatModel(GOOD)

    async def test() -> None:
        async with Host(model) as host, running(config_at(host.url, host_name)) as gateway:
            response, items = await ask(gateway, TRIGGERED, streamed=streamed)
            assert [item.type for item in items] == ["compaction"]
            assert [item.to_dict() for item in response.output] == [item.to_dict() for item in items]
            assert (response.status, response.usage.total_tokens) == ("completed", 15)
            assert SUMMARY not in response.to_json()
            await ask(gateway, {**BODY, "input": [*HISTORY[:2], items[0].to_dict()]}, streamed=streamed)

    run(test())
    compacting, following = model.bodies
    assert compacting["tool_choice"] == "none"
    assert len(compacting["tools"]) == 1
    assert "Write a summary" in str(compacting["messages"][-1]["content"])
    assert SUMMARY in str(following["messages"])
    assert "encrypted_content" not in str(following)


def test_the_question_comes_after_the_very_conversation_so_that_the_prompt_cache_is_hit() -> None:
    model = ChatModel(GOOD)

    async def test() -> None:
        async with Host(model) as host, running(config_for(host.url)) as gateway:
            await ask(gateway, {**BODY, "input": HISTORY}, streamed=True)
            await ask(gateway, TRIGGERED, streamed=True)

    run(test())
    before, compacting = model.bodies
    assert compacting["messages"][: len(before["messages"])] == before["messages"]
    assert len(compacting["messages"]) == len(before["messages"]) + 1
    assert compacting["tools"] == before["tools"]


def test_another_gateway_at_the_same_store_reads_the_item_and_so_does_a_later_one(tmp_path: Path) -> None:
    model = ChatModel(GOOD)
    store = f"sqlite:{tmp_path / 'store.db'}"

    async def test() -> None:
        async with Host(model) as host:
            config = config_for(host.url, store=store)
            async with running(config) as first, running(config) as second:
                _, items = await ask(first, TRIGGERED, streamed=True)
                body = {**BODY, "input": [HISTORY[1], items[0].to_dict(), HISTORY[1]]}
                await ask(second, body, streamed=True)
            async with running(config) as later:
                await ask(later, body, streamed=True)

    run(test())
    assert [SUMMARY in str(body["messages"]) for body in model.bodies] == [False, True, True]


def test_a_shortened_conversation_can_be_shortened_again() -> None:
    model = ChatModel(GOOD, {"content": "Line 7 is fixed."})

    async def test() -> None:
        async with Host(model) as host, running(config_for(host.url)) as gateway:
            _, items = await ask(gateway, TRIGGERED, streamed=True)
            again = [HISTORY[1], items[0].to_dict(), *HISTORY[2:], {"type": "compaction_trigger"}]
            _, items = await ask(gateway, {**BODY, "input": again}, streamed=True)
            assert [item.type for item in items] == ["compaction"]
            await ask(gateway, {**BODY, "input": [HISTORY[1], items[0].to_dict()]}, streamed=True)

    run(test())
    assert SUMMARY in str(model.bodies[1]["messages"])
    assert "Line 7 is fixed." in str(model.bodies[2]["messages"])
    assert SUMMARY not in str(model.bodies[2]["messages"])


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    "useless", [{"tool_calls": [CALL]}, {"content": ""}, {"content": " \n"}], ids=["a call", "nothing", "white space"]
)
def test_a_model_that_goes_on_with_the_task_is_asked_once_more(useless: dict[str, Any], streamed: bool) -> None:
    model = ChatModel(useless, GOOD)

    async def test() -> None:
        async with Host(model) as host, running(config_for(host.url)) as gateway:
            response, items = await ask(gateway, TRIGGERED, streamed=streamed)
            assert [item.type for item in items] == ["compaction"]
            assert response.status == "completed"
            assert len(response.output) == 1

    run(test())
    assert len(model.bodies) == 2


def test_a_summary_beside_a_call_is_the_summary_alone() -> None:
    model = ChatModel({"content": SUMMARY, "tool_calls": [CALL]})

    async def test() -> None:
        async with Host(model) as host, running(config_for(host.url)) as gateway:
            response, items = await ask(gateway, TRIGGERED, streamed=True)
            assert ([item.type for item in items], response.status) == (["compaction"], "completed")

    run(test())
    assert len(model.bodies) == 1


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("messages", "reason"),
    [([{"tool_calls": [CALL]}], "stop"), ([{"content": "half a su"}], "length"), ([{"content": ""}], "stop")],
    ids=["calls", "cut off", "nothing"],
)
def test_without_a_whole_summary_the_request_fails(
    messages: Sequence[dict[str, Any]], reason: str, streamed: bool
) -> None:
    """A client that got half a summary would forget the other half of its conversation."""

    async def test() -> None:
        async with Host(ChatModel(*messages, reason=reason)) as host, running(config_for(host.url)) as gateway:
            if streamed and reason != "length":  # A second request was sent, so the stream has begun.
                response, items = await ask(gateway, TRIGGERED, streamed=True)
                assert (response.status, items, response.output) == ("failed", [], [])
                assert "no summary" in response.error.message
                return
            with pytest.raises(APIStatusError) as told:
                await ask(gateway, TRIGGERED, streamed=streamed)
            assert (told.value.status_code, told.value.code) == (502, "compaction_failed")

    run(test())


def test_a_trigger_in_the_middle_of_a_conversation_asks_for_nothing() -> None:
    model = ChatModel({"content": "Hello."})
    items = [HISTORY[1], {"type": "compaction_trigger"}, {"role": "user", "content": "And?"}]

    async def test() -> None:
        async with Host(model) as host, running(config_for(host.url)) as gateway:
            response, _ = await ask(gateway, {**BODY, "input": items}, streamed=True)
            assert response.output[-1].type == "message"

    run(test())


def test_the_items_of_a_stored_conversation_are_shortened_too() -> None:
    model = ChatModel(GOOD)

    async def test() -> None:
        async with Host(model) as host, running(config_for(host.url)) as gateway:
            first, _ = await ask(gateway, {"model": MODEL, "input": "Fix the bug."}, streamed=False)
            body = {"model": MODEL, "previous_response_id": first.id, "input": [{"type": "compaction_trigger"}]}
            short, items = await ask(gateway, body, streamed=True)
            assert [item.type for item in items] == ["compaction"]
            body = {"model": MODEL, "previous_response_id": short.id, "input": "Go on."}
            after, _ = await ask(gateway, body, streamed=True)
            await ask(gateway, body | {"previous_response_id": after.id, "input": "And now?"}, streamed=False)

    run(test())
    assert model.bodies[1]["messages"][0]["content"] == "Fix the bug."
    summary = "This is a summary of what was said and done in this conversation before this point:"
    for body, words in zip(model.bodies[2:], (["Go on."], ["Go on.", "And now?"]), strict=True):
        said = "\n".join(message["content"] for message in body["messages"] if message["role"] == "user")
        assert said.startswith(f"Fix the bug.\n{summary}")
        assert said.endswith("\n".join(words))
        assert sum(message["role"] == "assistant" for message in body["messages"]) == len(words) - 1
