"""A user's message -> the steps of an agent: call the model, run its tool calls, send the results, until it answers.

Read `_rounds` first. Whatever happens, `_settle` leaves a history that can be continued.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing
from math import isnan
from typing import Any, Final, Protocol

from msgspec.structs import replace

from moonshim.agent.accumulate import MessageAccumulator, text_of
from moonshim.agent.events import MessageSaved, RoundStarted, RunEnded, SaveFailed, Step, ToolEnded
from moonshim.agent.execution.calls import PendingCalls, ToolLimits
from moonshim.agent.execution.cancellation import Stopped, Stopping
from moonshim.agent.execution.repetition import Repeating
from moonshim.agent.execution.runner import Allow, failed_result, run_loop
from moonshim.agent.history import History, HistoryNotSaved
from moonshim.agent.tools import AgentTool, tools_by_name
from moonshim.engine.values.conversation import Message, Text, ToolCall, Usage, add_usage
from moonshim.engine.values.events import Event
from moonshim.errors import InvalidInput, MoonshimError

__all__ = ["Agent", "AgentBusy", "AgentStopped", "Answers"]

_LOST: Final = "Error: no result. The program ended while this tool was running, or before it started."
_SAYING_NOTHING: Final = 2
"""How often in a row a model may answer with nothing, or with reasoning alone, before it is a failure. K2 does."""
_MALFORMED: Final = 3
"""How many responses in a row may have malformed arguments. The last of them is a failure."""
_CLOSING_SECONDS: Final = 10.0


class AgentBusy(MoonshimError):
    """The agent is already running. A conversation has one run at a time; `stop` ends it."""

    code = "agent_busy"


class AgentStopped(MoonshimError):
    """A run ended without an answer. The history stays valid, and the next run continues from it."""

    code = "agent_stopped"

    def __init__(self, ended: RunEnded) -> None:
        super().__init__(ended.detail or ended.reason)
        self.ended = ended
        """The last event of the run, with the reason and the token usage."""


class Answers(Protocol):
    """The interface that an agent needs from a provider. `moonshim.agent.Provider` implements it."""

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str: ...

    def stream_chat_with_tools(self, messages: Any, tools: Any = ...) -> AsyncIterator[Event]: ...


class Agent:
    """Runs a conversation between a user, a model and tools.

    Each run calls the model, executes its tool calls, sends the results back, and repeats until the model answers.
    However a run ends (an answer, a failure, a `stop`, a cancelled task, a consumer that goes away), the history has no
    call without a result and no partial message, and the next run continues from there.

    Example:
        ```python
        agent = Agent(Provider("https://api.moonshot.ai/v1", model="kimi-k3", api_key=key), toolbox("."))
        print(agent.run("What does this project do?"))
        ```
    """

    def __init__(
        self,
        provider: Answers,
        tools: Iterable[AgentTool | Callable[..., Any]] = (),
        *,
        system: str | None = None,
        rounds: int = 50,
        parallel: int = 8,
        tool_timeout: float = 120.0,
        repeats: int = 4,
        history: History | None = None,
        allow: Allow | None = None,
        result_limit: int = 100_000,
    ) -> None:
        """Create an agent with an empty or an existing conversation.

        Args:
            provider: The model to use.
            tools: Tools that the model may call: functions decorated with `@tool`, or plain functions.
            system: The system prompt. It is sent with every request and is not part of the history.
            rounds: The maximum number of model calls in one run; -1 means no limit.
            parallel: The maximum number of tools that run at the same time.
            tool_timeout: The time limit for a tool without its own `timeout`, in seconds; 0 or less means no limit.
            repeats: How often in a row the same call may return the same result. The next identical call is not run
                and the model gets an error; one more ends the run. 0 means no limit.
            history: The conversation to continue, such as a `HistoryFile`. By default, a new one in memory.
            allow: An async function that is called with the tool and the call before a tool with `asks=True` runs,
                for one call at a time. It returns an `Allowed`. Without it, all calls run.
            result_limit: The maximum number of characters of a tool result. Longer results are cut in the middle.

        Raises:
            InvalidInput: An argument has the wrong type or value, or two tools have the same name.
        """
        _check_bound("rounds", rounds, -1 if rounds else 1, "a positive integer, or -1 for no limit")
        _check_bound("parallel", parallel, 1)
        _check_bound("repeats", repeats, 0)
        _check_bound("result_limit", result_limit, 0)
        if isinstance(tool_timeout, bool) or not isinstance(tool_timeout, (int, float)) or isnan(tool_timeout):
            raise InvalidInput(f"tool_timeout must be a number of seconds, not {tool_timeout!r}", field="tool_timeout")
        if not hasattr(provider, "stream_chat_with_tools"):
            raise InvalidInput(f"provider must be a Provider, not {provider!r:.80}", field="provider")
        if isinstance(tools, (AgentTool, str, dict)) or not isinstance(tools, Iterable):
            raise InvalidInput("tools must be a list, as in Agent(provider, tools=[read_file])", field="tools")
        self.provider: Answers = provider
        self.tools: dict[str, AgentTool] = tools_by_name(tools)
        self.system = system
        self.history: History = History() if history is None else history
        self.allow = allow
        self._rounds_bound, self._repeats = rounds, repeats
        self._limits = ToolLimits(parallel=parallel, seconds=tool_timeout, characters=result_limit)
        self._turn: _Turn | None = None
        self._pending_steps: list[Step] = []
        """Events to emit at the next opportunity."""

    # -- asking ------------------------------------------------------------------------------------------------------

    def run_stream(self, prompt: str | Message) -> AsyncGenerator[Step, None]:
        """Run until the model answers, and yield every event on the way. The last one is a `RunEnded`.

        Args:
            prompt: The text of the user's message, or a `Message` with role `user`.

        Raises:
            InvalidInput: The prompt is empty or is not a user message.
            AgentBusy: The agent is already running. Raised when the first event is awaited.
        """
        message = Message("user", (Text(prompt),)) if isinstance(prompt, str) else prompt
        if not isinstance(message, Message) or message.role != "user" or _is_blank(message):
            raise InvalidInput("prompt must be a non-empty string, or a Message with role user", field="prompt")
        return self._begin(message)

    def retry_stream(self) -> AsyncGenerator[Step, None]:
        """Retry the last turn, and yield the events. A failed turn continues where it stopped; an answered one starts
        over, without its old answer.

        Raises:
            InvalidInput: The conversation is empty.
            AgentBusy: The agent is already running. Raised when the first event is awaited.
        """
        if not self.history.messages:
            raise InvalidInput("nothing to retry: the conversation is empty")
        return self._begin(None)

    async def ask(self, prompt: str | Message) -> Message:
        """Run until the model answers, and return its message.

        Args:
            prompt: The text of the user's message, or a `Message` with role `user`.

        Raises:
            AgentStopped: The run ended without an answer; `ended` has the reason.
            InvalidInput: The prompt is empty or is not a user message.
            AgentBusy: The agent is already running.
        """
        ended: RunEnded | None = None
        async with aclosing(self.run_stream(prompt)) as steps:
            async for step in steps:
                if isinstance(step, RunEnded):
                    ended = step
        assert ended is not None
        if ended.reason != "answered" or ended.message is None:
            raise AgentStopped(ended)
        return ended.message

    def run(self, prompt: str | Message) -> str:
        """Run until the model answers, and return the text of its answer. For code without an event loop.

        Args:
            prompt: The text of the user's message, or a `Message` with role `user`.

        Raises:
            AgentStopped: The run ended without an answer; `ended` has the reason.
            InvalidInput: The prompt is invalid, or an event loop is already running in this thread.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return run_loop(self._run_alone(prompt))
        raise InvalidInput("an event loop is already running; use `await agent.ask(...)` or `run_stream`")

    async def _run_alone(self, prompt: str | Message) -> str:
        try:
            return text_of(await self.ask(prompt))
        finally:
            # Connections belong to the loop, which ends with this call.
            close = getattr(self.provider, "close", None)
            if close is not None:
                await close()

    def stop(self) -> None:
        """Stop the current run, if there is one. Its last event is a `RunEnded` with reason `cancelled`."""
        if self._turn is not None:
            self._turn.stopping.stop()

    def switch(self, provider: Answers) -> None:
        """Use another model from the next round on. It gets the whole history, adapted to its host."""
        self.provider = provider
        self._pending_steps = self._note_switch(provider)

    def undo(self) -> int:
        """Remove the last turn (the user's last message and everything after it) from the history.

        Returns:
            The number of messages removed.

        Raises:
            AgentBusy: The agent is running.
        """
        if self._turn is not None:
            raise AgentBusy("the agent is running; stop it first")
        return self.history.undo()

    # -- a run -------------------------------------------------------------------------------------------------------

    def _begin(self, prompt: Message | None) -> AsyncGenerator[Step, None]:
        turn = _Turn()
        steps = self._run(turn, prompt)
        turn.generator = weakref.ref(steps)
        return steps

    async def _run(self, turn: _Turn, prompt: Message | None) -> AsyncGenerator[Step, None]:
        await self._take_turn(turn)
        try:
            for step in (*self._settle(turn, _LOST), *self._add_prompt(prompt)):
                yield step
            try:
                async with aclosing(self._rounds(turn)) as steps:
                    async for step in steps:
                        yield step
            except Stopped:
                turn.ended = RunEnded("cancelled", detail="Stopped. You can continue the conversation from here.")
            last: list[Step] = self._settle(turn)
            ended = turn.ended or RunEnded("failed")
            last.append(replace(ended, usage=turn.usage, message=ended.message or turn.message))
            await self._end_turn(turn)
            for step in last:
                yield step
        finally:
            # The task was cancelled, or the consumer went away. First what cannot be interrupted: then the history is
            # right whatever comes next.
            if self._turn is turn:
                unsent = self._settle(turn)
                self._pending_steps += [step for step in unsent if isinstance(step, SaveFailed)]
            await self._end_turn(turn)

    async def _take_turn(self, turn: _Turn) -> None:
        former = self._turn
        if former is not None and former.generator() is None:
            # A consumer that left its `async for` is done with it; Python closes the generator a moment later.
            try:
                await asyncio.wait_for(former.over.wait(), _CLOSING_SECONDS)
            except TimeoutError:
                raise AgentBusy(f"the previous run did not end within {_CLOSING_SECONDS:g} seconds") from None
        if self._turn is not None:
            raise AgentBusy("the agent is already running; a conversation has one run at a time")
        self._turn = turn

    async def _end_turn(self, turn: _Turn) -> None:
        if self._turn is turn:
            self._turn = None
        turn.over.set()
        await turn.calls.end()

    def _add_prompt(self, prompt: Message | None) -> list[Step]:
        if prompt is not None:
            return self._keep(prompt)
        last = self.history.messages[-1]
        if last.role == "assistant":
            return self._change_history(lambda: self.history.undo_answer())
        return []

    async def _rounds(self, turn: _Turn) -> AsyncGenerator[Step, None]:
        number, nothing, malformed = 0, 0, 0
        repeating = Repeating(self._repeats)
        while self._rounds_bound < 0 or number < self._rounds_bound:
            number += 1
            provider = self.provider
            for step in self._note_switch(provider):
                yield step
            yield RoundStarted(number, provider.model)
            async with aclosing(self._answer(turn, provider)) as events:
                async for event in events:
                    yield event
            answer, turn.answer = turn.answer, None
            assert answer is not None
            turn.usage = add_usage(turn.usage, answer.usage)
            malformed = malformed + 1 if answer.is_malformed else 0
            if answer.failure is not None and not 0 < malformed < _MALFORMED:
                turn.ended = RunEnded("failed", detail=answer.failure)
                return
            message = answer.message(self.history.messages)
            calls = [part for part in message.parts if isinstance(part, ToolCall)]
            if not calls and not text_of(message).strip():
                # Not stored: hosts refuse a history with an empty answer in it.
                nothing += 1
                if nothing < _SAYING_NOTHING and answer.reason != "length":
                    continue
                turn.ended = RunEnded("failed", detail=_NOTHING.get(answer.reason, _SAID_NOTHING))
                return
            nothing = 0
            turn.message = message
            for step in self._keep(message):
                yield step
            if not calls:
                turn.ended = RunEnded("answered", message, _CUT.get(answer.reason, ""))
                return
            pending = PendingCalls(calls, self.tools, self._limits, answer.errors(message), repeating)
            async with aclosing(self._use_tools(turn, pending)) as steps:
                async for step in steps:
                    yield step
            if turn.ended is not None:
                return
            repeating.end_round(pending.results)
        detail = f"The round limit ({number}) was reached without an answer. Ask the model to continue if you want."
        turn.ended = RunEnded("rounds", detail=detail)

    async def _answer(self, turn: _Turn, provider: Answers) -> AsyncGenerator[Step, None]:
        answer = turn.answer = MessageAccumulator()
        try:
            stream = provider.stream_chat_with_tools(self._messages(), list(self.tools.values()))
        except MoonshimError as error:
            answer.failure = f"The request could not be prepared: {error}"
            return
        try:
            while answer.reason == "" and answer.failure is None:
                event = await turn.stopping.wait_for(stream.__anext__)
                answer.feed(event)
                yield event
        except StopAsyncIteration:
            answer.failure = "The response stopped without a final event."
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()

    def _messages(self) -> list[Message]:
        system = [] if not self.system else [Message("system", (Text(self.system),))]
        return [*system, *self.history.messages]

    async def _use_tools(self, turn: _Turn, calls: PendingCalls) -> AsyncGenerator[Step, None]:
        """Run what can be run; every result is in the history before it is reported."""
        turn.calls = calls
        if calls.repeated_tool:
            detail = f"The model kept repeating the same {calls.repeated_tool} call with the same result."
            turn.ended = RunEnded("repeating", detail=detail)
        if self.allow is not None and await calls.ask_permission(self.allow, turn.stopping):
            turn.ended = RunEnded("refused", detail="A tool call was denied. Tell the model how to continue.")
        async with aclosing(calls.run(turn.stopping)) as steps:
            async for step in steps:
                saved = self._keep(Message("tool", (step.result,))) if isinstance(step, ToolEnded) else ()
                for one in (step, *saved):
                    yield one

    # -- the history -------------------------------------------------------------------------------------------------

    def _settle(self, turn: _Turn, lost: str | None = None) -> list[Step]:
        """Make the history one that can be continued, without waiting: no partial answer, no call without a result."""
        steps: list[Step] = []
        answer, turn.answer = turn.answer, None
        if answer is not None and answer.failure is None and (partial := answer.words()) is not None:
            turn.message = partial
            steps += self._keep(partial)
        for call in self.history.unanswered:
            result = failed_result(call, lost) if lost else turn.calls.result_after_stop(call)
            steps += [ToolEnded(call, result), *self._keep(Message("tool", (result,)))]
        return steps

    def _keep(self, message: Message) -> list[Step]:
        return [*self._change_history(lambda: self.history.add(message)), MessageSaved(message)]

    def _note_switch(self, provider: Answers) -> list[Step]:
        # Other providers need not have tool formats.
        format = getattr(provider, "tool_format", "") if getattr(provider, "format_is_set", False) else ""
        return self._change_history(lambda: self.history.switched(provider.model, provider.name, format))

    def _change_history(self, act: Callable[[], object]) -> list[Step]:
        """Change the history; return the events about its file."""
        steps, self._pending_steps = self._pending_steps, []
        try:
            act()
        except HistoryNotSaved as error:
            steps.append(SaveFailed(str(error)))
        return steps


_SAID_NOTHING: Final = "The model returned neither text nor tool calls. Ask again to continue."
_NOTHING: Final = {
    "length": "The model used its whole token limit for reasoning and returned no answer. Raise max_tokens.",
    "content_filter": "The host's content filter removed the answer.",
}
_CUT: Final = {
    "length": "The answer was cut off at the token limit.",
    "content_filter": "The host's content filter cut off the answer.",
}


class _Turn:
    """The state of one run."""

    def __init__(self) -> None:
        self.generator: Callable[[], Any] = lambda: self
        """Returns None once the events are no longer consumed."""
        self.over = asyncio.Event()
        self.stopping = Stopping()
        self.answer: MessageAccumulator | None = None
        """The response that is being received."""
        self.message: Message | None = None
        """The last response that is in the history."""
        self.calls = PendingCalls()
        self.usage: Usage | None = None
        self.ended: RunEnded | None = None


def _check_bound(name: str, number: int, least: int, expected: str = "") -> None:
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        expected = expected or f"an integer of at least {least}"
        raise InvalidInput(f"{name} must be {expected}, not {number!r}", field=name)


def _is_blank(message: Message) -> bool:
    return all(isinstance(part, Text) and not part.text.strip() for part in message.parts)
