"""A gateway in front of a scripted host, and the proof that a fault leaves nothing behind: no task, socket or
request.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from moonshim.config import Config, ProviderConfig, Retries, Timeouts
from moonshim.gateway.observe.record import RequestRecord
from tests.support.gateway.hosts import Host, Script
from tests.support.gateway.raw_client import (
    Connection,
    Json,
    Reply,
    answer_of,
    ask,
    body_of,
    connected,
    content_of,
    sending,
)
from tests.support.gateway.running import Running, config_for, running
from tests.support.logged import logged_events

__all__ = ["ONCE", "PATIENT", "Scene", "resident", "scene"]

ONCE: Final = Retries(attempts=1, breaker_failures=1_000_000)
"""Every request calls the host once."""
PATIENT: Final = Timeouts(connect=120.0, first_byte=120.0, between_bytes=120.0)
SETTLING: Final = 60.0
"""Seconds: what has not ended by then never will."""
_OPEN: Final = re.compile(rb"^moonshim_requests_open ([0-9.]+)$", re.MULTILINE)


class Scene:
    """A running gateway, with a host whose script can be changed, and the records of its requests."""

    def __init__(self, gateway: Running, host: Host, told: list[Any]) -> None:
        self.gateway, self.host = gateway, host
        self._told = told
        self.port = gateway.port
        self.upstream = gateway.state.snapshot.config.providers[0].dialect
        self.records: list[RequestRecord] = []
        self._observe = gateway.state.metrics.observe
        gateway.state.metrics.observe = self._note  # type: ignore[method-assign]
        self._store_port = urlsplit(gateway.state.snapshot.config.store).port
        self._tasks = asyncio.all_tasks()
        self._sockets = self._count_sockets()

    def _note(self, record: RequestRecord) -> None:
        self.records.append(record)
        self._observe(record)

    def play(self, script: Script) -> None:
        """Set the host's script."""
        self.host._script = script

    async def ask(self, client: str, body: Json, *, headers: str = "") -> Reply:
        return await ask(self.port, client, body, headers=headers)

    @asynccontextmanager
    async def connected(self, *, room: int = 0) -> AsyncIterator[Connection]:
        async with connected(self.port, room=room) as connection:
            yield connection

    async def until(self, holds: Any, what: str) -> None:
        """Wait for a condition, with a deadline."""
        try:
            async with asyncio.timeout(SETTLING):
                while not holds():
                    await asyncio.sleep(0.002)
        except TimeoutError:
            raise AssertionError(f"{what}: {self._leftovers()}") from None

    async def settles(self) -> None:
        """Assert that nothing is left: no connection to the host, no task, no socket, no open request."""
        await self.until(lambda: self._leftovers() == (0, set(), 0, 0.0), "something is left behind")
        faults = [one for one in self._told if isinstance(one, logging.LogRecord) or one["event"] == "internal_error"]
        assert not faults, f"a fault of ours: {faults}"

    async def works(self, client: str = "openai_chat") -> None:
        """Assert that the next request is answered normally, and that nothing is left of it either."""
        self.play(sending(answer_of(self.upstream)))
        reply = await self.ask(client, body_of(client))
        assert reply.status == 200, reply.body
        said = content_of(client, reply)
        assert (said.text, len(said.calls), said.error) == ("Hi.", 2, None)
        await self.settles()

    def _leftovers(self) -> tuple[int, set[str], int, float]:
        tasks = {repr(task) for task in asyncio.all_tasks() - self._tasks if task is not asyncio.current_task()}
        return self.host.open, tasks, max(0, self._count_sockets() - self._sockets), self.open_requests()

    def _count_sockets(self) -> int:
        """All sockets of this process except those to the store, which pools some."""
        return len(sockets() - (connected_to(self._store_port) if self._store_port else set()))

    def open_requests(self) -> float:
        found = _OPEN.search(self.gateway.state.metrics.render())
        assert found is not None
        return float(found[1])


@asynccontextmanager
async def scene(
    script: Script, *, dialect: str = "openai_chat", providers: tuple[ProviderConfig, ...] = (), **given: Any
) -> AsyncIterator[Scene]:
    """A gateway with this host, which is called once per request unless something else is `given`."""
    with logged_events() as told, _errors_in(told):
        async with Host(script) as host:
            config: Config = config_for(host.url, dialect=dialect, **{"retries": ONCE, "timeouts": PATIENT, **given})
            async with running(config, providers=providers) as gateway:
                yield Scene(gateway, host, told)


class _Errors(logging.Handler):
    """What uvicorn and asyncio log when an application, or a task, has failed."""

    def __init__(self, told: list[Any]) -> None:
        super().__init__(logging.ERROR)
        self._told = told

    def emit(self, record: logging.LogRecord) -> None:
        self._told.append(record)


@contextmanager
def _errors_in(told: list[Any]) -> Iterator[None]:
    handler = _Errors(told)
    loggers = [logging.getLogger(name) for name in ("uvicorn.error", "asyncio")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


def sockets() -> set[str]:
    """The open sockets of this process, by inode."""
    found = set()
    for one in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.add(str(one.readlink()))
    return {name[len("socket:[") : -1] for name in found if name.startswith("socket:")}


def connected_to(port: int) -> set[str]:
    """The inodes of all sockets whose other end is at this port."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {line[9] for line in lines if int(line[2].rpartition(":")[2], 16) == port}


def resident() -> int:
    """Resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
