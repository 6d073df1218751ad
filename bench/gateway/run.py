"""Compare the gateway with nginx as a plain relay and with other gateways: `make bench-gateway`.

The host and the load generator are C programs, compiled when the benchmark starts. Every chunk leaves the host at its
own time and wakes the proxy up. docs/operations/performance.md explains how to read the result.
"""

from __future__ import annotations

import argparse
import datetime
import math
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from bench.gateway.cases import WORKLOADS, Workload
from bench.gateway.chart import draw
from bench.gateway.measure import Run, Target, busy_cores, check, measure
from bench.gateway.peers import PEERS, Peer
from bench.gateway.processes import CannotStart, Served, Tls, find_nginx, gateway, nginx, tls_terminator
from bench.gateway.programs import CannotCompile, Host, host
from bench.gateway.report import LATE_MS, Report, WorkloadReport, machine, summarise, tables
from bench.gateway.traffic import MODEL
from scripts.environment import ROOT

__all__ = ["benchmark", "main"]

DIRECT: Final = "direct"
_EVERY_DIALECT: Final = frozenset({"chat", "messages"})
_WITH_TLS: Final = frozenset({"text", "first-token", "request-1"})
_PACED: Final = frozenset({"text", "tools", "markers", "messages"})
_BUSY: Final = 0.1
"""Cores in use by others above which the figures are not to be trusted."""


class Contender(Struct, frozen=True, kw_only=True):
    """A server that takes part: how it starts, and what it can do."""

    name: str
    start: Callable[[Host], AbstractContextManager[Served]]
    version: Callable[[], str]
    dialects: frozenset[str] = _EVERY_DIALECT
    relays: bool = False
    mends: bool = False
    model: str = MODEL
    renames: bool = False
    headers: Callable[[int], dict[str, str]] = lambda _: {}
    workloads: frozenset[str] | None = None
    """The only ones that it takes part in."""

    def can(self, workload: Workload) -> bool:
        if self.workloads is not None and workload.name not in self.workloads:
            return False
        if workload.request.model != MODEL and not (self.renames or self.relays):
            return False
        return self.relays or workload.request.dialect in self.dialects


def _nginx_version() -> str:
    done = subprocess.run([find_nginx(), "-v"], capture_output=True, text=True, check=False)
    found = re.search(r"nginx/(\S+)", done.stderr)
    return found[1] if found else "?"


def _moonshim_version() -> str:
    return version("moonshim")


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"]
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def _contender(peer: Peer) -> Contender:
    return Contender(
        name=peer.name,
        start=lambda upstream: peer.start(peer.install()[0], upstream.port),
        version=lambda: peer.install()[1],
        dialects=peer.dialects,
        model=peer.model,
        headers=peer.headers,
    )


def _contenders(tls: Tls | None) -> list[Contender]:
    found = [
        Contender(name="nginx", start=lambda up: nginx(up.port), version=_nginx_version, relays=True),
        # What a second worker costs without any gateway: each process has fewer, and so colder, wake-ups.
        Contender(
            name="nginx, 2 workers",
            start=lambda up: nginx(up.port, workers=2),
            version=_nginx_version,
            relays=True,
            workloads=_PACED,
        ),
        Contender(
            name="moonshim", start=lambda up: gateway(up.port), version=_moonshim_version, mends=True, renames=True
        ),
        Contender(
            name="moonshim, 2 workers",
            start=lambda up: gateway(up.port, workers=2),
            version=_moonshim_version,
            mends=True,
            renames=True,
        ),
        *map(_contender, PEERS),
    ]
    if tls:
        found += [
            Contender(
                name="nginx, TLS to the host",
                start=lambda up: nginx(up.port, tls=tls),
                version=_nginx_version,
                relays=True,
                workloads=_WITH_TLS,
            ),
            Contender(
                name="moonshim, TLS to the host",
                start=lambda up: gateway(up.port, tls=tls),
                version=_moonshim_version,
                mends=True,
                workloads=_WITH_TLS,
            ),
        ]
    return found


