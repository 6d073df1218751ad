"""What the official packages do by themselves (parse answers, run tools) works through the gateway as it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from anthropic import BadRequestError, beta_async_tool
from pydantic import BaseModel

from moonshim.config import Config
from tests.support.gateway.stages import Stage, stage
from tests.support.gateway.strict_hosts import ROWS, PlannedResponse, Row, StrictKimi, Turn


class Forecast(BaseModel):
    """What an answer has to be."""

    city: str
    days: list[int]
    note: str | None


FORECAST = '{"city": "北京", "days": [1, 2], "note": null}'


def play(body: Any, row: Row, turns: list[Turn]) -> PlannedResponse:
    if body.get("tools") and len(turns) < 2:
        return PlannedResponse("Hm.", "", [("get_weather", json.dumps({"city": f"Paris {len(turns)}"}))])
    results = " ".join(text for turn in turns for _, text in turn.results)
    return PlannedResponse("Hm.", results or FORECAST)


@pytest.fixture(scope="module")
def scene() -> Iterator[Stage]:
    def config(host: StrictKimi) -> Config:
        aliases: dict[str, tuple[str, ...]] = {f"my-{name}": (f"{name}/{row.model}",) for name, row in ROWS.items()}
        return Config(providers=host.providers(), aliases=aliases)

    with stage(StrictKimi(play), config) as one:
        yield one


@pytest.mark.parametrize("name", ROWS)
def test_openai_parses_answers_into_models(scene: Stage, name: str) -> None:
    async def test() -> None:
        client, asked = scene.packages.openai, "The forecast for Beijing."
        completion = await client.chat.completions.parse(
            model=f"my-{name}", messages=[{"role": "user", "content": asked}], response_format=Forecast
        )
        assert completion.choices[0].message.parsed == Forecast(city="北京", days=[1, 2], note=None)
        response = await client.responses.parse(model=f"my-{name}", input=asked, text_format=Forecast)
        assert response.output_parsed == Forecast(city="北京", days=[1, 2], note=None)
        async with client.responses.stream(model=f"my-{name}", input=asked, text_format=Forecast) as stream:
            assert (await stream.get_final_response()).output_parsed == response.output_parsed
        async with client.chat.completions.stream(
            model=f"my-{name}", messages=[{"role": "user", "content": asked}], response_format=Forecast
        ) as chunks:
            final = await chunks.get_final_completion()
        assert final.choices[0].message.parsed == response.output_parsed
        assert scene.host.refused == []

    scene.run(test())


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_anthropic_runs_tools(scene: Stage, name: str, stream: bool) -> None:
    """It first asks for a thread, whose answers its host would keep; told that there is none, it sends everything."""
    asked: list[str] = []

    @beta_async_tool
    async def get_weather(city: str) -> str:
        """The weather.

        Args:
            city: Where.
        """
        asked.append(city)
        return f"sun over {city}"

    async def test() -> None:
        messages: Any = scene.packages.anthropic.beta.messages
        message = await messages.tool_runner(
            model=f"my-{name}",
            max_tokens=99,
            tools=[get_weather],
            messages=[{"role": "user", "content": "Weather?"}],
            stream=stream,
        ).until_done()
        assert message.content[-1].text == "sun over Paris 0 sun over Paris 1"
        assert asked == ["Paris 0", "Paris 1"]
        assert scene.host.refused == []

    scene.run(test())


def test_a_thread_is_never_gone_on_with_without_what_came_before(scene: Stage) -> None:
    async def test() -> None:
        thread = scene.packages.anthropic.beta.messages.thread(model="my-vllm", max_tokens=99)
        with pytest.raises(BadRequestError, match="send the whole conversation"):
            await thread.send({"role": "user", "content": "Hi."})

    scene.run(test())
