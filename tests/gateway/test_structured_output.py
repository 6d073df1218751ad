"""The official packages get the JSON and the calls that they demand, from hosts that guarantee them and from others.

Every host is a simulator on a real socket. A fault in the model's name makes it answer in a fence, in prose, with a
wrong value, or without the forced call; those with `-first` end when the model is told of its mistake.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any, Final, TypeVar

import pytest
import uvloop
from openai import pydantic_function_tool
from pydantic import BaseModel

from moonshim.config import Config, ProviderConfig, Retries, Secret
from moonshim.simulator import Simulator
from tests.support.gateway.official_clients import Packages
from tests.support.gateway.running import Running, running

T = TypeVar("T")
AGENT: Final = "claude-cli/2.1.325 (structured output)"
ASKED: Final = "The forecast for Beijing."
PATIENCE: Final = 120.0


class Forecast(BaseModel):
    """What an answer has to be."""

    city: str
    days: list[int]
    note: str | None


# provider: host profile, behaviour of the simulator, dialect
HOSTS: Final[dict[str, tuple[str, str, str]]] = {
    "moonshot": ("moonshot", "moonshot", "openai_chat"),
    "moonshot-anthropic": ("moonshot-anthropic", "moonshot", "anthropic"),
    "kimi-coding": ("kimi-coding", "kimi-coding", "openai_chat"),
    "vllm": ("vllm", "vllm", "openai_chat"),
    "vllm-anthropic": ("vllm", "vllm", "anthropic"),
    "siliconflow": ("siliconflow", "siliconflow", "openai_chat"),
    "together": ("together", "together", "openai_chat"),
    "unknown": ("generic", "selfhost", "openai_chat"),
}
MODELS: Final = ("kimi-k2.5", "kimi-k3")


class Scene:
    def __init__(self, runner: asyncio.Runner, simulators: dict[str, Simulator], gateway: Running) -> None:
        self._runner, self.simulators, self.gateway = runner, simulators, gateway
        self.packages = Packages(gateway.url, agent=AGENT)

    def run(self, test: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(asyncio.wait_for(test, PATIENCE))

    def sent(self, provider: str) -> list[Any]:
        """The bodies that the host has got, and the refusals of it."""
        return list(self.simulators[HOSTS[provider][1]].requests)


@contextmanager
def _scene() -> Iterator[Scene]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        stack = AsyncExitStack()

        async def begin() -> Scene:
            names = dict.fromkeys(behaviour for _, behaviour, _ in HOSTS.values())
            simulators = {name: await stack.enter_async_context(Simulator(behaviour=name)) for name in names}
            providers = tuple(
                ProviderConfig(
                    name=name,
                    api_base_url=f"{simulators[behaviour].url}/{'anthropic' if dialect == 'anthropic' else 'v1'}",
                    keys=(Secret("sk-host"),),
                    dialect=dialect,  # type: ignore[arg-type]
                    host=host,
                )
                for name, (host, behaviour, dialect) in HOSTS.items()
            )
            config = Config(providers=providers, retries=Retries(attempts=1, breaker_failures=10**9))
            gateway = await stack.enter_async_context(running(config))
            scene = Scene(runner, simulators, gateway)
            stack.push_async_callback(scene.packages.close)
            return scene

        async def end() -> None:
            await stack.aclose()

        try:
            yield runner.run(begin())
        finally:
            runner.run(end())


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with _scene() as one:
        yield one


# --- one forecast, in each way that a package has ---------------------------------------------------------------


async def chat_parse(scene: Scene, model: str) -> Any:
    completion = await scene.packages.openai.chat.completions.parse(
        model=model, messages=[{"role": "user", "content": ASKED}], response_format=Forecast
    )
    return completion.choices[0].message.parsed


async def chat_stream(scene: Scene, model: str) -> Any:
    async with scene.packages.openai.chat.completions.stream(
        model=model, messages=[{"role": "user", "content": ASKED}], response_format=Forecast
    ) as stream:
        final = await stream.get_final_completion()
    return final.choices[0].message.parsed


async def responses_parse(scene: Scene, model: str) -> Any:
    response = await scene.packages.openai.responses.parse(model=model, input=ASKED, text_format=Forecast)
    return response.output_parsed


async def responses_stream(scene: Scene, model: str) -> Any:
    async with scene.packages.openai.responses.stream(model=model, input=ASKED, text_format=Forecast) as stream:
        return (await stream.get_final_response()).output_parsed


async def messages_parse(scene: Scene, model: str) -> Any:
    message = await scene.packages.anthropic.messages.parse(
        model=model, max_tokens=4000, messages=[{"role": "user", "content": ASKED}], output_format=Forecast
    )
    return message.parsed_output


async def messages_stream(scene: Scene, model: str) -> Any:
    async with scene.packages.anthropic.messages.stream(
        model=model, max_tokens=4000, messages=[{"role": "user", "content": ASKED}], output_format=Forecast
    ) as stream:
        return (await stream.get_final_message()).parsed_output


async def old_output_format(scene: Scene, model: str) -> Any:
    """The field of the beta, which older packages send."""
    message = await scene.packages.anthropic.messages.create(
        model=model,
        max_tokens=4000,
        messages=[{"role": "user", "content": ASKED}],
        extra_body={"output_format": {"type": "json_schema", "schema": Forecast.model_json_schema()}},
    )
    (text,) = [block.text for block in message.content if block.type == "text"]
    return Forecast.model_validate_json(text)


WAYS: Final = {
    one.__name__: one
    for one in (
        chat_parse,
        chat_stream,
        responses_parse,
        responses_stream,
        messages_parse,
        messages_stream,
        old_output_format,
    )
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("provider", HOSTS)
def test_an_answer_matches_its_schema_at_every_host(scene: Scene, provider: str, way: str) -> None:
    for model in MODELS:
        before = len(scene.sent(provider))
        parsed = scene.run(WAYS[way](scene, f"{provider}/{model}"))
        assert isinstance(parsed, Forecast), model
        (sent,) = scene.sent(provider)[before:]
        assert sent.status == 200


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("provider", HOSTS)
def test_json_in_a_fence_is_unwrapped_at_every_host(scene: Scene, provider: str, way: str) -> None:
    before = len(scene.sent(provider))
    assert isinstance(scene.run(WAYS[way](scene, f"{provider}/kimi-k3+json-in-fence")), Forecast)
    assert len(scene.sent(provider)) == before + 1
    if not way.endswith("_stream"):
        assert "json_fence=1" in scene.packages.headers["x-moonshim-repairs"]


@pytest.mark.parametrize("fault", ["json-prose", "json-wrong", "json-in-prose"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("provider", HOSTS)
def test_any_other_answer_is_delivered_as_the_model_wrote_it(
    scene: Scene, provider: str, stream: bool, fault: str
) -> None:
    async def test() -> None:
        before = len(scene.sent(provider))
        given: Any = {"type": "json_schema", "json_schema": {"name": "f", "schema": Forecast.model_json_schema()}}
        request: Any = {
            "model": f"{provider}/kimi-k3+{fault}",
            "messages": [{"role": "user", "content": ASKED}],
            "response_format": given,
        }
        client = scene.packages.openai.chat.completions
        if stream:
            chunks = [chunk async for chunk in await client.create(**request, stream=True)]
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
            finish = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1]
        else:
            completion = await client.create(**request)
            text, finish = completion.choices[0].message.content, completion.choices[0].finish_reason
        begins = {"json-prose": "Certainly!", "json-wrong": "{", "json-in-prose": "Here is the JSON"}
        assert text.startswith(begins[fault])
        assert finish == "stop"
        assert len(scene.sent(provider)) == before + 1, "it is not asked for again"

    scene.run(test())


@pytest.mark.parametrize("provider", ["moonshot", "siliconflow", "together", "unknown"])
def test_json_streams_as_it_comes(scene: Scene, provider: str) -> None:
    async def pieces(model: str) -> int:
        async with scene.packages.openai.chat.completions.stream(
            model=model, messages=[{"role": "user", "content": ASKED}], response_format=Forecast
        ) as stream:
            return len([event async for event in stream if event.type == "content.delta"])

    assert scene.run(pieces(f"{provider}/kimi-k3")) > 3


def test_any_json_object_can_be_had_of_a_messages_host(scene: Scene) -> None:
    async def test() -> None:
        completion = await scene.packages.openai.chat.completions.create(
            model="moonshot-anthropic/kimi-k3+json-in-fence",
            messages=[{"role": "user", "content": ASKED}],
            response_format={"type": "json_object"},
        )
        assert isinstance(json.loads(completion.choices[0].message.content or ""), dict)

    scene.run(test())


def test_the_tokens_of_both_rounds_are_reported(scene: Scene) -> None:
    async def used(model: str) -> int:
        completion = await scene.packages.openai.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": ASKED}],
            tools=[pydantic_function_tool(Pick)],
            tool_choice="required",
        )
        assert completion.usage is not None
        return completion.usage.completion_tokens

    one = scene.run(used("together/kimi-k3"))
    assert scene.run(used("together/kimi-k3+choice-ignored-first")) > one


# --- forced calls -----------------------------------------------------------------------------------------------


class Pick(BaseModel):
    """Pick a city."""

    city: str
    days: int


CHOICES: Final = ("named", "required")


async def chat_call(scene: Scene, model: str, choice: str) -> Any:
    wanted: Any = {"type": "function", "function": {"name": "Pick"}} if choice == "named" else "required"
    completion = await scene.packages.openai.chat.completions.parse(
        model=model,
        messages=[{"role": "user", "content": ASKED}],
        tools=[pydantic_function_tool(Pick)],
        tool_choice=wanted,
    )
    calls = completion.choices[0].message.tool_calls
    assert calls is not None
    (call,) = calls
    return call.function.parsed_arguments


async def responses_call(scene: Scene, model: str, choice: str) -> Any:
    wanted: Any = {"type": "function", "name": "Pick"} if choice == "named" else "required"
    tool: Any = {"type": "function", "name": "Pick", "parameters": Pick.model_json_schema(), "strict": False}
    response = await scene.packages.openai.responses.create(model=model, input=ASKED, tools=[tool], tool_choice=wanted)
    (call,) = [item for item in response.output if item.type == "function_call"]
    return Pick.model_validate_json(call.arguments)


async def messages_call(scene: Scene, model: str, choice: str) -> Any:
    wanted: Any = {"type": "tool", "name": "Pick"} if choice == "named" else {"type": "any"}
    async with scene.packages.anthropic.messages.stream(
        model=model,
        max_tokens=4000,
        messages=[{"role": "user", "content": ASKED}],
        tools=[{"name": "Pick", "input_schema": Pick.model_json_schema()}],
        tool_choice=wanted,
    ) as stream:
        message = await stream.get_final_message()
    assert message.stop_reason == "tool_use"
    (call,) = [block for block in message.content if block.type == "tool_use"]
    return Pick.model_validate(call.input)


CALLS: Final = {one.__name__: one for one in (chat_call, responses_call, messages_call)}


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("way", CALLS)
@pytest.mark.parametrize("provider", HOSTS)
def test_a_forced_tool_is_called_at_every_host(scene: Scene, provider: str, way: str, choice: str) -> None:
    for model in MODELS:
        before = len(scene.sent(provider))
        assert isinstance(scene.run(CALLS[way](scene, f"{provider}/{model}", choice)), Pick), model
        (sent,) = scene.sent(provider)[before:]
        assert sent.status == 200


IGNORING: Final = [
    (provider, model) for provider in HOSTS for model in MODELS if provider not in ("vllm", "vllm-anthropic")
]


OBEYED: Final = {("moonshot", "kimi-k3", "required"), ("moonshot-anthropic", "kimi-k3", "required")}
"""What the platform itself guarantees, so that nothing is checked."""
IGNORED: Final = [
    (provider, model, choice)
    for provider, model in IGNORING
    for choice in CHOICES
    if (provider, model, choice) not in OBEYED
]


@pytest.mark.parametrize("way", CALLS)
@pytest.mark.parametrize(("provider", "model", "choice"), IGNORED)
def test_a_forced_call_that_is_missing_is_asked_for_once_more(
    scene: Scene, provider: str, model: str, way: str, choice: str
) -> None:
    before = len(scene.sent(provider))
    assert isinstance(scene.run(CALLS[way](scene, f"{provider}/{model}+choice-ignored-first", choice)), Pick)
    first, second = scene.sent(provider)[before:]
    assert (first.status, second.status) == (200, 200), second.problem
    if way != "messages_call":  # which streams
        assert "answer_corrected=1" in scene.packages.headers["x-moonshim-repairs"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("model", MODELS)
def test_a_forced_call_that_never_comes_leaves_the_answer(scene: Scene, model: str, stream: bool) -> None:
    async def test() -> None:
        request: Any = {
            "model": f"moonshot/{model}+choice-ignored",
            "max_tokens": 4000,
            "messages": [{"role": "user", "content": ASKED}],
            "tools": [{"name": "Pick", "input_schema": Pick.model_json_schema()}],
            "tool_choice": {"type": "tool", "name": "Pick"},
        }
        if stream:
            async with scene.packages.anthropic.messages.stream(**request) as streamed:
                message: Any = await streamed.get_final_message()
        else:
            message = await scene.packages.anthropic.messages.create(**request)
            assert "forced_call_missing=1" in scene.packages.headers["x-moonshim-repairs"]
        assert [block.text for block in message.content if block.type == "text"] == [
            "I would rather answer in words than call a tool."
        ]
        assert message.stop_reason == "end_turn"

    scene.run(test())