def benchmark(
    workloads: Sequence[Workload], rounds: int, wanted: Callable[[str], bool], say: Callable[[str], None]
) -> Report:
    """Start everything, measure each workload in turn, and stop everything."""
    report = Report(
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        commit=_commit(),
        machine=machine(),
        versions={},
        missing={},
        warnings=[],
        instruments={},
        idle_memory_mb={},
        workloads={},
    )
    busy = busy_cores()
    if busy > _BUSY:
        report.warnings.append(f"the machine was not idle before the start: {busy:.1f} cores were busy")
        say(f"WARNING: {report.warnings[-1]}")
    with ExitStack() as stack:
        upstream = stack.enter_context(host())
        if not upstream.realtime:
            report.warnings.append(
                "the host runs without real-time priority (root has it), so its pacing is less exact"
            )
        running = _start(stack, upstream, report, wanted, say)
        time.sleep(1.0)
        for name, (target, _) in running.items():
            if target.served:
                report.idle_memory_mb[name] = target.served.resident() / 1e6
        _warm_up(running, workloads, report, say)
        runs: dict[str, dict[str, list[Run]]] = {}
        for workload in workloads:
            chosen = [target for target, contender in running.values() if contender is None or contender.can(workload)]
            say(f"{workload.title}: {', '.join(target.name for target in chosen)}")
            runs[workload.name] = measure(workload, chosen, upstream, rounds)
            report.workloads[workload.name] = summarise(workload, runs[workload.name])
            _print_costs(report.workloads[workload.name], say)
    _judge(report, runs)
    return report


def _start(
    stack: ExitStack, upstream: Host, report: Report, wanted: Callable[[str], bool], say: Callable[[str], None]
) -> dict[str, tuple[Target, Contender | None]]:
    tls = None
    if wanted("TLS"):
        try:
            tls = stack.enter_context(tls_terminator(upstream.port))
        except CannotStart as error:
            report.missing["TLS to the host"] = str(error)
    direct = Target(name=DIRECT, port=upstream.port, served=None, relays=True)
    running: dict[str, tuple[Target, Contender | None]] = {DIRECT: (direct, None)}
    for contender in _contenders(tls):
        if not wanted(contender.name):
            continue
        say(f"starting {contender.name}")
        try:
            served = stack.enter_context(contender.start(upstream))
            report.versions[contender.name] = contender.version()
        except CannotStart as error:
            say(f"  NOT MEASURED: {error}")
            report.missing[contender.name] = str(error)
            continue
        target = Target(
            name=contender.name,
            port=served.port,
            served=served,
            relays=contender.relays,
            mends=contender.mends,
            model=contender.model,
            headers=contender.headers(upstream.port),
        )
        running[contender.name] = (target, contender)
    return running


def _warm_up(
    running: dict[str, tuple[Target, Contender | None]],
    workloads: Sequence[Workload],
    report: Report,
    say: Callable[[str], None],
) -> None:
    """Try each server with each kind of request, and take out what does not work."""
    for name, (target, contender) in list(running.items()):
        if contender is None:
            continue
        for workload in workloads:
            if not contender.can(workload):
                continue
            if problem := check(target, workload.request):
                say(f"  NOT MEASURED: {name}, {workload.name}: {problem}")
                report.missing[f"{name}, {workload.name}"] = problem
                left = frozenset(one.name for one in workloads if contender.can(one)) - {workload.name}
                contender = msgspec.structs.replace(contender, workloads=left)
        running[name] = (target, contender)


def _print_costs(workload: WorkloadReport, say: Callable[[str], None]) -> None:
    for name, row in workload.rows.items():
        if row.cost:
            times = f", {row.times_nginx.median:.2f} times nginx" if row.times_nginx else ""
            problem = f"  INVALID: {row.problem}" if row.problem else ""
            say(f"  {name:28} {row.cost.median:8.3f} {workload.unit}{times}{problem}")


