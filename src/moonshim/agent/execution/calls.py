"""The calls of one response -> their results: run in parallel where possible, and reported in the order of the
calls.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from moonshim.agent.events import ToolEnded, ToolStarted
from moonshim.agent.execution.cancellation import Stopping
from moonshim.agent.execution.repetition import Repeating
from moonshim.agent.execution.runner import Allow, Ready, end_tasks, failed_result, prepare_call, run_ready
from moonshim.agent.tools import AgentTool
from moonshim.engine.values.conversation import ToolCall, ToolResult

__all__ = ["PendingCalls", "ToolLimits"]

_STOPPED: Final = "Error: the user stopped this tool before it finished. Any changes it had already made remain."
_NOT_RUN: Final = "Error: not run. The user stopped the run before this call started."
_NOT_RUN_REFUSED: Final = "Error: not run. The user denied another call in the same response."
_REFUSED: Final = "Error: the user denied this call. Nothing was run."
_NOT_PERMITTED: Final = "Error: not run."
_NOT_RUN_REPEATING: Final = "Error: not run. The run ended because the same call was repeated too often."
_REPEATED: Final = (
    "Error: not run. You have made this exact call {} times in a row, and the result was the same each time. "
    "Try something else, or answer. If you repeat the call, the run ends."
)


class ToolLimits(Struct, frozen=True):
    """How many tools run at once, how long each may take, and how much of its result is reported."""

    parallel: int = 8
    seconds: float = 120.0
    characters: int = 100_000


class PendingCalls:
    """The calls of one response. Each gets exactly one result, whatever happens."""

    def __init__(
        self,
        calls: Sequence[ToolCall] = (),
        tools: Mapping[str, AgentTool] | None = None,
        limits: ToolLimits = ToolLimits(),  # noqa: B008 - a frozen value
        errors: Mapping[str, str] = {},
        repeating: Repeating | None = None,
    ) -> None:
        """`errors`: what is wrong with a call, by its id; `repeating` counts repeated calls."""
        self._calls = calls
        self._limits = limits
        self._results: dict[str, ToolResult] = {}
        self._ready: deque[Ready] = deque()
        self._running: dict[asyncio.Task[ToolResult], ToolCall] = {}
        self._started: set[str] = set()
        self.repeated_tool = "" if repeating is None else repeating.begin_round(calls)
        """Name of a call that was repeated despite a warning to the model; then none is run."""
        for call in calls:
            if self.repeated_tool:
                found: Ready | ToolResult = failed_result(call, _NOT_RUN_REPEATING)
            elif repeating is not None and repeating.is_too_often(call):
                found = failed_result(call, _REPEATED.format(repeating.bound))
            else:
                found = prepare_call(call, tools or {}, error=errors.get(call.id, ""))
            if isinstance(found, ToolResult):
                self._results[call.id] = found
            else:
                self._ready.append(found)

    @property
    def results(self) -> list[tuple[ToolCall, ToolResult]]:
        """Each call with its result, once all have one."""
        return [(call, self._results[call.id]) for call in self._calls]

    async def ask_permission(self, allow: Allow, stopping: Stopping) -> bool:
        """Ask for permission where calls need it, one after the other; return whether the run is to end."""
        waiting, self._ready = self._ready, deque()
        while waiting:
            ready = waiting.popleft()
            if ready.tool.asks:
                answer = await stopping.wait_for(lambda: allow(ready.tool, ready.call))  # noqa: B023 - awaited at once
                if not answer.run:
                    refused = _REFUSED if answer.by_user else _NOT_PERMITTED
                    self._results[ready.call.id] = failed_result(ready.call, f"{refused} {answer.reason}".strip())
                    if answer.stop:
                        for other in (*self._ready, *waiting):
                            self._results[other.call.id] = failed_result(other.call, _NOT_RUN_REFUSED)
                        self._ready.clear()
                        return True
                    continue
            self._ready.append(ready)
        return False

    async def run(self, stopping: Stopping) -> AsyncGenerator[ToolStarted | ToolEnded, None]:
        """Run what is ready. A result is reported as soon as all before it are."""
        seconds: dict[str, float] = {}
        clock = asyncio.get_running_loop().time
        untold = deque(self._calls)
        while untold:
            while self._ready and len(self._running) < self._limits.parallel:
                ready = self._ready.popleft()
                yield ToolStarted(ready.call)
                seconds[ready.call.id] = clock()
                self._begin(ready)
            while untold and untold[0].id in self._results:
                call = untold.popleft()
                yield ToolEnded(call, self._results[call.id], round(seconds.get(call.id, 0.0), 3))
            if untold:
                done, _ = await stopping.wait_for(
                    lambda: asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
                )
                for task in done:
                    call = self._running.pop(task)
                    self._results[call.id] = task.result()
                    seconds[call.id] = clock() - seconds[call.id]

    def _begin(self, ready: Ready) -> None:
        timeout = self._limits.seconds if ready.tool.timeout is None else ready.tool.timeout
        task = asyncio.create_task(run_ready(ready, timeout=timeout, limit=self._limits.characters))
        self._running[task] = ready.call
        self._started.add(ready.call.id)

    def result_after_stop(self, call: ToolCall) -> ToolResult:
        """The result of a call after the run was stopped: its own, if it has one."""
        for task, running in self._running.items():
            if running.id == call.id and task.done() and not task.cancelled() and task.exception() is None:
                return task.result()
        return self._results.get(call.id) or failed_result(call, _STOPPED if call.id in self._started else _NOT_RUN)

    async def end(self) -> None:
        """Stop what is still running."""
        await end_tasks(set(self._running))
