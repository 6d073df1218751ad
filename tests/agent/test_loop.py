"""A conversation with tools, from a person's words to the answer, against a host that checks every request."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from moonshim.agent import (
    Agent,
    AgentBusy,
    AgentStopped,
    MessageSaved,
    Provider,
    RoundStarted,
    RunEnded,
    ToolEnded,
    ToolStarted,
    tool,
)
from moonshim.agent.history import History
from moonshim.engine.values.conversation import Media, Message, Reasoning, Text, ToolCall, ToolResult
from moonshim.engine.values.events import Finished
from moonshim.errors import InvalidInput
from moonshim.simulator import Simulator
from tests.agent.asking import run
from tests.agent.scripts import called, calls_in, check_can_go_on, ending, results_in, said, steps_of, talk


@tool
async def look(path: str) -> str:
    """Look at something."""
    return f"seen {path}"


def test_a_call_is_run_and_the_answer_comes() -> None:
    async def test() -> None:
        async with talk([called(("look", '{"path": "a"}')), said("All seen.")], [look]) as one:
            steps = await steps_of(one.agent.run_stream("Look!"))
            assert [type(step).__name__ for step in steps if type(step).__module__.endswith("agent.events")] == [
                "MessageSaved",
                *("RoundStarted", "MessageSaved", "ToolStarted", "ToolEnded", "MessageSaved"),
                *("RoundStarted", "MessageSaved", "RunEnded"),
            ]
            assert sum(isinstance(step, Finished) for step in steps) == 2
            last = ending(steps)
            assert last.reason == "answered"
            assert last.message == one.agent.history.messages[-1]
            assert one.agent.history.messages == (
                Message("user", (Text("Look!"),)),
                Message(
                    "assistant",
                    (Reasoning("I call."), ToolCall("hist_tool_look0", "look", '{"path": "a"}')),
                ),
                Message("tool", (ToolResult("hist_tool_look0", "look", (Text("seen a"),)),)),
                Message("assistant", (Reasoning("I answer."), Text("All seen."))),
            )
            assert one.server.refusals == []

    run(test())


def test_the_message_in_the_history_has_what_was_said_the_calls_and_the_reasoning() -> None:
    async def test() -> None:
        says = [called(("look", '{"path": "a"}'), text="One moment.", reasoning="Where is it?"), said()]
        async with talk(says, [look]) as one:
            await one.agent.ask("Look!")
            answer = one.agent.history.messages[1]
            assert [type(part) for part in answer.parts] == [Reasoning, Text, ToolCall]
            # The host gets all of it back, or it would refuse: reasoning_content is missing.
            sent = one.server.requests[-1].body["messages"][1]
            assert (sent["content"], sent["reasoning_content"]) == ("One moment.", "Where is it?")
            assert sent["tool_calls"][0]["id"] == one.server.requests[-1].body["messages"][2]["tool_call_id"]

    run(test())


def test_calls_of_one_answer_run_at_once_and_are_told_in_their_order() -> None:
    async def test() -> None:
        began: list[str] = []
        all_began = asyncio.Event()
        release = {name: asyncio.Event() for name in "abc"}

        @tool
        async def wait(name: str) -> str:
            began.append(name)
            if len(began) == 3:
                all_began.set()
            await release[name].wait()
            return name.upper()

        says = [called(*(("wait", f'{{"name": "{name}"}}') for name in "abc")), said()]
        async with talk(says, [wait]) as one:
            task = asyncio.create_task(steps_of(one.agent.run_stream("Go")))
            await all_began.wait()  # none of them waits for another
            for name in "cba":
                release[name].set()
            assert [step.call.arguments for step in await task if isinstance(step, ToolEnded)] == [
                f'{{"name": "{name}"}}' for name in "abc"
            ]
            assert results_in(one.agent.history) == ["A", "B", "C"]
            check_can_go_on(one.agent.history)

    run(test())


def test_no_more_tools_run_at_once_than_were_allowed() -> None:
    async def test() -> None:
        running = most = 0

        @tool
        async def count(number: int) -> int:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            running -= 1
            return number

        says = [called(*(("count", f'{{"number": {number}}}') for number in range(9))), said()]
        async with talk(says, [count], parallel=2) as one:
            steps = await steps_of(one.agent.run_stream("Go"))
            assert most == 2
            assert [step.call.arguments for step in steps if isinstance(step, ToolStarted)] == [
                f'{{"number": {number}}}' for number in range(9)
            ]
            assert results_in(one.agent.history) == [str(number) for number in range(9)]

    run(test())


def test_what_is_wrong_with_a_call_is_told_to_the_model() -> None:
    @tool
    def fail(text: str) -> str:
        raise KeyError(text)

    async def test() -> None:
        says = [
            called(("fail", '{"text": "x"}'), ("nothing", "{}"), ("look", '{"path": 3}'), ("look", '{"where": 1}')),
            said(),
        ]
        async with talk(says, [look, fail], behaviour="selfhost") as one:
            assert ending(await steps_of(one.agent.run_stream("Go"))).reason == "answered"
            failed, unknown, wrong, other = results_in(one.agent.history)
            assert failed == "Error: KeyError: 'x'"
            assert unknown == "Error: unknown tool 'nothing'. Available tools: fail, look."
            assert "Expected `str`, got `int` - at `$.path`" in wrong
            assert "path" in other
            assert all(
                part.is_error
                for message in one.agent.history.messages
                for part in message.parts
                if isinstance(part, ToolResult)
            )
            check_can_go_on(one.agent.history)
            assert one.server.refusals == []

    run(test())


def test_a_tool_that_hangs_is_stopped_and_the_conversation_goes_on() -> None:
    async def test() -> None:
        cancelled = asyncio.Event()

        @tool(timeout=0.01)
        async def hang() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        async with talk([called(("hang", "{}"), ("look", '{"path": "b"}')), said()], [hang, look]) as one:
            assert ending(await steps_of(one.agent.run_stream("Go"))).reason == "answered"
            assert cancelled.is_set()
            late, seen = results_in(one.agent.history)
            assert "timed out after 0.01 seconds" in late
            assert seen == "seen b"

    run(test())


def test_rounds_are_bounded_and_the_conversation_can_go_on() -> None:
    async def test() -> None:
        says = [*(called(("look", f'{{"path": "{number}"}}')) for number in range(3)), said("Enough.")]
        async with talk(says, [look], rounds=2) as one:
            last = ending(steps := await steps_of(one.agent.run_stream("Go")))
            assert last.reason == "rounds"
            assert "round limit (2) was reached" in last.detail
            assert sum(isinstance(step, RoundStarted) for step in steps) == 2
            check_can_go_on(one.agent.history)
            assert ending(await steps_of(one.agent.retry_stream())).reason == "answered"
            assert len(calls_in(one.agent.history)) == 3
            assert one.server.refusals == []

    run(test())


def test_without_a_bound_it_goes_on_until_the_model_answers() -> None:
    async def test() -> None:
        says = [*(called(("look", f'{{"path": "{number}"}}')) for number in range(60)), said("Enough.")]
        async with talk(says, [look], rounds=-1) as one:
            steps = await steps_of(one.agent.run_stream("Go"))
            assert sum(isinstance(step, RoundStarted) for step in steps) == 61
            assert ending(steps).reason == "answered"

    run(test())


def test_the_same_call_again_and_again_is_told_to_the_model_and_then_ends_the_run() -> None:
    async def test() -> None:
        times = 0

        @tool
        def same(a: int, b: int) -> str:
            nonlocal times
            times += 1
            return "no"

        # The same arguments, differently written.
        says = [called(("same", '{"a": 1, "b": 2}')), called(("same", '{"b":2,"a":1}'))] * 4
        async with talk(says, [same], repeats=3) as one:
            last = ending(await steps_of(one.agent.run_stream("Go")))
            assert last.reason == "repeating"
            assert "same" in last.detail
            assert times == 3
            assert [text[:50] for text in results_in(one.agent.history)[3:]] == [
                "Error: not run. You have made this exact call 3 ti",
                "Error: not run. The run ended because the same cal",
            ]
            check_can_go_on(one.agent.history)

    run(test())


def test_a_model_that_heeds_the_warning_goes_on() -> None:
    async def test() -> None:
        again = called(("look", '{"path": "a"}'))
        async with talk([again] * 3 + [said("I stop.")], [look], repeats=2) as one:
            assert ending(await steps_of(one.agent.run_stream("Go"))).reason == "answered"

    run(test())


def test_other_calls_between_make_it_no_repetition() -> None:
    async def test() -> None:
        one_call, other = called(("look", '{"path": "a"}')), called(("look", '{"path": "b"}'))
        async with talk([one_call, other] * 5 + [said()], [look], repeats=2) as one:
            assert ending(await steps_of(one.agent.run_stream("Go"))).reason == "answered"

    run(test())


def test_a_call_whose_result_changes_may_come_as_often_as_it_likes() -> None:
    async def test() -> None:
        lines = [f"{share} %" for share in range(10)]

        @tool
        def poll(job: str) -> str:
            return lines.pop(0) if lines else "stuck"

        polling = called(("poll", '{"job": "build"}'))
        async with talk([polling] * 10 + [said("Built.")], [poll]) as one:
            assert ending(await steps_of(one.agent.run_stream("Go"))).reason == "answered"
            assert results_in(one.agent.history) == [f"{share} %" for share in range(10)]
        # From the moment at which nothing changes any more, it counts.
        lines[:] = ["1 %", "2 %", "2 %", "3 %"]
        async with talk([polling] * 20, [poll], repeats=3) as one:
            last = ending(await steps_of(one.agent.run_stream("Go")))
            assert last.reason == "repeating"
            assert results_in(one.agent.history)[:7] == ["1 %", "2 %", "2 %", "3 %", "stuck", "stuck", "stuck"]
            assert len(results_in(one.agent.history)) == 9
            check_can_go_on(one.agent.history)

    run(test())


def test_the_same_failure_again_and_again_counts_as_a_repetition() -> None:
    async def test() -> None:
        async with talk([called(("nowhere", "{}"))] * 9, [look], repeats=2) as one:
            assert ending(await steps_of(one.agent.run_stream("Go"))).reason == "repeating"
            assert len(results_in(one.agent.history)) == 4

    run(test())


def test_an_answer_with_nothing_in_it_is_asked_for_again_and_never_kept() -> None:
    async def test() -> None:
        async with talk(scenario="think-only", tools=[look]) as one:
            last = ending(steps := await steps_of(one.agent.run_stream("Go")))
            assert last.reason == "failed"
            assert "neither text nor a tool call" in last.detail
            assert sum(isinstance(step, RoundStarted) for step in steps) == 2
            check_can_go_on(one.agent.history)

    run(test())


def test_switching_keeps_everything() -> None:
    async def test() -> None:
        async with Simulator(scenario="one-call") as kimi, Simulator(scenario="one-call") as other:
            first = Provider(f"{kimi.url}/v1", model="kimi-k2.5", host="moonshot")
            second = Provider(f"{other.url}/anthropic", model="kimi-k3", host="moonshot", dialect="anthropic")
            async with first, second:
                agent = Agent(first, [look])
                await agent.ask("Look at a.txt")
                before = agent.history.messages
                agent.switch(second)
                await agent.ask("Look at b.txt")
                assert agent.history.messages[: len(before)] == before
                assert (agent.history.model, agent.history.provider) == ("kimi-k3", second.name)
                check_can_go_on(agent.history)
                sent = other.requests[-1].body["messages"]
                assert "seen" in str(sent[2])
                assert kimi.refusals == other.refusals == []

    run(test())


def test_identifiers_that_a_host_gives_twice_are_told_apart() -> None:
    async def test() -> None:
        says = [*(called(("look", f'{{"path": "{number}"}}')) for number in range(3)), said()]
        async with talk(says, [look], behaviour="fireworks", model="kimi-k3") as one:
            await one.agent.ask("Go")
            assert len({call.id for call in calls_in(one.agent.history)}) == 3
            check_can_go_on(one.agent.history)

    run(test())


def test_usage_is_that_of_all_rounds() -> None:
    async def test() -> None:
        async with talk([called(("look", '{"path": "a"}')), said()], [look]) as one:
            steps = await steps_of(one.agent.run_stream("Go"))
            counted = [step.usage for step in steps if isinstance(step, Finished)]
            whole = ending(steps).usage
            assert whole is not None
            assert whole.output_tokens == sum(usage.output_tokens or 0 for usage in counted if usage)
            assert (whole.input_tokens or 0) > 0

    run(test())


def test_the_system_prompt_is_sent_first_and_is_no_part_of_the_history() -> None:
    async def test() -> None:
        async with talk([said()], system="Be brief.") as one:
            await one.agent.ask("Hello")
            assert one.server.requests[0].body["messages"][0] == {"role": "system", "content": "Be brief."}
            assert [message.role for message in one.agent.history.messages] == ["user", "assistant"]

    run(test())


def test_a_prompt_may_be_a_message_with_pictures() -> None:
    async def test() -> None:
        picture = Media("image", data="iVBORw0KGgo=", media_type="image/png")
        async with talk([said()]) as one:
            await one.agent.ask(Message("user", (Text("What is this?"), picture)))
            assert one.server.requests[0].body["messages"][0]["content"][1]["type"] == "image_url"

    run(test())


@pytest.mark.parametrize("prompt", ["", "  \n", Message("assistant", (Text("x"),)), Message("user", ()), 3])
def test_what_is_no_prompt_is_refused(prompt: Any) -> None:
    async def test() -> None:
        async with talk([said()]) as one:
            with pytest.raises(InvalidInput):
                one.agent.run_stream(prompt)
            assert one.agent.history.messages == ()

    run(test())


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"rounds": -2}, {"parallel": 0}, {"repeats": -1}, {"rounds": True}])
def test_bounds_that_mean_nothing_are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidInput):
        Agent(Provider("http://localhost:1/v1", model="kimi-k2.5"), **wrong)


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidInput, match="duplicate tool name 'look'"):
        Agent(Provider("http://localhost:1/v1", model="kimi-k2.5"), [look, look])


def test_one_conversation_goes_one_way_at_a_time() -> None:
    async def test() -> None:
        async with talk([said()]) as one:
            first = one.agent.run_stream("One")
            await anext(first)
            with pytest.raises(AgentBusy):
                await anext(one.agent.run_stream("Two"))
            with pytest.raises(AgentBusy):
                one.agent.undo()
            await first.aclose()
            await one.agent.ask("Three")

    run(test())


def test_without_a_loop_it_runs_too_again_and_again() -> None:
    with Simulator(scenario="one-call").running() as server:
        read = tool(name="read_file")(look.function)
        agent = Agent(Provider(f"{server.url}/v1", model="kimi-k2.5", host="moonshot"), [read])
        assert agent.run("Look at a.txt") == "Here is what came back: seen a.txt"
        assert agent.run("Look at b.txt") == "Here is what came back: seen b.txt"
        assert len(agent.history.messages) == 8
        check_can_go_on(agent.history)


def test_inside_a_loop_the_way_without_one_says_what_to_do() -> None:
    async def test() -> None:
        agent = Agent(Provider("http://localhost:1/v1", model="kimi-k2.5"))
        with pytest.raises(InvalidInput, match=r"await agent\.ask"):
            agent.run("Hello")

    run(test())


def test_no_answer_is_an_error_that_says_why() -> None:
    agent = Agent(Provider("http://127.0.0.1:9/v1", model="kimi-k2.5", attempts=1))
    with pytest.raises(AgentStopped) as caught:
        agent.run("Hello")
    assert caught.value.ended.reason == "failed"
    assert "127.0.0.1:9" in str(caught.value)


def test_a_turn_can_be_taken_back() -> None:
    async def test() -> None:
        async with talk([called(("look", '{"path": "a"}')), said("One."), said("Two.")], [look]) as one:
            await one.agent.ask("First")
            await one.agent.ask("Second")
            assert one.agent.undo() == 2
            assert one.agent.undo() == 4
            assert one.agent.undo() == 0

    run(test())


def test_a_turn_that_was_answered_is_asked_anew() -> None:
    async def test() -> None:
        async with talk([called(("look", '{"path": "a"}')), said("One.")], [look]) as one:
            await one.agent.ask("First")
            steps = await steps_of(one.agent.retry_stream())
            assert ending(steps).reason == "answered"
            assert [message.role for message in one.agent.history.messages] == [
                "user",
                "assistant",
                "tool",
                "assistant",
            ]

    run(test())


def test_there_is_nothing_to_try_again_in_an_empty_conversation() -> None:
    with pytest.raises(InvalidInput):
        Agent(Provider("http://localhost:1/v1", model="kimi-k2.5")).retry_stream()


def test_a_history_that_ends_in_a_call_is_made_whole_before_it_goes_on() -> None:
    """So a process leaves it that was killed while a tool was running."""

    async def test() -> None:
        call = ToolCall("hist_tool_a", "look", '{"path": "a"}')
        history = History([Message("user", (Text("Look"),)), Message("assistant", (Reasoning("Hm."), call))])
        async with talk([said()], [look], history=history) as one:
            steps = await steps_of(one.agent.run_stream("Are you there?"))
            assert ending(steps).reason == "answered"
            assert "The program ended" in results_in(history)[0]
            assert isinstance(steps[0], ToolEnded)
            check_can_go_on(history)
            assert one.server.refusals == []

    run(test())


def test_every_message_is_told_when_it_is_kept() -> None:
    async def test() -> None:
        async with talk([called(("look", '{"path": "a"}')), said()], [look]) as one:
            steps = await steps_of(one.agent.run_stream("Go"))
            assert tuple(step.message for step in steps if isinstance(step, MessageSaved)) == one.agent.history.messages
            assert isinstance(steps[-1], RunEnded)

    run(test())
