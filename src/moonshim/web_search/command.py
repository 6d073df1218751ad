"""A program on this machine: the query on standard input, pages as JSON on standard output.

It runs without a shell, in a process group of its own, and with an environment that has no secrets of the gateway.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterable, Sequence
from typing import Any, Final

from moonshim.engine.values.searches import SearchResult
from moonshim.web_search.provider import read_results

__all__ = ["CommandFailed", "read_output", "run_command"]

_PASSED: Final = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "TEMP", "SYSTEMROOT")
"""Variables that a program may need, and that contain no secrets."""
_PIECE: Final = 64 * 1024


class CommandFailed(Exception):
    """The program could not be run, ended with an error, or wrote too much."""


async def run_command(command: Sequence[str], query: str, *, max_bytes: int) -> bytes:
    """What the program writes. It is killed, with everything that it has started, if this is cancelled."""
    environment = {name: value for name in _PASSED if (value := os.environ.get(name)) is not None}
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise CommandFailed(f"cannot run {command[0]}: {error.strerror or 'unknown error'}") from error
    try:
        return await _exchange(process, query, max_bytes)
    finally:
        # The program may have ended, and left others that still run.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.shield(process.wait())
        # asyncio closes the pipes only when everything was read, which a program that left its group can prevent.
        process._transport.close()  # type: ignore[attr-defined]


async def _exchange(process: asyncio.subprocess.Process, query: str, max_bytes: int) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    # A program need not read its input. If it has ended already, uvloop raises a RuntimeError.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError, RuntimeError):
        process.stdin.write(query.encode("utf-8", "replace"))
        await process.stdin.drain()
    process.stdin.close()
    output = bytearray()
    while piece := await process.stdout.read(_PIECE):
        output += piece
        if len(output) > max_bytes:
            raise CommandFailed(f"it wrote more than {max_bytes:,} bytes")
    status = await process.wait()
    if status != 0:
        raise CommandFailed(f"it ended with exit status {status}")
    return bytes(output)


def read_output(body: Any) -> Iterable[SearchResult]:
    """The pages in a list, or in a list `results`: each with `url`, and if known `title`, `text` and `published`."""
    entries = body.get("results") if isinstance(body, dict) else body
    return read_results(entries, text=lambda entry: entry.get("text"), published="published")
