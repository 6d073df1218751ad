"""A host with no row in the table: what it is sent is safe for every generation of Kimi; its refusals teach us."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any, Final

import anthropic
import openai
import pytest

import moonshim
from moonshim import ToolCall
from moonshim.agent import Provider
from moonshim.config import Config, Retries
from moonshim.config import ProviderConfig as ConfiguredProvider
from moonshim.integrations import anthropic_http_client, async_openai_http_client, openai_http_client
from moonshim.simulator import IntendedCall, IntendedResponse, SimRequest, Simulator
from moonshim.simulator.settings import ModelRow
from tests.support.gateway.hosts import Host, HostRequest, Peer, run, whole
from tests.support.gateway.running import Running, running

MODELS: Final = ("kimi-k2-thinking", "kimi-k2.5", "kimi-k2.6", "kimi-k2.7-code", "kimi-k3", "kimi-k3.1-pro")
TOOL: Final[dict[str, Any]] = {"name": "ls", "description": "List files", "parameters": {"type": "object"}}
CHAT_TOOLS: Final[Any] = [{"type": "function", "function": TOOL}]
MESSAGES_TOOLS: Final[Any] = [{"name": "ls", "input_schema": {"type": "object"}}]
CALL: Final = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
CHAT_LOST: Final[Any] = [
    {"role": "user", "content": "What is here?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "a.txt"},
]
MESSAGES_LOST: Final[Any] = [
    {"role": "user", "content": "What is here?"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "ls", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "a.txt"}]},
]
SPELLINGS: Final = {"openai_chat": "/v1", "anthropic": "/anthropic"}
MISSING: Final = "reasoning_content is missing"


@pytest.fixture(scope="module")
def strict() -> Iterator[Simulator]:
    """Moonshot's own checks at an address that nobody knows, and K3 as strict as K2."""
    with Simulator(behaviour="moonshot", scenario="text-only", assume=("k3-needs-reasoning",)).running() as server:
        yield server


def dropped(dialect: str, model: str, *, stream: bool) -> dict[str, Any]:
    """A request whose client has dropped what was thought before the call."""
    if dialect == "anthropic":
        more = {"messages": MESSAGES_LOST, "tools": MESSAGES_TOOLS, "max_tokens": 1000}
    else:
        more = {"messages": CHAT_LOST, "tools": CHAT_TOOLS}
    return {"model": model, "stream": stream, **more}


def posted(url: str, body: dict[str, Any]) -> bytes:
    asked = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(asked) as answer:
        return bytes(answer.read())


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("upstream", SPELLINGS)
def test_a_request_without_a_named_host_is_accepted_by_a_strict_one(
    strict: Simulator, upstream: str, model: str
) -> None:
    path = "/v1/chat/completions" if upstream == "openai_chat" else "/anthropic/v1/messages"
    for dialect in SPELLINGS:
        for stream in (False, True):
            for url in (None, "https://llm.example.com/v1"):
                body = dropped(dialect, model, stream=stream)
                prepared = moonshim.prepare_request(body, dialect=dialect, upstream=upstream, base_url=url)
                assert posted(strict.url + path, prepared.body), (dialect, stream, url)


def test_an_empty_thought_is_all_that_is_made_up() -> None:
    for model in MODELS:
        prepared = moonshim.prepare_request(dropped("openai_chat", model, stream=False))
        assert prepared.body["messages"][1]["reasoning_content"] == ""
        assert "reasoning_lost" in [change.rule for change in prepared.changes]
    plain = moonshim.prepare_request(dropped("openai_chat", "kimi-k2-0905-preview", stream=False))
    assert "reasoning_content" not in plain.body["messages"][1]


def test_what_the_client_kept_goes_back_under_the_name_that_it_has() -> None:
    for field in ("reasoning_content", "reasoning"):
        body = dropped("openai_chat", "kimi-k2.6", stream=False)
        body["messages"] = [CHAT_LOST[0], CHAT_LOST[1] | {field: "I look."}, CHAT_LOST[2]]
        message = moonshim.prepare_request(body).body["messages"][1]
        assert {name: message[name] for name in message if "reasoning" in name} == {field: "I look."}


def test_both_regions_of_kimi_code_are_sent_the_same() -> None:
    for path in ("/coding", "/coding/v1"):
        for model in ("kimi-for-coding", "k3"):
            body = {**dropped("openai_chat", model, stream=True), "temperature": 0.2, "reasoning_effort": "medium"}
            china = moonshim.prepare_request(body, base_url=f"https://api.kimi.com{path}")
            world = moonshim.prepare_request(body, base_url=f"https://api.kimi.ai{path}")
            assert world.profile.host == "kimi-coding"
            assert (world.body, world.changes) == (china.body, china.changes)
            assert "temperature" not in world.body
            assert world.body["messages"][1]["reasoning_content"] == ""


# --- through the gateway ----------------------------------------------------------------------------------------


