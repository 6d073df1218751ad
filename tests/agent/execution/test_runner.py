"""Tools that do anything at all: each call has a result that a model can read, and nothing else breaks."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import subprocess
import sys
import threading
import time
from typing import Any

import pydantic
import pytest

from moonshim.agent.execution.runner import Ready, prepare_call, run_ready
from moonshim.agent.tools import AgentTool, ToolFailed, tool
from moonshim.engine.values.conversation import Media, Text, ToolCall, ToolResult
from tests.agent.asking import run


async def result_of(made: AgentTool, arguments: str = "{}", timeout: float = 30.0, limit: int = 1000) -> ToolResult:
    ready = prepare_call(ToolCall("hist_tool_1", made.name, arguments), {made.name: made})
    assert isinstance(ready, Ready)
    return await run_ready(ready, timeout=timeout, limit=limit)


def text_of(result: ToolResult) -> str:
    return "".join(part.text for part in result.parts if isinstance(part, Text))


class Thing(pydantic.BaseModel):
    a: int


@dataclasses.dataclass
class Pair:
    a: int
    b: Any


PICTURE = Media("image", data="aGk=", media_type="image/png")


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        ("text", (Text("text"),)),
        ("", (Text(""),)),
        (None, (Text("(no output)"),)),
        (3, (Text("3"),)),
        (True, (Text("true"),)),
        ({"a": [1, None]}, (Text('{"a":[1,null]}'),)),
        ([], (Text("[]"),)),
        (Pair(1, "x"), (Text('{"a":1,"b":"x"}'),)),
        (Thing(a=1), (Text('{"a":1}'),)),
        ([Thing(a=1)], (Text('[{"a":1}]'),)),
        (b"caf\xc3\xa9 \xff", (Text("café \ufffd"),)),
        ("half \ud83d", (Text("half \ufffd\ufffd\ufffd"),)),
        (PICTURE, (PICTURE,)),
        ([Text("Look:"), PICTURE], (Text("Look:"), PICTURE)),
        ({1, 2} - {2}, (Text("[1]"),)),
        (10**30, (Text(str(10**30)),)),
        (Pair(1, complex(1, 2)), (Text('{"a":1,"b":"(1+2j)"}'),)),
    ],
)
def test_whatever_a_tool_returns_can_be_read(value: Any, parts: tuple[Any, ...]) -> None:
    @tool
    def give() -> Any:
        return value

    assert run(result_of(give)) == ToolResult("hist_tool_1", "give", parts)


def test_a_long_result_is_cut_in_the_middle() -> None:
    @tool
    def long() -> str:
        return "a" * 5000 + "z" * 5000

    text = text_of(run(result_of(long, limit=100)))
    assert text == "a" * 50 + "\n\n… 9900 characters omitted …\n\n" + "z" * 50


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no such place"), "Error: ValueError: no such place"),
        (KeyError("x"), "Error: KeyError: 'x'"),
        (RuntimeError(), "Error: RuntimeError"),
        (ToolFailed("Just this."), "Just this."),
        (StopIteration(3), "Error: RuntimeError: coroutine raised StopIteration"),
        (SystemExit(2), "Error: fail tried to exit the program (SystemExit: 2)"),
        (KeyboardInterrupt(), "Error: fail tried to exit the program (KeyboardInterrupt)"),
        (asyncio.CancelledError(), "Error: fail raised CancelledError. There is no result."),
        (RecursionError("deep"), "Error: RecursionError: deep"),
    ],
)
@pytest.mark.parametrize("way", ["sync", "async"])
def test_whatever_a_tool_raises_becomes_a_result(error: BaseException, text: str, way: str) -> None:
    def fail() -> None:
        raise error

    async def fail_async() -> None:
        raise error

    made = tool(name="fail")(fail if way == "sync" else fail_async)
    result = run(result_of(made))
    assert result.is_error
    assert text_of(result) == text


def test_a_function_that_is_not_async_does_not_hold_up_the_others() -> None:
    async def test() -> None:
        began, let_go = threading.Event(), threading.Event()

        @tool
        def block() -> str:
            began.set()
            let_go.wait()
            return threading.current_thread().name

        task = asyncio.create_task(result_of(block))
        while not began.is_set():
            await asyncio.sleep(0)  # the loop turns, although the tool blocks
        let_go.set()
        assert text_of(await task) == "tool block"

    run(test())


def test_a_function_in_a_thread_sees_the_variables_of_its_task() -> None:
    whose: contextvars.ContextVar[str] = contextvars.ContextVar("whose")

    @tool
    def who() -> str:
        return whose.get()

    async def test() -> None:
        whose.set("mine")
        assert text_of(await result_of(who)) == "mine"

    run(test())


def test_a_function_may_return_something_to_wait_for() -> None:
    async def later() -> str:
        return "later"

    made = tool(name="wait")(lambda: later())
    assert text_of(run(result_of(made))) == "later"


def test_a_thread_that_never_ends_is_left_and_does_not_keep_the_program() -> None:
    code = """
import asyncio, threading
from moonshim.agent.execution.runner import prepare_call, run_ready
from moonshim.agent.tools import tool
from moonshim.engine.values.conversation import ToolCall

@tool
def hang():
    threading.Event().wait()

async def main():
    print((await run_ready(prepare_call(ToolCall("x", "hang", "{}"), {"hang": hang}), timeout=0.01, limit=99)).is_error)

asyncio.run(main())
"""
    began = time.monotonic()
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.strip() == "True"
    assert ran.stderr == ""
    assert time.monotonic() - began < 60


def test_without_a_bound_a_tool_takes_as_long_as_it_takes() -> None:
    async def test() -> None:
        release = asyncio.Event()

        @tool
        async def wait() -> str:
            await release.wait()
            return "done"

        task = asyncio.create_task(result_of(wait, timeout=0))
        await asyncio.sleep(0)
        release.set()
        assert text_of(await task) == "done"

    run(test())


def test_half_a_call_is_never_run() -> None:
    made = tool(name="rm")(lambda: "gone")
    result = prepare_call(ToolCall("hist_tool_1", "rm", "{}"), {"rm": made}, error="Error: cut off.")
    assert isinstance(result, ToolResult)
    assert result.is_error
    assert text_of(result) == "Error: cut off."


def test_an_unknown_tool_is_answered_with_those_that_there_are() -> None:
    result = prepare_call(ToolCall("hist_tool_1", "nothing", "{}"), {})
    assert isinstance(result, ToolResult)
    assert text_of(result) == "Error: unknown tool 'nothing'. Available tools: none."
