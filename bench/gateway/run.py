"""CPU, latency and memory of the gateway beside nginx as a plain relay, in one run: `make bench-gateway`."""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any, Final

from msgspec import Struct

from bench.gateway.client import body_of, run_streams, run_whole
from bench.gateway.processes import Served, gateway, host, install_nginx, nginx

CHUNKS: Final = 200
CHAT: Final = "/v1/chat/completions"


class Case(Struct, frozen=True):
    """One kind of stream, and how many times nginx it may cost at most."""

    name: str
    path: str
    body: dict[str, Any]
    most: float | None


CASES: Final = (
    Case("nothing to mend", CHAT, body_of("kimi-k2.5", stream=True), 3.5),
    Case("tools declared, nothing to mend", CHAT, body_of("kimi-k2.5", stream=True, tools=True), 3.5),
    Case("a name to rewrite", CHAT, body_of("renamed", stream=True), 4.5),
    Case("markers to mend", CHAT, body_of("kimi-k2.5+markers", stream=True, tools=True), 4.5),
    Case("Chat to Messages", "/v1/messages", body_of("kimi-k2.5", stream=True, dialect="anthropic"), 4.5),
    Case(
        "Chat to Messages, with markers",
        "/v1/messages",
        {
            **body_of("kimi-k2.5+markers", stream=True, dialect="anthropic"),
            "tools": [{"name": "read", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}],
        },
        4.5,
    ),
)


def per_chunk(served: Served, path: str, body: dict[str, Any], streams: int, rounds: int) -> float:
    """CPU of the server for each chunk of the host, in microseconds: the least of several rounds."""
    best = float("inf")
    for _ in range(rounds):
        before = served.cpu()
        result = run_streams(served.port, path, body, streams)
        if result.whole != result.streams:
            raise SystemExit(f"{result.streams - result.whole} of {result.streams} streams broke")
        best = min(best, (served.cpu() - before) / (streams * CHUNKS) * 1e6)
    return best


def streaming(streams: int, rounds: int) -> None:
    print(f"\nCPU of the server's process per chunk, {streams} streams at one chunk every 10 ms")
    with host(chunks=CHUNKS) as upstream:
        with nginx(upstream) as served:
            run_streams(served.port, CHAT, CASES[0].body, 4)
            floor = per_chunk(served, CHAT, CASES[0].body, streams, rounds)
        print(f"  {'nginx, a plain relay':36} {floor:7.1f} us")
        with gateway(upstream) as served:
            print(f"  {'memory of the gateway when idle':36} {served.resident() / 1e6:7.1f} MB   (at most 80)")
            for case in CASES:
                run_streams(served.port, case.path, case.body, 4)
                cost = per_chunk(served, case.path, case.body, streams, rounds)
                target = f"(at most {case.most})" if case.most is not None else ""
                print(f"  {case.name:36} {cost:7.1f} us  {cost / floor:5.2f} x nginx {target}", flush=True)


def whole(count: int) -> None:
    print(f"\nCPU of the server's process per non-streaming request, {count} requests")
    body = body_of("kimi-k2.5", stream=False)
    with host() as upstream:
        for name, make in (("nginx", nginx), ("the gateway", gateway)):
            with make(upstream) as served:
                run_whole(served.port, CHAT, body, 100)
                before = served.cpu()
                result = run_whole(served.port, CHAT, body, count)
                if result.whole != result.streams:
                    raise SystemExit("some requests failed")
                cost = (served.cpu() - before) / result.streams * 1e3
                target = "(at most 0.8)" if name != "nginx" else ""
                print(f"  {name:36} {cost:7.3f} ms {target}", flush=True)


def first_token(count: int) -> None:
    print(f"\nTime to the first token, median of {count} streams one after another")
    body = body_of("kimi-k2.5", stream=True)
    with host(chunks=5, gap_ms=1) as upstream, gateway(upstream) as served:
        times: dict[int, list[float]] = {upstream: [], served.port: []}
        for _ in range(count):
            for port, seen in times.items():
                seen += run_streams(port, CHAT, body, 1, spread=0).first_bytes
        direct, through = (statistics.median(seen) * 1e3 for seen in times.values())
        print(
            f"  straight {direct:.2f} ms, through the gateway {through:.2f} ms: "
            f"{through - direct:.2f} ms added (at most 1)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="What the gateway costs, beside nginx.")
    parser.add_argument("--streams", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=4000)
    given = parser.parse_args()
    install_nginx()
    begun = time.monotonic()
    streaming(given.streams, given.rounds)
    whole(given.requests)
    first_token(200)
    print(f"\n({time.monotonic() - begun:.0f} s)")


if __name__ == "__main__":
    main()
