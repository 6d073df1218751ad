"""The examples of other people's packages, as they stand, at a host that is strict and misbehaves."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any, Final

import openai
import pytest

from tests.integrations.judging import five_rounds, problems_at

EXAMPLES: Final = {
    "openai_package": "/v1",
    "anthropic_package": "",
    "langchain_agent": "/v1",
    "pydantic_ai_agent": "/v1",
}
HOSTS: Final = {"moonshot": "moonshot", "selfhost": None}
"""Chat needs no name for a host of one's own."""
KEY: Final = "sk-a-key-of-this-test"
CASES: Final = pytest.mark.parametrize(
    ("behaviour", "stream", "way"),
    # Every two of them come together once.
    [
        ("moonshot", True, "ask"),
        ("moonshot", False, "ask_async"),
        ("selfhost", True, "ask_async"),
        ("selfhost", False, "ask"),
    ],
    ids=lambda value: {True: "streamed", False: "whole"}.get(value, value),
)


@CASES
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_comes_through_five_rounds(name: str, behaviour: str, stream: bool, way: str) -> None:
    example = import_module(f"examples.integrations.{name}")
    with five_rounds(behaviour).running() as server:
        given: Any = {"base_url": server.url + EXAMPLES[name], "api_key": KEY, "model": "kimi-k2.5", "stream": stream}
        host = "vllm" if (name, behaviour) == ("anthropic_package", "selfhost") else HOSTS[behaviour]
        asked = getattr(example, way)("What is it like there?", host=host, **given)
        answer = asyncio.run(asked) if way == "ask_async" else asked
    assert problems_at(server, answer) == []


def weather(city: str) -> str:
    """The weather in a city."""
    return f"{city}: 21 degrees, clear"


def local_time(city: str) -> str:
    """The time in a city."""
    return f"{city}: half past nine"


@CASES
def test_llm_and_its_plugin_come_through_five_rounds(behaviour: str, stream: bool, way: str) -> None:
    plugin = import_module("examples.integrations.llm_plugin.llm_moonshim")
    with five_rounds(behaviour).running() as server:
        for model in (models := plugin.models("kimi-k2.5", f"{server.url}/v1")):
            model.host = HOSTS[behaviour]
        chains = [model.conversation(tools=[weather, local_time], chain_limit=9).chain for model in models]
        given: Any = {"key": KEY, "stream": stream}
        if way == "ask":
            answer = chains[0]("What is it like there?", **given).text()
        else:

            async def ask() -> str:
                return str(await chains[1]("What is it like there?", **given).text())

            answer = asyncio.run(ask())
    # All that it said on the way comes before the answer.
    assert problems_at(server, answer[answer.index("Here is what came back") :]) == []


def test_llm_finds_the_models_of_the_plugin() -> None:
    plugin = import_module("examples.integrations.llm_plugin.llm_moonshim")
    registered: list[Any] = []
    plugin.register_models(lambda *models: registered.extend(models))
    assert [model.model_id for model in registered] == [
        name for name in ("kimi-k3", "kimi-k3.1-pro", "kimi-k2.6") for _ in range(2)
    ]


def test_without_moonshim_the_same_program_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    example = import_module("examples.integrations.langchain_agent")
    monkeypatch.setattr(example, "openai_http_client", lambda host: openai.DefaultHttpxClient())
    with five_rounds("moonshot", faults=()).running() as server, pytest.raises(openai.BadRequestError):
        example.ask("What is it like?", base_url=f"{server.url}/v1", api_key=KEY, model="kimi-k2.5", stream=False)
    assert "reasoning_content" in str(server.refusals[0].problem)
