"""However a run is stopped, and wherever, the conversation goes on from there: nothing half, nothing unanswered."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from moonshim.agent import Agent, Allowed, RunEnded, SaveFailed, Step, ToolStarted, tool
from moonshim.agent.tools import AgentTool
from moonshim.engine.values.conversation import Reasoning, Text, ToolCall
from moonshim.engine.values.events import BlockDelta, BlockOpened
from tests.agent.asking import run
from tests.agent.scripts import Talk, called, check_can_go_on, ending, results_in, said, steps_of, talk

Steps = AsyncGenerator[Step, None]
When = Callable[[Step], bool]


async def _until(steps: Steps, when: When) -> None:
    async for step in steps:
        if when(step):
            return
    raise AssertionError("it never came to that")


async def cancel_the_task(agent: Agent, steps: Steps, when: When) -> None:
    reached = asyncio.Event()

    async def consume() -> None:
        async for step in steps:
            if when(step):
                reached.set()

    task = asyncio.create_task(consume())
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def close_the_steps(agent: Agent, steps: Steps, when: When) -> None:
    await _until(steps, when)
    await steps.aclose()


async def say_stop(agent: Agent, steps: Steps, when: When) -> None:
    seen: list[Step] = []
    async for step in steps:
        seen.append(step)
        if when(step):
            agent.stop()
    assert ending(seen).reason in ("cancelled", "answered")


async def walk_away(agent: Agent, steps: Steps, when: When) -> None:
    """Leave the loop as people do, without closing anything; Python does that later."""
    await _until(steps, when)


WAYS: list[Callable[[Agent, Steps, When], Awaitable[None]]] = [
    cancel_the_task,
    close_the_steps,
    say_stop,
    walk_away,
]


@tool
async def look(path: str) -> str:
    return f"seen {path}"


async def _stopped(one: Talk, way: Callable[[Agent, Steps, When], Awaitable[None]], when: When) -> None:
    await way(one.agent, one.agent.run_stream("Go"), when)


async def _goes_on(one: Talk) -> None:
    """With the same strict host, which refuses what is not whole."""
    last = ending(await steps_of(one.agent.run_stream("Go on")))
    assert last.reason == "answered"
    check_can_go_on(one.agent.history)
    assert one.server.refusals == []


@pytest.mark.parametrize("way", WAYS)
def test_in_the_middle_of_a_tool(way: Any) -> None:
    async def test() -> None:
        cleaned_up = asyncio.Event()

        @tool
        async def hang() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cleaned_up.set()

        says = [called(("look", '{"path": "a"}'), ("hang", "{}"), ("look", '{"path": "b"}')), said()]
        async with talk(says, [hang, look], parallel=2) as one:
            begun: list[str] = []

            def when(step: Step) -> bool:
                if isinstance(step, ToolStarted):
                    begun.append(step.call.name)
                return len(begun) == 2

            await _stopped(one, way, when)
            await _goes_on(one)
            assert cleaned_up.is_set() or begun == ["look", "hang"]
            first, hung, _ = results_in(one.agent.history)
            assert "stopped" in hung
            assert first == "seen a" or "stopped" in first

    run(test())


@pytest.mark.parametrize("way", WAYS)
def test_tools_that_are_stopped_can_clean_up(way: Any) -> None:
    async def test() -> None:
        began, cleaned_up = asyncio.Event(), asyncio.Event()

        @tool
        async def hang() -> None:
            try:
                began.set()
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                cleaned_up.set()

        async with talk([called(("hang", "{}")), said()], [hang]) as one:
            # Until the tool really runs: it begins behind the step that tells it.
            steps = one.agent.run_stream("Go")
            if way is cancel_the_task:
                task = asyncio.create_task(steps_of(steps))
                await began.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            else:
                task = asyncio.create_task(steps_of(steps))
                await began.wait()
                one.agent.stop()
                assert ending(await task).reason == "cancelled"
            assert cleaned_up.is_set()
            assert "stopped this tool before it finished" in results_in(one.agent.history)[0]
            await _goes_on(one)

    run(test())


@pytest.mark.parametrize("way", WAYS)
def test_in_the_middle_of_words_what_was_said_is_kept(way: Any) -> None:
    async def test() -> None:
        async with talk(
            [said("One two three four five six seven eight nine ten."), said()], faults=("stall@1*1",)
        ) as one:
            text: list[str] = []

            def when(step: Step) -> bool:
                if isinstance(step, BlockDelta):
                    text.append(step.text)
                return "One two" in "".join(text)

            await _stopped(one, way, when)
            await _goes_on(one)
            half = one.agent.history.messages[1]
            kept = "".join(part.text for part in half.parts if isinstance(part, Text))
            assert half.role == "assistant"
            assert kept
            assert "One two three four five six seven eight nine ten.".startswith(kept)
            assert [type(part) for part in half.parts] == [Reasoning, Text]

    run(test())


@pytest.mark.parametrize("way", WAYS)
def test_in_the_middle_of_thoughts_nothing_is_kept(way: Any) -> None:
    async def test() -> None:
        says = [said("Short.", reasoning="A long thought. " * 20), said()]
        async with talk(says, faults=("stall@1*1",)) as one:
            await _stopped(one, way, lambda step: isinstance(step, BlockDelta))
            await _goes_on(one)
            assert [message.role for message in one.agent.history.messages] == ["user", "user", "assistant"]

    run(test())


@pytest.mark.parametrize("way", WAYS)
def test_in_the_middle_of_a_call_the_call_is_not_kept(way: Any) -> None:
    async def test() -> None:
        long = '{"path": "' + "x" * 400 + '"}'
        says = [called(("look", long), text="I look.", reasoning=""), said()]
        async with talk(says, [look], faults=("stall@1*1",)) as one:

            def when(step: Step) -> bool:
                return isinstance(step, BlockOpened) and step.kind == "call"

            await _stopped(one, way, when)
            await _goes_on(one)
            texts = [part for message in one.agent.history.messages for part in message.parts]
            assert not any(isinstance(part, ToolCall) for part in texts)
            assert Text("I look.") in texts

    run(test())


@pytest.mark.parametrize("way", WAYS)
def test_between_a_call_and_its_run(way: Any) -> None:
    async def test() -> None:
        async with talk([called(("look", '{"path": "a"}')), said()], [look]) as one:
            await _stopped(one, way, lambda step: isinstance(step, ToolStarted))
            await _goes_on(one)
            assert len(results_in(one.agent.history)) == 1

    run(test())


@pytest.mark.parametrize("way", WAYS)
def test_at_every_single_step(way: Any) -> None:
    """Wherever a consumer may go away, also between two steps of which nothing is waited for."""

    async def test() -> None:
        says = [
            called(("look", '{"path": "a"}'), ("look", '{"path": "b"}'), text="I look.", reasoning="Hm."),
            said("Both seen."),
        ]
        async with talk(says, [look]) as one:
            whole = len(await steps_of(one.agent.run_stream("Go")))
            for count in range(1, whole + 1):
                one.agent.history.clear()
                seen = 0

                def when(step: Step, count: int = count) -> bool:
                    nonlocal seen
                    seen += 1
                    return seen == count

                if way is cancel_the_task:
                    await _cancelled_at(one.agent, count)
                else:
                    await _stopped(one, way, when)
                last = ending(await steps_of(one.agent.run_stream("Go on")))
                assert last.reason == "answered"
                check_can_go_on(one.agent.history)
            assert one.server.refusals == []

    run(test())


async def _cancelled_at(agent: Agent, count: int) -> None:
    """Cancelled while the consumer handles a step: the error comes up at its next wait."""

    async def consume() -> None:
        seen = 0
        async for _ in agent.run_stream("Go"):
            seen += 1
            if seen == count:
                me = asyncio.current_task()
                assert me is not None
                me.cancel()

    task = asyncio.create_task(consume())
    await asyncio.wait({task})


def test_whoever_is_asked_may_be_stopped_too() -> None:
    async def test() -> None:
        asked = asyncio.Event()

        async def allow(tool: AgentTool, call: ToolCall) -> Allowed:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

        async with talk(
            [called(("ask", '{"path": "b"}'), ("look", '{"path": "a"}')), said()],
            [tool(name="ask", asks=True)(look.function), look],
            allow=allow,
        ) as one:
            task = asyncio.create_task(steps_of(one.agent.run_stream("Go")))
            await asked.wait()
            one.agent.stop()
            assert ending(await task).reason == "cancelled"
            assert all("not run" in text for text in results_in(one.agent.history))
            await _goes_on(one)

    run(test())


def test_a_tool_that_ignores_that_it_is_stopped_is_left_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moonshim.agent.execution.runner.GRACE_SECONDS", 0.01)

    async def test() -> None:
        began, let_go = asyncio.Event(), asyncio.Event()

        @tool
        async def stubborn() -> str:
            began.set()
            while not let_go.is_set():
                try:
                    await let_go.wait()
                except asyncio.CancelledError:
                    continue
            raise RuntimeError("nobody hears this")

        async with talk([called(("stubborn", "{}")), said()], [stubborn]) as one:
            task = asyncio.create_task(steps_of(one.agent.run_stream("Go")))
            await began.wait()
            one.agent.stop()
            assert ending(await task).reason == "cancelled"
            await _goes_on(one)
            let_go.set()

    run(test())


def test_stopping_when_nothing_runs_does_nothing() -> None:
    async def test() -> None:
        async with talk([said()]) as one:
            one.agent.stop()
            await one.agent.ask("Hello")
            one.agent.stop()
            await one.agent.ask("Hello")

    run(test())


def test_a_run_that_was_left_at_its_end_does_not_disturb_the_next() -> None:
    async def test() -> None:
        async with talk([said(), called(("look", '{"path": "a"}')), said()], [look]) as one:
            first = one.agent.run_stream("One")
            async for step in first:
                if isinstance(step, RunEnded):
                    break
            second = one.agent.run_stream("Two")
            async for step in second:
                if isinstance(step, ToolStarted):
                    await first.aclose()  # its clean-up must not answer the calls of the second
            assert results_in(one.agent.history) == ["seen a"]
            check_can_go_on(one.agent.history)
            assert not any(isinstance(step, SaveFailed) for step in await steps_of(one.agent.run_stream("Three")))

    run(test())


def test_a_tool_that_swallows_every_cancellation_does_not_keep_run_from_ending() -> None:
    code = """
import asyncio
import subprocess
import sys
from moonshim.agent import Agent, Provider, tool
from moonshim.simulator import IntendedResponse, IntendedCall, Simulator

class Calls:
    def reply(self, question):
        if question.round > 1:
            return IntendedResponse(text="Done.")
        return IntendedResponse(calls=(IntendedCall("stubborn", "{}"),))

@tool
async def stubborn():
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

with Simulator(model=Calls(), behaviour="selfhost", log=lambda seen: None).running() as server:
    agent = Agent(Provider(f"{server.url}/v1", model="kimi-k2.5"), [stubborn], tool_timeout=0.01)
    print(agent.run("Go"))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, ran.stdout) == (0, "Done.\n"), ran.stderr
    assert ran.stderr.count("RuntimeWarning: abandoned because it did not stop when cancelled: tool stubborn") == 1
    assert "Task was destroyed" not in ran.stderr
