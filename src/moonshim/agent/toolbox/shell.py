"""A call of bash -> the command's output and how it ended, with nothing of it left running."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import sys
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from msgspec import Struct

from moonshim.agent.toolbox.folder import WorkingFolder
from moonshim.agent.toolbox.process_environment import environment_without
from moonshim.agent.tools import ToolFailed

__all__ = ["MOST_SECONDS", "Shell"]

MOST_SECONDS: Final = 600.0
_GRACE: Final = 1.0
"""Seconds between SIGTERM and SIGKILL: git removes its lock when it is terminated."""
_LAST_WORDS: Final = 1.0
"""How long to wait for output after the command has ended and its processes were told to end."""
_MARK: Final = "MOONSHIM_COMMAND"
"""Set in the environment of everything that a command starts, to find it again."""
_QUIET: Final = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
}
"""There is no one to answer questions or to see colours."""
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


class CompletedCommand(Struct, frozen=True):
    """How a command ended. `code` is None if it was stopped."""

    output: str
    code: int | None


class Shell:
    """Runs commands in a folder, each in its own process group. None of them outlives its call."""

    def __init__(
        self,
        folder: WorkingFolder,
        *,
        seconds: float = 120.0,
        most_seconds: float = MOST_SECONDS,
        output_limit: int = 30_000,
        hidden: Iterable[str] = (),
    ) -> None:
        self._folder = folder
        self._seconds, self._most_seconds = seconds, most_seconds
        self._limit = output_limit
        self._hidden = frozenset(hidden)

    async def bash(self, command: str, timeout: float | None = None) -> str:
        """Run a command with bash in the working directory and return its output, including stderr.

        The command has no stdin and no terminal. Each call starts a new shell: `cd` and variables do not persist.
        Background processes are killed when the command ends.

        Args:
            command: The command.
            timeout: The maximum run time in seconds.
        """
        if "\0" in command:
            raise ToolFailed("Error: the command contains a NUL character.")
        # Not `timeout <= 0`: a model may write "nan", which compares false with everything.
        seconds = timeout if timeout is not None and timeout > 0 else self._seconds
        seconds = min(seconds, self._most_seconds)
        ran = await self._run(command, seconds)
        if ran.code == 0:
            return ran.output or "(no output)"
        how = (
            f"(Timed out after {seconds:g} seconds. The command and all processes it started were killed.)"
            if ran.code is None
            else f"(Failed with {_describe_exit(ran.code)}.)"
        )
        raise ToolFailed(f"{ran.output}\n\n{how}".strip())

    async def _run(self, command: str, seconds: float) -> CompletedCommand:
        loop = asyncio.get_running_loop()
        mark = uuid.uuid4().hex
        reading, writing = os.pipe()
        # Our own pipe: a process that escapes the group may hold it open forever, and then it is simply abandoned.
        transport, output = await loop.connect_read_pipe(lambda: _Output(self._limit), os.fdopen(reading, "rb", 0))
        try:
            try:
                process = await asyncio.create_subprocess_exec(
                    shutil.which("bash") or "/bin/sh",
                    *("-c", command),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=writing,
                    stderr=writing,
                    cwd=self._folder.root,
                    env=self._environment(mark),
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                raise ToolFailed(f"Error: cannot start the shell: {error}") from error
            finally:
                os.close(writing)
            try:
                code = await _wait_for_exit(process, seconds)
                await asyncio.wait({output.over}, timeout=_LAST_WORDS)
            finally:
                _signal_group(process.pid, signal.SIGKILL)
            return CompletedCommand(_clean(output.text()), code)
        finally:
            # Also when the start itself was cancelled: the shell is gone then, but its children may not be.
            _kill_marked(mark)
            transport.close()

    def _environment(self, mark: str) -> dict[str, str]:
        return {**environment_without(self._hidden), **_QUIET, _MARK: mark}


async def _wait_for_exit(process: asyncio.subprocess.Process, seconds: float) -> int | None:
    """Its exit code; None if it had to be stopped. Either way, its group does not keep running."""
    code: int | None = None
    try:
        async with asyncio.timeout(seconds):
            code = await process.wait()
    except TimeoutError:
        pass
    finally:
        # The group may outlive the shell that led it.
        _signal_group(process.pid, signal.SIGTERM)
        if code is None:
            try:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), _GRACE)
            finally:
                _signal_group(process.pid, signal.SIGKILL)
                await _reap(process)
    return code


async def _reap(process: asyncio.subprocess.Process) -> None:
    """Wait for a process that was killed, even if the task is cancelled again meanwhile, so that none is left over."""
    waiting = asyncio.ensure_future(process.wait())
    cancelled: asyncio.CancelledError | None = None
    while not waiting.done():
        try:
            await asyncio.wait({waiting})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _kill_marked(mark: str) -> None:
    """Kill processes that left the group: on Linux they are recognised by their environment, elsewhere they escape."""
    if sys.platform != "linux":
        return
    wanted = f"{_MARK}={mark}".encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    os.kill(int(folder.name), signal.SIGKILL)


class _Output(asyncio.Protocol):
    """Output of a pipe: its beginning and its end, and how much there was between."""

    def __init__(self, limit: int) -> None:
        self._head_size = (limit + 1) // 2
        self._tail_size = limit - self._head_size
        self._head, self._tail = bytearray(), bytearray()
        self._left_out = 0
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        room = self._head_size - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._tail_size + 65536:
            self._trim()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.over.done():
            self.over.set_result(None)

    def text(self) -> str:
        self._trim()
        middle = f"\n\n… {self._left_out} bytes omitted …\n\n" if self._left_out else ""
        head, tail = bytes(self._head), bytes(self._tail)
        if not self._left_out:
            return (head + tail).decode("utf-8", "replace")
        return head.decode("utf-8", "ignore") + middle + tail.decode("utf-8", "ignore")

    def _trim(self) -> None:
        over = len(self._tail) - self._tail_size
        if over > 0:
            del self._tail[:over]
            self._left_out += over


def _clean(text: str) -> str:
    """Without colours, and without what a progress bar has overwritten.

    >>> _clean("10%\\r50%\\r100%\\n\\x1b[31mred\\x1b[0m\\r\\n")
    '100%\\nred'
    """
    lines = _ESCAPES.sub("", text).replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines).strip("\n")


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
