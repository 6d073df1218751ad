"""A host that fails, in every round and in every way, ends the run with its reason; asking again goes on."""

from __future__ import annotations

from typing import Any

import pytest

from moonshim.agent import Agent, Allowed, Provider, RunEnded, SaveFailed, ToolEnded, ToolStarted, tool
from moonshim.agent.history import History, HistoryNotSaved
from moonshim.agent.history_lines import HistoryLine
from moonshim.agent.tools import AgentTool
from moonshim.engine.values.conversation import Message, Sampling, Text, ToolCall
from moonshim.engine.values.events import Finished, Started
from moonshim.errors import InvalidInput
from tests.agent.asking import run
from tests.agent.scripts import called, check_can_go_on, ending, results_in, said, steps_of, talk

FAULTS = ("overloaded", "status-500", "no-body", "cut-off", "error-in-stream", "html-502", "empty-body")


@tool
async def look(path: str) -> str:
    return f"seen {path}"


SAYS = [
    called(("look", '{"path": "a"}')),
    called(("look", '{"path": "b"}'), ("look", '{"path": "c"}'), text="And these."),
    called(("look", '{"path": "d"}')),
    said("All four."),
]


@pytest.mark.parametrize("round_", [1, 2, 3, 4])
@pytest.mark.parametrize("fault", FAULTS)
def test_the_host_fails_in_a_round_and_is_asked_again(fault: str, round_: int) -> None:
    async def test() -> None:
        async with talk(SAYS, [look], faults=(f"{fault}@{round_}*1",)) as one:
            last = ending(await steps_of(one.agent.run_stream("Look")))
            assert last.reason == "failed"
            assert last.detail
            check_can_go_on(one.agent.history)
            done = [*results_in(one.agent.history)]
            # What was done stays done.
            assert ending(await steps_of(one.agent.retry_stream())).reason == "answered"
            assert results_in(one.agent.history)[: len(done)] == done
            assert results_in(one.agent.history) == [f"seen {name}" for name in "abcd"]
            check_can_go_on(one.agent.history)
            assert [seen.problem for seen in one.server.refusals if seen.status == 400] == []

    run(test())


@pytest.mark.parametrize("round_", [1, 3])
def test_after_a_failure_a_person_may_also_say_something_else(round_: int) -> None:
    async def test() -> None:
        async with talk(SAYS, [look], faults=(f"cut-off@{round_}*1",)) as one:
            assert ending(await steps_of(one.agent.run_stream("Look"))).reason == "failed"
            assert ending(await steps_of(one.agent.run_stream("What is it?"))).reason == "answered"
            check_can_go_on(one.agent.history)
            assert one.server.refusals == []

    run(test())


def test_a_failure_that_the_host_gets_over_by_itself_is_not_seen() -> None:
    async def test() -> None:
        async with talk(SAYS, [look], faults=("status-500@2*1",), attempts=3) as one:
            assert ending(await steps_of(one.agent.run_stream("Look"))).reason == "answered"

    run(test())


def test_a_request_that_the_host_refuses_is_told_in_its_words() -> None:
    async def test() -> None:
        async with talk(SAYS, [look], faults=("context-overflow@2*1",)) as one:
            last = ending(await steps_of(one.agent.run_stream("Look")))
            assert last.reason == "failed"
            assert "exceeded model token limit" in last.detail
            assert ending(await steps_of(one.agent.retry_stream())).reason == "answered"

    run(test())


def test_a_call_that_was_cut_off_is_not_run() -> None:
    async def test() -> None:
        runs = 0

        @tool
        async def write(text: str) -> str:
            nonlocal runs
            runs += 1
            return "written"

        async with talk([called(("write", '{"text": "' + "long " * 50 + '"}')), said()], [write]) as one:
            one.agent.provider = one.provider.with_(sampling=_short())
            assert ending(await steps_of(one.agent.run_stream("Write"))).reason == "answered"
            assert runs == 0
            assert "cut off before the arguments of this call were complete" in results_in(one.agent.history)[0]
            check_can_go_on(one.agent.history)
            assert one.server.refusals == []

    run(test())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("nonsense", "the arguments of this call are not a valid JSON object: nonsense. Nothing was run"),
        ("[1, 2]", "the arguments of this call are not a valid JSON object: [1, 2]. Nothing was run"),
        ('{"path": "a', "cut off before the arguments of this call were complete. Nothing was run"),
        ('{"path": "a"]}', "the arguments of this call are not a valid JSON object: ]}. Nothing was run"),
    ],
)
@pytest.mark.parametrize("dialect", ["openai_chat", "anthropic"])
def test_malformed_arguments_do_not_end_the_run(dialect: Any, arguments: str, says: str) -> None:
    async def test() -> None:
        script = [called(("look", arguments), text="I look."), called(("look", '{"path": "b"}')), said("Seen.")]
        async with talk(script, [look]) as one:
            one.agent.provider = one.provider.with_(dialect=dialect)
            steps = await steps_of(one.agent.run_stream("Look"))
            assert ending(steps).reason == "answered"
            assert [step.call.arguments for step in steps if isinstance(step, ToolStarted)] == ['{"path": "b"}']
            malformed, seen = results_in(one.agent.history)
            assert says in malformed
            assert seen == "seen b"
            check_can_go_on(one.agent.history)
            assert one.server.refusals == []

    run(test())


