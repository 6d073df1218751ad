"""What outlives one request, and what a client may decide: state, models, keys, names and addresses."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any, Final

import anthropic
import openai
import pytest
from msgspec.structs import replace

from moonshim.config import Config, GatewayKey, Retries
from moonshim.gateway.inbound.auth import new_key
from tests.support.gateway.hosts import Host, HostRequest, Peer
from tests.support.gateway.official_clients import Packages, Result
from tests.support.gateway.stages import Stage, stage
from tests.support.gateway.strict_hosts import ROWS, PlannedResponse, Row, StrictKimi, Turn, turns_of

CLIENTS: Final = ("openai_chat", "anthropic", "openai_responses")
TOOL: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
    "additionalProperties": False,
}
_tags: Final = itertools.count()


def play(body: Any, row: Row, turns: list[Turn]) -> PlannedResponse:
    """Call a tool when there is one and nothing was called yet; else tell how many words came before."""
    if body.get("tools") and not any(turn.calls for turn in turns):
        return PlannedResponse("I read.", "Reading.", [("read", '{"path": "/a"}')])
    return PlannedResponse(f"Thought {len(turns)}.", f"{len(turns)} turns before this.")


def config(host: StrictKimi) -> Config:
    aliases: dict[str, tuple[str, ...]] = {f"my-{name}": (f"{name}/{row.model}",) for name, row in ROWS.items()}
    aliases["claude-*"] = ("moonshot/kimi-k2.5",)
    aliases["in-turn"] = tuple(f"{name}/{row.model}" for name, row in ROWS.items())
    # Each target is asked once, and none is left alone for having failed: these tests decide who is down.
    retries = Retries(attempts=1, budget=1_000.0, breaker_failures=1_000_000)
    # Without keys, forwarding headers are refused otherwise: here they get in, and must lead nowhere.
    return Config(providers=host.providers(), aliases=aliases, retries=retries, open_without_keys=True)


@pytest.fixture(scope="module")
def scene() -> Iterator[Stage]:
    with stage(StrictKimi(play), config) as one:
        yield one


@pytest.fixture(autouse=True)
def forgotten(scene: Stage) -> None:
    scene.host.bodies, scene.host.refused = [], []


def words(*said: Any) -> Any:
    return [{"role": "user", "content": f"{one} ({next(_tags)})"} for one in said]


# --- Responses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ROWS)
class TestResponses:
    def test_a_chain_can_be_gone_on_from_anywhere(self, scene: Stage, name: str) -> None:
        """Two conversations that share a beginning know nothing of each other's end."""
        client = scene.packages.openai.responses

        async def test() -> None:
            model = f"my-{name}"
            first = await client.create(model=model, input=words("One"))
            second = await client.create(model=model, input=words("Two"), previous_response_id=first.id)
            third = await client.create(model=model, input=words("Three"), previous_response_id=second.id)
            other = await client.create(model=model, input=words("Other"), previous_response_id=first.id)
            assert [one.output_text[0] for one in (first, second, third, other)] == ["0", "1", "2", "1"]
            sent = json.dumps(scene.host.bodies[-1])
            assert "One" in sent
            assert "Two" not in sent
            # The instructions of a request are not those of the next.
            told = await client.create(model=model, input=words("x"), instructions="Be brief.")
            await client.create(model=model, input=words("y"), previous_response_id=told.id)
            assert "Be brief." not in json.dumps(scene.host.bodies[-1])
            assert not scene.host.refused

        scene.run(test())

    def test_a_response_is_got_listed_and_deleted(self, scene: Stage, name: str) -> None:
        client = scene.packages.openai.responses

        async def test() -> None:
            first = await client.create(model=f"my-{name}", input=words("One"), metadata={"mine": "yes"})
            second = await client.create(model=f"my-{name}", input=words("Two"), previous_response_id=first.id)
            kept = await client.retrieve(second.id)
            assert kept.to_dict() == second.to_dict()
            assert (await client.retrieve(first.id)).metadata == {"mine": "yes"}
            items = [item.to_dict() async for item in client.input_items.list(second.id, order="asc")]
            assert [item.get("role") or item["type"] for item in items] == ["user", "reasoning", "assistant", "user"]
            first_item: Any = items[0]
            assert first_item["content"][0]["text"].startswith("One")
            await client.delete(first.id)
            with pytest.raises(openai.NotFoundError):
                await client.retrieve(first.id)
            assert (await client.retrieve(second.id)).id == second.id
            unkept = await client.create(model=f"my-{name}", input=words("Secret"), store=False)
            with pytest.raises(openai.NotFoundError):
                await client.retrieve(unkept.id)

        scene.run(test())

    def test_items_are_referred_to_by_their_names(self, scene: Stage, name: str) -> None:
        client: Any = scene.packages.openai.responses
        tools = [{"type": "function", "name": "read", "parameters": TOOL, "strict": False}]

        async def test() -> None:
            asked = words("Read it")
            first = await client.create(model=f"my-{name}", input=asked, tools=tools)
            named = [{"type": "item_reference", "id": item.id} for item in first.output]
            (call,) = (item for item in first.output if item.type == "function_call")
            given = {"type": "function_call_output", "call_id": call.call_id, "output": "content"}
            second = await client.create(model=f"my-{name}", input=[*asked, *named, given], tools=tools)
            assert second.output_text == "1 turns before this."
            (turn,) = turns_of(scene.host.bodies[-1])
            assert (turn.reasoning, turn.text, turn.calls[0].name) == ("I read.", "Reading.", "read")
            assert [text for _, text in turn.results] == ["content"]
            with pytest.raises(openai.APIStatusError) as told:
                await client.create(model=f"my-{name}", input=[{"type": "item_reference", "id": "msg_nobody"}])
            assert told.value.status_code in (400, 404)
            assert "msg_nobody" in told.value.message
            assert not scene.host.refused

        scene.run(test())

    def test_a_shortened_conversation_goes_on_with_tools(self, scene: Stage, name: str) -> None:
        client: Any = scene.packages.openai.responses
        tools = [{"type": "function", "name": "read", "parameters": TOOL, "strict": False}]

        async def test() -> None:
            conversation: Any = scene.packages.conversation(
                "openai_responses", f"my-{name}", tools={"read": TOOL}, kept=True
            )
            conversation.ask(f"Read it {next(_tags)}")
            answer = await conversation.turn()
            conversation.give([(call, Result("content")) for call in answer.calls])
            await conversation.turn()
            short = await client.compact(model=f"my-{name}", previous_response_id=conversation.previous)
            items = [item.to_dict(warnings=False) for item in short.output]
            after = await client.create(model=f"my-{name}", input=[*items, *words("Go on")], tools=tools)
            assert [item.type for item in after.output] == ["reasoning", "message", "function_call"]
            sent = json.dumps(scene.host.bodies[-1])
            assert "turns before this" in sent, "what the model said of it is what is left"
            last = await client.create(
                model=f"my-{name}",
                previous_response_id=after.id,
                input=[{"type": "function_call_output", "call_id": after.output[-1].call_id, "output": "more"}],
                tools=tools,
            )
            assert last.status == "completed"
            assert not scene.host.refused

        scene.run(test())


