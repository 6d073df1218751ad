"""1,000 streams at once through the gateway: errors, what is lost, and memory for each: `make bench-load`."""

from __future__ import annotations

import argparse
import resource
import threading
import time

from bench.gateway.client import body_of, run_streams
from bench.gateway.processes import gateway, host

CHAT = "/v1/chat/completions"


def _delay(upstream: int, port: int, streams: int) -> None:
    """How long chunks take from the host to the client, without the gateway and through it."""
    body = body_of("kimi-k2.5+stamps", stream=True)
    spent: list[tuple[float, float]] = []
    for name, at in (("alone", upstream), ("gateway", port)):
        result = run_streams(at, CHAT, body, streams, spread=8.0)
        if result.whole != result.streams:
            raise SystemExit(f"{result.streams - result.whole} of {result.streams} streams were lost")
        half, late = (result.delays[int(len(result.delays) * share)] * 1e3 for share in (0.5, 0.99))
        spent.append((half, late))
        print(f"  {name:8} median {half:.2f} ms, p99 {late:.2f} ms, {len(result.delays):,} chunks")
    print(f"  added    median {spent[1][0] - spent[0][0]:.2f} ms, p99 {spent[1][1] - spent[0][1]:.2f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description="Many streams at once.")
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--gap-ms", type=float, default=200.0)
    parser.add_argument("--chunks", type=int, default=100)
    parser.add_argument("--model", default="kimi-k2.5+markers", help="what the host sends; kimi-k2.5: plain text")
    parser.add_argument("--delay", action="store_true", help="measure how much later chunks arrive than without us")
    given = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 8192), hard), hard))
    rate = given.streams * 1000 / given.gap_ms
    print(f"{given.streams} streams at once, {rate:,.0f} chunks a second in all, {given.chunks} chunks each")
    with host(chunks=given.chunks, gap_ms=given.gap_ms) as upstream, gateway(upstream) as served:
        if given.delay:
            _delay(upstream, served.port, given.streams)
            return
        run_streams(served.port, CHAT, body_of("kimi-k2.5", stream=True), 4, spread=0)
        idle, cpu, begun = served.resident(), served.cpu(), time.monotonic()
        most, over = idle, threading.Event()

        def watch() -> None:
            nonlocal most
            while not over.wait(0.2):
                most = max(most, served.resident())

        watching = threading.Thread(target=watch)
        watching.start()
        body = body_of(given.model, stream=True, tools=given.model.endswith("+markers"))
        result = run_streams(served.port, CHAT, body, given.streams, spread=8.0)
        over.set()
        watching.join()
        took = time.monotonic() - begun
        print(f"  whole {result.whole} of {result.streams}")
        print(
            f"  memory {idle / 1e6:.0f} MB idle, {most / 1e6:.0f} MB at most: "
            f"{(most - idle) / given.streams / 1e3:.0f} KB a stream"
        )
        print(f"  CPU {(served.cpu() - cpu) / took:.0%} of one core over {took:.0f} s")
        late = result.first_bytes[int(len(result.first_bytes) * 0.99)] if result.first_bytes else float("nan")
        print(f"  first token: 99 % within {late * 1e3:.0f} ms")
    if result.whole != result.streams:
        raise SystemExit("streams were lost")


if __name__ == "__main__":
    main()
