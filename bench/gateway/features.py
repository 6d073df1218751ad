"""Measure what single features of the gateway cost: usage books and the inspector: `make bench-features`.

With and without a feature take turns, so that all else is the same for both.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import time
from typing import Final

from bench.gateway.processes import Served, gateway
from bench.gateway.programs import Host, host
from bench.gateway.traffic import Request, send

STREAMS: Final = 50
_NO_INSPECTOR: Final = "\n[gateway]\ninspector = false\n"


def _cpu_ms(served: Served, request: Request, count: int, concurrent: int) -> float:
    """CPU time of the gateway per request, until its last batch of records is written."""
    before = served.cpu()
    result = send(served.port, request, count, concurrent)
    if result.complete != count:
        raise SystemExit(f"{count - result.complete} of {count} requests failed: {result.sample}")
    time.sleep(0.3)
    return (served.cpu() - before) / count * 1e3


def books(upstream: Host, rounds: int) -> None:
    """Rounds with and without books take turns in one process: two would differ by more than the books cost."""
    print(f"\nCPU time per request with and without usage records, {rounds} rounds each")
    stream, whole = Request(gap_us=1000), Request(stream=False)
    with gateway(upstream.port, module="bench.gateway.toggled_books") as served:
        for name, request, count, concurrent in (
            (f"streams of {stream.chunks} chunks", stream, STREAMS, STREAMS),
            ("non-streaming", whole, 400, 4),
        ):
            costs: dict[bool, list[float]] = {True: [], False: []}
            for number in range(2 * rounds + 2):
                cost = _cpu_ms(served, request, count, concurrent)
                if number > 1:  # the first rounds warm up
                    costs[number % 2 == 0].append(cost)
                os.kill(served.pid, signal.SIGUSR1)
            _compare(name, costs[True], costs[False], "at most 3%")


def inspector(upstream: Host, rounds: int) -> None:
    """What recording costs while no page shows it. Two gateways take turns."""
    print(f"\nCPU time per stream of 200 chunks with and without the inspector, {rounds} rounds of {STREAMS} streams")
    with gateway(upstream.port) as on, gateway(upstream.port, extra=_NO_INSPECTOR) as off:
        costs: dict[int, list[float]] = {on.port: [], off.port: []}
        for number in range(rounds + 1):
            for served in (on, off):
                cost = _cpu_ms(served, Request(), STREAMS, STREAMS)
                if number:  # the first round warms up
                    costs[served.port].append(cost)
        _compare("inspector", costs[on.port], costs[off.port], "at most 5%")


def _compare(name: str, on: list[float], off: list[float], target: str) -> None:
    shares = [one / other - 1 for one, other in zip(on, off, strict=True)]
    print(
        f"  {name:28} {statistics.median(on):7.3f} ms, without {statistics.median(off):.3f} ms: "
        f"{statistics.median(shares):+.1%} (lowest: {min(on) / min(off) - 1:+.1%}; target: {target})",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-features", description=__doc__)
    parser.add_argument("--rounds", type=int, default=12, help="rounds per feature (default: 12)")
    given = parser.parse_args()
    with host() as upstream:
        books(upstream, given.rounds)
        inspector(upstream, given.rounds)


if __name__ == "__main__":
    main()