@pytest.mark.parametrize("malformed", [0, 1, 2])
def test_the_calls_before_the_last_are_run(malformed: int) -> None:
    async def test() -> None:
        calls = [("look", f'{{"path": "{number}"}}') for number in range(3)]
        calls[malformed] = ("look", "nonsense")
        async with talk([called(*calls), said()], [look]) as one:
            assert ending(await steps_of(one.agent.run_stream("Look"))).reason == "answered"
            results = results_in(one.agent.history)
            assert "not a valid JSON object: nonsense" in results[malformed]
            for number in {0, 1} - {malformed}:
                assert results[number] == f"seen {number}"
            if malformed != 2:  # nothing shows that the last call is complete
                assert "arguments of another call in the same response are malformed" in results[2]
            check_can_go_on(one.agent.history)
            assert one.server.refusals == []

    run(test())


def test_a_model_that_writes_nothing_but_malformed_arguments_ends_the_run() -> None:
    async def test() -> None:
        script = [called(("look", f"nonsense {number}")) for number in range(9)]
        async with talk(script, [look], repeats=0) as one:
            last = ending(await steps_of(one.agent.run_stream("Look")))
            assert last.reason == "failed"
            assert "not valid JSON" in last.detail
            assert len(results_in(one.agent.history)) == 2
            check_can_go_on(one.agent.history)
            # The next run may try as often again.
            assert ending(await steps_of(one.agent.retry_stream())).reason == "failed"
            assert len(results_in(one.agent.history)) == 4

    run(test())


def test_malformed_arguments_are_counted_in_a_row() -> None:
    async def test() -> None:
        script = [called(("look", "nonsense" if number % 3 else f'{{"path": "{number}"}}')) for number in range(9)]
        async with talk([*script, said()], [look], repeats=0) as one:
            assert ending(await steps_of(one.agent.run_stream("Look"))).reason == "answered"

    run(test())


def _short() -> Sampling:
    return Sampling(max_tokens=20)


def test_an_answer_that_was_cut_off_says_so() -> None:
    async def test() -> None:
        async with talk([said("word " * 200, reasoning="")]) as one:
            one.agent.provider = one.provider.with_(sampling=_short())
            steps = await steps_of(one.agent.run_stream("Talk"))
            assert [step.reason for step in steps if isinstance(step, Finished)] == ["length"]
            assert ending(steps).reason == "answered"
            assert "cut off at the token limit" in ending(steps).detail

    run(test())


def test_a_request_that_cannot_be_made_is_a_failure_too() -> None:
    class Refusing:
        name = model = "x"

        def stream_chat_with_tools(self, messages: Any, tools: Any = ()) -> Any:
            raise InvalidInput("no such thing")

    async def test() -> None:
        agent = Agent(Refusing())
        last = ending(await steps_of(agent.run_stream("Hello")))
        assert last.reason == "failed"
        assert "no such thing" in last.detail

    run(test())


def test_a_provider_that_just_ends_is_a_failure_too() -> None:
    class Silent:
        name = model = "x"

        async def stream_chat_with_tools(self, messages: Any, tools: Any = ()) -> Any:
            return
            yield

    async def test() -> None:
        agent = Agent(Silent())
        assert ending(await steps_of(agent.run_stream("Hello"))).reason == "failed"
        assert agent.history.messages == (Message("user", (Text("Hello"),)),)

    run(test())