def test_a_conversation_may_change_its_host_and_its_dialect(scene: Stage) -> None:
    """The same history goes to one row after the other: each gets it as it wants it, thoughts included."""

    async def test() -> None:
        conversation: Any = scene.packages.conversation("openai_chat", "my-vllm", tools={"read": TOOL})
        conversation.ask(f"Read it {next(_tags)}")
        answer = await conversation.turn()
        conversation.give([(call, Result("content")) for call in answer.calls])
        for name in (*ROWS, *reversed(ROWS)):
            conversation.model = f"my-{name}"
            answer = await conversation.turn()
            assert (answer.model, answer.calls) == (f"my-{name}", [])
            conversation.ask("Go on.")
        assert not scene.host.refused
        for body in scene.host.bodies[1:]:
            assert turns_of(body)[0].reasoning == "I read."

    scene.run(test())


@pytest.mark.parametrize("drops", [False, True], ids=["keeps thoughts", "drops thoughts"])
@pytest.mark.parametrize("way", ["whole", "helper"])
@pytest.mark.parametrize("client", CLIENTS)
def test_the_next_host_goes_on_where_one_went_down(scene: Stage, client: str, way: str, drops: bool) -> None:
    """In the middle of a loop of tools: the history is written anew for it, and the client notices nothing."""
    host: StrictKimi = scene.host
    names = list(ROWS)

    def thinks(body: Any, row: Row, turns: list[Turn]) -> PlannedResponse:
        if len(turns) == len(names):
            return PlannedResponse("", " ".join(text for turn in turns for _, text in turn.results))
        return PlannedResponse(f"Thought {len(turns)}.", "", [("read", json.dumps({"path": f"/{len(turns)}"}))])

    async def test() -> None:
        conversation = scene.packages.conversation(client, "in-turn", way=way, tools={"read": TOOL}, drops=drops)
        conversation.ask(f"Read it {next(_tags)}")
        for number, name in enumerate(names):
            host.down = set(names[:number])
            answer = await conversation.turn()
            assert (answer.model, answer.reasoning) == ("in-turn", f"Thought {number}.")
            assert scene.host.requests[-1].path.startswith(f"/{name}/")
            conversation.give([(call, Result(f"content {number}")) for call in answer.calls])
        host.down = set()
        assert (await conversation.turn()).text == "content 0 content 1 content 2 content 3"
        assert not host.refused
        assert [turn.reasoning for turn in turns_of(host.bodies[-1])] == [f"Thought {n}." for n in range(len(names))]

    host.plays = thinks
    try:
        scene.run(test())
    finally:
        host.plays, host.down = play, set()


