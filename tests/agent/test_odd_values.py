"""Whatever programs and models put into messages, tools, results and arguments is told, and ends nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from moonshim.agent import Agent, Allowed, Provider, tool
from moonshim.engine.values.conversation import Message, Text, Tool, ToolCall
from moonshim.engine.values.events import Failed
from moonshim.errors import InvalidInput, MoonshimError
from tests.agent.asking import run
from tests.agent.scripts import called, ending, results_in, said, steps_of, talk

NOWHERE = "http://127.0.0.1:1/v1"
HI = [{"role": "user", "content": "hi"}]


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def _deep() -> list[Any]:
    made: list[Any] = []
    for _ in range(100_000):
        made = [made]
    return made


@dataclass
class Picky:
    size: int

    def __post_init__(self) -> None:
        raise KeyError("no such size")


@pytest.mark.parametrize(
    "value", [Unprintable(), 10**5000, {"deep": Unprintable()}], ids=["object", "number", "inside"]
)
def test_a_result_that_cannot_be_written_is_told(value: Any) -> None:
    @tool
    def odd() -> Any:
        return value

    async def test() -> None:
        async with talk([called(("odd", "{}")), said()], [odd]) as talking:
            assert ending(await steps_of(talking.agent.run_stream("Work"))).reason == "answered"
            assert "cannot be converted to text" in results_in(talking.agent.history)[0]

    run(test())


def test_a_result_that_is_too_deep_and_an_error_without_words_are_told() -> None:
    @tool
    def deep() -> Any:
        return _deep()

    @tool
    def fails() -> None:
        raise UnprintableError

    async def test() -> None:
        async with talk([called(("deep", "{}"), ("fails", "{}")), said()], [deep, fails]) as talking:
            assert ending(await steps_of(talking.agent.run_stream("Work"))).reason == "answered"
            first, second = results_in(talking.agent.history)
            assert "RecursionError" in first
            assert second == "Error: UnprintableError"

    run(test())


def test_arguments_that_a_class_refuses_in_its_own_way_are_told() -> None:
    @tool
    def resize(to: Picky, how: Literal["up", "down"] = "up") -> None:
        """Never run."""

    async def test() -> None:
        calls = called(("resize", '{"to": {"size": 1}}'), ("resize", '{"to": {"size": "\\ud800"}}'))
        async with talk([calls, said()], [resize]) as talking:
            assert ending(await steps_of(talking.agent.run_stream("Work"))).reason == "answered"
            first, second = results_in(talking.agent.history)
            assert "KeyError: 'no such size'. Parameters: required: to" in first
            assert "invalid arguments for resize" in second

    run(test())


def test_what_is_wrong_with_arguments_is_told_in_short() -> None:
    @tool
    def choose(how: Literal["up", "down"]) -> None:
        """Never run."""

    with pytest.raises(Exception, match="characters omitted"):
        choose.read('{"how": "' + "x" * 1_000_000 + '"}')


@pytest.mark.parametrize("hint", ["int[", "sys.nope", "1 +"])
def test_a_hint_that_cannot_be_read_is_refused(hint: str) -> None:
    def odd(value: Any) -> None: ...

    odd.__annotations__["value"] = hint
    with pytest.raises(InvalidInput, match="cannot resolve the type hints of odd"):
        tool(odd)


@pytest.mark.parametrize("format", ["kimi", "hermes", "xml"])
@pytest.mark.parametrize(
    ("messages", "tools"),
    [
        ([Message("bogus", (Text("a"),))], []),  # type: ignore[arg-type]
        ([Message("user", None)], []),  # type: ignore[arg-type]
        ([Message("user", (Text("a"),)), Message("assistant", (ToolCall("1", "ls", 5),))], []),  # type: ignore[arg-type]
        (HI, [Tool("ls", "d", {"a": object()})]),
        (HI, [Tool(5)]),  # type: ignore[arg-type]
        (HI, [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object", "x": object()}}}]),
    ],
    ids=["role", "parts", "arguments", "schema", "name", "dict"],
)
def test_what_cannot_be_sent_is_refused_at_once(format: str, messages: Any, tools: Any) -> None:
    provider = Provider(NOWHERE, model="kimi-k2.5", tool_format=format)
    with pytest.raises(InvalidInput):
        provider.stream_chat_with_tools(messages, tools)


@pytest.mark.parametrize(
    "given",
    [
        {"headers": None},
        {"headers": {1: "x"}},
        {"headers": {"a b": "x"}},
        {"headers": {"": "x"}},
        {"cells": "x"},
        {"transformers": None},
        {"proxy": 5},
        {"proxy": "http://["},
    ],
    ids=repr,
)
def test_wrong_arguments_of_a_provider_are_told(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as told:
        Provider(NOWHERE, model="kimi-k2.5", **given)
    assert told.value.field == next(iter(given))


def test_a_key_in_an_address_is_never_told() -> None:
    provider = Provider("http://us3rt0ken@127.0.0.1:1/v1?key=qu3rys3cret&v=1", model="kimi-k2.5")
    assert {"us3rt0ken", "qu3rys3cret"} <= set(provider._destination.secrets)


def test_stopping_twice_is_stopping_once() -> None:
    """As a person does who presses a key again since nothing has happened yet."""
    asked, stopped, again = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def allow(*_: object) -> Allowed:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
            await again.wait()  # cleans up, meanwhile it is stopped again
        return Allowed(True)

    @tool(asks=True)
    def work() -> None:
        """Never run."""

    async def test() -> None:
        async with talk([called(("work", "{}"))], [work], allow=allow) as talking:
            task = asyncio.create_task(steps_of(talking.agent.run_stream("Work")))
            await asked.wait()
            talking.agent.stop()
            await stopped.wait()
            talking.agent.stop()
            again.set()
            assert ending(await task).reason == "cancelled"

    run(test())


def test_errors_are_ours() -> None:
    async def test() -> None:
        async with Provider(NOWHERE, model="kimi-k2.5", attempts=1) as provider:
            async with provider.stream_chat_with_tools([{"role": "user", "content": "\ud800\x00"}]) as stream:
                assert isinstance([event async for event in stream][-1], Failed)
            with pytest.raises(MoonshimError):
                await provider.complete(HI)

    run(test())


@pytest.mark.parametrize(
    "given", [{"tool_timeout": None}, {"tool_timeout": float("nan")}, {"result_limit": -1}], ids=repr
)
def test_wrong_arguments_of_an_agent_are_told(given: Any) -> None:
    with pytest.raises(InvalidInput) as told:
        Agent(Provider(NOWHERE, model="kimi-k2.5"), **given)
    assert told.value.field == next(iter(given))