def test_a_fault_in_a_provider_comes_up_and_the_history_is_whole() -> None:
    class Broken:
        name = model = "x"

        async def stream_chat_with_tools(self, messages: Any, tools: Any = ()) -> Any:
            yield Started(id=str(1 // len(tools)))

    async def test() -> None:
        agent = Agent(Broken())
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                await agent.ask("Hello")
        check_can_go_on(agent.history)

    run(test())


class FullDisk(History):
    """Says that it is full, from the second message on, once."""

    def __init__(self) -> None:
        super().__init__()
        self.told = False

    def _note(self, line: HistoryLine, act: Any) -> None:
        act()
        if len(self.messages) > 1 and not self.told:
            self.told = True
            raise HistoryNotSaved("the disk is full")


def test_a_full_disk_is_told_once_and_the_conversation_goes_on() -> None:
    async def test() -> None:
        async with talk(SAYS, [look], history=FullDisk()) as one:
            steps = await steps_of(one.agent.run_stream("Look"))
            assert ending(steps).reason == "answered"
            assert [step.detail for step in steps if isinstance(step, SaveFailed)] == ["the disk is full"]
            check_can_go_on(one.agent.history)

    run(test())


def test_a_full_disk_that_shows_while_somebody_goes_away_is_told_in_the_next_run() -> None:
    async def test() -> None:
        async with talk([called(("look", '{"path": "a"}')), said()], [look]) as one:
            steps = one.agent.run_stream("Look")
            async for step in steps:
                if isinstance(step, ToolStarted):
                    full = FullDisk()
                    full._messages = list(one.agent.history.messages)
                    one.agent.history = full
                    break
            await steps.aclose()
            told = [step for step in await steps_of(one.agent.run_stream("Go on")) if isinstance(step, SaveFailed)]
            assert len(told) == 1

    run(test())


def test_what_is_not_allowed_is_not_run_and_the_model_hears_why() -> None:
    async def test() -> None:
        runs: list[str] = []
        asked: list[str] = []

        @tool(asks=True)
        async def write(path: str) -> str:
            runs.append(path)
            return "written"

        async def allow(one: AgentTool, call: ToolCall) -> Allowed:
            asked.append(call.arguments)
            return Allowed("b" in call.arguments, reason="Not that file.")

        says = [called(("write", '{"path": "a"}'), ("write", '{"path": "b"}'), ("look", '{"path": "c"}')), said()]
        async with talk(says, [write, look], allow=allow) as one:
            steps = await steps_of(one.agent.run_stream("Go"))
            assert ending(steps).reason == "answered"
            assert runs == ["b"]
            assert asked == ['{"path": "a"}', '{"path": "b"}']
            refused, *rest = results_in(one.agent.history)
            assert refused == "Error: the user denied this call. Nothing was run. Not that file."
            assert rest == ["written", "seen c"]
            assert len([step for step in steps if isinstance(step, ToolStarted)]) == 2
            assert len([step for step in steps if isinstance(step, ToolEnded)]) == 3

    run(test())


def test_who_refuses_may_end_the_run() -> None:
    async def test() -> None:
        async def allow(one: AgentTool, call: ToolCall) -> Allowed:
            return Allowed(False, stop=True)

        write = tool(name="write", asks=True)(look.function)
        says = [called(("look", '{"path": "c"}'), ("write", '{"path": "a"}'), ("write", '{"path": "b"}')), said()]
        async with talk(says, [write, look], allow=allow) as one:
            last: RunEnded = ending(steps := await steps_of(one.agent.run_stream("Go")))
            assert last.reason == "refused"
            assert not any(isinstance(step, ToolStarted) for step in steps)
            assert all("not run" in text or "denied" in text for text in results_in(one.agent.history))
            check_can_go_on(one.agent.history)
            assert ending(await steps_of(one.agent.run_stream("Then answer"))).reason == "answered"
            assert one.server.refusals == []

    run(test())


def test_a_fault_in_whoever_is_asked_comes_up_and_the_history_is_whole() -> None:
    async def test() -> None:
        async def allow(one: AgentTool, call: ToolCall) -> Allowed:
            raise ZeroDivisionError

        write = tool(name="write", asks=True)(look.function)
        async with talk([called(("write", '{"path": "a"}')), said()], [write], allow=allow) as one:
            with pytest.raises(ZeroDivisionError):
                await one.agent.ask("Go")
            check_can_go_on(one.agent.history)

    run(test())


def test_nobody_is_there() -> None:
    async def test() -> None:
        async with Provider("http://127.0.0.1:9/v1", model="kimi-k2.5", attempts=1) as provider:
            last = ending(await steps_of(Agent(provider).run_stream("Hello")))
        assert last.reason == "failed"
        assert "127.0.0.1:9" in last.detail

    run(test())


@tool
def lonely(text: str) -> str:
    """Stands alone."""
    return text


@pytest.mark.parametrize("tools", [lonely, "bash", {"bash": 1}, print])
def test_what_is_no_list_of_tools_is_told(tools: Any) -> None:
    with pytest.raises(InvalidInput, match="tools must be a list"):
        Agent(Provider("http://127.0.0.1:9/v1", model="kimi-k2.5"), tools)


def test_what_is_no_provider_is_told() -> None:
    with pytest.raises(InvalidInput, match="must be a Provider, not"):
        Agent("kimi-k2.5")  # type: ignore[arg-type]