def test_when_all_are_down_the_client_is_told(scene: Stage) -> None:
    scene.host.down = set(ROWS)
    try:
        for client in CLIENTS:
            with pytest.raises((openai.InternalServerError, anthropic.InternalServerError), match="down") as told:
                scene.run(ask(scene.packages, client, "in-turn"))
            error: Any = told.value
            assert error.response.headers["retry-after"]
    finally:
        scene.host.down = set()


# --- models -----------------------------------------------------------------------------------------------------


def test_models_are_listed_and_got_by_both_packages(scene: Stage) -> None:
    async def test() -> None:
        listed = [model async for model in scene.packages.openai.models.list()]
        names = [model.id for model in listed]
        assert set(names) >= {"my-vllm", "my-moonshot", "my-kimi-coding", "moonshot/kimi-k2.5", "k3"}
        assert "claude-*" not in names
        # Claude Code's picker offers only names that contain `claude`.
        picked = [f"claude-{name}" for name in names if "claude" not in name]
        assert [model.id async for model in scene.packages.anthropic.models.list()] == [*names, *picked]
        for name in ("my-vllm", "moonshot/kimi-k2.5", "vllm/kimi-k2.5"):
            one: Any = await scene.packages.openai.models.retrieve(name)
            assert (one.id, one.object, one.context_window) == (name, "model", 262_144)
            assert (await scene.packages.anthropic.models.retrieve(name)).id == name
        assert (await scene.packages.anthropic.models.retrieve("claude-sonnet-9")).id == "claude-sonnet-9"
        with pytest.raises(openai.NotFoundError):
            await scene.packages.openai.models.retrieve("gpt-6")

    scene.run(test())


async def ask(packages: Packages, client: str, model: str, **more: Any) -> Any:
    """One question in this dialect."""
    match client:
        case "openai_chat":
            return await packages.openai.chat.completions.create(model=model, messages=words("Hi"), **more)
        case "anthropic":
            return await packages.anthropic.messages.create(model=model, messages=words("Hi"), max_tokens=9, **more)
    return await packages.openai.responses.create(model=model, input=words("Hi"), **more)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", CLIENTS)
def test_an_unknown_model_is_not_found_and_the_nearest_are_named(scene: Stage, client: str, stream: bool) -> None:
    with pytest.raises((openai.NotFoundError, anthropic.NotFoundError)) as told:
        scene.run(ask(scene.packages, client, "my-moonshoot", stream=stream))
    error: Any = told.value
    assert "my-moonshot" in str(error)
    if client == "anthropic":
        assert error.body["type"] == "error"
        assert error.body["error"]["type"] == "not_found_error"
    else:
        assert (error.code, error.param, error.type) == ("model_not_found", "model", "invalid_request_error")
    assert scene.packages.headers["x-request-id"]
    assert scene.host.bodies == []


@pytest.mark.parametrize("client", CLIENTS)
def test_a_pattern_answers_under_the_name_that_was_asked_for(scene: Stage, client: str) -> None:
    answer = scene.run(ask(scene.packages, client, "claude-sonnet-9", extra_query={"beta": "true", "x": "1"}))
    assert answer.model == "claude-sonnet-9"
    assert scene.host.bodies[0]["model"] == "kimi-k2.5"


