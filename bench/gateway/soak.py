"""Send many consecutive requests through the gateway, and watch its memory: `make bench-soak`."""

from __future__ import annotations

import argparse
import time

from bench.gateway.processes import gateway
from bench.gateway.programs import host
from bench.gateway.traffic import Request, send

_PARTS = 20
_FLAT = 1.10
"""Maximum ratio of the memory in the last tenth to that in the first tenth after the warm-up."""


def _send(port: int, request: Request, total: int, concurrent: int) -> None:
    result = send(port, request, total, concurrent, timeout=3600)
    if result.complete != total:
        raise SystemExit(f"{total - result.complete} of {total} requests failed: {result.sample}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Check that the memory of the gateway stays flat over many requests.")
    parser.add_argument("--requests", type=int, default=200_000, help="number of requests (default: 200,000)")
    given = parser.parse_args()
    share = given.requests // _PARTS
    begun, seen = time.monotonic(), list[int]()
    with host() as upstream, gateway(upstream.port) as served:
        for part in range(_PARTS):
            # One of fifty streams, through markers and a translation: that is where state is held.
            streams = share // 50
            for request in (
                Request(chunks=14, gap_us=1000, kind="markers", tools=True),
                Request(chunks=14, gap_us=1000, dialect="messages"),
            ):
                _send(served.port, request, streams // 2, 50)
            _send(served.port, Request(stream=False), share - streams, 8)
            seen.append(served.resident())
            print(
                f"  {(part + 1) * share:>8,} requests  {seen[-1] / 1e6:6.1f} MB  {time.monotonic() - begun:5.0f} s",
                flush=True,
            )
    before, after = sum(seen[1:3]) / 2, sum(seen[-2:]) / 2
    print(f"  memory in the last tenth: {after / before:.3f} times that of the second tenth (target: at most {_FLAT})")
    if after > before * _FLAT:
        raise SystemExit("memory is growing")


if __name__ == "__main__":
    main()
