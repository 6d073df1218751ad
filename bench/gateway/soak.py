"""Many requests one after another through the gateway, and how its memory goes: `make bench-soak`."""

from __future__ import annotations

import argparse
import time

from bench.gateway.client import body_of, run_streams, run_whole
from bench.gateway.processes import gateway, host

CHAT = "/v1/chat/completions"
_PARTS = 20
_FLAT = 1.10
"""How much more memory the last tenth may have than the first tenth behind the warm-up."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Memory over many requests.")
    parser.add_argument("--requests", type=int, default=200_000)
    given = parser.parse_args()
    share = given.requests // _PARTS
    begun, seen = time.monotonic(), list[int]()
    with host(chunks=8, gap_ms=1) as upstream, gateway(upstream) as served:
        for part in range(_PARTS):
            # One of fifty streams, through markers and a translation: that is where state is held.
            streams = share // 50
            for path, body in (
                (CHAT, body_of("kimi-k2.5+markers", stream=True, tools=True)),
                ("/v1/messages", body_of("kimi-k2.5", stream=True, dialect="anthropic")),
            ):
                for _ in range(streams // 2 // 50):
                    result = run_streams(served.port, path, body, 50, spread=0)
                    if result.whole != result.streams:
                        raise SystemExit("a stream was lost")
            result = run_whole(served.port, CHAT, body_of("kimi-k2.5", stream=False), share - streams, connections=8)
            if result.whole != result.streams:
                raise SystemExit("a request failed")
            seen.append(served.resident())
            print(
                f"  {(part + 1) * share:>8,} requests  {seen[-1] / 1e6:6.1f} MB  {time.monotonic() - begun:5.0f} s",
                flush=True,
            )
    before, after = sum(seen[1:3]) / 2, sum(seen[-2:]) / 2
    print(f"  the last tenth has {after / before:.3f} times the memory of the second (flat: at most {_FLAT})")
    if after > before * _FLAT:
        raise SystemExit("memory grows")


if __name__ == "__main__":
    main()
