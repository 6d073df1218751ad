"""Responses that are kept: gone on from, referred to, asked for, deleted; over every store."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from moonshim.engine.prepare import render_problem
from moonshim.errors import Refused
from moonshim.gateway.memory import response_records as responses_kept
from moonshim.gateway.memory.response_records import StoredTurn
from moonshim.gateway.memory.responses import ResponsesState
from moonshim.store import Store, key_space, open_store
from moonshim.store.memory import MemoryStore
from tests.support.gateway.responses_client import TOOL, Client, record
from tests.support.redis_server import RedisServer, running_redis

TTL: Final = 600.0
Json: TypeAlias = dict[str, Any]
Runs: TypeAlias = Callable[[Callable[[ResponsesState], Awaitable[None]]], None]


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with running_redis() as one:
        yield one


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    store = await open_store(url, memory_bytes=50_000_000)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture(params=["memory", "sqlite", "redis"])
def with_state(request: pytest.FixtureRequest, tmp_path: Path, server: RedisServer) -> Runs:
    url = {"memory": "memory:", "sqlite": f"sqlite:{tmp_path}/state.db", "redis": server.url}[request.param]

    def run(test: Callable[[ResponsesState], Awaitable[None]]) -> None:
        async def whole() -> None:
            async with opened(url) as store:
                await test(ResponsesState(store, TTL))

        server.empty()
        asyncio.run(whole())

    return run


def alone(test: Callable[[ResponsesState], Awaitable[None]]) -> None:
    asyncio.run(_awaited(test(ResponsesState(MemoryStore(50_000_000), TTL))))


async def _awaited(test: Awaitable[None]) -> None:
    await test


async def refusal(asking: Awaitable[object]) -> tuple[int, Json]:
    """The status and the error that a client is answered."""
    with pytest.raises(Refused) as told:
        await asking
    problem = told.value.problem
    error: Json = render_problem(problem, dialect="openai_responses")["error"]
    return problem.status, error


# --- going on ---------------------------------------------------------------------------------------------------


def test_a_conversation_of_calls_goes_on_from_response_to_response(with_state: Runs) -> None:
    async def test(state: ResponsesState) -> None:
        client = Client(state)
        first = await client.ask(
            {"input": "What is in a?", "tools": [TOOL], "instructions": "Be brief."},
            thinks="I have to look.",
            calls='{"path":"a"}',
        )
        call = next(item for item in first["output"] if item["type"] == "function_call")
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "nothing"}
        second = await client.ask(
            {"input": [result], "tools": [TOOL], "previous_response_id": first["id"]},
            thinks="Empty.",
            says="It is empty.",
        )
        # Neither instructions nor tools are carried over, and everything that was said is.
        assert client.messages == [("user", "What is in a?"), ("assistant", None), ("tool", "nothing")]
        assert client.sent["messages"][1]["reasoning_content"] == "I have to look."
        assert second["previous_response_id"] == first["id"]
        assert first["previous_response_id"] is None
        third = await client.ask(
            {"input": "And b?", "previous_response_id": second["id"], "instructions": "Be kind."}, says="So is b."
        )
        assert client.messages == [
            ("system", "Be kind."),
            ("user", "What is in a?"),
            ("assistant", None),
            ("tool", "nothing"),
            ("assistant", "It is empty."),
            ("user", "And b?"),
        ]
        assert client.record.store_failures == []
        # Another way on from the middle.
        await client.ask({"input": "And c?", "previous_response_id": first["id"]}, says="?")
        assert [content for role, content in client.messages if role == "user"] == ["What is in a?", "And c?"]
        assert not any(content == "nothing" for _, content in client.messages)
        await client.ask({"previous_response_id": third["id"]}, says="What else?")
        assert client.messages[-1] == ("assistant", "So is b.")

    with_state(test)


def test_a_second_gateway_goes_on_from_what_the_first_one_answered(server: RedisServer) -> None:
    async def run() -> None:
        async with opened(server.url) as one, opened(server.url) as other:
            first = await Client(ResponsesState(one, TTL)).ask({"input": "hi"}, says="hello")
            client = Client(ResponsesState(other, TTL))
            await client.ask({"input": "again", "previous_response_id": first["id"]}, says="hello")
            assert client.messages == [("user", "hi"), ("assistant", "hello"), ("user", "again")]

    asyncio.run(run())


def test_a_chain_of_a_hundred_is_stored_once_and_read_whole() -> None:
    async def run() -> None:
        store = MemoryStore(50_000_000)
        client = Client(ResponsesState(store, TTL))
        sizes, previous = list[int](), None
        for number in range(120):
            body = {"input": f"question {number} " + "x" * 1000, "previous_response_id": previous}
            previous = (await client.ask(body, says=f"answer {number}"))["id"]
            sizes.append(store.size)
        assert len(client.messages) == 239
        assert client.messages[0][1].startswith("question 0 ")
        assert client.messages[1] == ("assistant", "answer 0")
        # One more costs as much at the end as in the middle: its own 1,000 characters, and the names of others.
        steps = [after - before for before, after in itertools.pairwise(sizes[70:])]
        assert max(steps) - min(steps) < 200

    asyncio.run(run())


def test_what_a_long_conversation_rests_on_stays_as_long_as_it_goes_on() -> None:
    async def run() -> None:
        now = [0.0]
        client = Client(ResponsesState(MemoryStore(50_000_000, lambda: now[0]), 100.0))
        previous = None
        for number in range(80):
            body = {"input": f"{number}", "previous_response_id": previous}
            previous = (await client.ask(body, says="yes"))["id"]
            now[0] += 5.0
        assert len(client.messages) == 159
        now[0] += 100.0
        status, error = await refusal(client.ask({"input": "?", "previous_response_id": previous}))
        assert (status, error["code"]) == (400, "previous_response_not_found")

    asyncio.run(run())


def test_a_chain_that_is_too_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses_kept, "LONGEST_CHAIN", 3)

    async def test(state: ResponsesState) -> None:
        client, previous = Client(state), None
        for _ in range(4):
            previous = (await client.ask({"input": "x", "previous_response_id": previous}, says="y"))["id"]
        status, error = await refusal(client.ask({"input": "x", "previous_response_id": previous}))
        assert status == 400
        assert "too long" in error["message"]

    alone(test)


def test_what_was_not_stored_cannot_be_gone_on_from_in_the_words_of_openai(with_state: Runs) -> None:
    async def test(state: ResponsesState) -> None:
        client = Client(state)
        unkept = await client.ask({"input": "hi", "store": False}, thinks="Hm.", says="hello")
        assert unkept["output"][0]["encrypted_content"].startswith("moonshim1.")
        status, error = await refusal(client.ask({"input": "again", "previous_response_id": unkept["id"]}))
        assert status == 400
        assert error == {
            "message": f"Previous response with id '{unkept['id']}' not found.",
            "type": "invalid_request_error",
            "param": "previous_response_id",
            "code": "previous_response_not_found",
        }

    with_state(test)


NAMES: Final = [
    "",
    "resp_",
    "resp_unknown",
    "nonsense",
    "resp_a:b",
    "resp_" + "x" * 10_000,
    "resp_é\ud83d",
    "../resp_1",
]


@pytest.mark.parametrize("id", NAMES)
def test_any_name_that_nobody_knows_is_refused(id: str) -> None:
    async def test(state: ResponsesState) -> None:
        status, error = await refusal(Client(state).ask({"input": "x", "previous_response_id": id}))
        assert (status, error["code"]) == (400, "previous_response_not_found")
        assert len(error["message"]) < 200
        for asking in (state.get("local", id), state.delete("local", id), state.input_items("local", id)):
            status, error = await refusal(asking)
            assert (status, error["type"], error["code"]) == (404, "invalid_request_error", None)

    alone(test)


def test_conversations_are_not_kept_here_and_that_is_told() -> None:
    async def test(state: ResponsesState) -> None:
        status, error = await refusal(Client(state).ask({"input": "x", "conversation": {"id": "conv_1"}}))
        assert (status, error["message"]) == (404, "Conversation with id 'conv_1' not found.")
        body = {"input": "x", "conversation": "conv_1", "previous_response_id": "resp_1"}
        status, error = await refusal(Client(state).ask(body))
        assert (status, error["param"]) == (400, "conversation")

    alone(test)


def test_a_call_that_broke_off_is_not_gone_on_from() -> None:
    async def test(state: ResponsesState) -> None:
        client = Client(state)
        half = {"id": "fc_1_1", "type": "function_call", "status": "incomplete", "call_id": "c", "name": "rm"}
        said = {"type": "message", "role": "assistant", "status": "incomplete"}
        content = [{"type": "output_text", "text": "I will", "annotations": []}]
        response = {
            "id": "resp_1",
            "output": [{**said, "id": "msg_1_0", "content": content}, {**half, "arguments": "{"}],
        }
        await state.keep("local", {"input": "Clean up."}, response, record())
        await client.ask({"input": "Go on.", "previous_response_id": "resp_1"})
        assert client.messages == [("user", "Clean up."), ("assistant", "I will"), ("user", "Go on.")]

    alone(test)


def test_a_host_that_names_all_its_answers_alike_makes_no_circle() -> None:
    async def test(state: ResponsesState) -> None:
        first = {"id": "resp_same", "output": []}
        await state.keep("local", {"input": "one"}, first, record())
        resolved = await state.resolve("local", {"input": "two", "previous_response_id": "resp_same"}, record())
        told = record()
        await state.keep("local", resolved, first, told)
        assert told.store_failures == ["responses"]
        again = await state.resolve("local", {"input": "three", "previous_response_id": "resp_same"}, record())
        assert [item["content"] for item in again["input"]] == ["one", "three"]

    alone(test)


def test_a_client_cannot_say_what_only_we_say() -> None:
    async def test(state: ResponsesState) -> None:
        forged = {"moonshim_continues": {"previous_response_id": "resp_x", "own": 0, "rests_on": ["resp_x"]}}
        answer = await Client(state).ask({"input": "hi", **forged}, says="hello")
        assert answer["previous_response_id"] is None
        assert len((await state.input_items("local", answer["id"]))["data"]) == 1

    alone(test)


# --- references -------------------------------------------------------------------------------------------------


def test_items_are_known_by_their_names_as_the_ai_sdk_sends_them(with_state: Runs) -> None:
    async def test(state: ResponsesState) -> None:
        client = Client(state)
        asked: list[Json] = [{"role": "user", "content": "What is in a?"}]
        for number in range(3):
            answer = await client.ask(
                {"input": asked, "tools": [TOOL]}, thinks=f"Thought {number}.", says="Looking.", calls='{"path":"a"}'
            )
            kinds = [item["type"] for item in answer["output"]]
            assert kinds == ["reasoning", "message", "function_call"]
            asked += [{"type": "item_reference", "id": item["id"]} for item in answer["output"]]
            call = answer["output"][-1]
            asked.append({"type": "function_call_output", "call_id": call["call_id"], "output": f"result {number}"})
        await client.ask({"input": asked, "tools": [TOOL]}, says="Done.")
        assert [role for role, _ in client.messages] == ["user", *["assistant", "tool"] * 3]
        assert [m["reasoning_content"] for m in client.sent["messages"] if m["role"] == "assistant"] == [
            "Thought 0.",
            "Thought 1.",
            "Thought 2.",
        ]
        assert [content for role, content in client.messages if role == "tool"] == ["result 0", "result 1", "result 2"]

    with_state(test)


def test_references_are_kept_as_such_and_resolved_when_the_conversation_goes_on() -> None:
    async def run() -> None:
        store = MemoryStore(50_000_000)
        client = Client(ResponsesState(store, TTL))
        first = await client.ask({"input": "Tell me everything."}, says="x" * 100_000)
        size = store.size
        items = [
            {"role": "user", "content": "Tell me everything."},
            {"type": "item_reference", "id": first["output"][0]["id"]},
            {"role": "user", "content": "Shorter."},
        ]
        second = await client.ask({"input": items}, says="x")
        assert store.size - size < 10_000
        await client.ask({"input": "Thanks.", "previous_response_id": second["id"]}, says="!")
        assert [len(content) for _, content in client.messages] == [19, 100_000, 8, 1, 7]

    asyncio.run(run())


def test_an_unknown_item_is_a_404_in_the_words_of_openai_and_an_unknown_thought_is_left_out() -> None:
    async def test(state: ResponsesState) -> None:
        client = Client(state)
        said = {"role": "user", "content": "hi"}
        for id in ("msg_unknown_0", "fc_1", "strange"):
            status, error = await refusal(client.ask({"input": [said, {"type": "item_reference", "id": id}]}))
            assert status == 404
            assert error["message"].startswith(f"Item with id '{id}' not found. Items are not persisted when `store`")
            assert (error["type"], error["param"]) == ("invalid_request_error", "input")
        await client.ask({"input": [said, {"type": "item_reference", "id": "rs_unknown_0"}]}, says="hello")
        assert client.messages == [("user", "hi")]

    alone(test)


def test_an_input_item_can_be_referred_to_by_the_name_it_was_listed_with() -> None:
    async def test(state: ResponsesState) -> None:
        client = Client(state)
        answer = await client.ask({"input": "What is the moon made of?"}, says="Cheese.")
        listed = await state.input_items("local", answer["id"])
        await client.ask({"input": [{"id": listed["data"][0]["id"]}]}, says="Rock.")
        assert client.messages == [("user", "What is the moon made of?")]

    alone(test)


# --- sizes ------------------------------------------------------------------------------------------------------

LIMIT: Final = 100_000


def bounded(test: Callable[[ResponsesState], Awaitable[None]]) -> None:
    asyncio.run(_awaited(test(ResponsesState(MemoryStore(50_000_000), TTL, limit=LIMIT))))


def references(answer: Json, times: int) -> list[Json]:
    """So many to what was asked first."""
    return [{"type": "item_reference", "id": f"msg_{answer['id'].removeprefix('resp_')}_i0"}] * times


def is_too_much(told: tuple[int, Json]) -> bool:
    status, error = told
    return (status, error["param"]) == (400, "input") and "more than 100,000 bytes" in error["message"]


def test_naming_an_item_again_and_again_makes_no_request_larger_than_the_limit() -> None:
    async def test(state: ResponsesState) -> None:
        client = Client(state)
        first = await client.ask({"input": "x" * 10_000}, says="long")
        await client.ask({"input": references(first, 9)}, says="yes")
        assert sum(len(content) for _, content in client.messages) >= 90_000
        client.sent = {}
        assert is_too_much(await refusal(client.ask({"input": references(first, 10)})))
        assert is_too_much(
            await refusal(client.ask({"input": [*references(first, 9), {"role": "user", "content": "y" * 9500}]}))
        )
        assert client.sent == {}

    bounded(test)


def test_what_was_named_in_earlier_requests_counts_as_often_as_it_is_said_again() -> None:
    async def test(state: ResponsesState) -> None:
        client = Client(state)
        previous = first = await client.ask({"input": "x" * 10_000}, says="long")
        for _ in range(2):
            body = {"input": references(first, 4), "previous_response_id": previous["id"]}
            previous = await client.ask(body, says="yes")
        going_on: Json = {"previous_response_id": previous["id"]}
        assert is_too_much(await refusal(client.ask({**going_on, "input": references(first, 4)})))
        assert is_too_much(await refusal(client.ask({**going_on, "input": "y" * 20_000})))
        await client.ask({**going_on, "input": "Go on."}, says="yes")
        assert client.messages[-1] == ("user", "Go on.")

    bounded(test)


def test_naming_items_of_many_large_responses_reads_no_more_than_the_limit() -> None:
    async def test(state: ResponsesState) -> None:
        client = Client(state)
        answers = [await client.ask({"input": "x" * 30_000}, says="short") for _ in range(4)]
        named = [{"type": "item_reference", "id": answer["output"][0]["id"]} for answer in answers]
        said = {"role": "user", "content": "Which?"}
        await client.ask({"input": [*named[:3], said]}, says="All.")
        assert is_too_much(await refusal(client.ask({"input": [*named, said]})))

    bounded(test)


def test_what_was_named_again_and_again_is_listed_once() -> None:
    async def test(state: ResponsesState) -> None:
        client = Client(state)
        first = await client.ask({"input": "x" * 1000}, says="long")
        items = [*references(first, 50), {"role": "user", "content": "Go on."}, *references(first, 30)]
        second = await client.ask({"input": items, "previous_response_id": first["id"]}, says="yes")
        listed = await state.input_items("local", second["id"], limit=100, order="asc")
        assert [len(item["content"][0]["text"]) for item in listed["data"]] == [1000, 4, 6]
        pages, after = list[str](), None
        while len(pages) < 10:
            page = await state.input_items("local", second["id"], limit=1, after=after)
            pages += [item["id"] for item in page["data"]]
            after = page["last_id"]
            if not page["has_more"]:
                break
        assert pages == [item["id"] for item in reversed(listed["data"])]

    bounded(test)


def test_a_chain_is_put_together_in_as_many_steps_as_it_has_items(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = list[int]()
    items = StoredTurn.items

    def counted(turn: StoredTurn) -> Iterable[Json]:
        looked_at.append(1)
        return items(turn)

    async def test(state: ResponsesState) -> None:
        client = Client(state)
        previous = first = await client.ask({"input": "hi"}, says="hello")
        for _ in range(20):
            body = {"input": references(first, 1), "previous_response_id": previous["id"]}
            previous = await client.ask(body, says="yes")
        monkeypatch.setattr(StoredTurn, "items", counted)
        await client.ask({"input": "Go on.", "previous_response_id": previous["id"]}, says="yes")
        await state.input_items("local", previous["id"])
        assert len(looked_at) == 2 * 21

    alone(test)


# --- what cannot be read ----------------------------------------------------------------------------------------

JUNK: Final = {
    "no JSON": b"\x00\xff junk",
    "invalid text": b'"\xff"',
    "something else": b"7",
    "a list of nothing": b"[]",
    "items that are none": b"[[7],[null],[]]",
    "one that is nested too deeply": b"[" * 100_000,
    "nothing": b"",
}


@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK.keys())
@pytest.mark.parametrize("entry", ["turn", "response"])
def test_an_entry_that_cannot_be_read_is_not_there(entry: str, junk: bytes) -> None:
    async def run() -> None:
        store = MemoryStore(50_000_000)
        state = ResponsesState(store, TTL)
        client = Client(state)
        first = await client.ask({"input": "hi"}, says="hello")
        second = await client.ask({"input": "again", "previous_response_id": first["id"]}, says="hello")
        await store.put(f"{entry}:{key_space('local')}:{first['id']}", junk, TTL)
        for asking in (state.get("local", first["id"]), state.input_items("local", first["id"])):
            assert (await refusal(asking))[0] == 404
        if entry == "response":  # only what is said about it
            return
        for previous in (first["id"], second["id"]):
            status, error = await refusal(client.ask({"input": "x", "previous_response_id": previous}))
            assert (status, error["code"]) == (400, "previous_response_not_found")
        named = [{"type": "item_reference", "id": first["output"][0]["id"]}]
        assert (await refusal(client.ask({"input": named})))[0] == 404
        assert len((await state.input_items("local", second["id"]))["data"]) == 1

    asyncio.run(run())


# --- tenants ----------------------------------------------------------------------------------------------------


def test_tenants_never_see_each_others(with_state: Runs) -> None:
    async def test(state: ResponsesState) -> None:
        answer = await Client(state, "key:alice").ask({"input": "My secret is 7."}, says="I keep it.")
        id, item = answer["id"], answer["output"][0]["id"]
        for tenant in ("key:bob", "local", "key", "key:alice:"):
            bob = Client(state, tenant)
            assert (await refusal(bob.ask({"input": "x", "previous_response_id": id})))[0] == 400
            assert (await refusal(bob.ask({"input": [{"type": "item_reference", "id": item}]})))[0] == 404
            assert (await refusal(state.get(tenant, id)))[0] == 404
            assert (await refusal(state.input_items(tenant, id)))[0] == 404
            assert (await refusal(state.delete(tenant, id)))[0] == 404
        assert (await state.get("key:alice", id))["output"] == answer["output"]

    with_state(test)


# --- by name ----------------------------------------------------------------------------------------------------


def test_a_response_is_given_as_it_was_answered_until_it_is_deleted(with_state: Runs) -> None:
    async def test(state: ResponsesState) -> None:
        client = Client(state)
        answer = await client.ask({"input": "hi", "tools": [TOOL], "metadata": {"a": "b"}}, thinks="Hm.", says="hello")
        assert await state.get("local", answer["id"]) == answer
        gone = {"id": answer["id"], "object": "response", "deleted": True}
        assert await state.delete("local", answer["id"]) == gone
        status, error = await refusal(state.get("local", answer["id"]))
        assert (status, error["message"]) == (404, f"Response with id '{answer['id']}' not found.")
        assert (await refusal(state.delete("local", answer["id"])))[0] == 404
        assert (await refusal(client.ask({"input": "x", "previous_response_id": answer["id"]})))[0] == 400

    with_state(test)


def test_input_items_are_listed_a_page_at_a_time(with_state: Runs) -> None:
    async def test(state: ResponsesState) -> None:
        client = Client(state)
        first = await client.ask({"input": "0"}, says="1")
        items = [{"role": "user", "content": str(number)} for number in range(2, 30)]
        second = await client.ask({"input": items, "previous_response_id": first["id"]}, says="end")

        def texts(page: Json) -> list[str]:
            return [
                item["content"] if isinstance(item["content"], str) else item["content"][0]["text"]
                for item in page["data"]
            ]

        newest = await state.input_items("local", second["id"])
        assert texts(newest) == [str(number) for number in range(29, 9, -1)]
        assert newest["object"] == "list"
        assert newest["has_more"] is True
        assert (newest["first_id"], newest["last_id"]) == (newest["data"][0]["id"], newest["data"][-1]["id"])
        rest = await state.input_items("local", second["id"], after=newest["last_id"])
        assert texts(rest) == [str(number) for number in range(9, -1, -1)]
        assert rest["has_more"] is False
        oldest = await state.input_items("local", second["id"], limit=3, order="asc")
        assert texts(oldest) == ["0", "1", "2"]
        assert len({item["id"] for item in (*newest["data"], *rest["data"])}) == 30
        assert (await state.input_items("local", second["id"], after="unknown"))["data"] == []
        for limit in (0, 101):
            assert (await refusal(state.input_items("local", second["id"], limit=limit)))[0] == 400

    with_state(test)


# --- a store that fails -----------------------------------------------------------------------------------------


def test_when_the_store_is_down_only_those_who_need_it_are_refused() -> None:
    async def run(server: RedisServer) -> None:
        async with opened(server.url) as store:
            state = ResponsesState(store, TTL)
            client = Client(state)
            answer = await client.ask({"input": "hi"}, says="hello")
            server.stop()
            assert (await client.ask({"input": "hi"}, says="hello"))["status"] == "completed"
            assert client.record.store_failures == ["responses"]
            thought = [{"role": "user", "content": "hi"}, {"type": "item_reference", "id": "rs_x_0"}]
            await client.ask({"input": thought, "store": False}, says="hello")
            assert client.record.store_failures == ["responses"]
            for asking in (
                client.ask({"input": "x", "previous_response_id": answer["id"]}),
                client.ask({"input": [{"type": "item_reference", "id": answer["output"][0]["id"]}]}),
                state.get("local", answer["id"]),
                state.delete("local", answer["id"]),
                state.input_items("local", answer["id"]),
            ):
                with pytest.raises(Refused) as told:
                    await asking
                assert (told.value.problem.status, told.value.problem.retry_after) == (503, 1.0)

    with running_redis() as server:
        asyncio.run(run(server))


def test_an_answer_that_cannot_be_kept_is_answered_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses_kept, "_LARGEST", 5000)

    async def test(state: ResponsesState) -> None:
        client = Client(state)
        await client.ask({"input": "x" * 10_000}, says="hello")
        assert client.record.store_failures == ["responses"]
        await client.ask({"input": "\ud83d"}, says="hello")
        assert client.record.store_failures == ["responses"]

    alone(test)
