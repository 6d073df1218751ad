"""A service and bound sockets -> one process that serves, reloads on SIGHUP, and lets responses finish on SIGTERM.

A SIGHUP because the terminal was closed ends it as SIGTERM does.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, Protocol, TypeAlias

import uvicorn

from moonshim.config import Limits
from moonshim.http_server import logs
from moonshim.http_server.descriptors import raise_limit
from moonshim.http_server.hang import beat
from moonshim.http_server.hangup import StartingTerminal
from moonshim.http_server.protocol import protocol_with
from moonshim.http_server.sockets import bind, reachable_host, url_of

__all__ = ["AppServer", "EmbeddedServer", "Service", "reachable", "run", "serve", "serve_inside", "until_it_answers"]

BACKLOG: Final = 2048
KEEP_ALIVE_SECONDS: Final = 75
"""Longer than clients' pools retain a connection: the client should be the side that closes first."""
LAST_SECONDS: Final = 2
"""When everything has finished, or must: how long connections may take to close."""
READY_SECONDS: Final = 30.0
"""A server that does not answer for this long is reported."""
SWITCH_SECONDS: Final = 0.0001
"""How long a thread that works on a large body may keep the event loop waiting for Python's global lock."""
MANY_CONNECTIONS: Final = 64
"""From this number on, it is worth a few milliseconds to return their memory to the system."""
YOUNG_OBJECTS: Final = 10_000
"""Number of allocations between two garbage collections."""
_USUAL: Final = Limits()


class Service(Protocol):
    """What is served."""

    @property
    def app(self) -> Any:
        """An ASGI application, without a lifespan: `close` is called at the end."""

    @property
    def limits(self) -> Limits: ...

    def drain(self) -> None:
        """Refuse new work from now on, and say so at `/ready`."""

    async def reload(self) -> None: ...

    async def close(self) -> None: ...


Opening: TypeAlias = Callable[[], Awaitable[Service]]


class AppServer(uvicorn.Server):
    """Ends only through `stop`, never by its own signal handler; the port answers until the last request is done.

    While it drains, new connections are still accepted, so that a load balancer's health check gets an answer; refusing
    requests is up to the application.
    """

    def __init__(self, config: uvicorn.Config, graceful_seconds: float = 0.0) -> None:
        super().__init__(config)
        self._graceful_seconds = graceful_seconds
        self._deadline: float | None = None
        self._most = 0
        """Peak number of connections since memory was last returned."""
        self._ending = 0
        """Number of requests when memory was last returned, while they still end."""

    @property
    def draining(self) -> bool:
        return self._deadline is not None

    def stop(self) -> None:
        """Once: when running requests are done, or at the deadline. Twice: at once."""
        now = asyncio.get_running_loop().time()
        if self._deadline is None:
            self._deadline = now + self._graceful_seconds
            logs.event("draining", requests=len(self.server_state.tasks), seconds=self._graceful_seconds)
        else:
            self._deadline = now
            self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        if self._deadline is not None:
            overdue = asyncio.get_running_loop().time() >= self._deadline
            self.should_exit = self.should_exit or overdue or not self.server_state.tasks
        self._most = max(self._most, len(self.server_state.connections))
        if counter % 10 == 0:  # once a second
            self._return_memory(len(self.server_state.connections), len(self.server_state.tasks))
        return await super().on_tick(counter)

    def _return_memory(self, connections: int, requests: int) -> None:
        """When most of many connections are gone: glibc would never return their memory.

        Their requests end later than the connections, so this goes on while requests end.
        """
        if self._most >= MANY_CONNECTIONS and connections <= self._most // 4:
            self._most = connections
            self._ending = requests + 1
        if requests < self._ending:
            self._ending = requests
            gc.collect()
            _trim()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self.server_state.tasks:
            logs.event("requests_aborted", level="warning", requests=len(self.server_state.tasks))
            # uvicorn would show a traceback for each of them.
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
            for task in list(self.server_state.tasks):
                task.cancel()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def run(
    opening: Opening,
    sockets: list[socket.socket],
    *,
    graceful_seconds: float = 0.0,
    ready: Callable[[], None] | None = None,
    lifeline: socket.socket | None = None,
) -> int:
    """Serve what `opening` opens until a signal; return the exit code. `ready` is called when the port answers.

    The other end of a `lifeline` belongs to the process that started this one: when that is gone, this one ends too.
    A process that hangs is ended, see `hang`.
    """

    def finish_startup() -> None:
        _freeze_long_lived_objects()
        if ready is not None:
            ready()

    sys.setswitchinterval(SWITCH_SECONDS)
    raise_limit()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        serving = serve(
            opening,
            sockets,
            graceful_seconds=graceful_seconds,
            ready=finish_startup,
            lifeline=lifeline,
            owns_process=True,
        )
        return runner.run(serving)


