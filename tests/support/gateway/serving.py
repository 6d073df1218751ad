"""`server.run` and `workers.supervise` in their own process, with a service that a test names."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any, Final

import msgspec

from moonshim.gateway.process.settings import ServeSettings
from tests.support.command import ROOT, environment

DEADLINE: Final = 120.0
_PROGRAM: Final = """
import os
import sys
os.environ["WATCHDOG_PID"] = str(os.getpid())  # as systemd does
import msgspec
from moonshim.errors import MoonshimError
from moonshim.gateway.observe import logs
from moonshim.gateway.process.settings import ServeSettings, service_opener
from moonshim.http_server.sockets import bind

settings = msgspec.json.decode(sys.argv[1], type=ServeSettings)
logs.configure(settings.log_level)
try:
    if settings.workers > 1:
        from moonshim.gateway.process.workers import supervise
        code = supervise(settings, lambda port: print(port, flush=True))
    else:
        from moonshim.http_server.server import run
        sockets = bind(settings.host, settings.port)
        ready = lambda: print(sockets[0].getsockname()[1], flush=True)
        code = run(service_opener(settings), sockets, graceful_seconds=settings.graceful_seconds, ready=ready)
except MoonshimError as error:
    print(error, file=sys.stderr)
    code = 1
finally:
    logs.close()
sys.exit(code)
"""


def wait_until(condition: Callable[[], Any], what: str, seconds: float = DEADLINE) -> Any:
    """The condition's result, as soon as it is true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited {seconds} s: {what}")


def first_line(process: subprocess.Popen[bytes]) -> str:
    """Its first line on standard output; empty if it ended, or took too long."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], DEADLINE)
    return process.stdout.readline().decode() if ready else ""


class Serving:
    """A process that serves, and its output."""

    def __init__(self, process: subprocess.Popen[bytes], errors: Path) -> None:
        self.process, self._errors = process, errors
        self.port = 0

    @property
    def stderr(self) -> str:
        return self._errors.read_text(errors="replace")

    def wait_for_port(self) -> None:
        line = first_line(self.process)
        assert line, f"it was not ready: {self.stderr}"
        self.port = int(line)

    def get(self, path: str) -> tuple[int, str]:
        """On its own connection, so that any worker may take it."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def send(self, path: str) -> HTTPConnection:
        """Send a request, and do not wait for the response."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        connection.request("GET", path)
        return connection

    def open_stream(self) -> tuple[HTTPConnection, HTTPResponse]:
        """A stream that has started."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        connection.request("GET", "/stream")
        response = connection.getresponse()
        assert response.read(6) == b"begun "
        return connection, response

    def is_listening(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        return self.process.wait(DEADLINE)


@contextmanager
def serving(
    settings: ServeSettings, folder: Path, *, ready: bool = True, environ: Mapping[str, str] | None = None
) -> Iterator[Serving]:
    """Start it, and end it whatever happens. `environ`: further variables."""
    errors = folder / "stderr"
    path = os.pathsep.join([str(ROOT), environment()["PYTHONPATH"]])
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, msgspec.json.encode(settings).decode()],
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=environment(PYTHONPATH=path, **(environ or {})),
        )
    running = Serving(process, errors)
    try:
        if ready:
            running.wait_for_port()
        yield running
    finally:
        if process.poll() is None:
            process.terminate()
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
        if process.stdout is not None:
            process.stdout.close()
