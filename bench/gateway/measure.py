"""Runs of one workload through several servers in turn: a workload and servers -> what each run cost."""

from __future__ import annotations

import math
import os
import resource
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from bench.gateway.cases import Workload
from bench.gateway.processes import Served
from bench.gateway.programs import Host, HostStats
from bench.gateway.traffic import MODEL, Request, Result, send

__all__ = ["Run", "Target", "busy_cores", "check", "measure"]

_SETTLE: Final = 0.25
"""Seconds after which a server has also written its logs and books."""
_LONG: Final = 10.0
"""Seconds after which two rounds have to do."""


class Target(Struct, frozen=True, kw_only=True):
    """A server under test, or the host itself, which has no process to measure."""

    name: str
    port: int
    served: Served | None
    relays: bool = False
    """It passes bytes on, so a Messages client is measured as a Chat client with the same chunks."""
    mends: bool = False
    """It must not leak markers."""
    model: str = MODEL
    """How its clients name the model."""
    headers: Mapping[str, str] = {}

    def request(self, request: Request) -> Request:
        if self.relays:
            return msgspec.structs.replace(request, dialect="chat")
        return msgspec.structs.replace(request, model=self.model) if request.model == MODEL else request


class Run(Struct, frozen=True, kw_only=True):
    """One run."""

    cost: float
    """CPU of the server, in the unit of its workload."""
    cpu_s: float
    cores: float
    """CPU time by elapsed time."""
    result: Result
    host: HostStats
    other_cores: float
    """What everything else on the machine used meanwhile, in cores."""
    memory_per_stream: float | None = None
    """Bytes of resident memory for each open stream."""
    problem: str | None = None
    """Why the run does not count."""
    kept_up: bool = True
    """False: chunks waited for the server, which then read several at once, so that it had fewer wake-ups."""


class _MemoryWatch(threading.Thread):
    """Samples the memory of a server until it is stopped."""

    def __init__(self, served: Served) -> None:
        super().__init__(daemon=True)
        self._served, self._over, self.peak = served, threading.Event(), 0

    def run(self) -> None:
        while not self._over.wait(0.2):
            self.peak = max(self.peak, self._served.resident())

    def stop(self) -> int:
        self._over.set()
        self.join()
        return self.peak


def check(target: Target, request: Request) -> str | None:
    """Why a server cannot take part with this kind of request, or None."""
    small = msgspec.structs.replace(target.request(request), chunks=20, gap_us=1000, slots=2, padding=0)
    result = send(target.port, small, 2, 2, headers=target.headers, timeout=120)
    return None if result.complete == 2 else result.sample


def measure(workload: Workload, targets: Sequence[Target], host: Host, rounds: int) -> dict[str, list[Run]]:
    """The servers take turns, so that a change of the machine affects all of them. The first round warms up."""
    runs: dict[str, list[Run]] = {target.name: [] for target in targets}
    idle = {target.name: target.served.resident() if target.served else 0 for target in targets}
    left = {target.name: min(rounds, workload.rounds or rounds) for target in targets}
    for number in range(rounds + 1):
        for target in targets:
            if number == 0 and workload.memory:
                continue  # a warm-up would leave memory behind that the streams could use
            if number == 0:
                begun = time.monotonic()
                _send(workload, target, max(1, workload.total // 4))
                estimate = (time.monotonic() - begun) * 4
                if workload.concurrent == 1 and estimate > _LONG:
                    left[target.name] = min(left[target.name], 2)
            elif number <= left[target.name]:
                run = _run(workload, target, host, idle[target.name])
                runs[target.name].append(run)
                if run.result.wall_s > _LONG:
                    left[target.name] = min(left[target.name], 2)
    return runs


def _send(workload: Workload, target: Target, total: int) -> Result:
    return send(
        target.port,
        target.request(workload.request),
        total,
        min(total, workload.concurrent),
        spread_us=workload.spread_us,
        headers=target.headers,
    )


def _run(workload: Workload, target: Target, host: Host, idle: int) -> Run:
    served = target.served
    host.stats()
    watch = _MemoryWatch(served) if served and workload.memory else None
    if watch:
        watch.start()
    cpu, own, busy, begun = served.cpu() if served else 0.0, _own_cpu(), _busy_seconds(), time.monotonic()
    result = _send(workload, target, workload.total)
    time.sleep(_SETTLE)
    cpu = (served.cpu() if served else 0.0) - cpu
    took, busy = time.monotonic() - begun, _busy_seconds() - busy
    peak = watch.stop() if watch else 0
    stats = host.stats()
    others = busy - cpu - stats.cpu_s - (_own_cpu() - own)
    return Run(
        cost=workload.cost(cpu, workload.total),
        cpu_s=cpu,
        cores=cpu / result.wall_s,
        result=result,
        host=stats,
        other_cores=max(0.0, others / took),
        memory_per_stream=max(0, peak - idle) / max(1, result.peak_open) if watch else None,
        problem=_problem(target, result),
        kept_up=_kept_up(workload, result),
    )


def _problem(target: Target, result: Result) -> str | None:
    if result.complete != result.requests:
        return f"{result.requests - result.complete} of {result.requests} failed: {result.sample}"
    if target.mends and result.leaked:
        return f"{result.leaked} chunks with raw markers"
    return None


def _kept_up(workload: Workload, result: Result) -> bool:
    return not workload.is_paced or result.delay_ms is None or result.delay_ms.p50 < workload.request.gap_us / 1e3


def _own_cpu() -> float:
    """Of this process and of the load generators that it ran."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in usages)


def _busy_seconds() -> float:
    """CPU time of the whole machine that was not idle."""
    fields = [int(one) for one in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return (sum(fields) - idle) / os.sysconf("SC_CLK_TCK")


def busy_cores(seconds: float = 1.0) -> float:
    """How many cores are busy while nothing is measured."""
    before = _busy_seconds()
    time.sleep(seconds)
    return math.fabs(_busy_seconds() - before) / seconds