async def ask(gateway: Running, dialect: str, model: str, *, stream: bool, messages: Any = None) -> str:
    """The text of the answer, by the official packages."""
    if dialect == "anthropic":
        body = {"model": model, "messages": messages or MESSAGES_LOST, "tools": MESSAGES_TOOLS, "max_tokens": 1000}
        async with gateway.anthropic() as client:
            if stream:
                async with client.messages.stream(**body) as events:
                    return await events.get_final_text()
            answer = await client.messages.create(**body)
            return "".join(block.text for block in answer.content if block.type == "text")
    body = {"model": model, "messages": messages or CHAT_LOST, "tools": CHAT_TOOLS}
    async with gateway.openai() as chat:
        if not stream:
            return (await chat.chat.completions.create(**body)).choices[0].message.content or ""
        text = ""
        async for chunk in await chat.chat.completions.create(**body, stream=True):
            text += "".join(choice.delta.content or "" for choice in chunk.choices)
        return text


def config_of(server: Simulator, dialect: str = "openai_chat", **given: Any) -> Config:
    fields = {"name": "host", "api_base_url": f"{server.url}{SPELLINGS[dialect]}", "dialect": dialect, "models": MODELS}
    return Config(providers=(ConfiguredProvider(**fields | given),))


@pytest.mark.parametrize("upstream", SPELLINGS)
@pytest.mark.parametrize("dialect", SPELLINGS)
def test_a_strict_host_at_an_unknown_address_never_misses_reasoning(
    strict: Simulator, dialect: str, upstream: str
) -> None:
    async def test() -> None:
        strict.requests.clear()
        async with running(config_of(strict, upstream)) as gateway:
            for model in MODELS:
                for stream in (False, True):
                    assert await ask(gateway, dialect, model, stream=stream), (model, stream)
        assert not strict.refusals

    run(test())


REFUSING: Final[dict[str, dict[str, Any]]] = {
    "a row that has no placeholder": {"host": "fireworks"},
    "a row that names another field": {"host": "vllm"},
    "a model that nobody knows": {"host": None, "models": ("house",)},
}


@pytest.mark.parametrize("given", REFUSING.values(), ids=REFUSING.keys())
@pytest.mark.parametrize("dialect", SPELLINGS)
def test_a_refusal_for_missing_reasoning_is_answered_with_it_once_and_remembered(
    given: dict[str, Any], dialect: str
) -> None:
    async def test() -> None:
        row = {"house": ModelRow(generation="k2.6")}
        async with Simulator(behaviour="moonshot", scenario="text-only", models=row) as server:
            config = config_of(server, **given)
            model = config.providers[0].models[1 if "models" not in given else 0]
            async with running(config) as gateway:
                for stream in (True, False):
                    assert await ask(gateway, dialect, model, stream=stream)
                assert [MISSING in str(seen.problem) for seen in server.requests] == [True, False, False]
                gateway.state.reload(config)
                assert await ask(gateway, dialect, model, stream=True)
                assert [MISSING in str(seen.problem) for seen in server.requests][3:] == [False]

    run(test())


def test_a_host_that_still_refuses_is_asked_twice_and_its_words_are_passed_on() -> None:
    error = {"error": {"message": f"thinking is enabled but {MISSING} in assistant tool call message at index 1"}}

    async def refusing(peer: Peer, asked: HostRequest) -> None:
        await peer.send(whole(json.dumps(error).encode(), status="400 Bad Request"))

    async def test() -> None:
        async with Host(refusing) as host:
            address = ConfiguredProvider(name="host", api_base_url=f"{host.url}/v1", models=("kimi-k2.6",))
            async with running(Config(providers=(address,), retries=Retries(attempts=1))) as gateway:
                for dialect, kind in (
                    ("openai_chat", openai.BadRequestError),
                    ("anthropic", anthropic.BadRequestError),
                ):
                    host.requests.clear()
                    with pytest.raises(kind, match=MISSING):
                        await ask(gateway, dialect, "kimi-k2.6", stream=True)
                    assert len(host.requests) == (2 if dialect == "openai_chat" else 1), dialect

    run(test())


class Thinker:
    """Thinks, calls a tool, and answers when it has the result."""

    def reply(self, question: SimRequest) -> IntendedResponse:
        if question.round == 1:
            return IntendedResponse(reasoning="I look around.", calls=(IntendedCall("ls", "{}"),))
        return IntendedResponse(reasoning="Now I know.", text="One file.")


HISTORIES: Final[dict[str, Callable[[Any], Any]]] = {
    "dropped": lambda message: {"role": "assistant", "content": None, "tool_calls": message["tool_calls"]},
    "returned": lambda message: {**message, "role": "assistant"},
}