def _judge(report: Report, runs: Mapping[str, Mapping[str, list[Run]]]) -> None:
    """The cost and the pacing of host and load generator, and how idle the machine was."""
    every = [run for each in runs.values() for some in each.values() for run in some]
    direct = [run for each in runs.values() for run in each.get(DIRECT, []) if run.host.late_ms]
    chunks = sum(run.host.chunks for run in direct)
    if direct:
        report.instruments |= {
            "host, CPU s per 10,000 paced chunks": sum(run.host.cpu_s for run in direct) / chunks * 1e4,
            "load generator, CPU s per 10,000 paced chunks": sum(run.result.cpu_s for run in direct) / chunks * 1e4,
        }
    paced = [run for run in every if run.host.late_ms]
    lates = [run.host.late_ms for run in paced if run.host.late_ms]
    if lates:
        report.instruments |= {
            "pacing error, ms, median of a run": sorted(one.p50 for one in lates)[len(lates) // 2],
            "pacing error, ms, p99 of the worst run": max(one.p99 for one in lates),
            "chunks that left together with another, of 10,000": sum(run.host.shared_wakeups for run in paced)
            / sum(run.host.chunks for run in paced)
            * 1e4,
        }
        if max(one.p99 for one in lates) > LATE_MS:
            report.warnings.append(f"in some runs more than 1 % of the chunks left over {LATE_MS} ms late")
    others = max((run.other_cores for run in every), default=0.0)
    report.instruments["cores in use by other processes, worst run"] = others
    if others > _BUSY:
        report.warnings.append(f"other processes used up to {others:.1f} cores: the figures are not to be trusted")
    for name, each in report.workloads.items():
        report.warnings += [f"{name}, {who}: invalid, {row.problem}" for who, row in each.rows.items() if row.problem]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make bench-gateway",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Compare the CPU time, latency and memory of the gateway with nginx\nand with other gateways.",
        epilog="workloads:\n" + "\n".join(f"  {one.name:18}{one.title}" for one in WORKLOADS),
    )
    parser.add_argument("--only", metavar="NAMES", help="run only these workloads, separated by commas")
    parser.add_argument(
        "--servers",
        metavar="NAMES",
        help='measure only servers whose names contain one of these; "nginx" is\nneeded for ratios (default: all)',
    )
    parser.add_argument("--rounds", type=int, default=5, help="runs per server and workload (default: 5)")
    parser.add_argument("--quick", action="store_true", help="one round with a tenth of the requests, to try it out")
    parser.add_argument(
        "--output", type=Path, default=Path("build/bench"), help="folder for the files (default: build/bench)"
    )
    return parser


def _quick(workload: Workload) -> Workload:
    total = max(1, workload.total // 10)
    return msgspec.structs.replace(workload, total=total, concurrent=min(total, workload.concurrent))


def main() -> int:
    parser = _parser()
    given = parser.parse_args()
    names = given.only.split(",") if given.only else [one.name for one in WORKLOADS]
    if unknown := set(names) - {one.name for one in WORKLOADS}:
        parser.error(f"unknown workload: {', '.join(sorted(unknown))}")
    workloads = [_quick(one) if given.quick else one for one in WORKLOADS if one.name in names]
    parts = given.servers.lower().split(",") if given.servers else [""]

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    begun = time.monotonic()
    try:
        report = benchmark(
            workloads,
            1 if given.quick else given.rounds,
            lambda name: any(part in name.lower() for part in parts),
            say,
        )
    except (CannotCompile, CannotStart) as error:
        print(f"bench-gateway: {error}", file=sys.stderr)
        return 1
    given.output.mkdir(parents=True, exist_ok=True)
    text = tables(report)
    (given.output / "gateway.md").write_text(text)
    (given.output / "gateway.json").write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))
    (given.output / "gateway.svg").write_text(draw(report))
    print(text)
    say(f"({math.ceil(time.monotonic() - begun)} s; gateway.md, gateway.json and gateway.svg are in {given.output})")
    return 1 if any(not row.is_valid for each in report.workloads.values() for row in each.rows.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
