"""A tool call -> its result, whatever the tool does: fail, hang, try to exit, or return anything at all."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import threading
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from moonshim.agent.shorten import cut_middle, describe_error
from moonshim.agent.tools import AgentTool, ArgumentsInvalid, ToolFailed
from moonshim.engine.values.conversation import Media, Text, ToolCall, ToolResult

__all__ = [
    "ALLOWED",
    "Allow",
    "Allowed",
    "Ready",
    "end_tasks",
    "failed_result",
    "prepare_call",
    "run_loop",
    "run_ready",
]

T = TypeVar("T")

GRACE_SECONDS: Final = 3.0
"""How long a stopped tool may take to clean up; after that it is abandoned."""


class Allowed(Struct, frozen=True):
    """The decision about a tool call, returned by the agent's `allow` function."""

    run: bool
    """Whether to run the call."""
    reason: str = ""
    """If the call is denied: the reason, which is sent to the model."""
    stop: bool = False
    """If the call is denied: end the whole run. The other calls of this response are not run, and `allow` is not
    called for them."""
    by_user: bool = True
    """If the call is denied: whether a user did it. Otherwise, the model gets only the reason."""


ALLOWED: Final = Allowed(True)
Allow: TypeAlias = Callable[[AgentTool, ToolCall], Awaitable[Allowed]]


class Ready(Struct, frozen=True):
    """A call whose tool is known and whose arguments are valid."""

    call: ToolCall
    tool: AgentTool
    by_place: list[Any]
    named: dict[str, Any]


def failed_result(call: ToolCall, text: str) -> ToolResult:
    """A result with an error message: the model reads it and can do something else."""
    return ToolResult(call.id, call.name, (Text(text),), is_error=True)


def prepare_call(call: ToolCall, tools: Mapping[str, AgentTool], *, error: str = "") -> Ready | ToolResult:
    """The call, ready to be run; or a result that says what is wrong with it: the `error`, if there is one."""
    if error:
        # A partial command must never be run, even if it happens to be valid JSON.
        return failed_result(call, error)
    tool = tools.get(call.name)
    if tool is None:
        known = ", ".join(sorted(tools)) or "none"
        return failed_result(call, f"Error: unknown tool {call.name!r}. Available tools: {known}.")
    try:
        by_place, named = tool.read(call.arguments)
    except ArgumentsInvalid as error:
        return failed_result(call, f"Error: invalid arguments for {call.name}. Nothing was run. {error}")
    return Ready(call, tool, by_place, named)


async def run_ready(ready: Ready, *, timeout: float, limit: int) -> ToolResult:
    """The tool's result, within `timeout` seconds (0 or less: no limit), cut to `limit` characters.

    Cancelling this cancels the tool and waits for it, but not forever.
    """
    call = ready.call
    task = asyncio.create_task(_call(ready), name=f"tool {call.name}")
    _TASKS.add(task)
    task.add_done_callback(_retrieve_exception)
    try:
        await asyncio.wait({task}, timeout=timeout if timeout > 0 else None)
    finally:
        if not task.done():
            await end_tasks({task})
            late = True
        else:
            late = False
    if late:
        return failed_result(
            call, f"Error: {call.name} timed out after {timeout:g} seconds and was stopped. There is no result."
        )
    if task.cancelled():
        return failed_result(call, f"Error: {call.name} raised CancelledError. There is no result.")
    error = task.exception()
    if error is None:
        try:
            return ToolResult(call.id, call.name, _parts(task.result(), limit))
        except Exception as unreadable:  # converting the result runs its own code
            why = describe_error(unreadable)
            text = f"Error: {call.name} finished, but its result cannot be converted to text: {why}"
            return failed_result(call, cut_middle(_sendable(text), limit))
    text = str(error) if isinstance(error, ToolFailed) else f"Error: {describe_error(error)}"
    return failed_result(call, cut_middle(_sendable(text), limit))


_TASKS: Final[set[asyncio.Task[Any]]] = set()
"""Running tools. An event loop holds its tasks weakly: an abandoned one could be collected before it ends."""


async def end_tasks(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel them, and give them a moment to clean up."""
    open_tasks = {task for task in tasks if not task.done()}
    for task in open_tasks:
        task.cancel()
    if open_tasks:
        await asyncio.wait(open_tasks, timeout=GRACE_SECONDS)


def run_loop(main: Coroutine[Any, Any, T]) -> T:
    """Like `asyncio.run`, but tools that swallow every cancellation are abandoned, with a warning, after a while."""
    runner = asyncio.Runner()
    try:
        return runner.run(main)
    finally:
        loop = runner.get_loop()
        left = asyncio.all_tasks(loop)
        loop.run_until_complete(end_tasks(left))
        stubborn = [task for task in left if not task.done()]
        if not stubborn:
            runner.close()
        else:
            # `Runner.close` would wait for them forever.
            names = ", ".join(sorted(task.get_name() for task in stubborn))
            warnings.warn(f"abandoned because it did not stop when cancelled: {names}", RuntimeWarning, stacklevel=3)
            for task in stubborn:
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # as `gather` does; it was reported
            loop.run_until_complete(loop.shutdown_asyncgens())
            asyncio.set_event_loop(None)
            loop.close()


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    """Ignore the exception of an abandoned tool that fails later."""
    _TASKS.discard(task)
    if not task.cancelled():
        task.exception()


async def _call(ready: Ready) -> Any:
    function = ready.tool.function
    try:
        if _is_async(function):
            return await function(*ready.by_place, **ready.named)
        result = await _in_thread(functools.partial(function, *ready.by_place, **ready.named), ready.tool.name)
        return await result if inspect.isawaitable(result) else result
    except (SystemExit, KeyboardInterrupt) as error:
        # asyncio would end the whole program for it.
        raise ToolFailed(f"Error: {ready.tool.name} tried to exit the program ({describe_error(error)})") from error


def _is_async(function: Any) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


async def _in_thread(function: Callable[[], Any], name: str) -> Any:
    """Like `asyncio.to_thread`, but a function that never returns does not keep the program from exiting."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: Any, error: BaseException | None) -> None:
        if not future.done():
            future.set_result((result, error))

    def work() -> None:
        result, failure = None, None
        try:
            result = context.run(function)
        except BaseException as error:
            failure = error
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:  # the loop is closed: nothing waits for it any longer
            return

    threading.Thread(target=work, name=f"tool {name}", daemon=True).start()
    result, failure = await future
    if failure is not None:
        raise failure
    return result


def _parts(value: Any, limit: int) -> tuple[Text | Media, ...]:
    """A tool's return value, in a form that a model can read.

    >>> _parts({"a": [1, None]}, 100)
    (Text(text='{"a":[1,null]}'),)
    """
    match value:
        case str():
            return (Text(cut_middle(_sendable(value), limit)),)
        case Text():
            return (Text(cut_middle(_sendable(value.text), limit)),)
        case Media():
            return (value,)
        case list() | tuple() if value and all(isinstance(one, (Text, Media)) for one in value):
            return tuple(part for one in value for part in _parts(one, limit))
        case None:
            return (Text("(no output)"),)
        case bytes() | bytearray():
            return (Text(cut_middle(bytes(value).decode("utf-8", "replace"), limit)),)
    try:
        text = msgspec.json.encode(value, enc_hook=_plain).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        text = str(value)
    return (Text(cut_middle(_sendable(text), limit)),)


def _sendable(text: str) -> str:
    """Replace lone surrogates, as in file names that are not UTF-8: they cannot be encoded in a request."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def _plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)  # pydantic
    return dump(mode="json") if callable(dump) else str(value)
