"""The inspectors of all workers -> one: each answers the others on a socket in the folder that the supervisor made.

A question is one line of JSON, an answer as well; `watch` is answered with a line per batch until the asker hangs up.
The folder belongs to the user, mode 0700, and so does everything that is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from moonshim.engine.wire.json_codec import encode
from moonshim.gateway.observe import logs

__all__ = ["WorkerPeers"]

Question = dict[str, Any]
_LINE: Final = 256 * 1024 * 1024
_SECONDS: Final = 5.0
_SUFFIX: Final = ".inspector"


class WorkerPeers:
    """The other workers. With one worker there is no folder, and nobody to ask."""

    def __init__(self, folder: str | None, answer: Callable[[Question], Awaitable[Any]]) -> None:
        self._folder = Path(folder) if folder else None
        self._answer = answer
        self._server: asyncio.Server | None = None
        self._own = f"{os.getpid()}{_SUFFIX}"

    async def start(self) -> None:
        if self._folder is not None:
            path = self._folder / self._own
            try:
                self._server = await asyncio.start_unix_server(self._serve, path=path, limit=_LINE)
            except OSError as error:  # the folder's name is too long for a socket, or it is full
                logs.event(
                    "inspector_failed",
                    level="warning",
                    path=str(path),
                    problem=f"This worker is not shown by the others: {error}",
                )

    async def close(self) -> None:
        if self._server is not None and self._folder is not None:
            self._server.close()
            (self._folder / self._own).unlink(missing_ok=True)

    async def ask(self, question: Question) -> list[Any]:
        """The answers of all other workers that give one in time."""
        found = await asyncio.gather(*(self._ask(path, question) for path in self._others()))
        return [answer for answer in found if answer is not None]

    def _others(self) -> list[Path]:
        if self._folder is None:
            return []
        return [path for path in sorted(self._folder.glob(f"*{_SUFFIX}")) if path.name != self._own]

    async def _ask(self, path: Path, question: Question) -> Any:
        try:
            async with asyncio.timeout(_SECONDS):
                reader, writer = await asyncio.open_unix_connection(path, limit=_LINE)
                try:
                    writer.write(msgspec.json.encode(question) + b"\n")
                    line = await reader.readline()
                    return _decode(line) if line else None
                finally:
                    writer.close()
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)  # its worker was killed
        except (OSError, TimeoutError, ValueError):
            pass
        return None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            question = msgspec.json.decode(await reader.readline(), type=dict)
            answer = await self._answer(question)
            if isinstance(answer, AsyncGenerator):
                hangup = asyncio.ensure_future(reader.read())
                try:
                    async for part in answer:
                        if hangup.done():
                            break
                        writer.write(encode(part) + b"\n")
                        await writer.drain()
                finally:
                    hangup.cancel()
                    await answer.aclose()
            else:
                writer.write(encode(answer) + b"\n")
                await writer.drain()
        except (OSError, ValueError, msgspec.DecodeError):
            pass
        finally:
            writer.close()

    async def watch(self, question: Question, took: Callable[[Any], None]) -> None:
        """Pass every line of every other worker to `took`, until cancelled. Workers that start later are found."""
        watched: dict[Path, asyncio.Task[None]] = {}
        try:
            while True:
                for path in self._others():
                    if path not in watched or watched[path].done():
                        watched[path] = asyncio.create_task(self._watch(path, question, took))
                await asyncio.sleep(2.0)
        finally:
            for task in watched.values():
                task.cancel()

    async def _watch(self, path: Path, question: Question, took: Callable[[Any], None]) -> None:
        with contextlib.suppress(OSError, ValueError):
            reader, writer = await asyncio.open_unix_connection(path, limit=_LINE)
            try:
                writer.write(msgspec.json.encode(question) + b"\n")
                while line := await reader.readline():
                    took(_decode(line))
            finally:
                writer.close()


def _decode(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except (ValueError, msgspec.DecodeError):  # a lone surrogate, which only the standard library reads
        return json.loads(line)