def test_tokens_are_counted_without_a_host(scene: Stage) -> None:
    async def test() -> None:
        count = scene.packages.anthropic.messages.count_tokens
        few = await count(model="my-vllm", messages=words("Hi"))
        many = await count(
            model="my-vllm",
            messages=words("Hi " * 500),
            system="Be brief.",
            tools=[{"name": "read", "input_schema": TOOL}],
            extra_query={"beta": "true"},
        )
        assert 0 < few.input_tokens < many.input_tokens
        assert many.input_tokens > 500
        assert scene.host.bodies == []

    scene.run(test())


# --- keys -------------------------------------------------------------------------------------------------------


def test_a_key_opens_its_models_and_no_others() -> None:
    text, digest = new_key()
    key = GatewayKey(name="team", digest=digest, models=("my-moonshot*",))

    def keyed(host: StrictKimi) -> Config:
        passing = (replace(one, passes_client_key=True) for one in host.providers())
        return replace(config(host), providers=tuple(passing), keys=(key,))

    with stage(StrictKimi(play), keyed) as one:

        async def test() -> None:
            packages = Packages(one.gateway.url, key=text)
            for client in CLIENTS:
                assert (await ask(packages, client, "my-moonshot")).model == "my-moonshot"
                with pytest.raises((openai.NotFoundError, anthropic.NotFoundError), match="my-moonshot"):
                    await ask(packages, client, "my-vllm")
                with pytest.raises((openai.AuthenticationError, anthropic.AuthenticationError)):
                    await ask(one.packages, client, "my-moonshot")
            assert [model.id async for model in packages.openai.models.list()] == [
                "my-moonshot",
                "my-moonshot-anthropic",
            ]
            await packages.close()
            # With gateway keys, what the client sent stays here, whatever the provider says.
            for asked in one.host.requests:
                assert text not in json.dumps(asked.headers)
                assert asked.headers["authorization"] == "Bearer sk-moonshot"

        one.run(test())


@pytest.mark.parametrize("passes", [False, True], ids=["kept here", "passed on"])
def test_a_clients_own_key_goes_on_only_where_that_is_allowed(passes: bool) -> None:
    def passing(host: StrictKimi) -> Config:
        return replace(config(host), providers=host.providers(passes_client_key=passes))

    with stage(StrictKimi(play), passing) as one:

        async def test() -> None:
            packages = Packages(one.gateway.url, key="sk-my-own")
            for client, name in itertools.product(CLIENTS, ROWS):
                await ask(packages, client, f"my-{name}")
                sent = one.host.requests[-1].headers
                key = "sk-my-own" if passes else f"sk-{name}"
                assert sent["authorization"] == f"Bearer {key}"
                assert sent.get("x-api-key") == (key if ROWS[name].dialect == "anthropic" else None)
            await packages.close()

        one.run(test())


# --- addresses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", CLIENTS)
def test_no_client_can_send_a_request_elsewhere(scene: Stage, client: str) -> None:
    """Neither a body nor a header names an address: a stranger's host hears nothing, and no key goes there."""

    async def elsewhere(peer: Peer, asked: HostRequest) -> None:
        raise AssertionError("nobody is asked here")

    async def test() -> None:
        async with Host(elsewhere) as stranger:
            url = f"{stranger.url}/v1"
            names = ("base_url", "api_base", "api_base_url", "endpoint", "upstream", "proxy", "host")
            headers = {
                "x-base-url": url,
                "x-upstream-url": url,
                "x-forwarded-host": f"127.0.0.1:{stranger.port}",
                "forwarded": f"host=127.0.0.1:{stranger.port}",
                "x-original-url": f"{url}/chat/completions",
                "proxy": stranger.url,
            }
            more = {**dict.fromkeys(names, url), "litellm_params": {"api_base": url}}
            answer = await ask(scene.packages, client, "my-moonshot", extra_headers=headers, extra_body=more)
            assert answer.model == "my-moonshot"
            assert stranger.connections == 0
            assert re.search(rf"127\.0\.0\.1:{stranger.port}", json.dumps(scene.host.requests[-1].headers)) is None
            for model in (f"{url}/kimi-k2.5", f"moonshot/{url}", f"{stranger.url},kimi-k2.5", "../../kimi-k2.5"):
                with pytest.raises((openai.NotFoundError, anthropic.NotFoundError)):
                    await ask(scene.packages, client, model)
            assert stranger.connections == 0

    scene.run(test())
