"""Settings -> several processes that serve one port, restarted when they die, sent signals, and stopped together."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from moonshim.errors import MoonshimError
from moonshim.gateway.observe import logs
from moonshim.gateway.process.settings import RestartReason, ServeSettings
from moonshim.http_server.hang import HUNG_EXIT_CODE, beat
from moonshim.http_server.hangup import StartingTerminal
from moonshim.http_server.server import reachable, until_it_answers
from moonshim.http_server.sockets import bind, free_port

__all__ = ["ENVIRONMENT", "READY", "WorkerOrders", "WorkersFailed", "supervise"]

ENVIRONMENT: Final = "MOONSHIM_WORKER"
"""Environment variable with a worker's orders."""
METRICS_DIR: Final = "PROMETHEUS_MULTIPROC_DIR"
READY: Final = b"ready"
FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 10.0
HANG_SECONDS: Final = 10.0
"""CPU time of the supervisor itself, which needs none."""
STEADY_SECONDS: Final = 30.0
"""A worker that ran for this long was healthy: if it ends now, the restart delay starts from the beginning."""
_START: Final = (
    "-P",  # without the current folder in the module path: files there may not be trustworthy
    "-c",
    "import sys; sys.path.append(sys.argv[1]); from moonshim.gateway.process.worker import main; sys.exit(main())",
    str(Path(__file__).parents[2]),
)
"""The code that Python runs in a worker. Its argument is this package's location, which need not be installed."""
KILL_SECONDS: Final = 5.0
"""Seconds after a request to stop at once, or after the deadline of its responses: then a worker is killed."""


class WorkersFailed(MoonshimError):
    """A worker could not start; its own log line says why."""

    code = "workers_failed"


class WorkerOrders(msgspec.Struct, frozen=True):
    """A worker's instructions."""

    settings: ServeSettings
    number: int
    """Counted from 1."""
    lifeline: int
    """Descriptor of a socket to the supervisor: the worker reports on it that it is serving, and stops when it closes.
    """


def supervise(settings: ServeSettings, ready: Callable[[int], None]) -> int:
    """Run the workers until a signal; return the exit code. `ready` is called with the port when all of them serve."""
    port = free_port(settings.host, settings.port)
    # Bound but never listening: it gets no connections, and keeps the port reserved while workers are restarted.
    reserved = bind(settings.host, port, shared=True)
    folder = tempfile.mkdtemp(prefix="moonshim-metrics-")
    try:
        supervisor = _Supervisor(msgspec.structs.replace(settings, port=port), reserved, Path(folder), ready)
        return asyncio.run(supervisor.run())
    finally:
        for one in reserved:
            one.close()
        shutil.rmtree(folder, ignore_errors=True)


class _Supervisor:
    """Restarts every worker that ends unexpectedly; finishes when all have ended."""

    def __init__(
        self, settings: ServeSettings, reserved: list[socket.socket], metrics: Path, ready: Callable[[int], None]
    ) -> None:
        self._settings, self._reserved, self._metrics, self._ready = settings, reserved, metrics, ready
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._serving: dict[int, asyncio.Event] = {}
        self._stopping = asyncio.Event()
        self._stops = 0
        self._failed = False

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        terminal = StartingTerminal()
        loop.add_signal_handler(
            signal.SIGHUP, lambda: self._stop() if terminal.is_gone() else self._signal_workers(signal.SIGHUP)
        )
        numbers = range(1, self._settings.workers + 1)
        self._serving = {number: asyncio.Event() for number in numbers}
        tasks = [asyncio.create_task(self._announce()), asyncio.create_task(beat(HANG_SECONDS))]
        try:
            codes = await asyncio.gather(*(self._keep(number) for number in numbers))
        finally:
            for task in tasks:
                task.cancel()
            terminal.close()
        if self._failed:
            raise WorkersFailed("the workers could not start; see the log lines above")
        return max(codes)

    # -- signals ---------------------------------------------------------------------

    def _stop(self) -> None:
        self._stops += 1
        self._stopping.set()
        self._signal_workers(signal.SIGTERM)
        grace = self._settings.graceful_seconds if self._stops == 1 else 0.0
        asyncio.get_running_loop().call_later(grace + KILL_SECONDS, self._signal_workers, signal.SIGKILL)

    def _signal_workers(self, number: signal.Signals) -> None:
        for process in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)

    # -- one worker ------------------------------------------------------------------

    async def _keep(self, number: int) -> int:
        """Keep one worker alive until shutdown; return the exit code of the last one."""
        pause, code = FIRST_PAUSE, 0
        replaces: RestartReason | None = None
        while not self._stopping.is_set():
            began = asyncio.get_running_loop().time()
            code = await self._run_once(number, replaces)
            if self._stopping.is_set():
                break
            if not self._serving[number].is_set():
                # It never served: a second attempt would fail in the same way.
                self._failed = True
                self._stop()
                break
            lived = asyncio.get_running_loop().time() - began
            pause = FIRST_PAUSE if lived >= STEADY_SECONDS else pause
            replaces = "hung" if code == HUNG_EXIT_CODE else "exited"
            name = "worker_hung" if replaces == "hung" else "worker_exited"
            logs.event(name, level="error", worker=number, code=code, restart_in_seconds=pause)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
            pause = min(pause * 2, LONGEST_PAUSE)
        return code

    async def _run_once(self, number: int, replaces: RestartReason | None) -> int:
        ours, theirs = socket.socketpair()
        orders = WorkerOrders(msgspec.structs.replace(self._settings, replaces=replaces), number, theirs.fileno())
        environment = os.environ | {
            ENVIRONMENT: msgspec.json.encode(orders).decode(),
            METRICS_DIR: str(self._metrics),
        }
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *_START,
                env=environment,
                pass_fds=[theirs.fileno()],
                # In its own process group: Ctrl-C reaches the supervisor, which forwards it once.
                process_group=0,
            )
        finally:
            theirs.close()
        self._running[number] = process
        if self._stopping.is_set():  # the signal came while the worker was starting
            process.terminate()
        listening = asyncio.create_task(self._listen(ours, number))
        try:
            return await process.wait()
        finally:
            listening.cancel()
            ours.close()
            del self._running[number]
            self._forget(process.pid)

    async def _listen(self, ours: socket.socket, number: int) -> None:
        ours.setblocking(False)
        if await asyncio.get_running_loop().sock_recv(ours, 64) == READY:
            self._serving[number].set()
            logs.event("worker_ready", level="debug", worker=number)

    def _forget(self, pid: int) -> None:
        """Drop a dead worker's gauges; its counters still count."""
        for file in self._metrics.glob(f"gauge_live*_{pid}.db"):
            file.unlink(missing_ok=True)

    async def _announce(self) -> None:
        for serving in self._serving.values():
            await serving.wait()
        host, port = reachable(self._reserved[0])
        await until_it_answers(host, port)
        self._ready(port)