async def serve(
    opening: Opening,
    sockets: list[socket.socket],
    *,
    graceful_seconds: float = 0.0,
    ready: Callable[[], None] | None = None,
    lifeline: socket.socket | None = None,
    owns_process: bool = False,
) -> int:
    """The same, in a running loop. `owns_process`: if the loop hangs, the process may be ended."""
    service = await opening()
    # If another process started this one, that process decides what a hangup means, and forwards reload requests.
    terminal = StartingTerminal() if lifeline is None else None
    server = AppServer(_configuration(service.app, service.limits), graceful_seconds)
    waiting: set[asyncio.Task[None]] = set()

    def stop() -> None:
        service.drain()
        server.stop()

    def start(work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        waiting.add(task)
        task.add_done_callback(waiting.discard)

    def hang_up() -> None:
        if terminal is not None and terminal.is_gone():
            stop()
        else:
            start(service.reload())

    try:
        handlers = {"SIGTERM": stop, "SIGINT": stop, "SIGHUP": hang_up}
        with _signals(handlers), _until_closed(lifeline, stop):
            start(_announce(server, sockets, ready))
            if owns_process:
                start(beat(service.limits.hang_seconds))
            await server.serve(sockets)
    finally:
        for task in waiting:
            task.cancel()
        await service.close()
        if terminal is not None:
            terminal.close()
    return 0


class EmbeddedServer:
    """An application that is served in this loop, beside everything else that runs here, at `url` until it is
    closed."""

    def __init__(self, url: str, server: AppServer, running: asyncio.Task[None]) -> None:
        self.url = url
        self._server, self._running = server, running

    async def close(self) -> None:
        """Running responses are cut off."""
        self._server.should_exit = True
        await self._running


async def serve_inside(app: Any, *, host: str = "127.0.0.1", port: int = 0, limits: Limits = _USUAL) -> EmbeddedServer:
    """Serve an ASGI application without a lifespan; it answers when this returns."""
    sockets = bind(host, port)
    server = AppServer(_configuration(app, limits))
    running = asyncio.create_task(server.serve(sockets))
    while not server.started and not running.done():
        await asyncio.sleep(0.001)
    if running.done():
        running.result()
    return EmbeddedServer(url_of(host, sockets[0].getsockname()[1]), server, running)


def _freeze_long_lived_objects() -> None:
    """Exclude modules, tables and configuration from garbage collection: they are never freed.

    A request hardly ever leaves a reference cycle, though it creates a thousand objects, so collections can be rarer.
    """
    gc.collect()
    _trim()  # what imports needed
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 10, 10)


async def answers(host: str, port: int) -> bool:
    """Whether a health check at this address succeeds."""
    try:
        async with asyncio.timeout(5):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(f"GET /health HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
                line = await reader.readline()
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except (OSError, TimeoutError):
        return False
    return line.split()[1:2] == [b"200"]


async def _announce(server: AppServer, sockets: list[socket.socket], ready: Callable[[], None] | None) -> None:
    while not server.started:
        await asyncio.sleep(0.005)
    if ready is None:
        return
    await until_it_answers(*reachable(sockets[0]))
    ready()


async def until_it_answers(host: str, port: int) -> None:
    """Return when the server answers; report one that does not."""
    pause, waited = 0.02, 0.0
    while not await answers(host, port):
        await asyncio.sleep(pause)
        waited += pause
        if waited >= READY_SECONDS:
            logs.event("not_responding", level="error", host=host, port=port, path="/health")
            waited = 0.0
        pause = min(2 * pause, 1.0)


def reachable(bound: socket.socket) -> tuple[str, int]:
    """The address at which this machine reaches a socket; loopback for one that is bound to every address."""
    host, port = bound.getsockname()[:2]
    return reachable_host(host), port


def _configuration(app: Any, limits: Limits) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=protocol_with(limits),
        interface="asgi3",
        loop="none",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=LAST_SECONDS,
    )


def _trim() -> None:
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another libc, or another system
        ctypes.CDLL(None).malloc_trim(0)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


@contextlib.contextmanager
def _signals(handlers: dict[str, Callable[[], None]]) -> Iterator[None]:
    """Signals that this platform has and this thread may handle."""
    loop, installed = asyncio.get_running_loop(), list[int]()
    for name, handler in handlers.items():
        with contextlib.suppress(AttributeError, NotImplementedError, ValueError, RuntimeError):
            number = getattr(signal, name)
            loop.add_signal_handler(number, handler)
            installed.append(number)
    try:
        yield
    finally:
        for number in installed:
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def _until_closed(lifeline: socket.socket | None, ended: Callable[[], None]) -> Iterator[None]:
    if lifeline is None:
        yield
        return
    loop = asyncio.get_running_loop()

    def read() -> None:
        if not lifeline.recv(64):
            loop.remove_reader(lifeline)
            ended()

    lifeline.setblocking(False)
    loop.add_reader(lifeline, read)
    try:
        yield
    finally:
        loop.remove_reader(lifeline)
