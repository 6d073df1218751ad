"""A model without tool calling, made an agent by a text-only tool format: the whole loop, over both dialects."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from moonshim.agent import Provider
from moonshim.engine.formats import STRUCTURED_FORMATS, TEXT_FORMATS
from moonshim.engine.formats.prompting import calls_as_text, describe_tools
from moonshim.engine.values.conversation import Message, Text, Tool, ToolCall, ToolResult
from moonshim.engine.values.events import Failed, Finished
from moonshim.simulator import IntendedResponse, Simulator
from moonshim.simulator.request import SimRequest
from tests.agent.asking import run

WEATHER: Final = Tool(
    "get_weather",
    "The weather of a city.",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
)
CITIES: Final = ("Paris", "Łódź")
every_format = pytest.mark.parametrize("format", TEXT_FORMATS)
both_dialects = pytest.mark.parametrize("path", ["/v1", "/anthropic"])


class TextModel:
    """Knows nothing of tools but what it was told in words, and answers in words: a call for each city, one a round."""

    def __init__(self, format: str) -> None:
        self.format = format

    def reply(self, question: SimRequest) -> IntendedResponse:
        system = question.turns[0]
        assert describe_tools([WEATHER], self.format) in system.text
        told = [turn.text for turn in question.turns if "degrees" in turn.text]
        if len(told) == len(CITIES):
            return IntendedResponse(text=f"It is {told[0][:200]} and {told[1][:200]}")
        call = ToolCall("", "get_weather", json.dumps({"city": CITIES[len(told)], "days": len(told)}))
        written = calls_as_text([call], self.format)
        return IntendedResponse(text=written if self.format == "llama" else f"I look it up.\n{written}")


def asked(body: dict[str, Any]) -> set[str]:
    return {"tools", "tool_choice", "functions"} & body.keys()


async def loop(provider: Provider) -> list[Message]:
    """An agent in a few lines."""
    history = [Message("user", (Text("How is the weather?"),))]
    for _ in range(4):
        answer = await provider.complete(history, [WEATHER])
        history.append(answer)
        calls = [part for part in answer.parts if isinstance(part, ToolCall)]
        if not calls:
            break
        assert isinstance(provider.last.ending, Finished)
        assert provider.last.ending.reason == "tool_calls"
        for call in calls:
            city = json.loads(call.arguments)["city"]
            result = ToolResult(call.id, call.name, (Text(f"{city}: {len(city)} degrees"),))
            history.append(Message("tool", (result,)))
    return history


@every_format
@both_dialects
def test_a_model_without_tools_is_an_agent(format: str, path: str) -> None:
    async def test() -> None:
        async with (
            Simulator(behaviour="selfhost", model=TextModel(format), log=lambda seen: None) as server,
            Provider(f"{server.url}{path}", model="plain-1", tool_format=format) as provider,
        ):
            history = await loop(provider)
            assert not server.refusals
            assert not any(asked(seen.body) for seen in server.requests)
        calls = [part for message in history for part in message.parts if isinstance(part, ToolCall)]
        assert [json.loads(call.arguments) for call in calls] == [
            {"city": city, "days": number} for number, city in enumerate(CITIES)
        ]
        assert len({call.id for call in calls}) == len(CITIES)
        assert all(call.id.startswith("hist_tool_") for call in calls)
        (said,) = history[-1].parts
        assert isinstance(said, Text)
        assert all(city in said.text for city in CITIES)
        assert not any("tool_call>" in part.text for one in history for part in one.parts if isinstance(part, Text))

    run(test())


@every_format
def test_a_choice_of_none_leaves_the_text_alone(format: str) -> None:
    written = calls_as_text([ToolCall("", "get_weather", '{"city": "Paris"}')], format)

    class Writes:
        def reply(self, question: SimRequest) -> IntendedResponse:
            assert not any(turn.role == "system" for turn in question.turns)
            return IntendedResponse(text=written)

    async def test() -> None:
        async with (
            Simulator(behaviour="selfhost", model=Writes(), log=lambda seen: None) as server,
            Provider(f"{server.url}/v1", model="plain-1", tool_format=format) as provider,
        ):
            events = [
                event
                async for event in provider.stream_chat_with_tools(
                    [{"role": "user", "content": "show me"}], [WEATHER], tool_choice="none"
                )
            ]
            assert not isinstance(events[-1], Failed)
            assert provider.last.message.parts == (Text(written),)

    run(test())


@every_format
def test_a_conversation_that_had_native_calls_goes_on_in_text(format: str) -> None:
    """The model is switched to one that knows no tool calling: what was called before is told in its words."""

    async def test() -> None:
        async with (
            Simulator(behaviour="selfhost", log=lambda seen: None) as native,
            Simulator(behaviour="selfhost", model=TextModel(format), log=lambda seen: None) as words,
        ):
            kimi = Provider(f"{native.url}/v1", model="kimi-k2.5")
            plain = Provider(f"{words.url}/v1", model="plain-1", tool_format=format)
            history = [Message("user", (Text("How is the weather in Paris?"),))]
            history.append(await kimi.complete(history, [WEATHER]))
            (call,) = [part for part in history[-1].parts if isinstance(part, ToolCall)]
            history.append(Message("tool", (ToolResult(call.id, call.name, (Text("12 degrees"),)),)))
            answer = await plain.complete(history, [WEATHER])
            new = [part for part in answer.parts if isinstance(part, ToolCall)]
            assert [json.loads(one.arguments)["city"] for one in new] == [CITIES[1]]
            assert new[0].id != call.id
            sent = words.requests[-1].body["messages"]
            assert not any("tool_calls" in message or message["role"] == "tool" for message in sent)
            assert not words.refusals
            await kimi.close()
            await plain.close()

    run(test())


LEFT_IN_THE_TEXT: Final = {
    "qwen": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>',
    "kimi": (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
        '{"city": "Paris"}<|tool_call_end|><|tool_calls_section_end|>'
    ),
    "deepseek": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>"
        '{"city": "Paris"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
    ),
    "mistral": '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}}]',
    "gemma": '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>',
}


@pytest.mark.parametrize("format", LEFT_IN_THE_TEXT)
def test_a_format_that_is_set_reads_the_calls_that_its_host_left_in_the_text(format: str) -> None:
    class Leaks:
        def reply(self, question: SimRequest) -> IntendedResponse:
            return IntendedResponse(text=LEFT_IN_THE_TEXT[format])

    async def test() -> None:
        async with (
            Simulator(behaviour="selfhost", model=Leaks(), log=lambda seen: None) as server,
            Provider(f"{server.url}/v1", model="plain-1", tool_format=format) as provider,
        ):
            answer = await provider.complete([Message("user", (Text("How is it in Paris?"),))], [WEATHER])
            (call,) = answer.parts
            assert isinstance(call, ToolCall)
            assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})
            assert server.requests[-1].body["tools"]

    run(test())


@pytest.mark.parametrize(
    ("model", "fault"),
    [("kimi-k2.5", "markers-in-content"), ("kimi-k3", "xtml-in-content"), ("kimi-for-coding", "markers-in-content")],
)
def test_the_markers_of_a_kimi_model_are_read_whatever_structured_format_is_set(model: str, fault: str) -> None:
    """The family of the model says how its calls look in the text; the format only where the family says nothing."""

    async def test() -> None:
        async with Simulator(behaviour="selfhost", faults=(fault,), log=lambda seen: None) as server:
            for format in STRUCTURED_FORMATS:
                async with Provider(f"{server.url}/v1", model=model, tool_format=format) as provider:
                    answer = await provider.complete([Message("user", (Text("How is it in Paris?"),))], [WEATHER])
                calls = [part.name for part in answer.parts if isinstance(part, ToolCall)]
                text = "".join(part.text for part in answer.parts if isinstance(part, Text))
                assert (format, calls) == (format, ["get_weather"])
                assert (format, "<|" in text) == (format, False)

    run(test())
