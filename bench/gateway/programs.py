"""Compile the host and the load generator of `wire/` with the C compiler of this machine, and run the host."""

from __future__ import annotations

import atexit
import functools
import http.client
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from bench.gateway.processes import first_line, running

__all__ = ["CannotCompile", "Host", "HostStats", "Percentiles", "host", "load_program", "yield_cpu"]

SOURCES: Final = Path(__file__).with_name("wire")


class CannotCompile(Exception):
    """The programs need Linux and a C compiler; the message says what is missing."""


class Percentiles(Struct, frozen=True):
    """The distribution of one figure over a run."""

    p50: float
    p99: float
    max: float


class HostStats(Struct, frozen=True):
    """What the host did since the last question."""

    streams: int
    requests: int
    chunks: int
    shared_wakeups: int
    """Chunks that left together with another one, so that a proxy could read both at once."""
    cpu_s: float
    late_ms: Percentiles | None
    """How long after its time a chunk was sent."""


class Host:
    """A running host. `port` is the one of its own listener, whatever stands in front of it."""

    def __init__(self, port: int, pid: int, *, realtime: bool) -> None:
        self.port, self.pid, self.realtime = port, pid, realtime

    def stats(self) -> HostStats:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request("GET", "/stats")
        stats = msgspec.json.decode(connection.getresponse().read(), type=HostStats)
        connection.close()
        return stats


@functools.cache
def _compiled(name: str) -> Path:
    """One program, compiled once in each process that needs it; the file is removed when the process ends."""
    if sys.platform != "linux":
        raise CannotCompile("the host and the load generator need Linux (epoll, timerfd)")
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise CannotCompile("no C compiler found; install one (on Debian: apt-get install gcc libc6-dev)")
    program = _folder() / name
    command = [compiler, "-O2", "-Wall", "-Wextra", "-o", str(program), str(SOURCES / f"{name}.c")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotCompile(f"{compiler} failed on {name}.c:\n{done.stderr}")
    return program


@functools.cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="moonshim-bench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def load_program() -> Path:
    return _compiled("load")


@contextmanager
def host(*, yields: bool = False) -> Iterator[Host]:
    """With `yields`, it runs only when no other process needs the CPU."""
    with running([str(_compiled("host"))], stdout=subprocess.PIPE) as process:
        port, priority = first_line(process).split()
        if yields:
            yield_cpu(process.pid)
        yield Host(int(port), process.pid, realtime=priority == "realtime")


def yield_cpu(pid: int = 0) -> None:
    """Stand-ins for other machines must not take CPU time from what is measured."""
    os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