def conversed(url: str, model: str, keep: Callable[[Any], Any], *, stream: bool) -> None:
    """Two rounds over Chat; `keep` says what the client keeps of the first answer."""
    message: dict[str, Any] = {"tool_calls": []}
    body = {"model": model, "messages": [CHAT_LOST[0]], "tools": CHAT_TOOLS, "stream": stream}
    data = posted(f"{url}/v1/chat/completions", body)
    if stream:
        for line in data.decode().splitlines():
            delta = json.loads(line[6:])["choices"] if line.startswith("data: {") else []
            for name, value in (delta[0]["delta"] if delta else {}).items():
                if name == "tool_calls" and "id" in value[0]:
                    call = {"name": value[0]["function"]["name"], "arguments": "{}"}
                    message["tool_calls"].append({"id": value[0]["id"], "type": "function", "function": call})
                elif "reasoning" in name and isinstance(value, str):
                    message[name] = message.get(name, "") + value
    else:
        message = json.loads(data)["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "a.txt"}
    posted(f"{url}/v1/chat/completions", body | {"messages": [CHAT_LOST[0], keep(message), result]})


FIELDS: Final = {
    # What the host is configured as, what it is: the field that it sends is the field that it gets.
    "an older vLLM": ("vllm", "selfhost", "reasoning_content"),
    "a newer vLLM": ("vllm", "vllm", "reasoning"),
    "a newer vLLM at an unknown address": (None, "vllm", "reasoning"),
    "SGLang that has changed": ("sglang", "vllm", "reasoning"),
    "an unknown host": (None, "selfhost", "reasoning_content"),
}


@pytest.mark.parametrize(("row", "behaviour", "field"), FIELDS.values(), ids=FIELDS.keys())
@pytest.mark.parametrize("history", HISTORIES)
def test_the_field_that_a_host_sends_reasoning_in_is_the_field_that_it_gets(
    row: str | None, behaviour: str, field: str, history: str
) -> None:
    async def test() -> None:
        async with (
            Simulator(behaviour=behaviour, model=Thinker()) as server,
            running(config_of(server, host=row)) as gateway,
        ):
            for stream in (True, False):
                for model in ("kimi-k2.6", "kimi-k3"):
                    await asyncio.to_thread(conversed, gateway.url, model, HISTORIES[history], stream=stream)
                    sent = server.requests[-1].body["messages"][1]
                    told = {name: sent[name] for name in sent if "reasoning" in name}
                    assert told == {field: "I look around."}, (stream, model)

    run(test())


# --- through the other entry points -------------------------------------------------------------------------------


def test_the_agents_provider_learns_from_a_refusal() -> None:
    async def test() -> None:
        async with (
            Simulator(behaviour="moonshot", scenario="text-only") as server,
            Provider(f"{server.url}/v1", model="kimi-k2.6", host="fireworks", attempts=1) as provider,
        ):
            for _ in range(2):
                assert (await provider.complete(CHAT_LOST, CHAT_TOOLS)).parts
            assert (await provider.with_(thinking="on").complete(CHAT_LOST, CHAT_TOOLS)).parts
            assert [MISSING in str(seen.problem) for seen in server.requests] == [True, False, False, False]

    run(test())


def test_the_agents_provider_learns_the_field_of_reasoning_from_an_answer() -> None:
    async def test() -> None:
        async with (
            Simulator(behaviour="selfhost", model=Thinker()) as server,
            Provider(f"{server.url}/v1", model="kimi-k2.6", host="vllm") as provider,
        ):
            said = await provider.complete(CHAT_LOST[:1], CHAT_TOOLS)
            (call,) = (part for part in said.parts if isinstance(part, ToolCall))
            result = {"role": "tool", "tool_call_id": call.id, "content": "a.txt"}
            await provider.complete([CHAT_LOST[0], said, result], CHAT_TOOLS)
            sent = server.requests[-1].body["messages"][1]
            assert (sent.get("reasoning_content"), sent.get("reasoning")) == ("I look around.", None)

    run(test())


def test_the_packages_own_clients_learn_from_a_refusal() -> None:
    with Simulator(behaviour="moonshot", scenario="text-only").running() as server:
        given: Any = {"api_key": "k", "max_retries": 0}
        chat = openai.OpenAI(base_url=f"{server.url}/v1", http_client=openai_http_client(host="vllm"), **given)
        own = anthropic_http_client(host="vllm")
        messages = anthropic.Anthropic(base_url=f"{server.url}/anthropic", http_client=own, **given)
        with chat, messages:
            for stream in (False, True):
                asked: Any = {"model": "kimi-k2.6", "messages": CHAT_LOST, "tools": CHAT_TOOLS, "stream": stream}
                assert chat.chat.completions.create(**asked)
            for _ in range(2):
                asked = {"model": "kimi-k2.6", "messages": MESSAGES_LOST, "tools": MESSAGES_TOOLS, "max_tokens": 1000}
                assert messages.messages.create(**asked).content
        assert [MISSING in str(seen.problem) for seen in server.requests] == [True, False, False] * 2


def test_the_packages_asynchronous_client_learns_from_a_refusal() -> None:
    async def test() -> None:
        async with Simulator(behaviour="moonshot", scenario="text-only") as server:
            own = async_openai_http_client(host="vllm")
            async with openai.AsyncOpenAI(
                base_url=f"{server.url}/v1", api_key="k", max_retries=0, http_client=own
            ) as chat:
                asked: Any = {"model": "kimi-k2.6", "messages": CHAT_LOST, "tools": CHAT_TOOLS}
                for _ in range(2):
                    assert (await chat.chat.completions.create(**asked)).choices
            assert [MISSING in str(seen.problem) for seen in server.requests] == [True, False, False]

    run(test())
