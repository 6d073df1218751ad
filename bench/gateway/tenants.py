"""One tenant attacks the gateway within its limits while another sends small requests: `make bench-tenants`.

For each attack, measure the latency of the second tenant's requests without and during the attack, and the memory of
the gateway. The attacker and its host represent other machines, so they only get idle CPU time. Finally, measure how
much memory a single large body takes.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.synchronize import Event
from typing import Any, Final

from bench.gateway.processes import Served, gateway
from bench.gateway.programs import host, yield_cpu
from moonshim.gateway.inbound.auth import new_key

CHAT: Final = "/v1/chat/completions"
RESPONSES: Final = "/v1/responses"
MODEL: Final = "kimi-k2.5"
MIB: Final = 1024 * 1024
CONNECTIONS: Final = 8
SMALL: Final = json.dumps({"model": "kimi-k2.6", "messages": [{"role": "user", "content": "hi"}]}).encode()

_HOST: Final = """
[[providers]]
name = "victim"
api_base_url = "http://127.0.0.1:{port}/v1"
api_key = "none"
host = "vllm"
models = ["kimi-k2.6"]
"""
_KEYS: Final = """
[[keys]]
name = "attacker-one-a-minute"
digest = "{slow}"
requests_per_minute = 1

[[keys]]
name = "attacker"
digest = "{fast}"
concurrent_streams = 8

[[keys]]
name = "victim"
digest = "{victim}"
"""


def _messages(size: int, each: int) -> list[dict[str, str]]:
    message = {"role": "user", "content": "x" * each}
    return [message] * (size // (len(json.dumps(message)) + 2))


def _small_messages(previous: str | None) -> bytes:
    return json.dumps({"model": MODEL, "messages": _messages(57 * MIB, 1)}).encode()


def _ordinary(previous: str | None) -> bytes:
    return json.dumps({"model": MODEL, "messages": _messages(10 * MIB, 2000)}).encode()


def _continued(previous: str | None) -> bytes:
    return json.dumps({"model": MODEL, "input": "go on", "previous_response_id": previous}).encode()


ATTACKS: Final[dict[str, tuple[str, str, Callable[[str | None], bytes]]]] = {
    "refused: 57 MiB bodies, one request per minute": ("slow", CHAT, _small_messages),
    "refused: 10 MiB stored, one request per minute": ("slow", RESPONSES, _continued),
    "57 MiB bodies of small messages": ("fast", CHAT, _small_messages),
    "10 MiB bodies of ordinary messages": ("fast", CHAT, _ordinary),
    "10 MiB stored, continued with 109 bytes": ("fast", RESPONSES, _continued),
}


def _post(connection: http.client.HTTPConnection, key: str, path: str, body: bytes) -> tuple[int, bytes]:
    connection.request("POST", path, body, {"x-api-key": key, "content-type": "application/json"})
    answer = connection.getresponse()
    return answer.status, answer.read()


def _attack(port: int, key: str, path: str, body: bytes, over: Event, seen: Any) -> None:
    yield_cpu()
    statuses: Counter[str] = Counter()

    def repeat() -> None:
        while not over.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            try:
                statuses[str(_post(connection, key, path, body)[0])] += 1
            except OSError:
                statuses["cut off"] += 1  # refused while it was still sending
            finally:
                connection.close()

    threads = [threading.Thread(target=repeat, daemon=True) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen.put(dict(statuses))


def _latencies(port: int, key: str, seconds: float) -> list[float]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    took: list[float] = []
    ends = time.monotonic() + seconds
    while (begun := time.monotonic()) < ends:
        status, _ = _post(connection, key, CHAT, SMALL)
        if status != 200:
            raise SystemExit(f"the other tenant got status {status}")
        took.append(time.monotonic() - begun)
        time.sleep(0.01)
    connection.close()
    return sorted(took)


def _percentile(took: list[float], share: float) -> float:
    return took[min(len(took) - 1, int(len(took) * share))] * 1e3


def _stored(port: int, key: str) -> str:
    """Store a response with 10 MiB of small messages, as many as the gateway accepts; its id."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    items = _messages(10 * MIB, 200)
    _, answer = _post(connection, key, RESPONSES, json.dumps({"model": MODEL, "input": items}).encode())
    id: str = json.loads(answer)["id"]
    return id


def _measure(name: str, served: Served, keys: dict[str, str], previous: dict[str, str], seconds: float) -> float:
    who, path, make = ATTACKS[name]
    alone = _latencies(served.port, keys["victim"], seconds)
    over, seen = multiprocessing.Event(), multiprocessing.Queue()  # type: ignore[var-annotated]
    given = (served.port, keys[who], path, make(previous.get(who)), over, seen)
    attacker = multiprocessing.Process(target=_attack, args=given, daemon=True)
    attacker.start()
    time.sleep(1.0)
    attacked = _latencies(served.port, keys["victim"], 2 * seconds)
    over.set()
    statuses = seen.get(timeout=120)
    attacker.join()
    ratio = _percentile(attacked, 0.99) / _percentile(alone, 0.99)
    print(
        f"| {name} | {_percentile(alone, 0.5):.1f} / {_percentile(alone, 0.99):.1f} "
        f"| {_percentile(attacked, 0.5):.1f} / {_percentile(attacked, 0.99):.1f} | {ratio:.1f} "
        f"| {served.resident() / 1e6:.0f} | {', '.join(f'{count} x {what}' for what, count in statuses.items())} |",
        flush=True,
    )
    return ratio


def _tiny(previous: str | None) -> bytes:
    """About as many values as a body may have."""
    return json.dumps({"model": MODEL, "messages": _messages(60_000 * 158, 120)}).encode()


BODIES: Final[dict[str, Callable[[str | None], bytes]]] = {
    "57 MiB of small messages": _small_messages,
    "10 MiB of 60,000 messages": _tiny,
    "10 MiB of ordinary messages": _ordinary,
    "57 MiB of ordinary messages": lambda _: json.dumps(
        {"model": MODEL, "messages": _messages(57 * MIB, 2000)}
    ).encode(),
}


def _measure_memory() -> None:
    """Each body gets a separate gateway, because a process rarely returns memory."""
    print("\nPeak memory of one request, by the size of its body:\n")
    print("| body | status | peak memory (MB) | multiple of its size |")
    print("|---|---|---|---|")
    for name, make in BODIES.items():
        body = make(None)
        with host() as upstream, gateway(upstream.port) as served:
            connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=120)
            _post(connection, "", CHAT, SMALL.replace(b"kimi-k2.6", MODEL.encode()))
            before = served.resident()
            status, _ = _post(connection, "", CHAT, body)
            grown = served.peak() - before
        print(f"| {name} | {status} | {grown / 1e6:.0f} | {grown / len(body):.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of each measurement (default: 5)")
    given = parser.parse_args()
    made = {who: new_key() for who in ("slow", "fast", "victim")}
    keys = {who: key for who, (key, _) in made.items()}
    extra = _KEYS.format(**{who: digest for who, (_, digest) in made.items()})
    with (
        host(yields=True) as upstream,
        host() as victims,
        gateway(upstream.port, extra=_HOST.format(port=victims.port) + extra) as served,
    ):
        previous = {who: _stored(served.port, keys[who]) for who in ("slow", "fast")}
        print("Latency of small requests in ms (p50 / p99), without and during an attack by another tenant:\n")
        print("| attack | without | during | p99 ratio | memory (MB) | responses to the attacker |")
        print("|---|---|---|---|---|---|")
        for name in ATTACKS:
            _measure(name, served, keys, previous, given.seconds)
    _measure_memory()


if __name__ == "__main__":
    main()
